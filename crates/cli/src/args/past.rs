//! The part of the agent's history that is read in place of a recording.

use std::path::{Path, PathBuf};

use anyhow::bail;
use thermo_agent::config::STATE_DIR;
use thermo_recording::history::{History, NamedTarget, Query, Records};
use thermo_recording::model::{Metadata, Record};
use thermo_term::exit::Exit;

use super::candidates;
use super::moment::Moment;

/// Flags that choose a part of the history.
#[derive(Debug, Clone, clap::Args)]
pub struct Past {
    /// Instead of a recording, read the history of `thermo agent` from this time on: -2h, 10:00, "2026-11-25
    /// 10:00"
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        help_heading = "History"
    )]
    since: Option<Moment>,

    /// Read the history up to this time [default: now]
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        requires = "since",
        help_heading = "History"
    )]
    until: Option<Moment>,

    /// Only the target of this name, as the agent calls it
    #[arg(long, value_name = "NAME", requires = "since", add = candidates::targets(), help_heading = "History")]
    target: Option<String>,

    /// Only targets of this policy
    #[arg(long, value_name = "NAME", requires = "since", add = candidates::policies(), help_heading = "History")]
    policy: Option<String>,

    /// State directory of the agent
    #[arg(
        long,
        value_name = "DIR",
        requires = "since",
        default_value = STATE_DIR,
        help_heading = "History"
    )]
    state_dir: PathBuf,
}

/// The records of a part of the history.
pub struct PastRecords {
    records: Records,
    since: Moment,
    until: Moment,
    target: Option<String>,
    has_snapshots: bool,
}

impl Past {
    /// The part of the history that is asked for; `None` without `--since`.
    ///
    /// # Errors
    /// There is no history, or no such policy; the part ends before it begins.
    pub fn open(&self) -> anyhow::Result<Option<PastRecords>> {
        let Some(since) = self.since else {
            return Ok(None);
        };
        let until = self.until.unwrap_or_else(Moment::now);
        if since >= until {
            bail!(
                "--since is {} and --until {}: give a time before it",
                since.text(),
                until.text()
            );
        }
        let history = History::open(&self.state_dir)?;
        if let Some(policy) = &self.policy {
            check_policy(&history, policy)?;
        }
        let records = history.records(&Query {
            policy: self.policy.clone(),
            target: self.target.clone(),
            from: Some(since.0),
            to: Some(until.0),
            ..Query::default()
        })?;
        Ok(Some(PastRecords {
            records,
            since,
            until,
            target: self.target.clone(),
            has_snapshots: false,
        }))
    }

    /// The state directory; `None` without `--since`.
    pub fn state_dir(&self) -> Option<&Path> {
        self.since.map(|_| self.state_dir.as_path())
    }
}

impl PastRecords {
    /// Metadata for reports.
    pub const fn metadata(&self) -> &Metadata {
        &self.records.metadata
    }

    /// Checks that there was something, and prints which segments could not be read. The exit code is 1 then.
    ///
    /// # Errors
    /// There was nothing: no such target, or no snapshot in this time.
    pub fn finish(&self) -> anyhow::Result<Exit> {
        let warnings = self.records.warnings();
        for warning in &warnings {
            thermo_kernel::message!("thermo: {warning}");
        }
        if self.has_snapshots {
            return Ok(if warnings.is_empty() {
                Exit::Done
            } else {
                Exit::Negative
            });
        }
        let (since, until) = (self.since.text(), self.until.text());
        let known = self.records.targets();
        match self.target.as_ref() {
            Some(target) if !known.iter().any(|other| other.name == *target) => bail!(
                "the history has no target {target:?} from {since} to {until}: {}",
                names(&known)
            ),
            _ => bail!("the history has no snapshot from {since} to {until}: give an earlier --since"),
        }
    }
}

impl Iterator for PastRecords {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let record = self.records.next()?;
        self.has_snapshots |= matches!(&record, Record::Snapshot(_));
        Some(record)
    }
}

fn check_policy(history: &History, policy: &str) -> anyhow::Result<()> {
    let known = history.policies()?;
    if !known.iter().any(|other| other == policy) {
        bail!(
            "the history has no policy {policy:?}: it has {}",
            known.join(", ")
        );
    }
    Ok(())
}

fn names(known: &[NamedTarget]) -> String {
    if known.is_empty() {
        return "it has none then, give an earlier --since".to_owned();
    }
    let name = |target: &NamedTarget| format!("{} (policy {})", target.name, target.policy);
    let names: Vec<String> = known.iter().map(name).collect();
    format!("it has {}", names.join(", "))
}
