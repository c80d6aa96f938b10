//! Automatic tuning of intervals (`intervals_goal` in DAMON's control files, Linux 6.15): intervals are
//! chosen so that a given share of access checks finds an access. On idle memory, short intervals cost CPU
//! time and find nothing. On busy memory, long intervals find all memory accessed and show no differences.

use crate::attrs::Attrs;
use crate::region::Region;
use crate::scheme::{SCORE_REACHED, feed_loop_next_input};
use thermo_units::{BasisPoints, Nanos};

/// The wanted share of accesses, and bounds on the sampling interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntervalsGoal {
    /// Wanted share of access checks that find an access, weighted by the bytes of the region.
    pub access: BasisPoints,
    /// Intervals are tuned after this many aggregations.
    pub aggrs: u64,
    /// Minimum sampling interval.
    pub min_sample: Nanos,
    /// Maximum sampling interval.
    pub max_sample: Nanos,
}

impl Default for IntervalsGoal {
    /// The values of damo's `--monitoring_intervals_autotune`: 4 %, every 3 aggregations, 5 ms to 10 s.
    fn default() -> Self {
        Self {
            access: BasisPoints(400),
            aggrs: 3,
            min_sample: Nanos::millis(5),
            max_sample: Nanos::secs(10),
        }
    }
}

/// A contradictory goal. The rules are the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IntervalsGoalError {
    /// The number of aggregations is 0.
    #[error("intervals cannot be tuned every 0 aggregations: give a number of aggregations, like 3")]
    ZeroAggrs,
    /// The initial sampling interval is outside the bounds.
    #[error(
        "the sampling interval ({sample}) does not lie between the minimum ({min}) and the maximum ({max}) of the \
         intervals goal: change one of the three"
    )]
    OutOfBounds {
        /// The sampling interval.
        sample: Nanos,
        /// The minimum.
        min: Nanos,
        /// The maximum.
        max: Nanos,
    },
}

impl IntervalsGoal {
    /// Checks that monitoring with `attrs` can be tuned towards this goal.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self, attrs: &Attrs) -> Result<(), IntervalsGoalError> {
        if self.aggrs == 0 {
            return Err(IntervalsGoalError::ZeroAggrs);
        }
        if attrs.sample < self.min_sample || self.max_sample < attrs.sample {
            return Err(IntervalsGoalError::OutOfBounds {
                sample: attrs.sample,
                min: self.min_sample,
                max: self.max_sample,
            });
        }
        Ok(())
    }
}

/// Tunes intervals towards a goal.
#[derive(Debug, Clone)]
pub(crate) struct IntervalsTuner {
    goal: IntervalsGoal,
    /// Access checks in an aggregation. Constant during tuning.
    aggr_samples: u64,
    /// Aggregations since the last tuning.
    aggrs: u64,
}

impl IntervalsTuner {
    /// Begins with `attrs`, which [`IntervalsGoal::check`] must have accepted.
    pub(crate) fn new(goal: IntervalsGoal, attrs: &Attrs) -> Self {
        Self {
            goal,
            aggr_samples: attrs.samples_in(attrs.aggr),
            aggrs: 0,
        }
    }

    pub(crate) const fn goal(&self) -> IntervalsGoal {
        self.goal
    }

    /// Call after each aggregation with its `attrs` and `regions`. Returns changed attributes, or `None` if
    /// they stay.
    pub(crate) fn after_aggregation<'a>(
        &mut self,
        regions: impl Iterator<Item = &'a Region>,
        attrs: &Attrs,
    ) -> Option<Attrs> {
        self.aggrs += 1;
        if self.aggrs < self.goal.aggrs {
            return None;
        }
        self.aggrs = 0;
        let factor = interval_factor(self.score(regions));
        let sample = u128::from(attrs.sample.0) * u128::from(factor) / u128::from(SCORE_REACHED);
        let sample = Nanos(u64::try_from(sample).unwrap_or(u64::MAX)).max(MIN_INTERVAL);
        let sample = sample.max(self.goal.min_sample).min(self.goal.max_sample);
        let tuned = Attrs {
            sample,
            aggr: sample * self.aggr_samples,
            ..*attrs
        };
        (tuned != *attrs).then_some(tuned)
    }

    /// Accesses found, in ten-thousandths of the wanted number (`damon_get_intervals_score()`).
    fn score<'a>(&self, regions: impl Iterator<Item = &'a Region>) -> u64 {
        let (mut found, mut possible) = (0_u128, 0_u128);
        for region in regions {
            let sz = u128::from(region.len().0);
            found += sz * u128::from(region.nr_accesses);
            possible += sz * u128::from(self.aggr_samples);
        }
        let whole = u128::from(BasisPoints::WHOLE.0);
        let wanted = possible.saturating_mul(u128::from(self.goal.access.0)) / whole;
        let score = found.saturating_mul(u128::from(SCORE_REACHED)) / wanted.max(1);
        u64::try_from(score).unwrap_or(u64::MAX)
    }
}

