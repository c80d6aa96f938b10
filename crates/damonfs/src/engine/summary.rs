//! What regions tell in a few numbers (`DAMON_STAT`): how much memory is accessed, and how long the rest was not.

use thermo_engine::Region;
use thermo_units::Nanos;

/// The numbers of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Accesses as bytes a second: sizes times looks that found them accessed, over the aggregation.
    pub bytes_per_second: u64,
    /// For each percent of the bytes, the most idle last: milliseconds they were not accessed for; as a negative
    /// number, how long they have been accessed for. Empty while there are no regions.
    pub idle_ms: Vec<i64>,
    /// The aggregation interval in force.
    pub aggr: Nanos,
}

impl Summary {
    /// That of `regions`, whose last aggregation took `aggr`.
    pub fn of<'a>(regions: impl Iterator<Item = &'a Region>, aggr: Nanos) -> Self {
        let mut sized: Vec<(i64, u64)> = Vec::new();
        let mut accessed = 0_u128;
        for region in regions {
            let aggrs = i64::from(region.age) + 1;
            let idle = if region.last_nr_accesses > 0 {
                -aggrs
            } else {
                aggrs
            };
            sized.push((idle, region.len().0));
            accessed += u128::from(region.len().0) * u128::from(region.last_nr_accesses);
        }
        sized.sort_unstable();
        let per_second = accessed * 1_000_000_000 / u128::from(aggr.0.max(1));
        Self {
            bytes_per_second: u64::try_from(per_second).unwrap_or(u64::MAX),
            idle_ms: percentiles(&sized, aggr),
            aggr,
        }
    }
}

/// The idle time at each percent of the bytes of `sized`: idle aggregations, ascending, and bytes.
fn percentiles(sized: &[(i64, u64)], aggr: Nanos) -> Vec<i64> {
    let total: u128 = sized.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
    let aggr_ms = i64::try_from(aggr.0 / 1_000_000).unwrap_or(i64::MAX);
    let (mut found, mut below) = (Vec::new(), 0);
    for (idle, bytes) in sized {
        below += u128::from(*bytes);
        while found.len() <= 100 && found.len() as u128 * total <= below * 100 {
            found.push(idle.saturating_mul(aggr_ms));
        }
    }
    found
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
    fn percents_are_of_bytes_and_what_is_accessed_is_negative() {
        let regions = [region(50, 0, 9), region(25, 0, 0), region(25, 4, 2)];
        let summary = Summary::of(regions.iter(), Nanos::millis(100));
        assert_eq!(summary.idle_ms.len(), 101);
        let of = |percent: usize| summary.idle_ms[percent];
        assert_eq!(
            (of(0), of(25), of(26), of(50), of(51), of(100)),
            (-300, -300, 100, 100, 1000, 1000)
        );
        assert_eq!(summary.bytes_per_second, 25 * 4096 * 4 * 10);
    }

    #[test]
    fn nothing_tells_nothing() {
        let summary = Summary::of([].iter(), Nanos::millis(100));
        assert_eq!((summary.bytes_per_second, summary.idle_ms), (0, Vec::new()));
    }
}
