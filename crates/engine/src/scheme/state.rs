//! A running scheme: the user's settings and the state between two applications.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::auto_age::AgeController;
use super::window::QuotaWindow;
use super::{Age, CoreFilter, CoreFilterKind, Goal, Scheme, SchemeStats, WatermarkMetric};
use crate::access_tables::AccessTables;
use crate::attrs::Attrs;
use crate::budget::Method;
use crate::sink::{Event, Sink};
use crate::target_id::TargetId;
use thermo_units::PAGE_SIZE;
use thermo_units::{Bytes, Nanos};

/// Topics of warnings. A warning is printed once for each topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WarningTopic {
    /// The action failed.
    Apply,
    /// The goal with this index cannot be read.
    Goal(usize),
    /// The metric of the watermarks cannot be read.
    Watermarks,
    /// The automatic age cannot be chosen.
    AutoAge,
    /// A note of the operations about an action.
    Note(String),
}

/// A running scheme.
#[derive(Debug, Clone)]
pub struct SchemeState {
    pub(super) scheme: Scheme,
    pub(super) stats: SchemeStats,
    pub(super) window: QuotaWindow,
    /// True while the watermarks allow the scheme to act.
    pub(super) activated: bool,
    /// Time of the next watermark check.
    pub(super) next_check: Nanos,
    /// Time of the next application, in passed sampling intervals; `None` until the first check.
    next_apply: Option<u64>,
    /// Chooses the automatic age, if the scheme has one.
    ages: AgeController,
    warned: BTreeSet<WarningTopic>,
}

impl SchemeState {
    /// A new running scheme. It is active until its watermarks are checked for the first time.
    #[must_use]
    pub fn new(scheme: Scheme) -> Self {
        Self {
            scheme,
            stats: SchemeStats::default(),
            window: QuotaWindow::default(),
            activated: true,
            next_check: Nanos::ZERO,
            next_apply: None,
            ages: AgeController::default(),
            warned: BTreeSet::new(),
        }
    }

    /// The user's settings.
    #[must_use]
    pub const fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Statistics since the start.
    #[must_use]
    pub const fn stats(&self) -> &SchemeStats {
        &self.stats
    }

