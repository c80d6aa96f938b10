//! Clients of the daemon: `set`, `status`, `why`.

use serde_json::Value;
use thermo_agent::lifecycle::State;
use thermo_agent::lifecycle::client::Client;
use thermo_agent::lifecycle::wire::Request;
use thermo_term::exit::Exit;
use thermo_term::output;
use thermo_units::printable;

use super::{Common, default_socket, text};
use crate::args::candidates;

/// `set APP STATE`.
#[derive(Debug, clap::Args)]
pub struct Set {
    /// Name of the application in the description
    #[arg(add = candidates::apps())]
    app: String,

    /// New state: foreground, perceptible, background or cached
    #[arg(add = candidates::states())]
    state: State,

    #[command(flatten)]
    common: Common,
}

/// `status`.
#[derive(Debug, clap::Args)]
pub struct Status {
    #[command(flatten)]
    common: Common,
}

/// `why APP`.
#[derive(Debug, clap::Args)]
pub struct Why {
    /// Name of the application in the description
    #[arg(add = candidates::apps())]
    app: String,

    #[command(flatten)]
    common: Common,
}

impl Set {
    pub fn run(self) -> anyhow::Result<Exit> {
        let request = Request::Set {
            app: self.app,
            state: self.state,
        };
        send(self.common, &request, |answer| {
            text::decision(&answer["decision"])
        })
    }
}

impl Status {
    pub fn run(self) -> anyhow::Result<Exit> {
        send(self.common, &Request::Status, text::status)
    }
}

impl Why {
    pub fn run(self) -> anyhow::Result<Exit> {
        let request = Request::Why { app: self.app };
        send(self.common, &request, |answer| {
            let decisions = answer["decisions"].as_array().map_or(&[][..], Vec::as_slice);
            if decisions.is_empty() {
                return "no decision about this application yet\n".to_owned();
            }
            decisions.iter().map(text::decision).collect()
        })
    }
}

/// Sends `request` to the daemon and prints its answer: as JSON, or by `text`.
fn send(common: Common, request: &Request, text: impl Fn(&Value) -> String) -> anyhow::Result<Exit> {
    let socket = common.socket.map_or_else(default_socket, Ok)?;
    let mut answer = Client::connect(&socket)?.ask(request)?;
    if common.json {
        // A refused request is an error, so `ok` is always true here.
        answer.as_object_mut().map(|object| object.remove("ok"));
        output::json(&answer)?;
    } else {
        output::text(&printable(&text(&answer)))?;
    }
    Ok(Exit::Done)
}
