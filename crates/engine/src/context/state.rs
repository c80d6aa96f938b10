//! The state of a context: construction, settings and queries.

use super::budget_state::BudgetState;
use super::sampling_state::Sampling;
use super::scanning_state::Scanning;
use crate::attrs::{Attrs, AttrsError};
use crate::budget::Method;
use crate::monitoring::{Splitter, Target, rescale};
use crate::region::Region;
use crate::rng::Rng;
use crate::scheme::{self, Scheme, SchemeError, SchemeState};
use crate::sink::{Event, Sink, TargetRegions};
use crate::target_id::TargetId;
use crate::tuning::{IntervalsGoal, IntervalsGoalError, IntervalsTuner};
use thermo_units::{AddrRange, Nanos};

/// Monitors targets and applies schemes.
#[derive(Debug)]
pub struct Context {
    pub(super) attrs: Attrs,
    pub(super) targets: Vec<Target>,
    pub(super) schemes: Vec<SchemeState>,
    pub(super) rng: Rng,
    pub(super) splitter: Splitter,
    pub(super) schedule: Schedule,
    pub(super) method: Method,
    pub(super) sampling: Sampling,
    pub(super) scanning: Scanning,
    /// The CPU budget, which chooses method and intervals. `None` if the user set the attributes.
    pub(super) budget: Option<BudgetState>,
    /// Tunes the sampling intervals, if an intervals goal is set.
    pub(super) tuner: Option<IntervalsTuner>,
    /// Start of the running aggregation; `None` if it begins with the next step.
    pub(super) aggr_start: Option<Nanos>,
    /// Since when monitoring is paused because watermarks deactivated every scheme.
    pub(super) paused_since: Option<Nanos>,
    pub(super) started: bool,
    /// See [`Context::set_keeps_ages`].
    pub(super) keeps_ages: bool,
}

/// The schedule in sampling intervals, as in the kernel. Counting intervals instead of reading a clock keeps
/// them aligned however late a step is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Schedule {
    /// Sampling intervals passed so far.
    pub(super) passed: u64,
    /// Value of `passed` at which the running aggregation ends.
    pub(super) next_aggr: u64,
    /// Time of the next update of targets. A clock time, because the sampling interval may change.
    pub(super) next_update: Nanos,
    /// Time when monitoring began.
    pub(super) begin: Nanos,
}

/// What the caller does after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Call again at this time, or at once if it is past.
    At(Nanos),
    /// Every target is gone. Do not call again.
    Finished,
}

impl Context {
    /// A context that samples with `attrs`. `seed` determines all random choices.
    ///
    /// # Errors
    /// `attrs` are inconsistent.
    pub fn new(attrs: Attrs, seed: u64) -> Result<Self, AttrsError> {
        attrs.check()?;
        Ok(Self {
            attrs,
            targets: Vec::new(),
            schemes: Vec::new(),
            rng: Rng::new(seed),
            splitter: Splitter::default(),
            schedule: Schedule::default(),
            method: Method::Sampling,
            sampling: Sampling::default(),
            scanning: Scanning::default(),
            budget: None,
            tuner: None,
            aggr_start: None,
            paused_since: None,
            started: false,
            keeps_ages: false,
        })
    }

    /// The current attributes.
    #[must_use]
    pub const fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    /// Changes the attributes while monitoring. Regions keep their history, counts and ages are converted,
    /// and a new aggregation begins. The context samples with `attrs` from now on: a budget is removed, and
    /// an intervals goal tunes on from `attrs`.
    ///
    /// # Errors
    /// `attrs` are inconsistent; nothing changes.
    pub fn set_attrs(&mut self, attrs: Attrs) -> Result<(), AttrsError> {
        attrs.check()?;
        self.budget = None;
        self.tuner = self
            .tuner
            .as_ref()
            .map(|tuner| IntervalsTuner::new(tuner.goal(), &attrs));
        let was_scanned = self.method == Method::Scan;
        self.switch_to(Method::Sampling);
        if was_scanned || attrs != self.attrs {
            self.change_to(attrs);
        }
        Ok(())
    }

    /// Tunes the intervals towards `goal` from now on; `None` stops tuning. With a budget, which chooses the
    /// intervals itself, the goal has no effect.
    ///
    /// # Errors
    /// The goal is not valid for the current attributes; nothing changes.
    pub fn set_intervals_goal(&mut self, goal: Option<IntervalsGoal>) -> Result<(), IntervalsGoalError> {
        goal.map_or(Ok(()), |goal| goal.check(&self.attrs))?;
        self.tuner = goal.map(|goal| IntervalsTuner::new(goal, &self.attrs));
        Ok(())
    }

    /// Updates the targets in the next step instead of after the update interval. Call when the set of
    /// targets changed.
    pub const fn update_targets_next(&mut self) {
        self.schedule.next_update = Nanos::ZERO;
    }

    pub(super) fn switch_to(&mut self, method: Method) {
        if self.method == method {
            return;
        }
        self.method = method;
        self.scanning = Scanning::default();
        if method == Method::Sampling {
            self.targets.iter_mut().for_each(Target::clear_page_states);
            // Lay out regions for gaps that scans excluded.
            self.update_targets_next();
        }
    }

