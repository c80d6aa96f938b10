//! `/sys/kernel/debug/damon` as it was from Linux 5.15 until it was removed in 6.14.
//!
//! The root is a context itself; more of them are directories of a name that the user chooses, with the same files.

use super::{Dir, Entry, Kind, Role, file};

/// Numbers of a scheme: three ranges and the action, then quota (time, size, window, three weights) and watermarks
/// (metric, interval, high, mid, low).
pub const SCHEME: usize = 18;
/// Numbers of a scheme of the first patches: three ranges and the action.
const OLD_SCHEME: usize = 7;

/// The tree.
pub static EARLY: Dir = Dir {
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

/// A context besides the first.
pub static CONTEXT: Dir = Dir {
    entries: &[ATTRS, TARGET_IDS, INIT_REGIONS, SCHEMES, KDAMOND_PID],
};

/// Sampling, aggregation and update interval in microseconds, and the fewest and the most regions.
const ATTRS: Entry = rows(
    "attrs",
    &[5],
    1,
    &[5_000, 100_000, 60_000_000, 10, 1000],
    Role::Attrs,
);
const TARGET_IDS: Entry = file("target_ids", true, Kind::Text, Role::TargetIds);
/// The place of the target, start, end.
const INIT_REGIONS: Entry = rows("init_regions", &[3], usize::MAX, &[], Role::InitRegions);
const SCHEMES: Entry = rows("schemes", &[SCHEME, OLD_SCHEME], 256, &[], Role::Schemes);
/// Its mode says that it can be written, and it cannot, as in debugfs.
const KDAMOND_PID: Entry = file("kdamond_pid", true, Kind::Text, Role::KdamondPid);

const fn rows(
    name: &'static str,
    widths: &'static [usize],
    most: usize,
    default: &'static [u64],
    role: Role,
) -> Entry {
    let kind = Kind::Rows {
        widths,
        most,
        default,
    };
    file(name, true, kind, role)
}
