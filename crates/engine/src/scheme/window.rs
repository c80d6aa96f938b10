//! The quota window: how much of it is used, how large the next one is, and where to go on in it.

use super::feedback::{GoalMemory, REACHED, Score, feed};
use super::goal::GoalTuner;
use super::quota::Quota;
use super::time_quota::Spending;
use crate::target_id::TargetId;
use thermo_units::Addr;
use thermo_units::{Bytes, Nanos};

/// Where a scheme stopped when its quota was used up.
pub(super) type Position = (TargetId, Addr);

/// The quota of one scheme at work.
#[derive(Debug, Clone, Default)]
pub(super) struct Window {
    /// When it began; `None` before the first.
    begin: Option<Nanos>,
    /// Bytes tried in it.
    charged: Bytes,
    /// What time quotas go by.
    spending: Spending,
    /// The size that goals are tuned to, in ten-thousandths of a byte.
    tuned_bp: u64,
    score: Option<Score>,
    /// The size limit in force; `None`: none.
    limit: Option<Bytes>,
    /// What its goals remember.
    pub(super) goals: GoalMemory,
    /// Where to go on.
    pub(super) position: Option<Position>,
}

impl Quota {
    /// Whether anything is limited.
    pub(super) fn is_set(&self) -> bool {
        self.time > Nanos::ZERO || self.sz > Bytes::ZERO || self.has_goals()
    }

    fn has_goals(&self) -> bool {
        self.goals.iter().any(|goal| goal.target() > 0)
    }
}

impl Window {
    /// When it is over; `None` before the first.
    pub(super) fn end(&self, quota: &Quota) -> Option<Nanos> {
        self.begin.map(|begin| begin.saturating_add(quota.reset_interval))
    }

    /// Whether a new window is due.
    pub(super) fn is_over(&self, now: Nanos, quota: &Quota) -> bool {
        self.end(quota).is_none_or(|end| now >= end)
    }

    /// Ends the window and begins the next at `now`, with a limit made of the `score` of the goals. True when
    /// the one that ended was used up.
    pub(super) fn renew(&mut self, now: Nanos, quota: &Quota, least: Bytes, score: Score) -> bool {
        let used_up = self.charged > Bytes::ZERO && self.is_full(quota, least);
        let passed = now.saturating_sub(self.begin.unwrap_or(now)).0;
        let windows = (passed / quota.reset_interval.0.max(1)).max(1);
        self.spending.renew(quota.time, windows);
        (self.begin, self.charged) = (Some(now), Bytes::ZERO);
        // Never less than one byte, as in the kernel.
        self.tuned_bp = self.tuned_bp.max(REACHED);
        if let Score::Known(score) = score {
            self.tuned_bp = feed(self.tuned_bp, score, REACHED);
        }
        self.score = Some(score);
        self.set_limit(quota, least);
        used_up
    }

    /// Works the limit out anew, for a quota that changed in the middle of a window.
    pub(super) fn set_limit(&mut self, quota: &Quota, least: Bytes) {
        let sz = (quota.sz > Bytes::ZERO).then_some(quota.sz);
        let limits = [sz, self.spending.reach(quota.time, least), self.goal_limit(quota)];
        self.limit = limits.into_iter().flatten().min();
    }

    fn goal_limit(&self, quota: &Quota) -> Option<Bytes> {
        if !quota.has_goals() {
            return None;
        }
        let score = self.score.unwrap_or(Score::NotYet);
        if score == Score::Unmeasurable {
            // The goals are left out. Where they were the only limit, "no limit" is not what was meant.
            let limited_otherwise = quota.time > Nanos::ZERO || quota.sz > Bytes::ZERO;
            return (!limited_otherwise).then_some(Bytes::ZERO);
        }
        match quota.tuner {
            GoalTuner::Consist => Some(Bytes(self.tuned_bp / REACHED)),
            GoalTuner::Temporal => match score {
                Score::Known(score) if score < REACHED => None,
                _ => Some(Bytes::ZERO),
            },
        }
    }

    /// Bytes that may still be tried in this window; `None`: any number.
    pub(super) fn room(&self, quota: &Quota) -> Option<Bytes> {
        if self.spending.is_over(quota.time) {
            return Some(Bytes::ZERO);
        }
        self.limit.map(|limit| limit.saturating_sub(self.charged))
    }

    /// Whether not even `least` bytes may be tried any more.
    pub(super) fn is_full(&self, quota: &Quota, least: Bytes) -> bool {
        self.room(quota).is_some_and(|room| room < least)
    }

    /// Counts what was tried.
    pub(super) fn charge(&mut self, sz: Bytes) {
        self.charged = Bytes(self.charged.0.saturating_add(sz.0));
    }

    /// Counts what was really done and the CPU time it took.
    pub(super) fn measure(&mut self, sz: Bytes, spent: Nanos) {
        self.spending.measure(sz, spent);
    }

    /// The limit as the statistics show it: 0 is none.
    pub(super) fn shown_limit(&self) -> Bytes {
        self.limit.map_or(Bytes::ZERO, |limit| limit.max(Bytes(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Goal;
    use super::*;

    const PAGE: Bytes = Bytes(4096);

    fn renewed(window: &mut Window, at_ms: u64, quota: &Quota, score: Score) -> Option<u64> {
        window.renew(Nanos::millis(at_ms), quota, PAGE, score);
        window.room(quota).map(|room| room.0)
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
    fn a_size_limits_from_the_first_window_on() {
        let quota = Quota {
            sz: Bytes(10_000),
            reset_interval: Nanos::secs(1),
            ..Quota::default()
        };
        let mut window = Window::default();
        assert!(window.is_over(Nanos::ZERO, &quota));
        assert_eq!(renewed(&mut window, 0, &quota, Score::Unmeasurable), Some(10_000));
        window.charge(Bytes(8192));
        assert_eq!(window.room(&quota), Some(Bytes(1808)));
        assert!(window.is_full(&quota, PAGE));
        assert!(!window.is_over(Nanos::millis(999), &quota));
        assert!(window.is_over(Nanos::millis(1000), &quota));
        assert!(
            window.renew(Nanos::secs(1), &quota, PAGE, Score::Unmeasurable),
            "it was used up"
        );
        assert!(
            !window.renew(Nanos::secs(2), &quota, PAGE, Score::Unmeasurable),
            "this one was not"
        );
    }

    #[test]
    fn the_consistent_tuner_feeds_back() {
        let quota = goal(GoalTuner::Consist);
        let mut window = Window::default();
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
    fn the_temporal_tuner_is_all_or_nothing() {
        let mut quota = goal(GoalTuner::Temporal);
        let mut window = Window::default();
        assert_eq!(renewed(&mut window, 0, &quota, Score::NotYet), Some(0));
        assert_eq!(renewed(&mut window, 1000, &quota, Score::Known(9_999)), None);
        assert_eq!(renewed(&mut window, 2000, &quota, Score::Known(10_000)), Some(0));
        assert_eq!(window.shown_limit(), Bytes(1));
        quota.sz = Bytes::mib(1);
        assert_eq!(renewed(&mut window, 3000, &quota, Score::Known(0)), Some(1 << 20));
    }

    #[test]
    fn goals_that_cannot_be_measured_leave_the_other_limits_or_nothing() {
        let mut quota = goal(GoalTuner::Consist);
        let mut window = Window::default();
        assert_eq!(renewed(&mut window, 0, &quota, Score::Unmeasurable), Some(0));
        quota.sz = Bytes::mib(1);
        window.set_limit(&quota, PAGE);
        assert_eq!(window.room(&quota), Some(Bytes::mib(1)));
    }
}
