//! `/sys/kernel/debug/damon` of Linux 5.15 to 6.13. Linux 6.14 removed it.
//!
//! The root is a context itself. Further contexts are directories with the same files, named by the user.

use super::{Dir, Entry, Kind, Role, file};

/// Number of fields of a scheme: three ranges and the action, then quota (time, size, reset interval, three
/// weights) and watermarks (metric, interval, high, mid, low).
pub const SCHEME_FIELDS: usize = 18;
/// Number of fields of a scheme in the first patches: three ranges and the action.
const OLD_SCHEME_FIELDS: usize = 7;

/// The root directory, which is the first context.
pub static DEBUGFS: Dir = Dir {
    entries: &[
        ATTRS,
        TARGET_IDS,
        INIT_REGIONS,
        SCHEMES,
        KDAMOND_PID,
        file("monitor_on", true, Kind::Text, Role::MonitorOn),
        file("mk_contexts", true, Kind::Text, Role::MakeContext),
        file("rm_contexts", true, Kind::Text, Role::RemoveContext),
    ],
};

/// A further context.
pub static CONTEXT: Dir = Dir {
    entries: &[ATTRS, TARGET_IDS, INIT_REGIONS, SCHEMES, KDAMOND_PID],
};

/// Sampling, aggregation and update interval in microseconds, minimum and maximum number of regions.
const ATTRS: Entry = rows(
    "attrs",
    &[5],
    1,
    &[5_000, 100_000, 60_000_000, 10, 1000],
    Role::Attrs,
);
const TARGET_IDS: Entry = file("target_ids", true, Kind::Text, Role::TargetIds);
/// Index of the target, start address, end address.
const INIT_REGIONS: Entry = rows("init_regions", &[3], usize::MAX, &[], Role::InitRegions);
const SCHEMES: Entry = rows(
    "schemes",
    &[SCHEME_FIELDS, OLD_SCHEME_FIELDS],
    256,
    &[],
    Role::Schemes,
);
/// As in debugfs, the mode permits writing, but every write is an error.
const KDAMOND_PID: Entry = file("kdamond_pid", true, Kind::Text, Role::KdamondPid);

const fn rows(
    name: &'static str,
    widths: &'static [usize],
    max: usize,
    default: &'static [u64],
    role: Role,
) -> Entry {
    let kind = Kind::Rows { widths, max, default };
    file(name, true, kind, role)
}
