//! The CPU budget of a context: it chooses the method, the intervals and the number of regions.

use super::budget_state::{BudgetState, PacedWork};
use super::state::{Context, Next};
use crate::attrs::{Attrs, AttrsError};
use crate::budget::{Budget, CpuShare, Method, MethodPolicy, Plan};
use crate::ops::Operations;
use crate::sink::{Event, Sink};
use thermo_units::Nanos;

/// Updating targets may use 1/4 of the budget. Of two updates in a row the cheaper one counts: what many new
/// processes, or a check once a minute, cost does not delay the next update.
const UPDATE_DIVISOR: u64 = 4;
/// Handing snapshots over to sinks may take a quarter as much as the budget. It is no part of the budget.
const OUTPUT_DIVISOR: u64 = 4;
/// Updates are late if they are this many intervals apart.
const LATE: u64 = 2;
/// Deriving runs of pages for schemes may use 1/4 of the budget.
const SCHEMES_DIVISOR: u64 = 4;
/// Deriving regions from pages may use 1/8 of the budget. Tables do not need regions.
const REGIONS_DIVISOR: u64 = 8;

impl Context {
    /// Limits monitoring to `share` of one CPU, with the methods that `policy` allows. Call before the first
    /// step.
    #[must_use]
    pub fn with_budget(mut self, share: CpuShare, policy: MethodPolicy) -> Self {
        self.budget = Some(BudgetState::new(share, policy, self.attrs));
        self
    }

    /// When scanning, allows `count` regions per target even if the total exceeds `max_nr_regions`: regions
    /// derived from pages cost almost nothing. Call after [`Context::with_budget`]; without a budget it has
    /// no effect.
    #[must_use]
    pub const fn with_regions_per_target(mut self, count: usize) -> Self {
        if let Some(budget) = &mut self.budget {
            budget.regions_per_target = count;
        }
        self
    }

    /// When scanning, takes a snapshot every `interval` (default: one second). Call after
    /// [`Context::with_budget`]; without a budget it has no effect.
    #[must_use]
    pub const fn with_snapshot_interval(mut self, interval: Nanos) -> Self {
        if let Some(budget) = &mut self.budget {
            budget.snapshot_interval = interval;
        }
        self
    }

    /// Changes the share of the budget while monitoring, for programs that divide one budget among contexts.
    /// Without a budget it has no effect.
    pub const fn set_cpu_share(&mut self, share: CpuShare) {
        if let Some(budget) = &mut self.budget {
            budget.account.set_share(share);
        }
    }

    /// Whether a larger share of the budget would be used at `now`: scans wait for their budget, and sampling
    /// chooses its intervals by it. False without a budget.
    #[must_use]
    pub fn wants_more_budget(&self, now: Nanos) -> bool {
        let Some(budget) = &self.budget else { return false };
        match self.method {
            Method::Scan => budget.account.free_at() > now,
            Method::Sampling => budget.policy != MethodPolicy::FixedIntervals,
        }
    }

    /// Current maximum number of regions over all targets.
    pub(super) fn max_regions(&self) -> usize {
        let per_target = match (&self.budget, self.method) {
            (Some(budget), Method::Scan) => budget.regions_per_target,
            _ => 0,
        };
        self.attrs
            .max_nr_regions
            .max(per_target.saturating_mul(self.targets.len()))
    }

    /// Changes the attributes except the sampling and aggregation intervals, which the budget keeps choosing.
    /// Returns false and changes nothing if there is no budget or if the intervals differ from those
    /// requested before. Use [`Context::set_attrs`] then.
    ///
    /// # Errors
    /// `attrs` are inconsistent; nothing changes.
    pub fn set_bounds(&mut self, attrs: &Attrs) -> Result<bool, AttrsError> {
        attrs.check()?;
        let intervals = |attrs: &Attrs| (attrs.sample, attrs.aggr);
        let Some(budget) = &mut self.budget else {
            return Ok(false);
        };
        if intervals(attrs) != intervals(&budget.requested) {
            return Ok(false);
        }
        if attrs.max_nr_regions != budget.requested.max_nr_regions {
            budget.regions_per_target = 0;
        }
        budget.requested = *attrs;
        let max_nr_regions = match self.method {
            Method::Scan => attrs.max_nr_regions,
            // The budget chooses the number again after the aggregation.
            Method::Sampling => self.attrs.max_nr_regions.min(attrs.max_nr_regions),
        };
        self.attrs = Attrs {
            sample: self.attrs.sample,
            aggr: self.attrs.aggr,
            max_nr_regions,
            ..*attrs
        };
        Ok(true)
    }

    /// Charges the budget with the cost of the last step. `total` is the CPU time of monitoring since it
    /// began. Call after every step if there is a budget.
    pub fn charge(&mut self, now: Nanos, total: Nanos) {
        let until_update = self.until_update(now);
        let Some(budget) = &mut self.budget else { return };
        let cost = total.saturating_sub(budget.total);
        budget.account.spend(now, cost);
        budget.total = total;
        let share = budget.account.share();
        let pause = |divisor: u64| share.time_for(cost) * divisor;
        match budget.last_work.take() {
            Some(PacedWork::Update) => {
                let before = budget.update_cost.replace(cost).unwrap_or(Nanos::ZERO);
                let paced = share.time_for(cost.min(before)) * UPDATE_DIVISOR;
                budget.update_interval = until_update.max(paced);
                self.schedule.next_update = now.saturating_add(budget.update_interval);
            }
            Some(PacedWork::Regions) => {
                self.scanning.next_regions = now.saturating_add(pause(REGIONS_DIVISOR));
            }
            Some(PacedWork::Schemes) => {
                self.scanning.next_regions = now.saturating_add(pause(REGIONS_DIVISOR));
                self.scanning.next_schemes = now.saturating_add(pause(SCHEMES_DIVISOR));
            }
            None => self.scanning.scheduler.charge(cost, &mut self.targets),
        }
    }

