//! What a context remembers, how it is set up, and what it shows.

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
use crate::tuning::{IntervalsGoal, IntervalsGoalError, Tuner};
use thermo_units::{AddrRange, Nanos};

/// One monitoring and its schemes.
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
    /// The budget, from which method and intervals follow; none when they were given by hand.
    pub(super) budget: Option<BudgetState>,
    /// Tunes the intervals of samples, where a goal was set.
    pub(super) tuner: Option<Tuner>,
    /// When the aggregation that is running began; none when it begins with the next step.
    pub(super) aggr_start: Option<Nanos>,
    /// Since when every scheme is switched off by its watermarks, so that nobody needs access checks.
    pub(super) paused_since: Option<Nanos>,
    pub(super) started: bool,
}

/// What comes after how many sampling intervals, as in the kernel: counting them instead of reading clocks
/// keeps the intervals in step with each other however late a step is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Schedule {
    pub(super) passed: u64,
    pub(super) next_aggr: u64,
    /// The moment targets are brought up to date next. By the clock, because intervals may be chosen anew.
    pub(super) next_update: Nanos,
    /// When monitoring began.
    pub(super) begin: Nanos,
}

/// What to do after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Call again at this moment (at once, if it is past).
    At(Nanos),
    /// Every target is gone: there is nothing left to monitor.
    Finished,
}

impl Context {
    /// A context that samples with `attrs`; all its random choices follow from `seed`.
    ///
    /// # Errors
    /// When `attrs` contradict themselves.
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
        })
    }

    /// The attributes it monitors with now.
    #[must_use]
    pub const fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    /// Changes the attributes while monitoring: regions keep their history, counts and ages are converted, and
    /// a new aggregation begins. From now on it samples with these; a budget chooses no longer, and a goal of
    /// intervals tunes on from them.
    ///
    /// # Errors
    /// When `attrs` contradict themselves; nothing changes then.
    pub fn set_attrs(&mut self, attrs: Attrs) -> Result<(), AttrsError> {
        attrs.check()?;
        self.budget = None;
        self.tuner = self.tuner.as_ref().map(|tuner| Tuner::new(tuner.goal(), &attrs));
        let was_scanned = self.method == Method::Scan;
        self.switch_to(Method::Sampling);
        if was_scanned || attrs != self.attrs {
            self.change_to(attrs);
        }
        Ok(())
    }

    /// Tunes the intervals towards `goal` from now on, or leaves them as they are. A budget chooses intervals itself:
    /// where one is set, the goal has no say.
    ///
    /// # Errors
    /// When the goal cannot be meant with the attributes in force; nothing changes then.
    pub fn set_intervals_goal(&mut self, goal: Option<IntervalsGoal>) -> Result<(), IntervalsGoalError> {
        goal.map_or(Ok(()), |goal| goal.check(&self.attrs))?;
        self.tuner = goal.map(|goal| Tuner::new(goal, &self.attrs));
        Ok(())
    }

    /// Brings the targets up to date with the next step instead of after the interval: they are others now.
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
            self.targets.iter_mut().for_each(Target::forget_pages);
            // Gaps that scans left out are laid out.
            self.update_targets_next();
        }
    }

    pub(super) fn change_to(&mut self, attrs: Attrs) {
        rescale(&mut self.targets, &self.attrs, &attrs);
        if let Some(deferred) = &mut self.scanning.deferred {
            deferred.rescale(&self.attrs, &attrs);
        }
        self.attrs = attrs;
        self.sampling.begin_anew();
        self.schedule.next_aggr = self.schedule.passed + attrs.samples_in(attrs.aggr);
        for state in &mut self.schemes {
            state.put_off(&attrs, self.schedule.passed);
        }
        self.aggr_start = None;
    }

    /// Replaces the schemes; those at the same place keep their statistics and the state of their quotas.
    ///
    /// # Errors
    /// When one contradicts itself; nothing changes then.
    pub fn set_schemes(&mut self, schemes: Vec<Scheme>) -> Result<(), SchemeError> {
        scheme::check(&schemes, &self.attrs)?;
        self.schemes.truncate(schemes.len());
        for (nth, scheme) in schemes.into_iter().enumerate() {
            match self.schemes.get_mut(nth) {
                Some(state) => state.commit(scheme, &self.attrs, self.schedule.passed),
                None => {
                    let mut state = SchemeState::new(scheme);
                    if self.started {
                        state.fall_in(&self.attrs, self.schedule.passed, self.schedule.next_aggr);
                    }
                    self.schemes.push(state);
                }
            }
        }
        Ok(())
    }

    /// The schemes with what they did so far.
    #[must_use]
    pub fn schemes(&self) -> &[SchemeState] {
        &self.schemes
    }

    /// Every target with its regions, in the order targets appeared.
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

    /// What of each target has been idle for `least` or longer at `now`: ascending ranges, by pages where it scans.
    #[must_use]
    pub fn idle_for(&self, least: Nanos, now: Nanos) -> Vec<(TargetId, Vec<AddrRange>)> {
        let idle = |target: &Target| {
            let mut idle = Vec::new();
            match self.method {
                Method::Scan => target
                    .states
                    .idle_for(least, now)
                    .for_each(|range| range.join_onto(&mut idle)),
                Method::Sampling => target
                    .regions
                    .iter()
                    .filter(|region| self.has_been_idle(region, least))
                    .for_each(|region| region.range.join_onto(&mut idle)),
            }
            (target.id, idle)
        };
        self.targets.iter().map(idle).collect()
    }

    fn has_been_idle(&self, region: &Region, least: Nanos) -> bool {
        let is_idle = region.last_nr_accesses == 0 && region.nr_accesses == 0 && !region.unknown;
        is_idle && self.attrs.aggr * u64::from(region.age) >= least
    }

    /// How many regions there are over all targets.
    #[must_use]
    pub fn nr_regions(&self) -> usize {
        self.targets.iter().map(|t| t.regions.len()).sum()
    }

    pub(super) fn pause(&mut self, now: Nanos) {
        self.paused_since.get_or_insert(now);
        self.sampling.lose_step();
    }

    /// Goes on after a pause, which does not count as time of the aggregation.
    pub(super) fn resume(&mut self, now: Nanos) {
        if let Some(since) = self.paused_since.take() {
            let paused = now.saturating_sub(since);
            self.aggr_start = self.aggr_start.map(|start| start.saturating_add(paused));
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

    /// How long targets are taken to be as they are now. A program that was just started maps most of its memory
    /// in the next moments, so that during the first update interval every aggregation looks at them anew.
    pub(super) fn until_update(&self, now: Nanos) -> Nanos {
        let Attrs {
            sample, aggr, update, ..
        } = self.attrs;
        let is_early = now.saturating_sub(self.schedule.begin) < update;
        let interval = if is_early { update.min(aggr) } else { update };
        interval.max(sample)
    }
}
