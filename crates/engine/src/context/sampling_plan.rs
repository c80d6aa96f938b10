//! Intervals and numbers of regions that keep sampling within a budget.

use crate::attrs::Attrs;
use crate::budget::CpuShare;
use thermo_units::Nanos;

/// Maximum aggregation interval.
const MAX_AGGR: Nanos = Nanos::secs(20);
/// Samples in one aggregation: DAMON's default, fewer if the aggregation would exceed [`MAX_AGGR`].
const SAMPLES: u64 = 20;
const MIN_SAMPLES: u64 = 4;
const MIN_SAMPLE: Nanos = Nanos::millis(5);
const MAX_SAMPLE: Nanos = Nanos::secs(5);
/// Preferred sampling interval. The number of regions is reduced for it, down to [`MIN_REGIONS`].
const PREFERRED_SAMPLE: Nanos = Nanos::millis(100);
const MIN_REGIONS: usize = 100;

/// The sampling interval to change to, if the budget requires `needed` and the current interval is `current`:
/// 5 % more than `needed`. `None` while `needed` is at most 10 % above `current` and the new interval at most
/// 15 % below it. A small overdraft is paid back by resting.
pub(super) fn next_sampling_interval(needed: Nanos, current: Nanos) -> Option<Nanos> {
    let wanted = if needed <= MIN_SAMPLE {
        MIN_SAMPLE
    } else {
        Nanos((needed.0 / 20).saturating_mul(21)).min(MAX_SAMPLE)
    };
    let min = needed.clamp(MIN_SAMPLE, MAX_SAMPLE);
    let fits = min.0 <= current.0 / 10 * 11 && wanted.0 >= current.0 / 100 * 85;
    (!fits).then_some(wanted)
}

/// Sampling attributes that stay within `share` if an access check costs `check_cost`. `nr_regions` is the
/// number of sampled regions, or `usize::MAX` to plan for the maximum.
pub(super) fn sampling_attrs(
    share: CpuShare,
    requested: &Attrs,
    check_cost: Nanos,
    nr_regions: usize,
) -> Attrs {
    let affordable =
        usize::try_from(share.of(PREFERRED_SAMPLE).0 / check_cost.0.max(1)).unwrap_or(usize::MAX);
    let min = MIN_REGIONS
        .max(requested.min_nr_regions)
        .min(requested.max_nr_regions);
    let max_nr_regions = affordable.clamp(min, requested.max_nr_regions);
    let sample = share
        .time_for(check_cost * max_nr_regions.min(nr_regions) as u64)
        .clamp(MIN_SAMPLE, MAX_SAMPLE);
    let attrs = Attrs {
        max_nr_regions,
        ..*requested
    };
    with_sampling_interval(attrs, sample)
}

/// Returns `attrs` with the sampling interval `sample` and an aggregation interval that fits.
pub(super) fn with_sampling_interval(attrs: Attrs, sample: Nanos) -> Attrs {
    let samples = (MAX_AGGR.0 / sample.0.max(1)).clamp(MIN_SAMPLES, SAMPLES);
    Attrs {
        sample,
        aggr: sample * samples,
        ..attrs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_PERCENT: CpuShare = CpuShare(10_000);

    #[test]
    fn sampling_attrs_stay_within_budget() {
        for check_us in [1, 3, 10, 100] {
            let check_cost = Nanos::micros(check_us);
            let attrs = sampling_attrs(ONE_PERCENT, &Attrs::default(), check_cost, usize::MAX);
            assert_eq!(attrs.check(), Ok(()));
            let cost_per_second = check_us * attrs.max_nr_regions as u64 * 1_000_000_000 / attrs.sample.0;
            assert!(
                cost_per_second <= 10_100,
                "{cost_per_second} us of 10,000 at {check_us} us: {attrs:?}"
            );
        }
    }

    #[test]
    fn sampling_attrs_keep_small_requested_maximum() {
        let requested = Attrs {
            max_nr_regions: 20,
            ..Attrs::default()
        };
        assert_eq!(
            sampling_attrs(ONE_PERCENT, &requested, Nanos::micros(3), usize::MAX).max_nr_regions,
            20
        );
    }

    #[test]
    fn sampling_interval_stays_while_it_fits() {
        let next = |needed, current| next_sampling_interval(Nanos::millis(needed), Nanos::millis(current));
        assert_eq!(next(3, 5), None);
        assert_eq!(next(2100, 2000), None);
        assert_eq!(next(1800, 2000), None);
        assert_eq!(next(3000, 2000), Some(Nanos::millis(3150)));
        assert_eq!(next(1500, 2000), Some(Nanos::millis(1575)));
        assert_eq!(next(3, 2000), Some(MIN_SAMPLE));
        assert_eq!(next(9000, 2000), Some(MAX_SAMPLE));
    }
}
