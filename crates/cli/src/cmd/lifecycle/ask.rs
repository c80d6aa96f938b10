//! Asking the daemon: `set`, `status`, `why`.

use serde_json::Value;
use thermo_agent::lifecycle::State;
use thermo_agent::lifecycle::client::Client;
use thermo_agent::lifecycle::wire::Request;
use thermo_term::exit::Exit;
use thermo_term::output;

use super::{Common, default_socket, tell};

/// `set APP STATE`.
#[derive(Debug, clap::Args)]
pub struct Set {
    /// The application, by the name its description gives it
    app: String,

    /// foreground, perceptible, background or cached
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
    /// The application, by the name its description gives it
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
        ask(self.common, &request, |answer| {
            tell::decision(&answer["decision"])
        })
    }
}

impl Status {
    pub fn run(self) -> anyhow::Result<Exit> {
        ask(self.common, &Request::Status, tell::status)
    }
}

impl Why {
    pub fn run(self) -> anyhow::Result<Exit> {
        let request = Request::Why { app: self.app };
        ask(self.common, &request, |answer| {
            let decisions = answer["decisions"].as_array().map_or(&[][..], Vec::as_slice);
            if decisions.is_empty() {
                return "nothing was decided about it yet\n".to_owned();
            }
            decisions.iter().map(tell::decision).collect()
        })
    }
}

fn ask(common: Common, request: &Request, text: impl Fn(&Value) -> String) -> anyhow::Result<Exit> {
    let socket = common.socket.map_or_else(default_socket, Ok)?;
    let mut answer = Client::connect(&socket)?.ask(request)?;
    if common.json {
        // What was refused is told as an error: `ok` says nothing more.
        answer.as_object_mut().map(|object| object.remove("ok"));
        output::json(&answer)?;
    } else {
        output::text(&text(&answer))?;
    }
    Ok(Exit::Done)
}
