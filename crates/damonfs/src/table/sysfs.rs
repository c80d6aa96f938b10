//! `/sys/kernel/mm/damon` of Linux 6.18 (Documentation/ABI/testing/sysfs-kernel-mm-damon).

use super::Entry::Dir as Sub;
use super::{Dir, Entry, Kind, Role, counted, file, int, ro, rw, strict_ulong, uint, ulong, word};

/// The commands that can be written to `state`.
pub const STATE_COMMANDS: [&str; 10] = [
    "on",
    "off",
    "commit",
    "commit_schemes_quota_goals",
    "update_schemes_stats",
    "update_schemes_tried_regions",
    "update_schemes_tried_bytes",
    "clear_schemes_tried_regions",
    "update_schemes_effective_quotas",
    "update_tuned_intervals",
];

/// The root directory.
pub static SYSFS: Dir = Dir {
    entries: &[Sub("admin", &ADMIN)],
};

static ADMIN: Dir = Dir {
    entries: &[Sub("kdamonds", &KDAMONDS)],
};

static KDAMONDS: Dir = Dir {
    entries: &[Entry::Numbered {
        count: "nr_kdamonds",
        max: i32::MAX as i64,
        child: &KDAMOND,
        role: Role::Kdamonds,
    }],
};

static KDAMOND: Dir = Dir {
    entries: &[
        file("state", true, word(&STATE_COMMANDS), Role::State),
        file("pid", false, int(-1), Role::Pid),
        rw("refresh_ms", uint(0)),
        Sub("contexts", &CONTEXTS),
    ],
};

static CONTEXTS: Dir = Dir {
    entries: &[Entry::Numbered {
        count: "nr_contexts",
        max: 1,
        child: &CONTEXT,
        role: Role::Plain,
    }],
};

static CONTEXT: Dir = Dir {
    entries: &[
        file("avail_operations", false, Kind::Text, Role::Operations),
        rw("operations", word(&["vaddr", "fvaddr", "paddr"])),
        rw(
            "addr_unit",
            Kind::Unsigned {
                default: 1,
                min: 1,
                max: u64::MAX,
                erange: true,
            },
        ),
        Sub("monitoring_attrs", &ATTRS),
        Sub("targets", &TARGETS),
        Sub("schemes", &SCHEMES),
    ],
};

static ATTRS: Dir = Dir {
    entries: &[Sub("intervals", &INTERVALS), Sub("nr_regions", &NR_REGIONS)],
};

static INTERVALS: Dir = Dir {
    entries: &[
        rw("sample_us", ulong(5_000)),
        rw("aggr_us", ulong(100_000)),
        rw("update_us", ulong(60_000_000)),
        Sub("intervals_goal", &INTERVALS_GOAL),
    ],
};

static INTERVALS_GOAL: Dir = Dir {
    entries: &[
        rw("access_bp", ulong(0)),
        rw("aggrs", ulong(0)),
        rw("min_sample_us", ulong(0)),
        rw("max_sample_us", ulong(0)),
    ],
};

static NR_REGIONS: Dir = Dir {
    entries: &[rw("min", ulong(10)), rw("max", ulong(1000))],
};

static TARGETS: Dir = Dir {
    entries: &[counted("nr_targets", &TARGET)],
};

static TARGET: Dir = Dir {
    entries: &[
        rw(
            "pid_target",
            Kind::Int {
                default: 0,
                erange: false,
            },
        ),
        Sub("regions", &REGIONS),
    ],
};

static REGIONS: Dir = Dir {
    entries: &[counted("nr_regions", &REGION)],
};

static REGION: Dir = Dir {
    entries: &[rw("start", ulong(0)), rw("end", ulong(0))],
};

static SCHEMES: Dir = Dir {
    entries: &[counted("nr_schemes", &SCHEME)],
};

static SCHEME: Dir = Dir {
    entries: &[
        rw("action", word(&ACTIONS)),
        rw("apply_interval_us", ulong(0)),
        rw("target_nid", int(-1)),
        Sub("access_pattern", &ACCESS_PATTERN),
        Sub("quotas", &QUOTAS),
        Sub("watermarks", &WATERMARKS),
        Sub("filters", &FILTERS),
        Sub("core_filters", &CORE_FILTERS),
        Sub("ops_filters", &OPS_FILTERS),
        Sub("dests", &DESTS),
        Sub("stats", &STATS),
        Sub("tried_regions", &TRIED_REGIONS),
    ],
};