/// Lower bound on tuned intervals for any goal: the kernel's unit of intervals.
const MIN_INTERVAL: Nanos = Nanos::micros(1);

/// The factor to multiply intervals by, in ten-thousandths: between 1/2 and 2.
fn interval_factor(score: u64) -> u64 {
    let factor = feed_loop_next_input(SCORE_REACHED * SCORE_REACHED, score, SCORE_REACHED) / SCORE_REACHED;
    if factor <= SCORE_REACHED {
        SCORE_REACHED / 2 + factor / 2
    } else {
        factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::AddrRange;

    /// 100 pages, of which `hot` were accessed at each of 20 access checks.
    fn regions(hot: u64) -> [Region; 2] {
        let hot_part = Region {
            nr_accesses: 20,
            ..Region::new(AddrRange::new(0, hot * 4096))
        };
        [hot_part, Region::new(AddrRange::new(hot * 4096, 100 * 4096))]
    }

    /// Sampling and aggregation interval after one tuning, in microseconds.
    fn tuned(goal: IntervalsGoal, hot: u64) -> (u64, u64) {
        let attrs = Attrs::default();
        let goal = IntervalsGoal { aggrs: 1, ..goal };
        let tuned = IntervalsTuner::new(goal, &attrs).after_aggregation(regions(hot).iter(), &attrs);
        let attrs = tuned.unwrap_or(attrs);
        (attrs.sample.as_micros(), attrs.aggr.as_micros())
    }

    #[test]
    fn tuned_intervals_match_values_computed_by_hand() {
        let goal = IntervalsGoal {
            min_sample: Nanos::millis(1),
            ..IntervalsGoal::default()
        };
        // Wanted: 4 % of 100 pages x 20 access checks = 80. Found: 20 for each hot page.
        for (hot, expected) in [
            (0, (10_000, 200_000)), // score 0: doubled
            (2, (7_500, 150_000)),  // score 5000: factor 1.5
            (4, (5_000, 100_000)),  // score 10000: reached
            (6, (3_750, 75_000)),   // score 15000: 0.5 becomes 0.75
            (8, (2_500, 50_000)),   // score 20000: the minimum, 0.0001 becomes 0.5
            (100, (2_500, 50_000)),
        ] {
            assert_eq!(tuned(goal, hot), expected, "{hot} hot pages");
        }
    }

    #[test]
    fn tuning_keeps_bounds_and_interval_ratio() {
        assert_eq!(tuned(IntervalsGoal::default(), 100), (5_000, 100_000));
        let goal = IntervalsGoal {
            max_sample: Nanos::millis(6),
            ..IntervalsGoal::default()
        };
        assert_eq!(tuned(goal, 0), (6_000, 120_000));
    }

    #[test]
    fn tuning_waits_for_given_aggregations() {
        let (mut attrs, regions) = (Attrs::default(), regions(0));
        let mut tuner = IntervalsTuner::new(IntervalsGoal::default(), &attrs);
        let mut samples = Vec::new();
        for _ in 0..9 {
            attrs = tuner.after_aggregation(regions.iter(), &attrs).unwrap_or(attrs);
            samples.push(attrs.sample.0 / 1_000_000);
        }
        assert_eq!(samples, [5, 5, 10, 10, 10, 20, 20, 20, 40]);
    }

    #[test]
    fn goal_check_rejects_contradictions() {
        let (goal, attrs) = (IntervalsGoal::default(), Attrs::default());
        assert_eq!(goal.check(&attrs), Ok(()));
        assert_eq!(
            IntervalsGoal { aggrs: 0, ..goal }.check(&attrs),
            Err(IntervalsGoalError::ZeroAggrs)
        );
        let goal = IntervalsGoal {
            min_sample: Nanos::millis(6),
            ..goal
        };
        let error = goal.check(&attrs).expect_err("5 ms is too short").to_string();
        assert!(
            error.contains("(5.00 ms) does not lie between the minimum (6.00 ms) and"),
            "{error}"
        );
    }
}