    /// True if the watermarks allow the scheme to act and it has snapshots left.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.activated && !self.is_finished()
    }

    /// True if the scheme has used up its snapshots.
    pub(super) const fn is_finished(&self) -> bool {
        self.scheme.max_nr_snapshots > 0 && self.stats.nr_snapshots >= self.scheme.max_nr_snapshots
    }

    /// Replaces the settings; statistics and the quota window stay. `attrs` are the attributes from now on,
    /// `passed` is the number of passed sampling intervals, as for [`apply_schemes`](super::apply_schemes). The scheme is
    /// next due in one new apply interval at the latest.
    pub fn commit(&mut self, scheme: Scheme, attrs: &Attrs, passed: u64) {
        let before = std::mem::replace(&mut self.scheme, scheme);
        let latest = passed.saturating_add(self.interval(attrs));
        self.next_apply = Some(self.next_apply.map_or(latest, |next| next.min(latest)));
        if before.action != self.scheme.action {
            self.warned.remove(&WarningTopic::Apply);
        }
        if before.auto_age != self.scheme.auto_age {
            self.ages = AgeController::default();
        }
        if before.quota != self.scheme.quota {
            self.update_window(&before.quota.goals);
        }
        if before.watermarks != self.scheme.watermarks {
            self.warned.remove(&WarningTopic::Watermarks);
            self.next_check = Nanos::ZERO;
            self.activated |= self.scheme.watermarks.metric == WatermarkMetric::None;
        }
    }

    /// Restarts the apply interval at `passed`, where an aggregation with the new `attrs` begins, as the
    /// kernel's `damon_set_attrs()` does.
    pub(crate) fn restart_apply_interval(&mut self, attrs: &Attrs, passed: u64) {
        self.next_apply = Some(passed.saturating_add(self.interval(attrs)));
    }

    /// Aligns the apply interval with the current aggregation: the scheme is next due at `next_aggr`, the end
    /// of the aggregation, or whole intervals before it.
    pub(crate) fn align_with_aggregation(&mut self, attrs: &Attrs, passed: u64, next_aggr: u64) {
        let next_aggr = next_aggr.max(passed + 1);
        let interval = self.interval(attrs);
        self.next_apply = Some(next_aggr - (next_aggr - passed - 1) / interval * interval);
    }

    /// Replaces the statistics of a scheme that is applied elsewhere (offload). Returns true if it was
    /// applied since the last call.
    pub(crate) fn import_stats(&mut self, stats: SchemeStats) -> bool {
        let applied = stats.nr_tried != self.stats.nr_tried;
        self.stats = stats;
        applied
    }

    /// Applies a changed quota to the current window.
    fn update_window(&mut self, goals_before: &[Goal]) {
        let goals = &self.scheme.quota.goals;
        let same_metrics = goals_before.len() == goals.len()
            && goals_before.iter().zip(goals).all(|(a, b)| a.has_same_metric(b));
        if !same_metrics {
            self.window.goals.clear();
            self.warned
                .retain(|topic| !matches!(topic, WarningTopic::Goal(_)));
        }
        self.window.set_limit(&self.scheme.quota, Bytes(PAGE_SIZE));
        self.stats.effective_sz = self.window.reported_limit();
    }

    /// Takes in the page-exact results of a snapshot, for the automatic age. `index` is that of the scheme.
    pub(crate) fn update_auto_age<'a>(
        &mut self,
        index: usize,
        now: Nanos,
        targets: impl Iterator<Item = (TargetId, &'a AccessTables)> + Clone,
        sink: &mut dyn Sink,
    ) {
        let Some(auto_age) = self.scheme.auto_age else {
            return;
        };
        if targets.clone().any(|(_, tables)| tables.method != Method::Scan) {
            let text = "an automatic age needs scans of every page, so the scheme does nothing: use --method scan, \
                        or give an age";
            return self.warn_once(WarningTopic::AutoAge, index, text, now, sink);
        }
        if let Some(decision) = self.ages.observe(now, auto_age.max_refaults, targets) {
            sink.on(&Event::AutoAge {
                now,
                scheme: index,
                decision: &decision,
            });
        }
    }

    /// Records that monitoring resumes after a pause.
    pub(crate) fn resume_auto_age(&mut self) {
        self.ages.resume();
    }

    /// The scheme with the automatic age in force, without targets that are too new for it. `None` if the
    /// automatic age allows no action.
    pub(super) fn in_force(&self) -> Option<Cow<'_, Scheme>> {
        if self.scheme.auto_age.is_none() {
            return Some(Cow::Borrowed(&self.scheme));
        }
        let mut scheme = self.scheme.clone();
        scheme.pattern.age.min = Age::Time(self.ages.age()?);
        let skip = |target| CoreFilter {
            kind: CoreFilterKind::Target(target),
            matching: true,
            allow: false,
        };
        scheme
            .filters
            .core
            .splice(0..0, self.ages.new_targets().map(skip));
        Some(Cow::Owned(scheme))
    }

    /// The idle time from which memory may match the scheme; `None` if the scheme may match accessed or
    /// unknown memory, too.
    pub(crate) fn least_idle_time(&self, attrs: &Attrs) -> Option<Nanos> {
        let Some(scheme) = self.in_force() else {
            return Some(Nanos::MAX);
        };
        let pattern = &scheme.pattern;
        let intervals = u64::from(pattern.age.min.aggrs(attrs));
        (pattern.nr_accesses.max.samples(attrs) == 0).then(|| Nanos(attrs.aggr.0.saturating_mul(intervals)))
    }

    /// True if the scheme is due after `passed` sampling intervals. It is first due at a multiple of its
    /// interval, so that a scheme applied once an aggregation sees whole aggregations. An inactive scheme is
    /// not due, but its application stays pending.
    pub(crate) fn is_due(&self, attrs: &Attrs, passed: u64) -> bool {
        self.is_active() && passed >= self.next_apply(attrs, passed)
    }

    /// Same as [`Self::is_due`]. If true, schedules the next application.
    pub(super) fn advance_if_due(&mut self, attrs: &Attrs, passed: u64) -> bool {
        let is_due = self.is_due(attrs, passed);
        self.next_apply = Some(match is_due {
            true => passed.saturating_add(self.interval(attrs)),
            false => self.next_apply(attrs, passed),
        });
        is_due
    }

    /// Start of the quota window in which the scheme continues with the rest of the last snapshot. `None` if
    /// there is no rest, or if an apply interval is set: the scheme then acts once an apply interval only.
    #[must_use]
    pub fn next_window_start(&self) -> Option<Nanos> {
        let has_rest =
            self.is_active() && self.scheme.apply_interval.is_none() && self.window.position.is_some();
        has_rest.then(|| self.window.end(&self.scheme.quota)).flatten()
    }

    /// Number of passed sampling intervals at which the scheme is (or was) next due.
    fn next_apply(&self, attrs: &Attrs, passed: u64) -> u64 {
        let interval = self.interval(attrs);
        let first = || passed.max(1).div_ceil(interval).saturating_mul(interval);
        self.next_apply.unwrap_or_else(first)
    }

    /// Apply interval in sampling intervals, at least 1.
    fn interval(&self, attrs: &Attrs) -> u64 {
        attrs.samples_in(self.scheme.apply_interval.unwrap_or(attrs.aggr))
    }

    /// Emits a warning about scheme `index`, unless one with the same topic was emitted before.
    pub(super) fn warn_once(
        &mut self,
        topic: WarningTopic,
        index: usize,
        text: &str,
        now: Nanos,
        sink: &mut dyn Sink,
    ) {
        if self.warned.insert(topic) {
            let text = format!("scheme {index} ({}): {text}", self.scheme.action);
            sink.on(&Event::Warning { now, text: &text });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Action;
    use crate::scheme::{AutoAge, Quota, Rate};

    /// The values of `passed`, in `from..=until`, at which the scheme is due.
    fn due_at(state: &mut SchemeState, from: u64, until: u64) -> Vec<u64> {
        (from..=until)
            .filter(|passed| state.advance_if_due(&Attrs::default(), *passed))
            .collect()
    }

    fn stat_every(interval: Option<Nanos>) -> Scheme {
        Scheme {
            apply_interval: interval,
            ..Scheme::new(Action::Stat)
        }
    }

    #[test]
    fn least_idle_time_is_that_of_patterns_for_idle_memory() {
        let least = |max_rate, min_age, auto_age| {
            let mut scheme = Scheme::new(Action::Pageout);
            scheme.pattern.nr_accesses.max = Rate::Samples(max_rate);
            scheme.pattern.age.min = Age::Time(min_age);
            scheme.auto_age = auto_age;
            SchemeState::new(scheme).least_idle_time(&Attrs::default())
        };
        assert_eq!(least(0, Nanos::secs(10), None), Some(Nanos::secs(10)));
        assert_eq!(least(0, Nanos::ZERO, None), Some(Nanos::ZERO));
        assert_eq!(
            least(1, Nanos::secs(10), None),
            None,
            "it matches accessed memory"
        );
        let auto = AutoAge::default();
        assert_eq!(
            least(0, Nanos::ZERO, Some(auto)),
            Some(Nanos::MAX),
            "no age is in force yet"
        );
    }

    #[test]
    fn scheme_is_due_at_multiples_of_interval() {
        for (interval, expected) in [
            (None, vec![20, 40, 60]),
            (Some(Nanos::millis(100)), vec![20, 40, 60]),
            (Some(Nanos::millis(75)), vec![15, 30, 45, 60]),
            (Some(Nanos::millis(250)), vec![50]),
        ] {
            assert_eq!(
                due_at(&mut SchemeState::new(stat_every(interval)), 1, 60),
                expected,
                "{interval:?}"
            );
        }
        assert_eq!(
            due_at(&mut SchemeState::new(stat_every(Some(Nanos::millis(1)))), 1, 60).len(),
            60
        );
        assert_eq!(
            due_at(&mut SchemeState::new(stat_every(None)), 33, 80),
            [40, 60, 80],
            "a scheme added late"
        );
    }

    #[test]
    fn commit_never_delays_application() {
        let mut state = SchemeState::new(stat_every(None));
        assert_eq!(due_at(&mut state, 1, 30), [20]);
        state.commit(stat_every(None), &Attrs::default(), 30);
        state.commit(stat_every(Some(Nanos::millis(25))), &Attrs::default(), 30);
        assert_eq!(due_at(&mut state, 31, 40), [35, 40]);
    }

    #[test]
    fn commit_can_add_snapshots() {
        let mut state = SchemeState::new(Scheme {
            max_nr_snapshots: 1,
            ..stat_every(None)
        });
        state.stats.nr_snapshots = 1;
        assert!(!state.is_active());
        state.commit(
            Scheme {
                max_nr_snapshots: 2,
                ..stat_every(None)
            },
            &Attrs::default(),
            0,
        );
        assert!(state.is_active());
        assert_eq!(state.stats().nr_snapshots, 1, "statistics stay");
    }

    #[test]
    fn commit_changes_size_limit_and_keeps_charge() {
        let quota = |sz| Quota {
            sz: Bytes::mib(sz),
            ..Quota::default()
        };
        let mut state = SchemeState::new(Scheme {
            quota: quota(10),
            ..stat_every(None)
        });
        let unit = Bytes(PAGE_SIZE);
        state.window.renew(
            Nanos::ZERO,
            &state.scheme.quota,
            unit,
            super::super::feedback::Score::Unmeasurable,
        );
        state.window.charge(Bytes::mib(4));
        state.commit(
            Scheme {
                quota: quota(5),
                ..stat_every(None)
            },
            &Attrs::default(),
            0,
        );
        assert_eq!(state.window.remaining(&state.scheme.quota), Some(Bytes::mib(1)));
        assert_eq!(state.stats().effective_sz, Bytes::mib(5));
    }
}
