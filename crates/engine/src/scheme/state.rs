//! A scheme at work: what the user wrote, and what carrying it out has to remember.

use std::collections::BTreeSet;

use super::window::Window;
use super::{Goal, Scheme, SchemeStats, WatermarkMetric};
use crate::attrs::Attrs;
use crate::sink::{Event, Sink};
use thermo_units::PAGE_SIZE;
use thermo_units::{Bytes, Nanos};

/// What a user is warned about once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    /// The action itself.
    Apply,
    /// The goal at this place.
    Goal(usize),
    /// The metric of its watermarks.
    Watermarks,
    /// What the operations said of an action.
    Note(String),
}

/// A scheme at work.
#[derive(Debug, Clone)]
pub struct SchemeState {
    pub(super) scheme: Scheme,
    pub(super) stats: SchemeStats,
    pub(super) window: Window,
    /// Whether the watermarks let it work.
    pub(super) activated: bool,
    /// When the watermarks are to be looked at next.
    pub(super) next_check: Nanos,
    /// In passed sampling intervals; `None` until the first look at the clock.
    next_apply: Option<u64>,
    told: BTreeSet<Topic>,
}

impl SchemeState {
    /// `scheme`, about to begin. It is active until its watermarks were looked at.
    #[must_use]
    pub fn new(scheme: Scheme) -> Self {
        Self {
            scheme,
            stats: SchemeStats::default(),
            window: Window::default(),
            activated: true,
            next_check: Nanos::ZERO,
            next_apply: None,
            told: BTreeSet::new(),
        }
    }

    /// What the user wrote.
    #[must_use]
    pub const fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Totals since it began.
    #[must_use]
    pub const fn stats(&self) -> &SchemeStats {
        &self.stats
    }

