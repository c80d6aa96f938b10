//! Priority of regions under a quota: a score from 0 to 99. Regions with higher scores go first.

use super::quota::Weights;
use crate::action::Priority;
use crate::attrs::Attrs;
use crate::region::Region;
use thermo_units::Bytes;

/// The highest score (`DAMOS_MAX_SCORE`).
pub(super) const MAX_SCORE: u8 = 99;

/// The score of `region` for an action with this `priority`.
pub(super) fn score(priority: Priority, weights: Weights, region: &Region, attrs: &Attrs) -> u8 {
    match priority {
        Priority::Hot => hotness(weights, region, attrs),
        Priority::Cold => MAX_SCORE - hotness(weights, region, attrs),
        Priority::None => MAX_SCORE,
    }
}

/// Weighted mean of access rate and age, as in the kernel's `damon_hot_score()`. The age is the binary
/// logarithm of seconds. It raises the hotness of an accessed region and lowers the hotness of an idle one.
/// Without weights the result is 0 for every region.
fn hotness(weights: Weights, region: &Region, attrs: &Attrs) -> u8 {
    let rate = u64::from(region.moving_nr_accesses()) * 100 / u64::from(attrs.max_nr_accesses());
    let age_secs = u128::from(region.age) * u128::from(attrs.aggr.0) / 1_000_000_000;
    let age_log = (u128::BITS - age_secs.leading_zeros()).min(32);
    // 0: idle for the longest time; 50: changed less than 1 s ago; 100: accessed for the longest time.
    let age = if rate == 0 { 32 - age_log } else { 32 + age_log } * 100 / 32 / 2;

    let (rate_weight, age_weight) = (u64::from(weights.nr_accesses), u64::from(weights.age));
    let sum = rate * rate_weight + u64::from(age) * age_weight;
    let mean = sum / (rate_weight + age_weight).max(1);
    u8::try_from(mean * u64::from(MAX_SCORE) / 100)
        .unwrap_or(MAX_SCORE)
        .min(MAX_SCORE)
}

/// Order of regions with the same score, higher first. Scores use the logarithm of the age, so a region idle
/// for 31 s scores like a region idle for 16 s; this value compares exact ages. 0 if the age has no weight.
pub(super) fn tie_break(priority: Priority, weights: Weights, region: &Region) -> i64 {
    let age = i64::from(region.age);
    let hotter = if region.moving_nr_accesses() > 0 {
        age
    } else {
        -age
    };
    match priority {
        _ if weights.age == 0 => 0,
        Priority::Hot => hotter,
        Priority::Cold => -hotter,
        Priority::None => 0,
    }
}

/// Bytes for each score.
pub(super) struct Histogram([u64; MAX_SCORE as usize + 1]);

impl Histogram {
    /// Sums up `(score, bytes)` pairs.
    pub(super) fn new(scored: impl Iterator<Item = (u8, Bytes)>) -> Self {
        let mut bytes = [0_u64; MAX_SCORE as usize + 1];
        for (score, sz) in scored {
            let sum = &mut bytes[usize::from(score.min(MAX_SCORE))];
            *sum = sum.saturating_add(sz.0);
        }
        Self(bytes)
    }

    /// The lowest score needed to fill `budget`.
    pub(super) fn min_score(&self, budget: Bytes) -> u8 {
        let mut sum = 0_u64;
        for score in (1..=MAX_SCORE).rev() {
            sum = sum.saturating_add(self.0[usize::from(score)]);
            if sum >= budget.0 {
                return score;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::AddrRange;

    fn region(nr_accesses: u32, age: u32) -> Region {
        Region {
            nr_accesses_bp: u64::from(nr_accesses) * 10_000,
            age,
            ..Region::new(AddrRange::new(0, 4096))
        }
    }

    fn hot(weights: (u32, u32), nr_accesses: u32, age: u32) -> u8 {
        let weights = Weights {
            sz: 0,
            nr_accesses: weights.0,
            age: weights.1,
        };
        // 20 access checks in an aggregation of 100 ms; 10 aggregations are 1 s.
        score(
            Priority::Hot,
            weights,
            &region(nr_accesses, age),
            &Attrs::default(),
        )
    }

    #[test]
    fn scores_match_values_computed_by_hand() {
        for (weights, nr_accesses, age, expected) in [
            // Without weights all regions are alike.
            ((0, 0), 20, 100, 0),
            // Rate only: 20 of 20 is 100, 10 is 50 (49.5 rounded down), 0 is 0.
            ((1, 0), 20, 0, 99),
            ((1, 0), 10, 0, 49),
            ((1, 0), 0, 0, 0),
            // Age only: less than 1 s is 50; 1 s is 33/32 of 50; 8 s is 36/32; idle for 8 s is 28/32 (43.75).
            ((0, 1), 20, 9, 49),
            ((0, 1), 20, 10, 50),
            ((0, 1), 20, 80, 55),
            ((0, 1), 0, 80, 42),
            // Weight 3 for the rate (0), 7 for the age (idle for 120 s: 7 bits, 25/32, 39): 273 / 10 = 27.
            ((3, 7), 0, 1200, 26),
            // The age is limited to 2^31 s.
            ((0, 1), 20, u32::MAX, 94),
        ] {
            assert_eq!(
                hot(weights, nr_accesses, age),
                expected,
                "{weights:?} {nr_accesses} {age}"
            );
        }
    }

    #[test]
    fn tie_break_compares_exact_ages() {
        let weights = |age| Weights {
            sz: 0,
            nr_accesses: 0,
            age,
        };
        let (idle, older, busy) = (region(0, 160), region(0, 310), region(20, 160));
        let attrs = Attrs::default();
        let cold_score = |region| score(Priority::Cold, weights(1), region, &attrs);
        assert_eq!(cold_score(&idle), cold_score(&older));
        let cold = |region| tie_break(Priority::Cold, weights(1), region);
        assert!(cold(&older) > cold(&idle) && cold(&idle) > cold(&busy));
        let hot = |region| tie_break(Priority::Hot, weights(1), region);
        assert!(hot(&busy) > hot(&idle) && hot(&idle) > hot(&older));
        assert_eq!(tie_break(Priority::Cold, weights(0), &older), 0);
    }

    #[test]
    fn cold_inverts_score_and_none_is_maximal() {
        let weights = Weights {
            sz: 0,
            nr_accesses: 3,
            age: 7,
        };
        let (region, attrs) = (region(0, 1200), Attrs::default());
        assert_eq!(score(Priority::Cold, weights, &region, &attrs), 73);
        assert_eq!(score(Priority::None, weights, &region, &attrs), 99);
    }

    #[test]
    fn min_score_fills_budget_from_the_top() {
        let histogram =
            Histogram::new([(99, Bytes(10)), (70, Bytes(20)), (70, Bytes(5)), (3, Bytes(100))].into_iter());
        for (budget, min_score) in [(1, 99), (10, 99), (11, 70), (35, 70), (36, 3), (135, 3), (136, 0)] {
            assert_eq!(histogram.min_score(Bytes(budget)), min_score, "budget {budget}");
        }
    }
}
