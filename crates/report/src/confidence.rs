//! The basis of an estimate: number of snapshots, time span and warnings.

use serde::Serialize;
use thermo_recording::model::{Record, Snapshot};
use thermo_units::Nanos;

/// Maximum number of warnings kept; more are only counted.
const MAX_WARNINGS: usize = 16;

/// A report with fewer snapshots than this prints a warning.
const FEW: u64 = 5;

/// The data behind an estimate.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Basis {
    /// Snapshots with at least one live target.
    pub snapshots: u64,
    /// Snapshots without a live target.
    #[serde(skip)]
    pub empty_snapshots: u64,
    /// Number of those snapshots with a target that were taken before any target completed its first scan
    /// pass. Memory that the pass had not reached is unknown in them.
    pub snapshots_before_first_pass: u64,
    /// Start of the first snapshot, on the clock of the recording.
    pub start_ns: u64,
    /// End of the last snapshot.
    pub end_ns: u64,
    /// Warnings about the data, as sentences.
    pub warnings: Vec<String>,
    /// Number of warnings that are not listed.
    pub more_warnings: u64,
}

/// True if `snapshot` has data of at least one target.
#[must_use]
pub fn has_data(snapshot: &Snapshot) -> bool {
    snapshot.targets.iter().any(crate::tables::has_data)
}

/// True if no target of `snapshot` has completed its first scan pass.
fn is_before_first_pass(snapshot: &Snapshot) -> bool {
    let mut targets = snapshot
        .targets
        .iter()
        .filter(|target| crate::tables::has_data(target));
    targets.all(|target| {
        let tables = target.tables.as_deref();
        tables.is_some_and(|tables| tables.nr_passes == 0)
    })
}

impl Basis {
    /// Adds a record. Returns its snapshot if the snapshot has data.
    pub fn add<'a>(&mut self, record: &'a Record) -> Option<&'a Snapshot> {
        match record {
            Record::Snapshot(snapshot) if has_data(snapshot) => {
                if self.snapshots == 0 {
                    self.start_ns = snapshot.start_ns;
                }
                self.end_ns = snapshot.time_ns;
                self.snapshots += 1;
                self.snapshots_before_first_pass += u64::from(is_before_first_pass(snapshot));
                Some(snapshot)
            }
            Record::Snapshot(_) => {
                self.empty_snapshots += 1;
                None
            }
            Record::Note(note) if note.kind == "warning" => {
                self.warn(&note.text);
                None
            }
            _ => None,
        }
    }

    /// Adds a warning, unless the same text was added before.
    pub fn warn(&mut self, text: &str) {
        if self.warnings.iter().any(|known| known == text) {
            return;
        }
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(text.to_owned());
        } else {
            self.more_warnings += 1;
        }
    }

    /// Why there is no data, as a sentence; for a recording without a snapshot that has data.
    #[must_use]
    pub fn no_data(&self) -> String {
        crate::no_data(self.empty_snapshots)
    }

    /// [`Basis::no_data`] on a line, and the warnings: the reason may be among them.
    #[must_use]
    pub fn no_data_text(&self) -> String {
        format!("{}\n{}", self.no_data(), self.text())
    }

    /// Time from the start of the first snapshot to the end of the last.
    #[must_use]
    pub const fn span(&self) -> Nanos {
        Nanos(self.end_ns.saturating_sub(self.start_ns))
    }

    /// `300 snapshots over 30.0 s`.
    #[must_use]
    pub fn summary(&self) -> String {
        let plural = if self.snapshots == 1 { "" } else { "s" };
        format!("{} snapshot{plural} over {}", self.snapshots, self.span())
    }

    /// A sentence without a full stop, if some or all snapshots precede the end of the first scan pass.
    #[must_use]
    pub fn first_pass_text(&self) -> Option<String> {
        match self.snapshots_before_first_pass {
            0 => None,
            n if n == self.snapshots => {
                Some("the first scan pass was not complete: memory not yet scanned is unknown".to_owned())
            }
            n => Some(format!(
                "{n} of {} snapshots precede the end of the first scan pass: memory not yet scanned is unknown in \
                 them",
                self.snapshots
            )),
        }
    }

    /// The warnings, one line each; empty if there are none.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        if (1..FEW).contains(&self.snapshots) {
            text.push_str(&format!(
                "warning: the figures are based on only {}.\n",
                self.summary()
            ));
        }
        // If no pass was complete, each report prints its own message.
        let incomplete = self.first_pass_text();
        if let Some(incomplete) = incomplete.filter(|_| self.snapshots_before_first_pass < self.snapshots) {
            text.push_str(&format!("warning: {incomplete}.\n"));
        }
        for warning in &self.warnings {
            text.push_str(&format!("warning: {warning}\n"));
        }
        if self.more_warnings > 0 {
            text.push_str(&format!(
                "warning: {} more warnings are not shown.\n",
                self.more_warnings
            ));
        }
        text
    }
}
