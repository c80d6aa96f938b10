//! How far an estimate can be trusted: on how many snapshots it stands, over what time, and what went wrong meanwhile.

use serde::Serialize;
use thermo_core::Nanos;
use thermo_record::model::{Record, Snapshot};

/// Warnings beyond this many are only counted.
const MOST_WARNINGS: usize = 16;

/// Fewer snapshots than this are called few.
const FEW: u64 = 5;

/// What an estimate stands on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Doubt {
    /// Snapshots in which a target lived.
    pub snapshots: u64,
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
    snapshot.targets.iter().any(|target| !target.regions.is_empty())
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
        for warning in &self.warnings {
            text.push_str(&format!("warning: {warning}\n"));
        }
        if self.more_warnings > 0 {
            text.push_str(&format!("warning: and {} more.\n", self.more_warnings));
        }
        text
    }
}