    /// Whether it is applied when it is due: its watermarks let it, and it has snapshots left.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.activated && !self.is_finished()
    }

    /// Whether it was applied as often as it may be.
    pub(super) const fn is_finished(&self) -> bool {
        self.scheme.max_nr_snapshots > 0 && self.stats.nr_snapshots >= self.scheme.max_nr_snapshots
    }

    /// Takes the place of the scheme so far; statistics and the quota window stay. `attrs` are those that hold
    /// from now on, `passed` counts sampling intervals as for [`apply`](super::apply()). The scheme is
    /// due at the latest one new apply interval from now.
    pub fn commit(&mut self, scheme: Scheme, attrs: &Attrs, passed: u64) {
        let before = std::mem::replace(&mut self.scheme, scheme);
        let latest = passed.saturating_add(self.interval(attrs));
        self.next_apply = Some(self.next_apply.map_or(latest, |next| next.min(latest)));
        if before.action != self.scheme.action {
            self.told.remove(&Topic::Apply);
        }
        if before.quota != self.scheme.quota {
            self.change_quota(&before.quota.goals);
        }
        if before.watermarks != self.scheme.watermarks {
            self.told.remove(&Topic::Watermarks);
            self.next_check = Nanos::ZERO;
            self.activated |= self.scheme.watermarks.metric == WatermarkMetric::None;
        }
    }

    /// Counts its apply interval anew from `passed`, with the attributes that hold from now on
    /// (`damon_set_attrs()` does so, too): an aggregation begins there.
    pub(crate) fn put_off(&mut self, attrs: &Attrs, passed: u64) {
        self.next_apply = Some(passed.saturating_add(self.interval(attrs)));
    }

    /// Makes it due in step with the aggregation that is running, which ends at `next_aggr`: then, or whole
    /// intervals before.
    pub(crate) fn fall_in(&mut self, attrs: &Attrs, passed: u64, next_aggr: u64) {
        let next_aggr = next_aggr.max(passed + 1);
        let interval = self.interval(attrs);
        self.next_apply = Some(next_aggr - (next_aggr - passed - 1) / interval * interval);
    }

    /// Takes over totals of a scheme that is carried out elsewhere. True when it was applied since the last time.
    pub(crate) fn take_over(&mut self, stats: SchemeStats) -> bool {
        let applied = stats.nr_tried != self.stats.nr_tried;
        self.stats = stats;
        applied
    }

    /// Makes a changed quota hold in the window that goes on.
    fn change_quota(&mut self, goals_before: &[Goal]) {
        let goals = &self.scheme.quota.goals;
        let same =
            goals_before.len() == goals.len() && goals_before.iter().zip(goals).all(|(a, b)| a.is_of(b));
        if !same {
            self.window.goals.clear();
            self.told.retain(|topic| !matches!(topic, Topic::Goal(_)));
        }
        self.window.set_limit(&self.scheme.quota, Bytes(PAGE_SIZE));
        self.stats.effective_sz = self.window.shown_limit();
    }

    /// Whether it is to be applied after `passed` sampling intervals. First it is due at a whole multiple of its
    /// interval, so that schemes applied once an aggregation see whole ones. While it is inactive it stays due.
    pub(crate) fn is_due(&self, attrs: &Attrs, passed: u64) -> bool {
        self.is_active() && passed >= self.turn(attrs, passed)
    }

    /// The same; if so, says when next.
    pub(super) fn take_turn(&mut self, attrs: &Attrs, passed: u64) -> bool {
        let is_due = self.is_due(attrs, passed);
        self.next_apply = Some(match is_due {
            true => passed.saturating_add(self.interval(attrs)),
            false => self.turn(attrs, passed),
        });
        is_due
    }

    /// When a window begins in which it goes on with what its quota left of the last snapshot; nothing where nothing
    /// was left, or where its apply interval was set: then it acts just so often.
    pub(crate) fn next_window_start(&self) -> Option<Nanos> {
        let stopped =
            self.is_active() && self.scheme.apply_interval.is_none() && self.window.position.is_some();
        stopped.then(|| self.window.end(&self.scheme.quota)).flatten()
    }

    /// After how many sampling intervals its turn is, or was.
    fn turn(&self, attrs: &Attrs, passed: u64) -> u64 {
        let interval = self.interval(attrs);
        let first = || passed.max(1).div_ceil(interval).saturating_mul(interval);
        self.next_apply.unwrap_or_else(first)
    }

    /// Its apply interval in sampling intervals, at least 1.
    fn interval(&self, attrs: &Attrs) -> u64 {
        attrs.samples_in(self.scheme.apply_interval.unwrap_or(attrs.aggr))
    }

    /// Tells `text` of scheme `index`, unless the topic was spoken of before.
    pub(super) fn warn(&mut self, topic: Topic, index: usize, text: &str, now: Nanos, sink: &mut dyn Sink) {
        if self.told.insert(topic) {
            let text = format!("scheme {index} ({}): {text}", self.scheme.action);
            sink.on(&Event::Warning { now, text: &text });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Action;
    use crate::scheme::Quota;

    /// The passed counts, of 1 to `until`, at which the scheme has its turn.
    fn turns(state: &mut SchemeState, from: u64, until: u64) -> Vec<u64> {
        (from..=until)
            .filter(|passed| state.take_turn(&Attrs::default(), *passed))
            .collect()
    }

    fn every(interval: Option<Nanos>) -> Scheme {
        Scheme {
            apply_interval: interval,
            ..Scheme::new(Action::Stat)
        }
    }

    #[test]
    fn due_once_an_aggregation_or_more_often_or_less() {
        for (interval, expected) in [
            (None, vec![20, 40, 60]),
            (Some(Nanos::millis(100)), vec![20, 40, 60]),
            (Some(Nanos::millis(75)), vec![15, 30, 45, 60]),
            (Some(Nanos::millis(250)), vec![50]),
        ] {
            assert_eq!(
                turns(&mut SchemeState::new(every(interval)), 1, 60),
                expected,
                "{interval:?}"
            );
        }
        assert_eq!(
            turns(&mut SchemeState::new(every(Some(Nanos::millis(1)))), 1, 60).len(),
            60
        );
        assert_eq!(
            turns(&mut SchemeState::new(every(None)), 33, 80),
            [40, 60, 80],
            "one that came late"
        );
    }

    #[test]
    fn a_commit_never_puts_the_turn_off() {
        let mut state = SchemeState::new(every(None));
        assert_eq!(turns(&mut state, 1, 30), [20]);
        state.commit(every(None), &Attrs::default(), 30);
        state.commit(every(Some(Nanos::millis(25))), &Attrs::default(), 30);
        assert_eq!(turns(&mut state, 31, 40), [35, 40]);
    }

    #[test]
    fn snapshots_run_out_and_a_commit_can_add_some() {
        let mut state = SchemeState::new(Scheme {
            max_nr_snapshots: 1,
            ..every(None)
        });
        state.stats.nr_snapshots = 1;
        assert!(!state.is_active());
        state.commit(
            Scheme {
                max_nr_snapshots: 2,
                ..every(None)
            },
            &Attrs::default(),
            0,
        );
        assert!(state.is_active());
        assert_eq!(state.stats().nr_snapshots, 1, "statistics stay");
    }

    #[test]
    fn a_changed_size_limit_holds_at_once_and_what_was_charged_stays() {
        let quota = |sz| Quota {
            sz: Bytes::mib(sz),
            ..Quota::default()
        };
        let mut state = SchemeState::new(Scheme {
            quota: quota(10),
            ..every(None)
        });
        let least = Bytes(PAGE_SIZE);
        state.window.renew(
            Nanos::ZERO,
            &state.scheme.quota,
            least,
            super::super::feedback::Score::Unmeasurable,
        );
        state.window.charge(Bytes::mib(4));
        state.commit(
            Scheme {
                quota: quota(5),
                ..every(None)
            },
            &Attrs::default(),
            0,
        );
        assert_eq!(state.window.room(&state.scheme.quota), Some(Bytes::mib(1)));
        assert_eq!(state.stats().effective_sz, Bytes::mib(5));
    }
}
