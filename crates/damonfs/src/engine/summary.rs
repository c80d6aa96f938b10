//! The statistics of `DAMON_STAT`: estimated memory bandwidth and percentiles of idle time.

use thermo_engine::Region;
use thermo_units::Nanos;

/// Statistics of one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Estimated bandwidth in bytes per second: the sum over regions of size times `nr_accesses`, divided by
    /// the aggregation interval.
    pub bytes_per_second: u64,
    /// Idle time in milliseconds at each percent (0 to 100) of the bytes, ascending. Negative: time for which
    /// the memory has been accessed. Empty while there are no regions.
    pub idle_ms: Vec<i64>,
    /// The aggregation interval in use.
    pub aggr: Nanos,
}

impl Summary {
    /// The statistics of `regions`, whose last aggregation interval was `aggr`.
    pub fn new<'a>(regions: impl Iterator<Item = &'a Region>, aggr: Nanos) -> Self {
        let mut idle_sizes: Vec<(i64, u64)> = Vec::new();
        let mut accessed = 0_u128;
        for region in regions {
            let aggrs = i64::from(region.age) + 1;
            let idle = if region.last_nr_accesses > 0 {
                -aggrs
            } else {
                aggrs
            };
            idle_sizes.push((idle, region.len().0));
            accessed += u128::from(region.len().0) * u128::from(region.last_nr_accesses);
        }
        idle_sizes.sort_unstable();
        let per_second = accessed * 1_000_000_000 / u128::from(aggr.0.max(1));
        Self {
            bytes_per_second: u64::try_from(per_second).unwrap_or(u64::MAX),
            idle_ms: percentiles(&idle_sizes, aggr),
            aggr,
        }
    }
}

/// Idle times in milliseconds at each percent of the bytes. `idle_sizes` holds pairs of idle aggregations and
/// bytes, by ascending idle aggregations.
fn percentiles(idle_sizes: &[(i64, u64)], aggr: Nanos) -> Vec<i64> {
    let total: u128 = idle_sizes.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
    let aggr_ms = i64::try_from(aggr.0 / 1_000_000).unwrap_or(i64::MAX);
    let (mut percentiles, mut below) = (Vec::new(), 0);
    for (idle, bytes) in idle_sizes {
        below += u128::from(*bytes);
        while percentiles.len() <= 100 && percentiles.len() as u128 * total <= below * 100 {
            percentiles.push(idle.saturating_mul(aggr_ms));
        }
    }
    percentiles
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::AddrRange;

    fn region(pages: u64, last_nr_accesses: u32, age: u32) -> Region {
        Region {
            last_nr_accesses,
            age,
            ..Region::new(AddrRange::new(0, pages * 4096))
        }
    }

    #[test]
    fn percentiles_weigh_bytes_and_accessed_is_negative() {
        let regions = [region(50, 0, 9), region(25, 0, 0), region(25, 4, 2)];
        let summary = Summary::new(regions.iter(), Nanos::millis(100));
        assert_eq!(summary.idle_ms.len(), 101);
        let percentiles = [0, 25, 26, 50, 51, 100].map(|percent| summary.idle_ms[percent]);
        assert_eq!(percentiles, [-300, -300, 100, 100, 1000, 1000]);
        assert_eq!(summary.bytes_per_second, 25 * 4096 * 4 * 10);
    }

    #[test]
    fn summary_of_no_regions_is_empty() {
        let summary = Summary::new([].iter(), Nanos::millis(100));
        assert_eq!((summary.bytes_per_second, summary.idle_ms), (0, Vec::new()));
    }
}
