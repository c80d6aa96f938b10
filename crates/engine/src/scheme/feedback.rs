//! The feedback loop of quota goals: scores of goals, and the size quota that follows from a score.

use super::goal::{Goal, SystemMetric};
use crate::ops::OpsError;

/// The score of a goal that is exactly reached.
pub(crate) const SCORE_REACHED: u64 = 10_000;

/// Score of the goals of a scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Score {
    /// Current value in ten-thousandths of the target. The highest score of all goals counts, which makes the
    /// quota the least aggressive one.
    Known(u64),
    /// No score this time: the growth of a total has no earlier value yet, or a value could not be read.
    NotYet,
    /// No goal can be measured on this machine.
    Unmeasurable,
}

/// The next input of a feedback loop whose input `last` got `score`. At least `min`.
///
/// As in the kernel's `damon_feed_loop_next_input()`, the input changes in proportion to the distance from
/// the goal. It at most doubles. At twice the goal or more it falls to `min` at once.
pub(crate) fn feed_loop_next_input(last: u64, score: u64, min: u64) -> u64 {
    if score >= 2 * SCORE_REACHED {
        return min;
    }
    let step = u128::from(last) * u128::from(score.abs_diff(SCORE_REACHED)) / u128::from(SCORE_REACHED);
    let step = u64::try_from(step).unwrap_or(u64::MAX);
    if score > SCORE_REACHED {
        last.saturating_sub(step).max(min)
    } else {
        last.saturating_add(step)
    }
}

/// Previous values of cumulative metrics, kept from one window to the next. Such goals use the growth.
#[derive(Debug, Clone, Default)]
pub(super) struct GoalTotals {
    /// One for each goal.
    totals: Vec<Option<u64>>,
}

impl GoalTotals {
    /// The present score of `goals`, from the value of each; `None`: there is no value this time. A goal
    /// whose value cannot be read is ignored; `report` gets its index and the error.
    pub(super) fn score(
        &mut self,
        goals: &[Goal],
        value_of: &mut dyn FnMut(&Goal) -> Result<Option<u64>, OpsError>,
        report: &mut dyn FnMut(usize, &OpsError),
    ) -> Score {
        self.totals.resize(goals.len(), None);
        let mut best = Score::Unmeasurable;
        for (index, goal) in goals.iter().enumerate() {
            if goal.target() == 0 {
                continue;
            }
            let score = match value_of(goal) {
                Ok(value) => value
                    .and_then(|value| self.current_value(index, goal, value))
                    .map_or(Score::NotYet, |value| Score::Known(ratio(value, goal.target()))),
                Err(error) => {
                    report(index, &error);
                    if matches!(error, OpsError::Unsupported { .. }) {
                        continue;
                    }
                    Score::NotYet
                }
            };
            best = match (best, score) {
                (Score::Known(a), Score::Known(b)) => Score::Known(a.max(b)),
                (Score::Known(a), _) => Score::Known(a),
                (_, other) => other,
            };
        }
        best
    }

    /// Drops all totals, after the goals changed.
    pub(super) fn clear(&mut self) {
        self.totals.clear();
    }

    /// The value to compare with the target: the growth of a cumulative metric, or else `value`.
    fn current_value(&mut self, index: usize, goal: &Goal, value: u64) -> Option<u64> {
        let is_total = matches!(goal, Goal::Metric { metric, .. } if *metric == SystemMetric::SomeMemPsiUs);
        if !is_total {
            return Some(value);
        }
        let before = self.totals[index].replace(value);
        before.map(|before| value.saturating_sub(before))
    }
}

/// `value` in ten-thousandths of `target`.
fn ratio(value: u64, target: u64) -> u64 {
    let ratio = u128::from(value) * u128::from(SCORE_REACHED) / u128::from(target.max(1));
    u64::try_from(ratio).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feed_loop_is_proportional_to_distance() {
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
            assert_eq!(
                feed_loop_next_input(last, score, 10_000),
                next,
                "last {last}, score {score}"
            );
        }
    }

    fn psi(target: u64) -> Goal {
        Goal::Metric {
            metric: SystemMetric::SomeMemPsiUs,
            target,
        }
    }

    /// The value of a goal on a machine without metrics.
    fn user_input(goal: &Goal) -> Result<Option<u64>, OpsError> {
        match goal {
            Goal::UserInput { current, .. } => Ok(Some(*current)),
            _ => Err(unsupported()),
        }
    }

    fn unsupported() -> OpsError {
        OpsError::Unsupported {
            what: "psi".into(),
            why: "the kernel was built without it".into(),
        }
    }

    #[test]
    fn score_is_best_goal_without_zero_targets() {
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
        let mut totals = GoalTotals::default();
        let mut score =
            |goals: &[Goal]| totals.score(goals, &mut user_input, &mut |_, _| panic!("nothing failed"));
        assert_eq!(score(&goals), Score::Known(8_000));
        let score = score(&goals[2..]);
        assert_eq!(score, Score::Unmeasurable);
    }

    #[test]
    fn score_of_stall_time_uses_growth() {
        let mut totals = GoalTotals::default();
        let mut total = 5_000_000;
        let mut score = |growth: u64| {
            total += growth;
            totals.score(&[psi(10_000)], &mut |_| Ok(Some(total)), &mut |_, _| {})
        };
        assert_eq!(score(0), Score::NotYet);
        assert_eq!(score(5_000), Score::Known(5_000));
        assert_eq!(score(0), Score::Known(0));
        assert_eq!(score(30_000), Score::Known(30_000));
    }

    #[test]
    fn goal_without_value_keeps_the_limit() {
        let goals = [Goal::NodeEligibleMem {
            nid: 0,
            target: 6_000,
        }];
        let score = |value| {
            GoalTotals::default().score(&goals, &mut |_| Ok(value), &mut |_, _| panic!("nothing failed"))
        };
        assert_eq!(score(None), Score::NotYet);
        assert_eq!(score(Some(3_000)), Score::Known(5_000));
    }

    #[test]
    fn score_ignores_and_reports_unreadable_goals() {
        let goals = [
            psi(10),
            Goal::UserInput {
                target: 10,
                current: 5,
            },
        ];
        let mut reported = Vec::new();
        let mut totals = GoalTotals::default();
        let score = totals.score(&goals, &mut user_input, &mut |index, _| reported.push(index));
        assert_eq!((score, reported), (Score::Known(5_000), vec![0]));
        let score = totals.score(&goals[..1], &mut |_| Err(unsupported()), &mut |_, _| {});
        assert_eq!(score, Score::Unmeasurable);
        let score = totals.score(
            &goals[..1],
            &mut |_| Err(OpsError::Failed("gone".into())),
            &mut |_, _| {},
        );
        assert_eq!(score, Score::NotYet);
    }
}
