//! Which part of a recording is decoded, and which columns of a batch that takes.
//!
//! Nearly all work of reading is decompressing columns and building snapshots of targets. Kind, time and
//! target of the rows say what else of a batch is needed, and cost little: they compress to nearly nothing.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{UInt8Type, UInt32Type, UInt64Type};

use crate::row::Kind;

/// Columns of an [`Outline`]: `kind`, `time_ns` and `target`.
pub(crate) const OUTLINE: [usize; 3] = [0, 1, 2];
/// Number of columns.
const NR_COLUMNS: usize = 13;
/// Columns of regions and mappings only: `start`, `end`, `nr_accesses`, `age` and `unknown`.
const OF_REGIONS: [usize; 5] = [4, 5, 6, 8, 9];

/// A part of a recording: what is left out is not decoded. Records that hold beyond their time (mappings,
/// sizes, names, totals) are not left out because of it: the reader of the part knows what it needs of them.
pub(crate) struct Part<'a> {
    /// Snapshots at this time or before are left out. On the clock of the recording, in nanoseconds.
    pub(crate) from_ns: u64,
    /// What is later is left out, except for notes.
    pub(crate) to_ns: u64,
    /// Leave out the regions of targets with access tables.
    pub(crate) totals_only: bool,
    /// Targets of which snapshots, mappings and sizes are decoded, by their ids.
    pub(crate) is_wanted: &'a dyn Fn(u32) -> bool,
}

impl Part<'_> {
    /// Whether a record of this kind and time is decoded, if it is of a wanted target.
    pub(crate) fn has(&self, kind: Kind, time_ns: u64) -> bool {
        self.may_have(kind, (time_ns, time_ns))
    }

    /// Whether a record of this kind with a time from `first` to `last` may be decoded.
    fn may_have(&self, kind: Kind, (first, last): (u64, u64)) -> bool {
        match kind {
            Kind::Note => true,
            Kind::Snapshot => last > self.from_ns && first <= self.to_ns,
            _ => first <= self.to_ns,
        }
    }

    /// Whether a record whose head is of this kind and target is decoded, whatever its time.
    pub(crate) fn has_target(&self, kind: Kind, target: Option<u32>) -> bool {
        match kind {
            Kind::Mappings | Kind::Footprint => target.is_none_or(self.is_wanted),
            _ => true,
        }
    }

    /// The columns that a batch needs; `None`: nothing of the batch is in the part.
    pub(crate) fn columns(&self, outline: &Outline) -> Option<Vec<usize>> {
        let wanted = |kind| {
            outline
                .times(kind)
                .is_some_and(|times| self.may_have(kind, times))
        };
        if !outline.has_unknown && !Kind::HEADS.into_iter().any(wanted) {
            return None;
        }
        let has_tables = outline.count(Kind::Tables) >= outline.count(Kind::Target);
        let with_regions = outline.has_unknown
            || wanted(Kind::Mappings)
            || (wanted(Kind::Snapshot)
                && outline.count(Kind::Region) > 0
                && !(self.totals_only && has_tables));
        let is_needed = |column: &usize| with_regions || !OF_REGIONS.contains(column);
        Some((0..NR_COLUMNS).filter(is_needed).collect())
    }
}

/// The rows of a batch by kind: their number, and their first and last time. Rows of records that are not of
/// wanted targets may be missing.
pub(crate) struct Outline {
    kinds: [(usize, (u64, u64)); Kind::COUNT],
    /// The batch has rows of a kind that is not known: decoding it says so.
    has_unknown: bool,
}

impl Outline {
    /// The outline of a batch of the columns [`OUTLINE`].
    pub(crate) fn new(batch: &RecordBatch, part: &Part<'_>) -> Result<Self, String> {
        let kinds = batch.column(0).as_primitive_opt::<UInt8Type>();
        let times = batch.column(1).as_primitive_opt::<UInt64Type>();
        let targets = batch.column(2).as_primitive_opt::<UInt32Type>();
        let (Some(kinds), Some(times), Some(targets)) = (kinds, times, targets) else {
            return Err("column kind, time_ns or target has the wrong type".to_owned());
        };
        // A note may name a target of the rows behind it.
        let may_name = kinds.values().contains(&(Kind::Note as u8));
        let mut outline = Self {
            kinds: [(0, (u64::MAX, 0)); Kind::COUNT],
            has_unknown: false,
        };
        for ((kind, time), target) in kinds.values().iter().zip(times.values()).zip(targets) {
            match Kind::from_number(*kind) {
                Some(kind) if may_name || part.has_target(kind, target) => outline.add(kind, *time),
                Some(_) => {}
                None => outline.has_unknown = true,
            }
        }
        Ok(outline)
    }

