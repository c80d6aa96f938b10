//! What a new segment repeats, so that it can be read alone: names and mappings of living targets, and the
//! totals of the schemes.

use std::collections::BTreeMap;

use thermo_engine::ops::TargetId;
use thermo_units::Nanos;

use super::target_name::TargetName;
use crate::model::{Cost, Mapping, Mappings, Record, SchemeApplied};

/// The living targets, and the last totals that were written.
#[derive(Debug, Default)]
pub(super) struct Living {
    names: BTreeMap<u32, TargetName>,
    mappings: BTreeMap<u32, Mapped>,
    schemes: BTreeMap<u32, SchemeApplied>,
    cost: Option<Cost>,
}

/// The mappings of a target.
#[derive(Debug)]
struct Mapped {
    mappings: Mappings,
    /// When mappings of the target were last written to this segment.
    written: Option<Nanos>,
    is_new: bool,
}

impl Living {
    /// The target has this name.
    pub(super) fn name(&mut self, name: TargetName) {
        self.names.insert(name.id, name);
    }

    /// The target has ended.
    pub(super) fn gone(&mut self, TargetId(id): TargetId) {
        self.names.remove(&id);
        self.mappings.remove(&id);
    }

    /// The mappings of a target have changed.
    pub(super) fn mappings(&mut self, mappings: &Mappings) {
        let written = self
            .mappings
            .get(&mappings.target)
            .and_then(|known| known.written);
        let mappings = Mappings {
            mappings: joined(&mappings.mappings),
            ..*mappings
        };
        let mapped = Mapped {
            mappings,
            written,
            is_new: true,
        };
        self.mappings.insert(mapped.mappings.target, mapped);
    }

    /// A record was written.
    pub(super) fn written(&mut self, record: &Record) {
        match record {
            Record::Scheme(applied) => {
                let skipped = Vec::new();
                let applied = SchemeApplied {
                    skipped,
                    ..applied.clone()
                };
                self.schemes.insert(applied.index, applied);
            }
            Record::Cost(cost) => self.cost = Some(*cost),
            _ => {}
        }
    }

    /// The schemes were replaced: they count from zero.
    pub(super) fn forget_schemes(&mut self) {
        self.schemes.clear();
    }

    /// Mappings that are due at `now`: new ones of targets whose last ones are at least `every` old.
    pub(super) fn due_mappings(&mut self, now: Nanos, every: Nanos) -> Vec<Record> {
        let is_due = |mapped: &&mut Mapped| {
            let waits = mapped
                .written
                .is_some_and(|written| now.saturating_sub(written) < every);
            mapped.is_new && !waits
        };
        let due = self.mappings.values_mut().filter(is_due);
        due.map(|mapped| mapped.write(now)).collect()
    }

    /// The first records of a segment that begins at `now`. Totals have a time before: they count nothing
    /// that happened in the segment.
    pub(super) fn first_records(&mut self, now: Nanos) -> Vec<Record> {
        let names = self.names.values().map(|name| name.note(now));
        let mut records: Vec<Record> = names.collect();
        records.extend(self.mappings.values_mut().map(|mapped| mapped.write(now)));
        let time_ns = now.0.saturating_sub(1);
        records.extend(
            self.schemes
                .values()
                .cloned()
                .map(|applied| Record::Scheme(SchemeApplied { time_ns, ..applied })),
        );
        records.extend(self.cost.map(|cost| Record::Cost(Cost { time_ns, ..cost })));
        records
    }
}

impl Mapped {
    fn write(&mut self, now: Nanos) -> Record {
        (self.written, self.is_new) = (Some(now), false);
        Record::Mappings(Mappings {
            time_ns: now.0,
            ..self.mappings.clone()
        })
    }
}

/// `mappings` with adjacent ones of one name as one: the parts of a library differ in permissions only.
fn joined(mappings: &[Mapping]) -> Vec<Mapping> {
    let mut joined: Vec<Mapping> = Vec::new();
    for mapping in mappings {
        match joined.last_mut() {
            Some(last) if last.end == mapping.start && last.name == mapping.name => last.end = mapping.end,
            _ => joined.push(mapping.clone()),
        }
    }
    joined
}
