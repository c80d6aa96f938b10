//! The one loop: check accesses, aggregate, apply schemes, repeat.
//!
//! A [`Context`] is the kernel's `damon_ctx` together with the main function of its kdamond thread. It holds
//! all state. [`Context::step`] does the work that is due and returns the time of the next call. The current
//! time is an argument, the machine is reached through [`Operations`], and events go to a [`Sink`].
//!
//! * `scanning`: every page, pass after pass. Used with a budget if the operations can scan.
//! * `sampling`: DAMON's method, one page of each region every sampling interval. Used with given attributes.
//! * `offload`: the operations monitor themselves, and the context only reads their results.
//! * `budgeting`: chooses the method, the intervals and the number of regions.
//! * `apply_schemes`: applies schemes to the regions found.
//! * `page_sample`: draws pages by idle age.
//! * `state`: the state kept between steps.

mod apply_schemes;
mod budget_state;
mod budgeting;
mod offload;
mod page_sample;
mod sampling;
mod sampling_plan;
mod sampling_state;
mod sampling_tables;
mod scanning;
mod scanning_state;
mod state;

pub use page_sample::SampledPage;
pub use state::{Context, Next};

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::budget::Method;
use crate::monitoring::{Target, initial_regions};
use crate::ops::{Operations, OpsError, TargetLayout};
use crate::scheme;
use crate::sink::{Event, Sink};
use crate::target_id::TargetId;
use thermo_units::{Bytes, Nanos};

impl Context {
    /// Does the work that is due and returns when to call again. An earlier call is allowed, for example
    /// after a change of schemes or attributes: running access checks continue.
    ///
    /// The order is the kernel's: finish access checks, update targets while no check is running, check
    /// watermarks, begin the next access check.
    ///
    /// # Errors
    /// The operations failed as a whole. A target that vanished is an event, not an error.
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
        let pause_until = self.budget.as_ref().and_then(|budget| budget.pause_until(now));
        if let Some(due) = self.sampling.running_until() {
            let check_at = due.max(pause_until.unwrap_or(due));
            if now < check_at {
                return Ok(Next::At(check_at));
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
            return Ok(Next::At(self.step_scanning(now, pause_until, ops, sink)));
        }
        if let Some(pause_until) = pause_until {
            return Ok(Next::At(pause_until.min(self.schedule.next_update)));
        }
        if let Some(check_at) = scheme::check_watermarks(&mut self.schemes, now, ops, sink) {
            self.pause(now);
            return Ok(Next::At(check_at));
        }
        self.resume(now);
        Ok(Next::At(self.begin_sample(now, ops)))
    }

    fn start(&mut self, now: Nanos, ops: &mut dyn Operations, sink: &mut dyn Sink) -> Result<(), OpsError> {
        self.started = true;
        self.schedule.begin = now;
        self.update_targets(now, ops, sink)?;
        self.schedule.next_aggr = self.attrs.samples_in(self.attrs.aggr);
        self.choose_method(now, ops, sink);
        Ok(())
    }

    /// Updates the targets: new ones get their first regions, gone ones are removed, the others keep their
    /// history.
    fn update_targets(
        &mut self,
        now: Nanos,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) -> Result<(), OpsError> {
        self.schedule.next_update = now.saturating_add(self.until_update(now));
        let layouts = ops.update()?;
        let living: BTreeSet<TargetId> = layouts.iter().map(|layout| layout.id).collect();
        self.targets.retain(|target| {
            let is_alive = living.contains(&target.id);
            if !is_alive {
                sink.on(&Event::TargetGone {
                    now,
                    id: target.id,
                    pid: target.pid,
                });
            }
            is_alive
        });
        let total: Bytes = layouts.iter().map(TargetLayout::weight).sum();
        for layout in layouts {
            let region_sz = initial_region_size(&layout, total, self.attrs.min_nr_regions);
            self.update_target(layout, region_sz, now, sink);
        }
        for text in ops.take_warnings() {
            sink.on(&Event::Warning { now, text: &text });
        }
        self.scanning.scheduler.targets_changed();
        self.warn_of_late_updates(now, sink);
        Ok(())
    }

    fn update_target(&mut self, layout: TargetLayout, region_sz: Bytes, now: Nanos, sink: &mut dyn Sink) {
        let nth = match self.targets.binary_search_by_key(&layout.id, |target| target.id) {
            Ok(nth) => nth,
            Err(nth) => {
                let TargetLayout {
                    id, pid, ref ranges, ..
                } = layout;
                sink.on(&Event::TargetAppeared { now, id, pid, ranges });
                let regions = match self.method {
                    Method::Sampling => initial_regions(ranges, region_sz),
                    Method::Scan => Vec::new(),
                };
                self.targets.insert(nth, Target::new(layout, regions));
                return;
            }
        };
        let target = &mut self.targets[nth];
        // Operations that have not read a layout again give the same one.
        let is_new_layout = !Arc::ptr_eq(&layout.ranges, &target.ranges);
        match self.method {
            Method::Sampling if target.regions.is_empty() => {
                target.regions = initial_regions(&layout.ranges, region_sz);
            }
            Method::Sampling => target.set_ranges(&layout.ranges),
            Method::Scan if is_new_layout && layout.ranges != target.ranges => {
                target.states.keep_only(&layout.ranges)
            }
            Method::Scan => {}
        }
        target.update(layout);
    }
}

/// Size of the first regions of a target. `min_nr_regions` regions are divided among all targets by their
/// share of `total`, the weight of all targets. The weight is resident memory, because most mapped memory is
/// often not resident.
fn initial_region_size(layout: &TargetLayout, total: Bytes, min_nr_regions: usize) -> Bytes {
    let share = layout.weight().0 as f64 / total.0.max(1) as f64;
    let nr_regions = (min_nr_regions as f64 * share).max(1.0);
    Bytes((layout.mapped().0 as f64 / nr_regions) as u64)
}
