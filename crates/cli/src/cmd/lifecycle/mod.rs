//! `thermo lifecycle`: reclaims memory from applications that go to the background. docs/guide/lifecycle.md
//! describes the configuration and the socket.

mod accesses;
mod client;
mod confinement;
mod run;
mod text;

use std::path::PathBuf;

use anyhow::Context as _;
use thermo_term::exit::Exit;

/// Reclaim memory from applications that go to the background.
///
/// `run` is the daemon; the other verbs are its clients. States of an application: foreground, perceptible,
/// background, cached.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo lifecycle run apps.toml
  thermo lifecycle why firefox")]
pub struct Lifecycle {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Run the daemon in this terminal until Ctrl-C.
    ///
    /// SIGHUP makes it read the description again; a mistake in it changes nothing. Every decision is printed
    /// with its reason, and every reclaim at its end with its cost.
    #[command(after_help = "Examples:
  thermo lifecycle run apps.toml
  thermo lifecycle run apps.toml --socket /run/user/1000/thermo.sock --json")]
    Run(run::Run),
    /// Set the current state of an application.
    #[command(after_help = "Examples:
  thermo lifecycle set firefox cached
  thermo lifecycle set firefox foreground --json")]
    Set(client::Set),
    /// Show the state of every application, and the daemon's own cost.
    #[command(after_help = "Examples:
  thermo lifecycle status
  thermo lifecycle status --socket /run/user/1000/thermo.sock --json")]
    Status(client::Status),
    /// Show the last decisions about an application, with their reasons and costs.
    #[command(after_help = "Examples:
  thermo lifecycle why firefox
  thermo lifecycle why firefox --json")]
    Why(client::Why),
}

impl Lifecycle {
    /// Runs the verb.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.verb {
            Verb::Run(verb) => verb.run(),
            Verb::Set(verb) => verb.run(),
            Verb::Status(verb) => verb.run(),
            Verb::Why(verb) => verb.run(),
        }
    }
}

/// Flags of every verb.
#[derive(Debug, clap::Args)]
struct Common {
    /// Socket of the daemon [default for root: /run/thermo-lifecycle/lifecycle.sock, otherwise
    /// $XDG_RUNTIME_DIR/thermo-lifecycle/lifecycle.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A decision of the daemon, from its JSON, as text.
pub(super) fn decision_text(value: &serde_json::Value) -> String {
    text::decision(value)
}

/// How the daemon sees that an application is used.
pub(super) fn access_probe() -> Option<Box<dyn thermo_agent::lifecycle::AccessProbe>> {
    accesses::of_this_host()
}

/// The socket of the daemon, unless another is named. Its folder is not that of the agent's socket: systemd
/// removes the folder when the daemon's service stops.
pub fn default_socket() -> anyhow::Result<PathBuf> {
    let folder = if rustix::process::geteuid().is_root() {
        PathBuf::from("/run")
    } else {
        let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
        folder
            .map(PathBuf::from)
            .context("XDG_RUNTIME_DIR is not set: name the socket with --socket PATH")?
    };
    Ok(folder.join("thermo-lifecycle/lifecycle.sock"))
}
