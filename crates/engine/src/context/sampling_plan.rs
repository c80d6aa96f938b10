//! Sampling within a budget: intervals and numbers of regions.

use crate::attrs::Attrs;
use crate::budget::CpuShare;
use thermo_units::Nanos;

/// A snapshot older than this sees too little of what happened.
const LONGEST_AGGR: Nanos = Nanos::secs(20);
/// Looks in one aggregation when sampling, DAMON's default; fewer where they come too seldom.
const SAMPLES: u64 = 20;
const FEWEST_SAMPLES: u64 = 4;
const FASTEST_SAMPLE: Nanos = Nanos::millis(5);
const SLOWEST_SAMPLE: Nanos = Nanos::secs(5);
/// The sampling interval one would like; regions are given up for it, down to [`FEWEST_REGIONS`].
const GOOD_SAMPLE: Nanos = Nanos::millis(100);
const FEWEST_REGIONS: usize = 100;

/// The sampling interval to take up, where one sampling interval costs so much that the budget asks for `needed` and
/// `now` is in force; none while that fits well enough. A budget that is overdrawn a little pays back by itself, so there
/// is no hurry.
pub(super) fn next_sample(needed: Nanos, now: Nanos) -> Option<Nanos> {
    let wanted = if needed <= FASTEST_SAMPLE {
        FASTEST_SAMPLE
    } else {
        Nanos((needed.0 / 20).saturating_mul(21)).min(SLOWEST_SAMPLE)
    };
    let least = needed.clamp(FASTEST_SAMPLE, SLOWEST_SAMPLE);
    let fits = least.0 <= now.0 / 10 * 11 && wanted.0 >= now.0 / 100 * 85;
    (!fits).then_some(wanted)
}

/// Attributes of sampling that stay within `share` when one look at one region costs `look` and there are
/// `nr_regions` of them, or as many as it takes.
pub(super) fn sample_attrs(share: CpuShare, asked: &Attrs, look: Nanos, nr_regions: usize) -> Attrs {
    let affordable = usize::try_from(share.of(GOOD_SAMPLE).0 / look.0.max(1)).unwrap_or(usize::MAX);
    let least = FEWEST_REGIONS.max(asked.min_nr_regions).min(asked.max_nr_regions);
    let max_nr_regions = affordable.clamp(least, asked.max_nr_regions);
    let sample = share
        .time_for(look * max_nr_regions.min(nr_regions) as u64)
        .clamp(FASTEST_SAMPLE, SLOWEST_SAMPLE);
    let attrs = Attrs {
        max_nr_regions,
        ..*asked
    };
    sample_each(sample, attrs)
}

/// `attrs` with samples every `sample`, and as many in an aggregation as do not make a picture too old.
pub(super) fn sample_each(sample: Nanos, attrs: Attrs) -> Attrs {
    let looks = (LONGEST_AGGR.0 / sample.0.max(1)).clamp(FEWEST_SAMPLES, SAMPLES);
    Attrs {
        sample,
        aggr: sample * looks,
        ..attrs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_PERCENT: CpuShare = CpuShare(10_000);

    #[test]
    fn samples_are_planned_to_fit() {
        for look_us in [1, 3, 10, 100] {
            let attrs = sample_attrs(ONE_PERCENT, &Attrs::default(), Nanos::micros(look_us), usize::MAX);
            assert_eq!(attrs.check(), Ok(()));
            let cost_per_second = look_us * attrs.max_nr_regions as u64 * 1_000_000_000 / attrs.sample.0;
            assert!(
                cost_per_second <= 10_100,
                "{cost_per_second} us of 10,000 at {look_us} us: {attrs:?}"
            );
        }
    }

    #[test]
    fn few_regions_asked_for_stay_few() {
        let asked = Attrs {
            max_nr_regions: 20,
            ..Attrs::default()
        };
        assert_eq!(
            sample_attrs(ONE_PERCENT, &asked, Nanos::micros(3), usize::MAX).max_nr_regions,
            20
        );
    }

    #[test]
    fn an_interval_that_fits_stays() {
        let next = |needed, now| next_sample(Nanos::millis(needed), Nanos::millis(now));
        assert_eq!(next(3, 5), None);
        assert_eq!(next(2100, 2000), None);
        assert_eq!(next(1800, 2000), None);
        assert_eq!(next(3000, 2000), Some(Nanos::millis(3150)));
        assert_eq!(next(1500, 2000), Some(Nanos::millis(1575)));
        assert_eq!(next(3, 2000), Some(FASTEST_SAMPLE));
        assert_eq!(next(9000, 2000), Some(SLOWEST_SAMPLE));
    }
}
