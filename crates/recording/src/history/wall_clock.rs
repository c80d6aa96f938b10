//! Moves records from the clock of their segment to the wall clock.

use thermo_units::Nanos;

use crate::model::Record;
use crate::row;

/// Time of a record.
pub(super) fn time(record: &Record) -> Nanos {
    Nanos(row::time_ns(record))
}

/// Unix time of `monotonic_ns`.
pub(super) const fn unix(monotonic_ns: u64, offset_ns: i64) -> Nanos {
    Nanos(monotonic_ns.saturating_add_signed(offset_ns))
}

/// The monotonic time at `unix`; 0 if that is before the monotonic clock began.
pub(super) fn monotonic(unix: Nanos, offset_ns: i64) -> u64 {
    let time = i128::from(unix.0) - i128::from(offset_ns);
    u64::try_from(time.max(0)).unwrap_or(u64::MAX)
}

/// Adds `offset_ns` to all times of `record`.
pub(super) fn shift(record: &mut Record, offset_ns: i64) {
    let shift = |time: &mut u64| *time = time.saturating_add_signed(offset_ns);
    if let Record::Snapshot(snapshot) = record {
        shift(&mut snapshot.start_ns);
        let tables = snapshot
            .targets
            .iter_mut()
            .filter_map(|target| target.tables.as_mut());
        tables.for_each(|tables| shift(&mut tables.as_of.0));
    }
    shift(time_mut(record));
}

/// Sets the time of `record`.
pub(super) const fn set_time(record: &mut Record, time: Nanos) {
    *time_mut(record) = time.0;
}

const fn time_mut(record: &mut Record) -> &mut u64 {
    match record {
        Record::Snapshot(r) => &mut r.time_ns,
        Record::Mappings(r) => &mut r.time_ns,
        Record::Footprint(r) => &mut r.time_ns,
        Record::Cost(r) => &mut r.time_ns,
        Record::Scheme(r) => &mut r.time_ns,
        Record::Note(r) => &mut r.time_ns,
        Record::Totals(r) => &mut r.time_ns,
    }
}
