//! The one loop: look, sum up, apply schemes, split, look again.
//!
//! A [`Context`] is what the kernel calls a `damon_ctx` together with its thread's main function: everything a
//! kdamond remembers, and [`Context::step`], which is called whenever it said it wants to be and says when to
//! call it again. Time comes in as an argument, the machine through [`Operations`], and what happens goes out
//! to a [`Sink`].
//!
//! There are two methods: `scanning` (every page, pass after pass) and `sampling` (DAMON's: one page of each region every
//! sampling interval). With attributes given by hand it samples; with a budget (`budgeting`) it scans where the operations
//! can. Operations that monitor by themselves are only followed (`offload`). What schemes do with what was found:
//! `apply_schemes`.

mod apply_schemes;
mod budgeting;
mod mean_cost;
mod offload;
mod sampling;
mod sampling_plan;
mod sampling_tables;
mod scanning;

use crate::attrs::{Attrs, AttrsError};
use crate::budget::Method;
use crate::monitoring::{Splitter, Target, lay_out, rescale};
use crate::ops::{Operations, OpsError, TargetId, TargetLayout};
use crate::region::Region;
use crate::rng::Rng;
use crate::scheme::{self, Scheme, SchemeError, SchemeState};
use crate::sink::{Event, Sink, TargetRegions};
use crate::tuning::{IntervalsGoal, IntervalsGoalError, Tuner};
use thermo_units::AddrRange;
use thermo_units::{Bytes, Nanos};

use budgeting::BudgetState;
use sampling::Sampling;
use scanning::Scanning;

/// One monitoring and its schemes.
#[derive(Debug)]
pub struct Context {
    attrs: Attrs,
    targets: Vec<Target>,
    schemes: Vec<SchemeState>,
    rng: Rng,
    splitter: Splitter,
    schedule: Schedule,
    method: Method,
    sampling: Sampling,
    scanning: Scanning,
    /// The budget, from which method and intervals follow; none when they were given by hand.
    budget: Option<BudgetState>,
    /// Tunes the intervals of samples, where a goal was set.
    tuner: Option<Tuner>,
    /// When the aggregation that is running began; none when it begins with the next step.
    aggr_start: Option<Nanos>,
    /// Since when every scheme is switched off by its watermarks, so that nobody needs a look.
    paused_since: Option<Nanos>,
    started: bool,
}

/// What comes after how many sampling intervals, as in the kernel: counting them instead of reading clocks
/// keeps the intervals in step with each other however late a step is.
#[derive(Debug, Clone, Copy, Default)]
struct Schedule {
    passed: u64,
    next_aggr: u64,
    /// The moment targets are brought up to date next. By the clock, because intervals may be chosen anew.
    next_update: Nanos,
    /// When monitoring began.
    begin: Nanos,
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

