//! `thermo-nbd status`, `set`, `squeeze`: asks a server that runs, at its control socket.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;
use thermo_term::exit::Exit;
use thermo_term::output;
use thermo_units::Bytes;

/// A server that does not answer for so long is not there.
const PATIENCE: Duration = Duration::from_secs(10);

/// What to ask.
#[derive(Debug, clap::Subcommand)]
pub enum Ask {
    /// Tell what a running server does
    #[command(after_help = "Examples:
  thermo-nbd status --control /run/nbd.ctl
  thermo-nbd status --control /run/nbd.ctl --json")]
    Status {
        /// Its control socket
        #[arg(long, value_name = "PATH")]
        control: PathBuf,
        /// Print all of it as JSON
        #[arg(long, conflicts_with = "metrics")]
        json: bool,
        /// Print all numbers in the text form of Prometheus
        #[arg(long)]
        metrics: bool,
    },
    /// Change a running server: max_buffer_pages, buffer_squeeze_duration_ms, budget; all of them or none
    #[command(after_help = "Examples:
  thermo-nbd set --control /run/nbd.ctl budget=32M
  thermo-nbd set --control /run/nbd.ctl max_buffer_pages=256 buffer_squeeze_duration_ms=100")]
    Set {
        /// Its control socket
        #[arg(long, value_name = "PATH")]
        control: PathBuf,
        /// NAME=VALUE
        #[arg(required = true)]
        settings: Vec<String>,
    },
    /// Have a running server give back what is free, as if memory were short
    #[command(after_help = "Examples:
  thermo-nbd squeeze --control /run/nbd.ctl
  thermo-nbd squeeze --control /run/nbd.ctl && thermo-nbd status --control /run/nbd.ctl")]
    Squeeze {
        /// Its control socket
        #[arg(long, value_name = "PATH")]
        control: PathBuf,
    },
}

impl Ask {
    pub fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Status {
                control,
                json,
                metrics,
            } => {
                if metrics {
                    output::text(&asked(&control, "metrics")?)?;
                    return Ok(Exit::Done);
                }
                let told = parsed(&asked(&control, "status")?)?;
                if json {
                    output::json(&told)?;
                } else {
                    output::text(&lines(&told))?;
                }
            }
            Self::Set { control, settings } => {
                let told = parsed(&asked(&control, &format!("set {}", settings.join(" ")))?)?;
                output::text(&memory(&told))?;
            }
            Self::Squeeze { control } => {
                let told = parsed(&asked(&control, "squeeze")?)?;
                output::text(&format!("{} went back", bytes(&told, "freed_bytes")))?;
            }
        }
        Ok(Exit::Done)
    }
}

fn asked(control: &Path, question: &str) -> anyhow::Result<String> {
    let converse = || {
        let mut stream = UnixStream::connect(control)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("{question}\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    };
    converse().with_context(|| {
        let at = control.display();
        format!("no server answers at {at}. It is the path given to `thermo-nbd --control`")
    })
}

fn parsed(answer: &str) -> anyhow::Result<Value> {
    let told: Value = serde_json::from_str(answer).context("the answer is no JSON")?;
    if let Some(error) = told["error"].as_str() {
        bail!("{error}");
    }
    Ok(told)
}

fn number(told: &Value, name: &str) -> u64 {
    told[name].as_u64().unwrap_or_default()
}

fn bytes(told: &Value, name: &str) -> Bytes {
    Bytes(number(told, name))
}

fn lines(told: &Value) -> String {
    format!(
        "{} clients and {} machines are connected, {} clients came, {} were refused, {} broke\n{} requests, {} read, {} written\n{}",
        number(told, "connections"),
        number(told, "machines"),
        number(told, "accepted"),
        number(told, "refused"),
        number(told, "broken"),
        number(told, "requests"),
        bytes(told, "read_bytes"),
        bytes(told, "written_bytes"),
        memory(told)
    )
}

fn memory(told: &Value) -> String {
    format!(
        "buffers take {} of {}, at most they took {}; {} waits for memory\nmax_buffer_pages {}, buffer_squeeze_duration_ms {}",
        bytes(told, "used_bytes"),
        bytes(told, "budget_bytes"),
        bytes(told, "peak_bytes"),
        number(told, "waits_for_memory"),
        number(told, "max_buffer_pages"),
        number(told, "buffer_squeeze_duration_ms")
    )
}