    pub(super) fn change_to(&mut self, attrs: Attrs) {
        rescale(&mut self.targets, &self.attrs, &attrs);
        if let Some(deferred) = &mut self.scanning.deferred {
            deferred.rescale(&self.attrs, &attrs);
        }
        self.attrs = attrs;
        self.sampling.restart();
        self.schedule.next_aggr = self.schedule.passed + attrs.samples_in(attrs.aggr);
        for state in &mut self.schemes {
            state.restart_apply_interval(&attrs, self.schedule.passed);
        }
        self.aggr_start = None;
    }

    /// Replaces the schemes. A scheme at the same index keeps its statistics and the state of its quota.
    ///
    /// # Errors
    /// A scheme is inconsistent; nothing changes.
    pub fn set_schemes(&mut self, schemes: Vec<Scheme>) -> Result<(), SchemeError> {
        scheme::check(&schemes, &self.attrs)?;
        self.schemes.truncate(schemes.len());
        for (nth, scheme) in schemes.into_iter().enumerate() {
            match self.schemes.get_mut(nth) {
                Some(state) => state.commit(scheme, &self.attrs, self.schedule.passed),
                None => {
                    let mut state = SchemeState::new(scheme);
                    if self.started {
                        state.align_with_aggregation(
                            &self.attrs,
                            self.schedule.passed,
                            self.schedule.next_aggr,
                        );
                    }
                    self.schemes.push(state);
                }
            }
        }
        Ok(())
    }

    /// Whether pages keep their idle age when a scheme tries them. By default the age begins anew, as in the
    /// kernel: the action may change how memory is accessed, and is not tried again at once. Set it while
    /// actions are only counted, so that idle ages stay true.
    pub const fn set_keeps_ages(&mut self, keeps_ages: bool) {
        self.keeps_ages = keeps_ages;
    }

    /// The schemes with their state and statistics.
    #[must_use]
    pub fn schemes(&self) -> &[SchemeState] {
        &self.schemes
    }

    /// All targets with their regions, in the order they appeared.
    pub fn targets(&self) -> impl Iterator<Item = TargetRegions<'_>> {
        self.targets.iter().map(|t| TargetRegions {
            id: t.id,
            pid: t.pid,
            method: self.method,
            regions: &t.regions,
            tables: t.tables.as_ref(),
            averaged: t.averaged,
        })
    }

    /// The ranges of each target that have been idle for at least `min_age` at `now`, ascending. Page-exact
    /// when scanning, whole regions when sampling.
    #[must_use]
    pub fn idle_for(&self, min_age: Nanos, now: Nanos) -> Vec<(TargetId, Vec<AddrRange>)> {
        let idle_ranges = |target: &Target| {
            let mut idle = Vec::new();
            match self.method {
                Method::Scan => target
                    .states
                    .idle_for(min_age, now)
                    .for_each(|range| range.coalesce_into(&mut idle)),
                Method::Sampling => target
                    .regions
                    .iter()
                    .filter(|region| self.has_been_idle(region, min_age))
                    .for_each(|region| region.range.coalesce_into(&mut idle)),
            }
            (target.id, idle)
        };
        self.targets.iter().map(idle_ranges).collect()
    }

    fn has_been_idle(&self, region: &Region, min_age: Nanos) -> bool {
        let is_idle = region.last_nr_accesses == 0 && region.nr_accesses == 0 && !region.unknown;
        is_idle && self.attrs.aggr * u64::from(region.age) >= min_age
    }

    /// Number of regions over all targets.
    #[must_use]
    pub fn nr_regions(&self) -> usize {
        self.targets.iter().map(|t| t.regions.len()).sum()
    }

    pub(super) fn pause(&mut self, now: Nanos) {
        self.paused_since.get_or_insert(now);
        self.sampling.forget_due_time();
    }

    /// Resumes after a pause. The pause does not count as part of the aggregation.
    pub(super) fn resume(&mut self, now: Nanos) {
        if let Some(since) = self.paused_since.take() {
            let paused = now.saturating_sub(since);
            self.aggr_start = self.aggr_start.map(|start| start.saturating_add(paused));
            self.schemes.iter_mut().for_each(SchemeState::resume_auto_age);
        }
    }

    pub(super) fn emit_snapshot(&self, now: Nanos, sink: &mut dyn Sink) {
        let targets: Vec<TargetRegions<'_>> = self.targets().collect();
        let attrs = &self.attrs;
        sink.on(&Event::Aggregated {
            start: self.aggr_start.unwrap_or(now),
            end: now,
            attrs,
            targets: &targets,
        });
    }

    /// Time until the next update of targets: the update interval, but at most one aggregation during the
    /// first update interval, because a program maps most of its memory just after it started.
    pub(super) fn until_update(&self, now: Nanos) -> Nanos {
        let Attrs {
            sample, aggr, update, ..
        } = self.attrs;
        let is_early = now.saturating_sub(self.schedule.begin) < update;
        let interval = if is_early { update.min(aggr) } else { update };
        interval.max(sample)
    }
}
