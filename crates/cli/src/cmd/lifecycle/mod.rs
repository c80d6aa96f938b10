//! `thermo lifecycle`: follows applications from the foreground to the cache and back, and hints the kernel about
//! their memory; docs/guide/lifecycle.md tells of the description and of the socket.

mod accesses;
mod ask;
mod run;
mod tell;

use std::path::PathBuf;

use anyhow::Context as _;
use thermo_term::exit::Exit;

/// Follow applications through their life, and reclaim from those that are put away.
///
/// `run` is the daemon; the others ask it. States: foreground, perceptible, background, cached.
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
    /// SIGHUP reads the description anew; with a mistake in it, everything goes on as it was. Every decision is
    /// printed with its reason; reclaims once they ended, with what they cost.
    #[command(after_help = "Examples:
  thermo lifecycle run apps.toml
  thermo lifecycle run apps.toml --socket /run/user/1000/thermo.sock --json")]
    Run(run::Run),
    /// Tell the daemon the state an application is in now.
    #[command(after_help = "Examples:
  thermo lifecycle set firefox cached
  thermo lifecycle set firefox foreground --json")]
    Set(ask::Set),
    /// Show where every application stands, and what the daemon itself takes.
    #[command(after_help = "Examples:
  thermo lifecycle status
  thermo lifecycle status --socket /run/user/1000/thermo.sock --json")]
    Status(ask::Status),
    /// Show the decisions about an application, why they were made, and what they cost.
    #[command(after_help = "Examples:
  thermo lifecycle why firefox
  thermo lifecycle why firefox --json")]
    Why(ask::Why),
}

impl Lifecycle {
    /// Does what was asked.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.verb {
            Verb::Run(verb) => verb.run(),
            Verb::Set(verb) => verb.run(),
            Verb::Status(verb) => verb.run(),
            Verb::Why(verb) => verb.run(),
        }
    }
}

/// What every verb takes.
#[derive(Debug, clap::Args)]
struct Common {
    /// The daemon's socket; for root /run/thermo/lifecycle.sock when not given, else $XDG_RUNTIME_DIR/thermo/…
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Where the socket is when nobody says so.
fn default_socket() -> anyhow::Result<PathBuf> {
    let folder = if rustix::process::geteuid().is_root() {
        PathBuf::from("/run")
    } else {
        let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
        folder
            .map(PathBuf::from)
            .context("XDG_RUNTIME_DIR is not set: name the socket with --socket PATH")?
    };
    Ok(folder.join("thermo/lifecycle.sock"))
}