    fn switch_to(&mut self, method: Method) {
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

    fn change_to(&mut self, attrs: Attrs) {
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

    /// Does what is due and says when to call again. A call before that moment (because schemes or attributes
    /// were changed, say) is welcome: looks that are under way go on.
    ///
    /// As in the kernel, looks are finished first, targets are brought up to date when none is under way, and
    /// watermarks are asked before the next look.
    ///
    /// # Errors
    /// When the operations as a whole failed; a target that vanished is an event, not an error.
    pub fn step(
        &mut self,
        now: Nanos,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) -> Result<Next, OpsError> {
        let update = !self.started || now >= self.schedule.next_update;
        if !self.started {
            self.start(now, ops, sink)?;
        }
        self.aggr_start.get_or_insert(now);
        let rest_until = self.budget.as_ref().and_then(|budget| budget.resting_at(now));
        if let Some(due) = self.sampling.under_way() {
            let until = due.max(rest_until.unwrap_or(due));
            if now < until {
                return Ok(Next::At(until));
            }
            self.finish_sample(now, ops, sink);
        }
        if now >= self.schedule.next_update {
            self.update_targets(now, ops, sink)?;
        }
        if self.targets.is_empty() && !ops.any_target_left() {
            return Ok(Next::Finished);
        }
        if update && self.ends_step_after_update() {
            return Ok(Next::At(now));
        }
        if ops.as_offload().is_some() {
            return self.follow(now, ops, sink);
        }
        if self.method == Method::Scan {
            return Ok(Next::At(self.step_scanning(now, rest_until, ops, sink)));
        }
        if let Some(rest_until) = rest_until {
            return Ok(Next::At(rest_until.min(self.schedule.next_update)));
        }
        if let Some(check_at) = scheme::check_watermarks(&mut self.schemes, now, ops, sink) {
            self.pause(now);
            return Ok(Next::At(check_at));
        }
        self.resume(now);
        Ok(Next::At(self.begin_sample(now, ops)))
    }

    fn pause(&mut self, now: Nanos) {
        self.paused_since.get_or_insert(now);
        self.sampling.lose_step();
    }

    /// Goes on after a pause, which does not count as time of the aggregation.
    fn resume(&mut self, now: Nanos) {
        if let Some(since) = self.paused_since.take() {
            let paused = now.saturating_sub(since);
            self.aggr_start = self.aggr_start.map(|start| start.saturating_add(paused));
        }
    }

    fn start(&mut self, now: Nanos, ops: &mut dyn Operations, sink: &mut dyn Sink) -> Result<(), OpsError> {
        self.started = true;
        self.schedule.begin = now;
        self.update_targets(now, ops, sink)?;
        self.schedule.next_aggr = self.attrs.samples_in(self.attrs.aggr);
        self.choose_method(now, ops, sink);
        Ok(())
    }

    fn emit_snapshot(&self, now: Nanos, sink: &mut dyn Sink) {
        let targets: Vec<TargetRegions<'_>> = self.targets().collect();
        let attrs = &self.attrs;
        sink.on(&Event::Aggregated {
            start: self.aggr_start.unwrap_or(now),
            end: now,
            attrs,
            targets: &targets,
        });
    }

    /// Takes over the targets the operations see now: new ones are laid out, gone ones leave, the rest keep
    /// their history.
    fn update_targets(
        &mut self,
        now: Nanos,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) -> Result<(), OpsError> {
        self.schedule.next_update = now.saturating_add(self.until_update(now));
        let layouts = ops.update()?;
        self.targets.retain(|target| {
            let lives = layouts.iter().any(|layout| layout.id == target.id);
            if !lives {
                sink.on(&Event::TargetGone {
                    now,
                    id: target.id,
                    pid: target.pid,
                });
            }
            lives
        });
        let total: Bytes = layouts.iter().map(TargetLayout::weight).sum();
        for layout in layouts {
            let first_sz = first_size(&layout, total, self.attrs.min_nr_regions);
            self.update_target(layout, first_sz, now, sink);
        }
        for text in ops.news() {
            sink.on(&Event::Warning { now, text: &text });
        }
        Ok(())
    }

    /// How long targets are taken to be as they are now. A program that was just started maps most of its memory
    /// in the next moments, so that during the first update interval every aggregation looks at them anew.
    fn until_update(&self, now: Nanos) -> Nanos {
        let Attrs {
            sample, aggr, update, ..
        } = self.attrs;
        let is_early = now.saturating_sub(self.schedule.begin) < update;
        let interval = if is_early { update.min(aggr) } else { update };
        interval.max(sample)
    }

    fn update_target(&mut self, layout: TargetLayout, first_sz: Bytes, now: Nanos, sink: &mut dyn Sink) {
        let nth = match self.targets.binary_search_by_key(&layout.id, |target| target.id) {
            Ok(nth) => nth,
            Err(nth) => {
                let TargetLayout {
                    id, pid, ref ranges, ..
                } = layout;
                sink.on(&Event::TargetAppeared { now, id, pid, ranges });
                let regions = match self.method {
                    Method::Sampling => lay_out(ranges, first_sz),
                    Method::Scan => Vec::new(),
                };
                self.targets.insert(nth, Target::new(layout, regions));
                return;
            }
        };
        let target = &mut self.targets[nth];
        match self.method {
            Method::Sampling if target.regions.is_empty() => {
                target.regions = lay_out(&layout.ranges, first_sz);
            }
            Method::Sampling => target.set_ranges(&layout.ranges),
            // Regions are derived from pages; what is not mapped any more has none.
            Method::Scan if layout.ranges != target.ranges => target.states.keep_only(&layout.ranges),
            Method::Scan => {}
        }
        target.update(layout);
    }
}

/// How large the first regions of a target are, where all have `total` and at least `least` regions: by what it has in
/// memory, since most of what is mapped is often not there.
fn first_size(layout: &TargetLayout, total: Bytes, least: usize) -> Bytes {
    let part = layout.weight().0 as f64 / total.0.max(1) as f64;
    let pieces = (least as f64 * part).max(1.0);
    Bytes((layout.mapped().0 as f64 / pieces) as u64)
}
