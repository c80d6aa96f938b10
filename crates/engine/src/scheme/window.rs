//! Quota windows: bytes used, size limit of the next window, and the position where it continues.

use super::feedback::{GoalTotals, SCORE_REACHED, Score, feed_loop_next_input};
use super::goal::GoalTuner;
use super::quota::Quota;
use super::time_quota::TimeQuota;
use crate::target_id::TargetId;
use thermo_units::Addr;
use thermo_units::{Bytes, Nanos};

/// The address behind the last range tried when the quota was used up.
pub(super) type Position = (TargetId, Addr);

/// The quota state of one scheme.
#[derive(Debug, Clone, Default)]
pub(super) struct QuotaWindow {
    /// Start of the current window; `None` before the first.
    start: Option<Nanos>,
    /// Bytes tried in the current window.
    charged: Bytes,
    /// CPU time and throughput.
    time_quota: TimeQuota,
    /// Size limit that the goals are tuned to, in ten-thousandths of a byte.
    tuned_bp: u64,
    /// Score of the goals at the start of the current window.
    score: Option<Score>,
    /// Current size limit; `None`: no limit.
    limit: Option<Bytes>,
    /// Previous values of the goals' cumulative metrics.
    pub(super) goals: GoalTotals,
    /// Where the next window continues; `None`: at the highest scores.
    pub(super) position: Option<Position>,
}

impl Quota {
    /// True if any limit is set.
    pub(super) fn is_set(&self) -> bool {
        self.time > Nanos::ZERO || self.sz > Bytes::ZERO || self.has_goals()
    }

    fn has_goals(&self) -> bool {
        self.goals.iter().any(|goal| goal.target() > 0)
    }
}

impl QuotaWindow {
    /// End of the current window; `None` before the first.
    pub(super) fn end(&self, quota: &Quota) -> Option<Nanos> {
        self.start.map(|start| start.saturating_add(quota.reset_interval))
    }

    /// True if a new window is due.
    pub(super) fn has_ended(&self, now: Nanos, quota: &Quota) -> bool {
        self.end(quota).is_none_or(|end| now >= end)
    }

    /// Ends the window and begins the next one at `now`, with a limit computed from the `score` of the goals.
    /// `unit` is the smallest size that the action accepts. Returns true if the ended window was used up.
    pub(super) fn renew(&mut self, now: Nanos, quota: &Quota, unit: Bytes, score: Score) -> bool {
        let used_up = self.charged > Bytes::ZERO && self.is_used_up(quota, unit);
        let passed = now.saturating_sub(self.start.unwrap_or(now)).0;
        let windows = (passed / quota.reset_interval.0.max(1)).max(1);
        self.time_quota.renew(quota.time, windows);
        (self.start, self.charged) = (Some(now), Bytes::ZERO);
        // At least one byte, as in the kernel.
        self.tuned_bp = self.tuned_bp.max(SCORE_REACHED);
        if let Score::Known(score) = score {
            self.tuned_bp = feed_loop_next_input(self.tuned_bp, score, SCORE_REACHED);
        }
        self.score = Some(score);
        self.set_limit(quota, unit);
        used_up
    }

    /// Computes the limit of the current window. Also called if the quota changes during a window.
    pub(super) fn set_limit(&mut self, quota: &Quota, unit: Bytes) {
        let sz = (quota.sz > Bytes::ZERO).then_some(quota.sz);
        let by_time = self.time_quota.affordable_bytes(quota.time, unit);
        let limits = [sz, by_time, self.goal_limit(quota)];
        self.limit = limits.into_iter().flatten().min();
    }

    fn goal_limit(&self, quota: &Quota) -> Option<Bytes> {
        if !quota.has_goals() {
            return None;
        }
        let score = self.score.unwrap_or(Score::NotYet);
        if score == Score::Unmeasurable {
            // The goals are ignored. If they are the only limit, nothing is allowed: acting without any limit
            // would not be what the user asked for.
            let has_other_limit = quota.time > Nanos::ZERO || quota.sz > Bytes::ZERO;
            return (!has_other_limit).then_some(Bytes::ZERO);
        }
        match quota.tuner {
            GoalTuner::Consist => Some(Bytes(self.tuned_bp / SCORE_REACHED)),
            GoalTuner::Temporal => match score {
                Score::Known(score) if score < SCORE_REACHED => None,
                _ => Some(Bytes::ZERO),
            },
        }
    }

