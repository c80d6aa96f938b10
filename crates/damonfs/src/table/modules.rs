//! Parameters of the kernel's DAMON modules in Linux 6.18 (`/sys/module/damon_*/parameters`).

use super::Entry::Dir as Sub;
use super::{Dir, Entry, Kind, Role, file, int, rw, ulong};

/// The parameters of a module with schemes: the common ones, with the module's default watermarks, then its
/// own.
macro_rules! scheme_module {
    (wmarks: $high:literal, $mid:literal, $low:literal; $($own:expr),+ $(,)?) => {
        Dir {
            entries: &[
                ENABLED,
                COMMIT_INPUTS,
                KDAMOND_PID,
                rw("quota_ms", ulong(10)),
                rw("quota_reset_interval_ms", ulong(1000)),
                rw("wmarks_interval", ulong(5_000_000)),
                rw("wmarks_high", ulong($high)),
                rw("wmarks_mid", ulong($mid)),
                rw("wmarks_low", ulong($low)),
                rw("sample_interval", ulong(5_000)),
                rw("aggr_interval", ulong(100_000)),
                rw("min_nr_regions", ulong(10)),
                rw("max_nr_regions", ulong(1000)),
                rw("monitor_region_start", ulong(0)),
                rw("monitor_region_end", ulong(0)),
                rw("addr_unit", ulong(1)),
                $($own),+
            ],
        }
    };
}

/// The root directory.
pub static MODULES: Dir = Dir {
    entries: &[
        Sub("damon_reclaim", &RECLAIM),
        Sub("damon_lru_sort", &LRU_SORT),
        Sub("damon_stat", &STAT),
    ],
};

static RECLAIM: Dir = Dir {
    entries: &[Sub("parameters", &RECLAIM_PARAMETERS)],
};

static RECLAIM_PARAMETERS: Dir = scheme_module! {
    wmarks: 500, 400, 200;
    rw("min_age", ulong(120_000_000)),
    rw("quota_sz", ulong(128 << 20)),
    rw("quota_mem_pressure_us", ulong(0)),
    rw("quota_autotune_feedback", ulong(0)),
    rw("skip_anon", Kind::Bool),
    statistic("nr_reclaim_tried_regions"),
    statistic("bytes_reclaim_tried_regions"),
    statistic("nr_reclaimed_regions"),
    statistic("bytes_reclaimed_regions"),
    statistic("nr_quota_exceeds"),
};

static LRU_SORT: Dir = Dir {
    entries: &[Sub("parameters", &LRU_SORT_PARAMETERS)],
};

static LRU_SORT_PARAMETERS: Dir = scheme_module! {
    wmarks: 200, 150, 50;
    rw("hot_thres_access_freq", ulong(500)),
    rw("cold_min_age", ulong(120_000_000)),
    statistic("nr_lru_sort_tried_hot_regions"),
    statistic("bytes_lru_sort_tried_hot_regions"),
    statistic("nr_lru_sorted_hot_regions"),
    statistic("bytes_lru_sorted_hot_regions"),
    statistic("nr_hot_quota_exceeds"),
    statistic("nr_lru_sort_tried_cold_regions"),
    statistic("bytes_lru_sort_tried_cold_regions"),
    statistic("nr_lru_sorted_cold_regions"),
    statistic("bytes_lru_sorted_cold_regions"),
    statistic("nr_cold_quota_exceeds"),
};

static STAT: Dir = Dir {
    entries: &[Sub("parameters", &STAT_PARAMETERS)],
};

static STAT_PARAMETERS: Dir = Dir {
    entries: &[
        ENABLED,
        statistic("estimated_memory_bandwidth"),
        statistic("memory_idle_ms_percentiles"),
        statistic("aggr_interval_us"),
    ],
};

const ENABLED: Entry = file("enabled", true, Kind::Bool, Role::Enabled);
const COMMIT_INPUTS: Entry = file("commit_inputs", true, Kind::Bool, Role::CommitInputs);
const KDAMOND_PID: Entry = file("kdamond_pid", false, int(-1), Role::Pid);

/// A read-only statistic.
const fn statistic(name: &'static str) -> Entry {
    file(name, false, ulong(0), Role::Statistic)
}