    fn add(&mut self, kind: Kind, time: u64) {
        if let Some((count, (first, last))) = self.kinds.get_mut(kind as usize) {
            *count += 1;
            (*first, *last) = ((*first).min(time), (*last).max(time));
        }
    }

    fn count(&self, kind: Kind) -> usize {
        self.kinds.get(kind as usize).map_or(0, |(count, _)| *count)
    }

    /// `None`: there is no row of this kind.
    fn times(&self, kind: Kind) -> Option<(u64, u64)> {
        let (count, times) = *self.kinds.get(kind as usize)?;
        (count > 0).then_some(times)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::sync::Arc;

    use super::*;
    use crate::encode::BatchBuilder;
    use crate::model::{AccessTables, Footprint, Mappings, Metadata, Note, Record, Region, Snapshot, Target};
    use crate::row::schema;
    use thermo_engine::budget::Method;

    fn outline(records: &[Record], part: &Part<'_>) -> Outline {
        let mut builder = BatchBuilder::new(Arc::new(schema(&Metadata::default()).unwrap()));
        records.iter().for_each(|record| builder.push(record));
        Outline::new(&builder.finish().unwrap().project(&OUTLINE).unwrap(), part).unwrap()
    }

    fn snapshot(time_ns: u64, has_tables: bool) -> Record {
        let target = Target {
            tables: has_tables.then(|| Box::new(AccessTables::new(Method::Scan))),
            regions: vec![Region::default()],
            ..Target::default()
        };
        Record::Snapshot(Snapshot {
            time_ns,
            targets: vec![target],
            ..Snapshot::default()
        })
    }

    fn footprint(time_ns: u64, target: u32) -> Record {
        Record::Footprint(Footprint {
            time_ns,
            target,
            ..Footprint::default()
        })
    }

    fn part(totals_only: bool) -> Part<'static> {
        Part {
            from_ns: 100,
            to_ns: 200,
            totals_only,
            is_wanted: &|target| target == 1,
        }
    }

    fn columns(records: &[Record], totals_only: bool) -> Option<usize> {
        let part = part(totals_only);
        part.columns(&outline(records, &part))
            .map(|columns| columns.len())
    }

    #[test]
    fn batches_outside_the_part_are_not_decoded() {
        for time in [50, 100, 201] {
            assert_eq!(columns(&[snapshot(time, true)], false), None, "{time}");
        }
        for time in [101, 200] {
            assert_eq!(columns(&[snapshot(time, true)], false), Some(13), "{time}");
        }
        assert_eq!(
            columns(&[snapshot(50, true), snapshot(250, true)], false),
            Some(13)
        );
        // The size of a target holds until the next one, but that of another target does not matter.
        assert_eq!(columns(&[footprint(50, 1)], false), Some(8));
        assert_eq!(columns(&[footprint(250, 1)], false), None);
        assert_eq!(columns(&[footprint(50, 2)], false), None);
        let note = Record::Note(Note {
            time_ns: 999,
            ..Note::default()
        });
        assert_eq!(
            columns(std::slice::from_ref(&note), false),
            Some(8),
            "it may name the target"
        );
        let mappings = Record::Mappings(Mappings {
            target: 2,
            ..Mappings::default()
        });
        assert_eq!(columns(std::slice::from_ref(&mappings), false), None);
        assert_eq!(columns(&[note, mappings], false), Some(13));
    }

    #[test]
    fn totals_need_regions_only_where_there_are_no_tables() {
        assert_eq!(columns(&[snapshot(150, true)], true), Some(8));
        assert_eq!(
            columns(&[snapshot(150, true), snapshot(160, false)], true),
            Some(13)
        );
        let mappings = |target| {
            Record::Mappings(Mappings {
                time_ns: 50,
                target,
                ..Mappings::default()
            })
        };
        assert_eq!(columns(&[snapshot(150, true), mappings(1)], true), Some(13));
        assert_eq!(columns(&[snapshot(150, true), mappings(2)], true), Some(8));
    }
}
