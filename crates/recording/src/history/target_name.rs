//! The note that gives a target its name. Readers that do not know the kind show a note.

use thermo_units::Nanos;

use crate::model::{Note, Record};

/// [`Note::kind`].
pub(super) const KIND: &str = "target_name";

/// The name of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TargetName {
    /// [`crate::model::Target::id`].
    pub(super) id: u32,
    pub(super) pid: Option<u32>,
    pub(super) name: String,
}

impl TargetName {
    /// The note: `ID PID NAME`, with `-` for physical memory.
    pub(super) fn note(&self, now: Nanos) -> Record {
        let pid = self.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        crate::recorder::note(now, KIND, format!("{} {pid} {}", self.id, self.name))
    }

    /// `None`: another note.
    pub(super) fn parse(note: &Note) -> Option<Self> {
        if note.kind != KIND {
            return None;
        }
        let mut words = note.text.splitn(3, ' ');
        Some(Self {
            id: words.next()?.parse().ok()?,
            pid: words.next()?.parse().ok(),
            name: words.next()?.to_owned(),
        })
    }
}
