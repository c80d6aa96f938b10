//! The feedback loop of goals: how far they are reached, and what that makes of the size quota.

use super::goal::{Goal, SystemMetric};
use crate::ops::OpsError;

/// A goal that is reached, in the unit of scores.
pub(crate) const REACHED: u64 = 10_000;

/// How far the goals of a scheme are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Score {
    /// In ten-thousandths of the goal; of several goals the one reached best, so that the quota is the least
    /// aggressive one.
    Known(u64),
    /// Nothing can be said this time: a growth has no begin yet, or a value could not be read.
    NotYet,
    /// No goal can be measured on this machine.
    Unmeasurable,
}

/// The next input of a loop whose last input was `last` and reached `score`; never below `least`.
///
/// The kernel's `damon_feed_loop_next_input()`: in proportion to the distance, at most doubled, and back to
/// `least` at once when the goal is passed by as much again.
pub(crate) fn feed(last: u64, score: u64, least: u64) -> u64 {
    if score >= 2 * REACHED {
        return least;
    }
    let step = u128::from(last) * u128::from(score.abs_diff(REACHED)) / u128::from(REACHED);
    let step = u64::try_from(step).unwrap_or(u64::MAX);
    if score > REACHED {
        last.saturating_sub(step).max(least)
    } else {
        last.saturating_add(step)
    }
}

/// What goals need to remember from one window to the next: totals of which the growth counts.
#[derive(Debug, Clone, Default)]
pub(super) struct GoalMemory {
    totals: Vec<Option<u64>>,
}

impl GoalMemory {
    /// How far `goals` are reached now. A goal whose value cannot be had is left out and named to `complain`
    /// with its place among the goals.
    pub(super) fn score(
        &mut self,
        goals: &[Goal],
        value_of: &mut dyn FnMut(&SystemMetric) -> Result<u64, OpsError>,
        complain: &mut dyn FnMut(usize, &OpsError),
    ) -> Score {
        self.totals.resize(goals.len(), None);
        let mut best = Score::Unmeasurable;
        for (index, goal) in goals.iter().enumerate() {
            let score = match (goal, goal.target()) {
                (_, 0) => continue,
                (Goal::UserInput { current, .. }, target) => Score::Known(share(*current, target)),
                (Goal::Metric { metric, .. }, target) => match value_of(metric) {
                    Ok(value) => self
                        .present(index, metric, value)
                        .map_or(Score::NotYet, |value| Score::Known(share(value, target))),
                    Err(error) => {
                        complain(index, &error);
                        if matches!(error, OpsError::Unsupported { .. }) {
                            continue;
                        }
                        Score::NotYet
                    }
                },
            };
            best = match (best, score) {
                (Score::Known(a), Score::Known(b)) => Score::Known(a.max(b)),
                (Score::Known(a), _) => Score::Known(a),
                (_, other) => other,
            };
        }
        best
    }

    /// Forgets every total: the goals changed.
    pub(super) fn clear(&mut self) {
        self.totals.clear();
    }

    /// The value a goal goes by: the growth of a total, or the value itself.
    fn present(&mut self, index: usize, metric: &SystemMetric, value: u64) -> Option<u64> {
        if *metric != SystemMetric::SomeMemPsiUs {
            return Some(value);
        }
        let before = self.totals[index].replace(value);
        before.map(|before| value.saturating_sub(before))
    }
}

/// `value` in ten-thousandths of `target`.
fn share(value: u64, target: u64) -> u64 {
    let share = u128::from(value) * u128::from(REACHED) / u128::from(target.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_follows_the_distance() {
        for (last, score, next) in [
            (10_000, 10_000, 10_000),
            (10_000, 0, 20_000),
            (10_000, 5_000, 15_000),
            (30_000, 15_000, 15_000),
            (30_000, 20_000, 10_000),
            (30_000, 19_999, 10_000),
            (15_000, 18_000, 10_000),
            (100_000_000, 9_000, 110_000_000),
            (u64::MAX, 0, u64::MAX),
            (u64::MAX, u64::MAX, 10_000),
        ] {
            assert_eq!(feed(last, score, 10_000), next, "feed({last}, {score})");
        }
    }

    fn psi(target: u64) -> Goal {
        Goal::Metric {
            metric: SystemMetric::SomeMemPsiUs,
            target,
        }
    }

    fn unsupported() -> OpsError {
        OpsError::Unsupported {
            what: "psi".into(),
            why: "the kernel was built without it".into(),
        }
    }

    #[test]
    fn the_goal_reached_best_decides_and_goals_of_zero_are_ignored() {
        let goals = [
            Goal::UserInput {
                target: 200,
                current: 100,
            },
            Goal::UserInput {
                target: 100,
                current: 80,
            },
            Goal::UserInput {
                target: 0,
                current: 80,
            },
        ];
        let mut memory = GoalMemory::default();
        let score = memory.score(&goals, &mut |_| Ok(0), &mut |_, _| panic!("nothing failed"));
        assert_eq!(score, Score::Known(8_000));
        let score = memory.score(&goals[2..], &mut |_| Ok(0), &mut |_, _| panic!("nothing failed"));
        assert_eq!(score, Score::Unmeasurable);
    }

    #[test]
    fn stall_time_counts_by_its_growth() {
        let mut memory = GoalMemory::default();
        let mut total = 5_000_000;
        let mut score = |growth: u64| {
            total += growth;
            memory.score(&[psi(10_000)], &mut |_| Ok(total), &mut |_, _| {})
        };
        assert_eq!(score(0), Score::NotYet);
        assert_eq!(score(5_000), Score::Known(5_000));
        assert_eq!(score(0), Score::Known(0));
        assert_eq!(score(30_000), Score::Known(30_000));
    }

    #[test]
    fn what_cannot_be_measured_is_left_out_and_named() {
        let goals = [
            psi(10),
            Goal::UserInput {
                target: 10,
                current: 5,
            },
        ];
        let mut named = Vec::new();
        let mut memory = GoalMemory::default();
        let score = memory.score(&goals, &mut |_| Err(unsupported()), &mut |index, _| {
            named.push(index)
        });
        assert_eq!((score, named), (Score::Known(5_000), vec![0]));
        let score = memory.score(&goals[..1], &mut |_| Err(unsupported()), &mut |_, _| {});
        assert_eq!(score, Score::Unmeasurable);
        let score = memory.score(
            &goals[..1],
            &mut |_| Err(OpsError::Failed("gone".into())),
            &mut |_, _| {},
        );
        assert_eq!(score, Score::NotYet);
    }
}