    /// Bytes that may still be tried in this window; `None`: no limit.
    pub(super) fn remaining(&self, quota: &Quota) -> Option<Bytes> {
        if self.time_quota.is_used_up(quota.time) {
            return Some(Bytes::ZERO);
        }
        self.limit.map(|limit| limit.saturating_sub(self.charged))
    }

    /// True if fewer than `unit` bytes may still be tried.
    pub(super) fn is_used_up(&self, quota: &Quota, unit: Bytes) -> bool {
        self.remaining(quota).is_some_and(|remaining| remaining < unit)
    }

    /// Adds tried bytes.
    pub(super) fn charge(&mut self, sz: Bytes) {
        self.charged = Bytes(self.charged.0.saturating_add(sz.0));
    }

    /// Adds the CPU time that the action took for `sz` bytes.
    pub(super) fn record_cost(&mut self, sz: Bytes, spent: Nanos) {
        self.time_quota.record(sz, spent);
    }

    /// The limit as reported in the statistics: 0 means no limit, so a limit of 0 bytes is reported as 1.
    pub(super) fn reported_limit(&self) -> Bytes {
        self.limit.map_or(Bytes::ZERO, |limit| limit.max(Bytes(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Goal;
    use super::*;

    const PAGE: Bytes = Bytes(4096);

    fn renewed(window: &mut QuotaWindow, at_ms: u64, quota: &Quota, score: Score) -> Option<u64> {
        window.renew(Nanos::millis(at_ms), quota, PAGE, score);
        window.remaining(quota).map(|remaining| remaining.0)
    }

    fn goal(tuner: GoalTuner) -> Quota {
        let goals = vec![Goal::UserInput {
            target: 10_000,
            current: 0,
        }];
        Quota {
            goals,
            tuner,
            reset_interval: Nanos::secs(1),
            ..Quota::default()
        }
    }

    #[test]
    fn size_quota_limits_from_first_window() {
        let quota = Quota {
            sz: Bytes(10_000),
            reset_interval: Nanos::secs(1),
            ..Quota::default()
        };
        let mut window = QuotaWindow::default();
        assert!(window.has_ended(Nanos::ZERO, &quota));
        assert_eq!(renewed(&mut window, 0, &quota, Score::Unmeasurable), Some(10_000));
        window.charge(Bytes(8192));
        assert_eq!(window.remaining(&quota), Some(Bytes(1808)));
        assert!(window.is_used_up(&quota, PAGE));
        assert!(!window.has_ended(Nanos::millis(999), &quota));
        assert!(window.has_ended(Nanos::millis(1000), &quota));
        assert!(
            window.renew(Nanos::secs(1), &quota, PAGE, Score::Unmeasurable),
            "the first window was used up"
        );
        assert!(
            !window.renew(Nanos::secs(2), &quota, PAGE, Score::Unmeasurable),
            "the second window was not used"
        );
    }

    #[test]
    fn consist_tuner_follows_feedback_loop() {
        let quota = goal(GoalTuner::Consist);
        let mut window = QuotaWindow::default();
        for (at, score, bytes) in [
            (0, 0, 2),
            (1, 0, 4),
            (2, 5_000, 6),
            (3, 10_000, 6),
            (4, 15_000, 3),
            (5, 30_000, 1),
        ] {
            assert_eq!(
                renewed(&mut window, at * 1000, &quota, Score::Known(score)),
                Some(bytes),
                "window {at}"
            );
        }
        assert_eq!(renewed(&mut window, 6000, &quota, Score::NotYet), Some(1));
    }

    #[test]
    fn temporal_tuner_allows_all_or_nothing() {
        let mut quota = goal(GoalTuner::Temporal);
        let mut window = QuotaWindow::default();
        assert_eq!(renewed(&mut window, 0, &quota, Score::NotYet), Some(0));
        assert_eq!(renewed(&mut window, 1000, &quota, Score::Known(9_999)), None);
        assert_eq!(renewed(&mut window, 2000, &quota, Score::Known(10_000)), Some(0));
        assert_eq!(window.reported_limit(), Bytes(1));
        quota.sz = Bytes::mib(1);
        assert_eq!(renewed(&mut window, 3000, &quota, Score::Known(0)), Some(1 << 20));
    }

    #[test]
    fn unmeasurable_goals_leave_other_limits_or_nothing() {
        let mut quota = goal(GoalTuner::Consist);
        let mut window = QuotaWindow::default();
        assert_eq!(renewed(&mut window, 0, &quota, Score::Unmeasurable), Some(0));
        quota.sz = Bytes::mib(1);
        window.set_limit(&quota, PAGE);
        assert_eq!(window.remaining(&quota), Some(Bytes::mib(1)));
    }
}
