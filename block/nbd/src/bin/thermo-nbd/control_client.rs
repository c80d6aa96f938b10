//! `thermo-nbd status`, `set` and `squeeze`: send a command to the control socket of a running server.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use thermo_nbd::status_text::{self, parse_reply};
use thermo_term::exit::Exit;
use thermo_term::output;
use thermo_units::printable;

/// Timeout for the reply.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Commands that do not serve; all but the last go to a running server.
#[derive(Debug, clap::Subcommand)]
pub enum ControlCommand {
    /// Print the status of a running server
    #[command(after_help = "Examples:
  thermo-nbd status --control /run/nbd.ctl
  thermo-nbd status --control /run/nbd.ctl --json")]
    Status {
        /// Control socket of the server
        #[arg(long, value_name = "PATH")]
        control: PathBuf,
        /// Print the whole status as JSON
        #[arg(long, conflicts_with = "metrics")]
        json: bool,
        /// Print all metrics in the Prometheus text format
        #[arg(long)]
        metrics: bool,
    },
    /// Change max_buffer_pages, buffer_squeeze_duration_ms or budget of a running server; all given settings
    /// or none
    #[command(after_help = "Examples:
  thermo-nbd set --control /run/nbd.ctl budget=32M
  thermo-nbd set --control /run/nbd.ctl max_buffer_pages=256 buffer_squeeze_duration_ms=100")]
    Set {
        /// Control socket of the server
        #[arg(long, value_name = "PATH")]
        control: PathBuf,
        /// Settings to change, as NAME=VALUE
        #[arg(required = true)]
        settings: Vec<String>,
    },
    /// Report memory pressure to a running server: it releases all free buffers
    #[command(after_help = "Examples:
  thermo-nbd squeeze --control /run/nbd.ctl
  thermo-nbd squeeze --control /run/nbd.ctl && thermo-nbd status --control /run/nbd.ctl")]
    Squeeze {
        /// Control socket of the server
        #[arg(long, value_name = "PATH")]
        control: PathBuf,
    },
    #[command(hide = true)]
    Gen(thermo_manual::Gen),
}

impl ControlCommand {
    pub fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Status {
                control,
                json,
                metrics,
            } => {
                if metrics {
                    output::text(&request(&control, "metrics")?)?;
                    return Ok(Exit::Done);
                }
                let status = parse_reply(&request(&control, "status")?)?;
                if json {
                    output::json(&status)?;
                } else {
                    output::text(&printable(&status_text::whole(&status)))?;
                }
            }
            Self::Set { control, settings } => {
                let status = parse_reply(&request(&control, &format!("set {}", settings.join(" ")))?)?;
                output::text(&status_text::memory(&status))?;
            }
            Self::Squeeze { control } => {
                let status = parse_reply(&request(&control, "squeeze")?)?;
                output::text(&status_text::released(&status))?;
            }
            Self::Gen(verb) => return verb.run(&crate::generate::PROGRAM),
        }
        Ok(Exit::Done)
    }
}

fn request(control: &Path, command: &str) -> anyhow::Result<String> {
    let exchange = || {
        let mut stream = UnixStream::connect(control)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(format!("{command}\n").as_bytes())?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok::<_, std::io::Error>(reply)
    };
    exchange().with_context(|| {
        let at = control.display();
        format!("no server replies at {at}. Give the path of `thermo-nbd --control`")
    })
}
