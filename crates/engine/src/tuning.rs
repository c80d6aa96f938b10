//! Intervals that tune themselves (`intervals_goal` of DAMON's control files, Linux 6.15): looking so often that
//! a wanted share of all looks finds an access. On idle memory short intervals find nothing and only cost; on
//! busy memory long ones find everything accessed and tell nothing apart.

use crate::attrs::Attrs;
use crate::region::Region;
use crate::scheme::{REACHED, feed};
use thermo_units::{BasisPoints, Nanos};

/// How often looks should find an access, and within which sampling intervals that is sought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntervalsGoal {
    /// The wanted share of accesses found, of all that could be: bytes times looks.
    pub access: BasisPoints,
    /// Intervals are tuned after this many aggregations.
    pub aggrs: u64,
    /// The shortest sampling interval.
    pub min_sample: Nanos,
    /// The longest sampling interval.
    pub max_sample: Nanos,
}

impl Default for IntervalsGoal {
    /// What damo's `--monitoring_intervals_autotune` asks for: 4 %, every 3 aggregations, 5 ms to 10 s.
    fn default() -> Self {
        Self {
            access: BasisPoints(400),
            aggrs: 3,
            min_sample: Nanos::millis(5),
            max_sample: Nanos::secs(10),
        }
    }
}

/// A goal that cannot be meant. The rules are the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IntervalsGoalError {
    /// Tuning would never have anything to go by.
    #[error("intervals cannot be tuned every 0 aggregations: say after how many, like 3")]
    ZeroAggrs,
    /// The sampling interval to begin with is not one that tuning could choose.
    #[error(
        "the sampling interval ({sample}) does not lie between the shortest ({min}) and the longest ({max}) that \
         it may be tuned to: change one of the three"
    )]
    OutOfBounds {
        /// The sampling interval.
        sample: Nanos,
        /// The shortest.
        min: Nanos,
        /// The longest.
        max: Nanos,
    },
}

impl IntervalsGoal {
    /// Whether monitoring with `attrs` can be tuned towards it.
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

/// Tunes towards a goal.
#[derive(Debug, Clone)]
pub(crate) struct Tuner {
    goal: IntervalsGoal,
    /// Looks in an aggregation, as it was when tuning began: they stay in proportion.
    aggr_samples: u64,
    /// Aggregations since intervals were tuned last.
    aggrs: u64,
}

impl Tuner {
    /// Begins with `attrs`, which the goal was checked against.
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

    /// The attributes to go on with after an aggregation with `attrs` that found `regions`; none when they stay.
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
        let factor = factor(self.score(regions));
        let sample = u128::from(attrs.sample.0) * u128::from(factor) / u128::from(REACHED);
        let sample = Nanos(u64::try_from(sample).unwrap_or(u64::MAX)).max(SHORTEST);
        let sample = sample.max(self.goal.min_sample).min(self.goal.max_sample);
        let tuned = Attrs {
            sample,
            aggr: sample * self.aggr_samples,
            ..*attrs
        };
        (tuned != *attrs).then_some(tuned)
    }

    /// Accesses found in ten-thousandths of those wanted (`damon_get_intervals_score()`).
    fn score<'a>(&self, regions: impl Iterator<Item = &'a Region>) -> u64 {
        let (mut found, mut possible) = (0_u128, 0_u128);
        for region in regions {
            let sz = u128::from(region.len().0);
            found += sz * u128::from(region.nr_accesses);
            possible += sz * u128::from(self.aggr_samples);
        }
        let whole = u128::from(BasisPoints::WHOLE.0);
        let wanted = possible.saturating_mul(u128::from(self.goal.access.0)) / whole;
        let score = found.saturating_mul(u128::from(REACHED)) / wanted.max(1);
        u64::try_from(score).unwrap_or(u64::MAX)
    }
}

/// No interval is tuned below the kernel's unit of them, whatever the goal allows.
const SHORTEST: Nanos = Nanos::micros(1);

/// What intervals are multiplied by for a score, in ten-thousandths: at most doubled, at most halved.
fn factor(score: u64) -> u64 {
    let factor = feed(REACHED * REACHED, score, REACHED) / REACHED;
    if factor <= REACHED {
        REACHED / 2 + factor / 2
    } else {
        factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::AddrRange;

    /// 100 pages of which `hot` were accessed at every of 20 looks.
    fn regions(hot: u64) -> [Region; 2] {
        let hot_part = Region {
            nr_accesses: 20,
            ..Region::new(AddrRange::new(0, hot * 4096))
        };
        [hot_part, Region::new(AddrRange::new(hot * 4096, 100 * 4096))]
    }

    /// The sampling interval and the aggregation after one tuning, in microseconds.
    fn tuned(goal: IntervalsGoal, hot: u64) -> (u64, u64) {
        let attrs = Attrs::default();
        let goal = IntervalsGoal { aggrs: 1, ..goal };
        let tuned = Tuner::new(goal, &attrs).after_aggregation(regions(hot).iter(), &attrs);
        let attrs = tuned.unwrap_or(attrs);
        (attrs.sample.as_micros(), attrs.aggr.as_micros())
    }

    #[test]
    fn worked_out_by_hand() {
        let goal = IntervalsGoal {
            min_sample: Nanos::millis(1),
            ..IntervalsGoal::default()
        };
        // Wanted: 4 % of 100 pages x 20 looks = 80. Found: 20 for each hot page.
        for (hot, expected) in [
            (0, (10_000, 200_000)), // score 0: doubled
            (2, (7_500, 150_000)),  // score 5000: half as long again
            (4, (5_000, 100_000)),  // score 10000: reached
            (6, (3_750, 75_000)),   // score 15000: 0.5 becomes 0.75
            (8, (2_500, 50_000)),   // score 20000: the least, 0.0001 becomes 0.5
            (100, (2_500, 50_000)),
        ] {
            assert_eq!(tuned(goal, hot), expected, "{hot} hot pages");
        }
    }

    #[test]
    fn bounds_are_kept_and_looks_stay_in_proportion() {
        assert_eq!(tuned(IntervalsGoal::default(), 100), (5_000, 100_000));
        let goal = IntervalsGoal {
            max_sample: Nanos::millis(6),
            ..IntervalsGoal::default()
        };
        assert_eq!(tuned(goal, 0), (6_000, 120_000));
    }

    #[test]
    fn tuned_after_as_many_aggregations_as_asked() {
        let (mut attrs, regions) = (Attrs::default(), regions(0));
        let mut tuner = Tuner::new(IntervalsGoal::default(), &attrs);
        let mut samples = Vec::new();
        for _ in 0..9 {
            attrs = tuner.after_aggregation(regions.iter(), &attrs).unwrap_or(attrs);
            samples.push(attrs.sample.0 / 1_000_000);
        }
        assert_eq!(samples, [5, 5, 10, 10, 10, 20, 20, 20, 40]);
    }

    #[test]
    fn goals_that_cannot_be_meant_are_refused() {
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
        let refused = goal.check(&attrs).expect_err("5 ms is too short").to_string();
        assert!(
            refused.contains("(5.00 ms) does not lie between the shortest (6.00 ms) and"),
            "{refused}"
        );
    }
}
