//! The one loop: check accesses, sum up, apply schemes, split, check again.
//!
//! A [`Context`] is what the kernel calls a `damon_ctx` together with its thread's main function: everything a
//! kdamond remembers, and [`Context::step`], which is called whenever it said it wants to be and says when to
//! call it again. Time comes in as an argument, the machine through [`Operations`], and what happens goes out
//! to a [`Sink`].
//!
//! There are two methods: `scanning` (every page, pass after pass) and `sampling` (DAMON's: one page of each region every
//! sampling interval). With attributes given by hand it samples; with a budget (`budgeting`) it scans where the operations
//! can. Operations that monitor by themselves are only followed (`offload`). What schemes do with what was found:
//! `apply_schemes`. What is remembered from step to step: `state`.

mod apply_schemes;
mod budget_state;
mod budgeting;
mod offload;
mod sampling;
mod sampling_plan;
mod sampling_state;
mod sampling_tables;
mod scanning;
mod scanning_state;
mod state;

pub use state::{Context, Next};

use crate::budget::Method;
use crate::monitoring::{Target, lay_out};
use crate::ops::{Operations, OpsError, TargetLayout};
use crate::scheme;
use crate::sink::{Event, Sink};
use thermo_units::{Bytes, Nanos};

impl Context {
    /// Does what is due and says when to call again. A call before that moment (because schemes or attributes
    /// were changed, say) is welcome: access checks that are under way go on.
    ///
    /// As in the kernel, access checks are finished first, targets are brought up to date when none is under way, and
    /// watermarks are asked before the next check.
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

    fn start(&mut self, now: Nanos, ops: &mut dyn Operations, sink: &mut dyn Sink) -> Result<(), OpsError> {
        self.started = true;
        self.schedule.begin = now;
        self.update_targets(now, ops, sink)?;
        self.schedule.next_aggr = self.attrs.samples_in(self.attrs.aggr);
        self.choose_method(now, ops, sink);
        Ok(())
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
