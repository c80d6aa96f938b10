//! The CPU budget of a context: what follows from it for the method, the intervals and the number of regions.

use super::budget_state::{BudgetState, PacedWork};
use super::state::{Context, Next};
use crate::attrs::{Attrs, AttrsError};
use crate::budget::{Budget, CpuShare, Method, MethodPolicy, Plan};
use crate::ops::Operations;
use crate::sink::{Event, Sink};
use thermo_units::Nanos;

/// Bringing targets up to date may take this part of the budget: one in so many.
const UPDATE_PART: u64 = 8;
/// Deriving runs of pages for schemes may take this part.
const SCHEMES_PART: u64 = 4;
/// Deriving regions from pages may take this part: tables do not need it.
const REGIONS_PART: u64 = 8;
impl Context {
    /// Makes it stay within `share` of one CPU, with the methods that `policy` allows. Before the first step.
    #[must_use]
    pub fn with_budget(mut self, share: CpuShare, policy: MethodPolicy) -> Self {
        self.budget = Some(BudgetState::new(share, policy, self.attrs));
        self
    }

    /// Where it scans, each target has room for `count` regions, also where all of them have more than the attributes
    /// allow: regions are derived from pages then, and cost next to nothing. To be said after [`Context::with_budget`];
    /// without a budget it has no meaning.
    #[must_use]
    pub const fn with_regions_each(mut self, count: usize) -> Self {
        if let Some(budget) = &mut self.budget {
            budget.regions_each = count;
        }
        self
    }

    /// Where it scans, a snapshot comes every `interval` (one second, if nothing is said). To be said after
    /// [`Context::with_budget`]; without a budget it has no meaning.
    #[must_use]
    pub const fn with_snapshot_interval(mut self, interval: Nanos) -> Self {
        if let Some(budget) = &mut self.budget {
            budget.snapshot_interval = interval;
        }
        self
    }

    /// How many regions there may be now.
    pub(super) fn most_regions(&self) -> usize {
        let each = match (&self.budget, self.method) {
            (Some(budget), Method::Scan) => budget.regions_each,
            _ => 0,
        };
        self.attrs
            .max_nr_regions
            .max(each.saturating_mul(self.targets.len()))
    }

    /// Changes the attributes but for the intervals, which a budget goes on choosing. False, and nothing is changed, where
    /// there is none, or the intervals are others than were asked for: then [`Context::set_attrs`] is what is meant.
    ///
    /// # Errors
    /// When `attrs` contradict themselves; nothing changes then.
    pub fn set_bounds(&mut self, attrs: &Attrs) -> Result<bool, AttrsError> {
        attrs.check()?;
        let intervals = |attrs: &Attrs| (attrs.sample, attrs.aggr);
        let Some(budget) = &mut self.budget else {
            return Ok(false);
        };
        if intervals(attrs) != intervals(&budget.asked) {
            return Ok(false);
        }
        if attrs.max_nr_regions != budget.asked.max_nr_regions {
            budget.regions_each = 0;
        }
        budget.asked = *attrs;
        let most = match self.method {
            Method::Scan => attrs.max_nr_regions,
            // As many as the budget pays for; soon chosen anew.
            Method::Sampling => self.attrs.max_nr_regions.min(attrs.max_nr_regions),
        };
        self.attrs = Attrs {
            sample: self.attrs.sample,
            aggr: self.attrs.aggr,
            max_nr_regions: most,
            ..*attrs
        };
        Ok(true)
    }

    /// Says what monitoring has cost so far, all in all. After every step, where a budget is to be kept.
    pub fn spent(&mut self, now: Nanos, total: Nanos) {
        let until_update = self.until_update(now);
        let Some(budget) = &mut self.budget else { return };
        let cost = total.saturating_sub(budget.total);
        budget.account.spend(now, cost);
        budget.total = total;
        let pause = |part: u64| budget.account.share().time_for(cost) * part;
        match budget.last_work.take() {
            Some(PacedWork::Update) => {
                self.schedule.next_update = now.saturating_add(until_update.max(pause(UPDATE_PART)));
            }
            Some(PacedWork::Regions) => {
                self.scanning.next_regions = now.saturating_add(pause(REGIONS_PART));
            }
            Some(PacedWork::Schemes) => {
                self.scanning.next_regions = now.saturating_add(pause(REGIONS_PART));
                self.scanning.next_schemes = now.saturating_add(pause(SCHEMES_PART));
            }
            None => self.scanning.scheduler.charge(cost, &mut self.targets),
        }
    }

    /// When to really call again, now that it is known what the step that said `next` has cost: calling in debt would only
    /// add to it. Snapshots and quota windows keep their cadence all the same.
    #[must_use]
    pub fn rest(&self, next: Next) -> Next {
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

    /// Ends the larger share of the first seconds once two passes over each target are complete: the first one clears
    /// old accessed bits, the second one is the first to find accesses.
    pub(super) fn end_start_when_scanned(&mut self, now: Nanos) {
        let Some(budget) = &mut self.budget else { return };
        if budget.account.is_starting(now) && self.targets.iter().all(|target| target.states.nr_passes() > 1)
        {
            budget.account.end_start();
        }
    }

    /// Notes that the step that is being made is paced by what it costs.
    pub(super) const fn pace(&mut self, work: PacedWork) {
        if let Some(budget) = &mut self.budget {
            budget.last_work = Some(work);
        }
    }

    /// With a budget, a step that brought the targets up to date does nothing else, so that it is known what that costs.
    /// True when the step is over.
    pub(super) const fn ends_step_after_update(&mut self) -> bool {
        self.pace(PacedWork::Update);
        self.budget.is_some()
    }

    /// Chooses the method and the first attributes, where there is a budget.
    pub(super) fn choose_method(&mut self, now: Nanos, ops: &dyn Operations, sink: &mut dyn Sink) {
        let Some(budget) = &mut self.budget else { return };
        budget.account = Budget::new(budget.account.share(), now);
        let can_scan = ops.can_scan();
        if budget.policy == MethodPolicy::Scan && !can_scan {
            let text = "pages cannot be scanned here: a page of each region is sampled instead";
            sink.on(&Event::Warning { now, text });
        }
        let method = budget.method(can_scan);
        let attrs = budget.first_attrs(method);
        self.switch_to(method);
        self.scanning.next_snapshot = now.saturating_add(attrs.aggr);
        if method == Method::Scan {
            // Half an interval before snapshots, so that what is new has been scanned by then.
            self.schedule.next_update = now.saturating_add(Nanos(attrs.aggr.0 / 2));
        }
        self.adopt(attrs, now, sink);
    }

    /// What it will begin with where there is a budget, on operations that can scan or not.
    #[must_use]
    pub fn first_plan(&self, can_scan: bool) -> Option<Plan> {
        let budget = self.budget.as_ref()?;
        let method = budget.method(can_scan);
        Some(budget.plan(method, budget.first_attrs(method)))
    }

    /// The plan in force, where there is a budget.
    #[must_use]
    pub fn plan(&self) -> Option<Plan> {
        let attrs = Attrs {
            max_nr_regions: self.most_regions(),
            ..self.attrs
        };
        Some(self.budget.as_ref()?.plan(self.method, attrs))
    }

    /// Looks at what the aggregation that just ended cost, and whether other intervals fit better.
    pub(super) fn choose_intervals(&mut self, now: Nanos, sink: &mut dyn Sink) {
        let nr_regions = self.nr_regions();
        let Some(budget) = &mut self.budget else { return };
        if let Some(attrs) = budget.after_samples(&self.attrs, nr_regions) {
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
