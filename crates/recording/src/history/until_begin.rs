//! Drops records before the query's start, but keeps the state at the start.

use std::collections::BTreeMap;

use thermo_units::Nanos;

use super::wall_clock;
use crate::model::Record;

/// The state at the begin: the last mappings and sizes of each target, and the names.
#[derive(Debug, Default)]
pub(super) struct UntilBegin {
    from: Nanos,
    mappings: BTreeMap<u32, Record>,
    footprints: BTreeMap<u32, Record>,
    notes: Vec<Record>,
}

impl UntilBegin {
    pub(super) fn new(from: Option<Nanos>) -> Self {
        Self {
            from: from.unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Takes the next record. Returns what is to be read: nothing before the begin, then the state and the
    /// record.
    pub(super) fn add(&mut self, record: Record) -> Vec<Record> {
        if wall_clock::time(&record) <= self.from {
            self.keep(record);
            return Vec::new();
        }
        let mut records = std::mem::take(&mut self.notes);
        records.extend(std::mem::take(&mut self.mappings).into_values());
        records.extend(std::mem::take(&mut self.footprints).into_values());
        for record in &mut records {
            wall_clock::set_time(record, self.from);
        }
        records.push(record);
        records
    }

    fn keep(&mut self, record: Record) {
        match &record {
            Record::Mappings(mappings) => drop(self.mappings.insert(mappings.target, record)),
            Record::Footprint(footprint) => drop(self.footprints.insert(footprint.target, record)),
            Record::Note(note) if note.kind == super::target_name::KIND => self.notes.push(record),
            _ => {}
        }
    }
}