const ACTIONS: [&str; 10] = [
    "stat",
    "willneed",
    "cold",
    "pageout",
    "hugepage",
    "nohugepage",
    "lru_prio",
    "lru_deprio",
    "migrate_hot",
    "migrate_cold",
];

static ACCESS_PATTERN: Dir = Dir {
    entries: &[
        Sub("sz", &BOUNDS),
        Sub("nr_accesses", &BOUNDS),
        Sub("age", &BOUNDS),
    ],
};

static BOUNDS: Dir = Dir {
    entries: &[rw("min", ulong(0)), rw("max", ulong(0))],
};

static QUOTAS: Dir = Dir {
    entries: &[
        rw("ms", strict_ulong(0)),
        rw("bytes", strict_ulong(0)),
        rw("reset_interval_ms", strict_ulong(0)),
        ro("effective_bytes", ulong(0)),
        Sub("weights", &WEIGHTS),
        Sub("goals", &GOALS),
    ],
};

static WEIGHTS: Dir = Dir {
    entries: &[
        rw("sz_permil", uint(0)),
        rw("nr_accesses_permil", uint(0)),
        rw("age_permil", uint(0)),
    ],
};

static GOALS: Dir = Dir {
    entries: &[counted("nr_goals", &GOAL)],
};

static GOAL: Dir = Dir {
    entries: &[
        rw(
            "target_metric",
            word(&[
                "user_input",
                "some_mem_psi_us",
                "node_mem_used_bp",
                "node_mem_free_bp",
            ]),
        ),
        rw("target_value", ulong(0)),
        rw("current_value", ulong(0)),
        rw("nid", int(0)),
    ],
};

static WATERMARKS: Dir = Dir {
    entries: &[
        rw("metric", word(&["none", "free_mem_rate"])),
        rw("interval_us", ulong(0)),
        rw("high", ulong(0)),
        rw("mid", ulong(0)),
        rw("low", ulong(0)),
    ],
};

static FILTERS: Dir = Dir {
    entries: &[counted("nr_filters", &FILTER)],
};

static CORE_FILTERS: Dir = Dir {
    entries: &[counted("nr_filters", &CORE_FILTER)],
};

static OPS_FILTERS: Dir = Dir {
    entries: &[counted("nr_filters", &OPS_FILTER)],
};

const PAGE_FILTERS: [&str; 6] = ["anon", "active", "memcg", "young", "hugepage_size", "unmapped"];
const REGION_FILTERS: [&str; 2] = ["addr", "target"];
const ANY_FILTER: [&str; 8] = [
    "anon",
    "active",
    "memcg",
    "young",
    "hugepage_size",
    "unmapped",
    "addr",
    "target",
];

static FILTER: Dir = Dir {
    entries: &filter(&ANY_FILTER),
};

static CORE_FILTER: Dir = Dir {
    entries: &filter(&REGION_FILTERS),
};

static OPS_FILTER: Dir = Dir {
    entries: &filter(&PAGE_FILTERS),
};

/// A filter directory. The default type is `anon` in every group, also where `anon` cannot be written.
const fn filter(words: &'static [&'static str]) -> [Entry; 9] {
    let default = "anon";
    [
        rw("type", Kind::Word { default, words }),
        rw("matching", Kind::Bool),
        rw("allow", Kind::Bool),
        rw("memcg_path", Kind::Text),
        rw("addr_start", ulong(0)),
        rw("addr_end", ulong(0)),
        rw("min", ulong(0)),
        rw("max", ulong(0)),
        rw("damon_target_idx", int(0)),
    ]
}

static DESTS: Dir = Dir {
    entries: &[counted("nr_dests", &DEST)],
};

static DEST: Dir = Dir {
    entries: &[rw("id", uint(0)), rw("weight", uint(0))],
};

static STATS: Dir = Dir {
    entries: &[
        ro("nr_tried", ulong(0)),
        ro("sz_tried", ulong(0)),
        ro("nr_applied", ulong(0)),
        ro("sz_applied", ulong(0)),
        ro("sz_ops_filter_passed", ulong(0)),
        ro("qt_exceeds", ulong(0)),
    ],
};

static TRIED_REGIONS: Dir = Dir {
    entries: &[
        ro("total_bytes", ulong(0)),
        Entry::Generated { child: &TRIED_REGION },
    ],
};

static TRIED_REGION: Dir = Dir {
    entries: &[
        ro("start", ulong(0)),
        ro("end", ulong(0)),
        ro("nr_accesses", ulong(0)),
        ro("age", ulong(0)),
        ro("sz_filter_passed", ulong(0)),
    ],
};
