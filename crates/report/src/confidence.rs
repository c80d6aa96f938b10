//! How far an estimate can be trusted: on how many snapshots it stands, over what time, and what went wrong meanwhile.

use serde::Serialize;
use thermo_recording::model::{Record, Snapshot};
use thermo_units::Nanos;

/// Warnings beyond this many are only counted.
const MOST_WARNINGS: usize = 16;

/// Fewer snapshots than this are called few.
const FEW: u64 = 5;

/// What an estimate stands on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Doubt {
    /// Snapshots in which a target lived.
    pub snapshots: u64,
    /// Of those, how many came before the first scan pass of any target was complete: what the pass had not reached is
    /// unknown in them.
    pub snapshots_before_first_pass: u64,
    /// When the first of them began, on the recording's clock.
    pub start_ns: u64,
    /// When the last of them ended.
    pub end_ns: u64,
    /// Sentences a reader should know before believing.
    pub warnings: Vec<String>,
    /// Warnings that are not listed.
    pub more_warnings: u64,
}

/// True when some target of `snapshot` had regions: the others say nothing about memory.
#[must_use]
pub fn lives(snapshot: &Snapshot) -> bool {
    snapshot.targets.iter().any(crate::tables::lives)
}

/// True when the first scan pass of no target of `snapshot` was complete.
fn is_before_first_pass(snapshot: &Snapshot) -> bool {
    let mut targets = snapshot
        .targets
        .iter()
        .filter(|target| crate::tables::lives(target));
    targets.all(|target| {
        let tables = target.tables.as_deref();
        tables.is_some_and(|tables| tables.nr_passes == 0)
    })
}

impl Doubt {
    /// Takes a record; gives its snapshot back when it counts.
    pub fn add<'a>(&mut self, record: &'a Record) -> Option<&'a Snapshot> {
        match record {
            Record::Snapshot(snapshot) if lives(snapshot) => {
                if self.snapshots == 0 {
                    self.start_ns = snapshot.start_ns;
                }
                self.end_ns = snapshot.time_ns;
                self.snapshots += 1;
                self.snapshots_before_first_pass += u64::from(is_before_first_pass(snapshot));
                Some(snapshot)
            }
            Record::Note(note) if note.kind == "warning" => {
                self.warn(&note.text);
                None
            }
            _ => None,
        }
    }

    /// Notes a warning, once.
    pub fn warn(&mut self, text: &str) {
        if self.warnings.iter().any(|known| known == text) {
            return;
        }
        if self.warnings.len() < MOST_WARNINGS {
            self.warnings.push(text.to_owned());
        } else {
            self.more_warnings += 1;
        }
    }

    /// The time the snapshots cover.
    #[must_use]
    pub const fn span(&self) -> Nanos {
        Nanos(self.end_ns.saturating_sub(self.start_ns))
    }

    /// `300 snapshots over 30.0 s`.
    #[must_use]
    pub fn basis(&self) -> String {
        let plural = if self.snapshots == 1 { "" } else { "s" };
        format!("{} snapshot{plural} over {}", self.snapshots, self.span())
    }

    /// That some or all snapshots came before the first scan pass was complete, if so: the beginning of a sentence.
    #[must_use]
    pub fn first_pass_text(&self) -> Option<String> {
        match self.snapshots_before_first_pass {
            0 => None,
            n if n == self.snapshots => {
                Some("the first scan pass was not complete: what it had not reached is unknown".to_owned())
            }
            n => Some(format!(
                "{n} of {} snapshots came before the first scan pass was complete: what it had not reached is unknown \
                 in them",
                self.snapshots
            )),
        }
    }

    /// The warnings, a line each; nothing when there are none.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        if (1..FEW).contains(&self.snapshots) {
            text.push_str(&format!(
                "warning: these numbers stand on only {}.\n",
                self.basis()
            ));
        }
        // Where no pass was complete at all, each report says so itself.
        let incomplete = self.first_pass_text();
        if let Some(incomplete) = incomplete.filter(|_| self.snapshots_before_first_pass < self.snapshots) {
            text.push_str(&format!("warning: {incomplete}.\n"));
        }
        for warning in &self.warnings {
            text.push_str(&format!("warning: {warning}\n"));
        }
        if self.more_warnings > 0 {
            text.push_str(&format!("warning: and {} more.\n", self.more_warnings));
        }
        text
    }
}
