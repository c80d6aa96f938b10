//! What modules tell of themselves, by the names of their files.

use thermo_engine::scheme::SchemeStats;

use crate::engine::Summary;

/// The number of this name among `stats`, the statistics of a module's schemes.
pub fn of_schemes(name: &str, stats: &[SchemeStats]) -> u64 {
    let of = |scheme: usize| stats.get(scheme).copied().unwrap_or_default();
    // The scheme for cold memory comes behind that for hot memory.
    let stats = of(usize::from(name.contains("_cold_")));
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

/// What `damon_stat` shows in its file of this name; zeros before it has seen anything.
pub fn of_summary(name: &str, summary: Option<&Summary>) -> String {
    let number = |of: fn(&Summary) -> u64| summary.map_or(0, of).to_string();
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
    fn hot_comes_first_and_cold_behind_it() {
        let stats = [1, 2].map(|nth| SchemeStats {
            nr_tried: nth,
            sz_tried: Bytes(nth * 10),
            nr_applied: nth * 100,
            sz_applied: Bytes(nth * 1000),
            qt_exceeds: nth * 10_000,
            ..SchemeStats::default()
        });
        assert_eq!(of_schemes("nr_lru_sort_tried_hot_regions", &stats), 1);
        assert_eq!(of_schemes("bytes_lru_sort_tried_cold_regions", &stats), 20);
        assert_eq!(of_schemes("nr_lru_sorted_cold_regions", &stats), 200);
        assert_eq!(of_schemes("bytes_lru_sorted_hot_regions", &stats), 1000);
        assert_eq!(of_schemes("nr_cold_quota_exceeds", &stats), 20_000);
        assert_eq!(of_schemes("nr_quota_exceeds", &[]), 0, "before it was on");
    }
}