    /// Delays the next snapshot by what `cost`, the CPU time of sinks in the last step, calls for: with
    /// thousands of targets, writing a snapshot costs more than a second's budget. Call after
    /// [`Context::charge`].
    pub fn charge_output(&mut self, now: Nanos, cost: Nanos) {
        let Some(budget) = &self.budget else { return };
        let pause = budget.account.share().time_for(cost) * OUTPUT_DIVISOR;
        let next = &mut self.scanning.next_snapshot;
        *next = (*next).max(now.saturating_add(pause));
    }

    /// Warns once if new processes are found late.
    pub(super) fn warn_of_late_updates(&mut self, now: Nanos, sink: &mut dyn Sink) {
        let update = self.attrs.update;
        let Some(budget) = &mut self.budget else { return };
        let interval = budget.update_interval;
        if interval <= update * LATE || std::mem::replace(&mut budget.warned_of_late_updates, true) {
            return;
        }
        let text = format!(
            "new processes and mappings are found after up to {interval}, not {update}: looking for them takes a \
             quarter of the budget. Raise --cpu to find them earlier"
        );
        sink.on(&Event::Warning { now, text: &text });
    }

    /// Delays `next`, the result of the last step, until the budget is out of debt. Snapshots, quota windows
    /// and updates of targets are not delayed. Call after [`Context::charge`].
    #[must_use]
    pub fn delay_for_budget(&self, next: Next) -> Next {
        let Some(budget) = &self.budget else { return next };
        let mut wake = budget.account.free_at().min(self.schedule.next_update);
        if self.method == Method::Scan {
            let next_window = self.scanning.deferred.as_ref().and(self.next_window());
            wake = wake
                .min(self.scanning.next_snapshot)
                .min(next_window.unwrap_or(Nanos::MAX));
        }
        match next {
            Next::At(due) => Next::At(due.max(wake)),
            Next::Finished => Next::Finished,
        }
    }

    /// Ends the budget's start phase once two passes over each target are complete. The first pass clears old
    /// accessed bits; the second is the first to find accesses.
    pub(super) fn end_start_when_scanned(&mut self, now: Nanos) {
        let Some(budget) = &mut self.budget else { return };
        if budget.account.is_starting(now) && self.targets.iter().all(|target| target.states.nr_passes() > 1)
        {
            budget.account.end_start();
        }
    }

    /// Records that the current step does `work`, which is paced by its cost.
    pub(super) const fn set_paced_work(&mut self, work: PacedWork) {
        if let Some(budget) = &mut self.budget {
            budget.last_work = Some(work);
        }
    }

    /// True if the step ends after an update of targets. With a budget it does, so that the cost of the
    /// update is known.
    pub(super) const fn ends_step_after_update(&mut self) -> bool {
        self.set_paced_work(PacedWork::Update);
        self.budget.is_some()
    }

    /// Chooses the method and the first attributes, if there is a budget.
    pub(super) fn choose_method(&mut self, now: Nanos, ops: &dyn Operations, sink: &mut dyn Sink) {
        let Some(budget) = &mut self.budget else { return };
        budget.account = Budget::new(budget.account.share(), now);
        let can_scan = ops.can_scan();
        if budget.policy == MethodPolicy::Scan && !can_scan {
            let text = "this backend cannot scan pages: regions are sampled instead";
            sink.on(&Event::Warning { now, text });
        }
        let method = budget.method(can_scan);
        let attrs = budget.first_attrs(method);
        self.switch_to(method);
        self.scanning.next_snapshot = now.saturating_add(attrs.aggr);
        if method == Method::Scan {
            // Half an interval before a snapshot, so that new memory is scanned before the snapshot.
            self.schedule.next_update = now.saturating_add(Nanos(attrs.aggr.0 / 2));
        }
        self.adopt(attrs, now, sink);
    }

    /// The first plan on operations that can scan or not; `None` without a budget.
    #[must_use]
    pub fn first_plan(&self, can_scan: bool) -> Option<Plan> {
        let budget = self.budget.as_ref()?;
        let method = budget.method(can_scan);
        Some(budget.plan(method, budget.first_attrs(method)))
    }

    /// The current plan; `None` without a budget.
    #[must_use]
    pub fn plan(&self) -> Option<Plan> {
        let attrs = Attrs {
            max_nr_regions: self.max_regions(),
            ..self.attrs
        };
        Some(self.budget.as_ref()?.plan(self.method, attrs))
    }

    /// Adjusts the sampling attributes to the cost of the aggregation that just ended.
    pub(super) fn choose_intervals(&mut self, now: Nanos, sink: &mut dyn Sink) {
        let nr_regions = self.nr_regions();
        let Some(budget) = &mut self.budget else { return };
        if let Some(attrs) = budget.adjusted_attrs(&self.attrs, nr_regions) {
            self.adopt(attrs, now, sink);
        }
    }

    fn adopt(&mut self, attrs: Attrs, now: Nanos, sink: &mut dyn Sink) {
        self.change_to(attrs);
        self.aggr_start = Some(now);
        if let Some(plan) = self.plan() {
            sink.on(&Event::Planned { now, plan: &plan });
        }
    }
}
