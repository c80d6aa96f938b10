//! Statistics of modules, by file name.

use thermo_engine::scheme::SchemeStats;

use crate::engine::Summary;

/// The value of the file `name`. `stats` are the statistics of the module's schemes.
pub fn scheme_statistic(name: &str, stats: &[SchemeStats]) -> u64 {
    // `damon_lru_sort` has two schemes: hot memory, then cold memory.
    let scheme = usize::from(name.contains("_cold_"));
    let stats = stats.get(scheme).copied().unwrap_or_default();
    match name {
        "nr_reclaim_tried_regions" | "nr_lru_sort_tried_hot_regions" | "nr_lru_sort_tried_cold_regions" => {
            stats.nr_tried
        }
        "bytes_reclaim_tried_regions"
        | "bytes_lru_sort_tried_hot_regions"
        | "bytes_lru_sort_tried_cold_regions" => stats.sz_tried.0,
        "nr_reclaimed_regions" | "nr_lru_sorted_hot_regions" | "nr_lru_sorted_cold_regions" => {
            stats.nr_applied
        }
        "bytes_reclaimed_regions" | "bytes_lru_sorted_hot_regions" | "bytes_lru_sorted_cold_regions" => {
            stats.sz_applied.0
        }
        _ => stats.qt_exceeds,
    }
}

/// The value of the file `name` of `damon_stat`. Zeros before the first snapshot.
pub fn summary_statistic(name: &str, summary: Option<&Summary>) -> String {
    let number = |field: fn(&Summary) -> u64| summary.map_or(0, field).to_string();
    match name {
        "estimated_memory_bandwidth" => number(|summary| summary.bytes_per_second),
        "aggr_interval_us" => number(|summary| summary.aggr.as_micros()),
        _ => {
            let mut percentiles = summary.map_or_else(Vec::new, |summary| summary.idle_ms.clone());
            percentiles.resize(101, 0);
            let percentiles = percentiles.iter().map(i64::to_string);
            percentiles.collect::<Vec<_>>().join(",")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::Bytes;

    #[test]
    fn statistics_take_hot_then_cold_scheme() {
        let stats = [1, 2].map(|nth| SchemeStats {
            nr_tried: nth,
            sz_tried: Bytes(nth * 10),
            nr_applied: nth * 100,
            sz_applied: Bytes(nth * 1000),
            qt_exceeds: nth * 10_000,
            ..SchemeStats::default()
        });
        assert_eq!(scheme_statistic("nr_lru_sort_tried_hot_regions", &stats), 1);
        assert_eq!(scheme_statistic("bytes_lru_sort_tried_cold_regions", &stats), 20);
        assert_eq!(scheme_statistic("nr_lru_sorted_cold_regions", &stats), 200);
        assert_eq!(scheme_statistic("bytes_lru_sorted_hot_regions", &stats), 1000);
        assert_eq!(scheme_statistic("nr_cold_quota_exceeds", &stats), 20_000);
        assert_eq!(scheme_statistic("nr_quota_exceeds", &[]), 0, "before it was on");
    }
}
