//! `thermo top`: the agent, its history or a recording in the terminal.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use thermo_agent::config::STATE_DIR;
use thermo_recording::history::{History, Query};
use thermo_term::exit::Exit;
use thermo_top::TopError;
use thermo_top::model::Ending;
use thermo_top::source::{Agent, RecordingSource, Source, SourceError};
use thermo_top::view::Theme;

use crate::args::agent_address::AgentAddress;
use crate::args::moment::Moment;
use crate::terminal;

/// Show the targets of the agent, of its history or of a recording in the terminal.
///
/// The list has the idle memory of each target, what the agent saves, and what was faulted in again. Enter
/// shows one target with its idle ages, heatmap and decisions; p shows the policies, to pause and resume
/// them; ? shows all keys. NO_COLOR turns colours off.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo top
  thermo top --replay thermo.arrow
  thermo top --replay --since -2h")]
pub struct Top {
    #[command(flatten)]
    address: AgentAddress,

    /// Replay a recording; without FILE, the history of the agent
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with = "agent")]
    replay: Option<Option<PathBuf>>,

    #[command(flatten)]
    past: Past,
}

/// The part of the history to replay.
#[derive(Debug, clap::Args)]
struct Past {
    /// Replay the history from this time on: -2h, 10:00, "2026-11-25 10:00"
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        requires = "replay",
        default_value = "-1h",
        help_heading = "History"
    )]
    since: Moment,

    /// Replay the history up to this time [default: now]
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        requires = "replay",
        help_heading = "History"
    )]
    until: Option<Moment>,

    /// State directory of the agent
    #[arg(
        long,
        value_name = "DIR",
        requires = "replay",
        default_value = STATE_DIR,
        help_heading = "History"
    )]
    state_dir: PathBuf,
}

impl Top {
    /// Shows the figures until the user quits.
    pub fn run(self) -> anyhow::Result<Exit> {
        if !io::stdout().is_terminal() {
            bail!(
                "thermo top needs a terminal on standard output: for scripts there is `thermo agent status --json`"
            );
        }
        let theme = Theme::from_environment(terminal::stdout_style().ascii);
        let ending = match self.replay {
            Some(Some(path)) => thermo_top::run(recording(&path)?, theme)?,
            Some(None) => thermo_top::run(self.past.read()?, theme)?,
            None => {
                thermo_top::run(Box::new(Agent::new(self.address.client()?)), theme).map_err(with_way_out)?
            }
        };
        Ok(match ending {
            Ending::Quit => Exit::Done,
            Ending::Interrupted => Exit::Interrupted,
        })
    }
}

/// The error, and what to do if there is no agent.
fn with_way_out(error: TopError) -> anyhow::Error {
    match error {
        TopError::Source(error @ SourceError::Lost(_)) => anyhow!(
            "{error}; start `thermo agent`, give its address with --agent, or a recording with --replay"
        ),
        other => other.into(),
    }
}

fn recording(path: &Path) -> anyhow::Result<Box<dyn Source>> {
    let source = RecordingSource::read(path)?;
    if source.is_empty() {
        bail!("{}: {}", path.display(), source.no_data());
    }
    Ok(Box::new(source))
}

impl Past {
    fn read(&self) -> anyhow::Result<Box<dyn Source>> {
        let until = self.until.unwrap_or_else(Moment::now);
        let mut records = History::open(&self.state_dir)?.records(&Query {
            from: Some(self.since.0),
            to: Some(until.0),
            ..Query::default()
        })?;
        let source = RecordingSource::read_history(&mut records);
        for warning in records.warnings() {
            thermo_kernel::message!("thermo: {warning}");
        }
        if source.is_empty() {
            let (since, until) = (self.since.text(), until.text());
            bail!("the history has no snapshot from {since} to {until}: give an earlier --since");
        }
        Ok(Box::new(source))
    }
}
