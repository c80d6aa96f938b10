//! A budget chooses: which way to look, how often, with how many regions; anew whenever what it costs shows
//! that another choice fits better.

mod intervals;

use self::intervals::{
    LONGEST_ROUND, SHORTEST_ROUND, next_round, next_sample, sample_attrs, sample_each, sweep_attrs,
};
use super::warming::WarmUp;
use super::{Context, Next};
use crate::attrs::{Attrs, AttrsError};
use crate::budget::{Budget, CpuShare, Looks, Plan, Way};
use crate::ops::Operations;
use crate::sink::{Event, Sink};
use crate::units::Nanos;

/// Where samples would see next to nothing, because there are so many targets, rounds may be longer.
const LONGEST_ROUND_OF_MANY: Nanos = Nanos::secs(60);
/// The first round takes off all the marks of the past, which costs many times what the later ones do.
pub(super) const LONGEST_FIRST_ROUND: Nanos = Nanos::secs(60);
/// How long samples are taken before it is tried again whether sweeps fit by now; each time twice as long.
const RETRY: Nanos = Nanos::secs(300);
/// What a look costs before any was measured.
const GUESSED_LOOK: Nanos = Nanos::micros(4);
/// What aggregations cost is the mean of about so long, and of four of them at least.
const SMOOTHED_OVER: Nanos = Nanos::secs(4);
/// Bringing targets up to date may take this part of the budget: one in so many.
const UPDATE_PART: u64 = 8;

/// Chooses, and keeps the account.
#[derive(Debug)]
pub(super) struct Chooser {
    pub(super) looks: Looks,
    budget: Budget,
    /// What the user asked for; only the numbers of regions and the update interval count.
    asked: Attrs,
    /// Regions that each target has room for in sweeps, however few were asked for.
    regions_each: usize,
    /// All that was spent on looking so far.
    total: Nanos,
    /// The same when the aggregation that is running began.
    total_at_start: Nanos,
    /// What a round or a sampling interval has cost of late; none before one was measured.
    cost: Option<Nanos>,
    /// Whether a round was finished since sweeping began.
    swept_once: bool,
    /// Regions when the aggregation that is running began.
    nr_regions: usize,
    /// From when on sweeping is tried again, after it was given up.
    retry_at: Option<Nanos>,
    retry_after: Nanos,
    /// The first round, where it goes on beside samples, with half of the budget each.
    pub(super) warm_up: Option<WarmUp>,
    /// Whether the step that was made last brought the targets up to date and did nothing else.
    updated: bool,
}

impl Chooser {
    /// All that was spent on looking so far.
    pub(super) const fn total(&self) -> Nanos {
        self.total
    }

    pub(super) const fn share(&self) -> CpuShare {
        self.budget.share()
    }

    /// Whether something was saved up that may be spent at `now`.
    pub(super) fn has_saved(&self, now: Nanos) -> bool {
        self.budget.saved_at(now) > Nanos::ZERO
    }

    /// Until when nothing may be spent, if that lies ahead.
    pub(super) fn resting_at(&self, now: Nanos) -> Option<Nanos> {
        Some(self.budget.free_at()).filter(|free_at| *free_at > now)
    }
}

impl Context {
    /// While a budget has it look at every page, each target has room for `count` regions, also where all of them
    /// have more than the attributes allow: regions are found from pages then, and cost next to nothing. To be said after
    /// [`Context::with_budget`]; without a budget it has no meaning.
    #[must_use]
    pub const fn with_regions_each(mut self, count: usize) -> Self {
        if let Some(chooser) = &mut self.chooser {
            chooser.regions_each = count;
        }
        self
    }

    /// How many regions there may be now.
    pub(super) fn most_regions(&self) -> usize {
        let of_pages = self.chooser.as_ref().filter(|_| self.way == Way::Sweep);
        let room = of_pages.map_or(0, |chooser| {
            chooser.regions_each.saturating_mul(self.targets.len())
        });
        self.attrs.max_nr_regions.max(room)
    }

    /// Changes the attributes but for the intervals, which a budget goes on choosing. False, and nothing is changed, where
    /// there is none, or the intervals are others than were asked for: then [`Context::set_attrs`] is what is meant.
    ///
    /// # Errors
    /// When `attrs` contradict themselves; nothing changes then.
    pub fn set_bounds(&mut self, attrs: &Attrs) -> Result<bool, AttrsError> {
        attrs.check()?;
        let intervals = |attrs: &Attrs| (attrs.sample, attrs.aggr);
        let Some(chooser) = &mut self.chooser else {
            return Ok(false);
        };
        if intervals(attrs) != intervals(&chooser.asked) {
            return Ok(false);
        }
        if attrs.max_nr_regions != chooser.asked.max_nr_regions {
            chooser.regions_each = 0;
        }
        chooser.asked = *attrs;
        let most = match self.way {
            Way::Sweep => attrs.max_nr_regions,
            // As many as the budget pays for; soon chosen anew.
            Way::Sample => self.attrs.max_nr_regions.min(attrs.max_nr_regions),
        };
        self.attrs = Attrs {
            sample: self.attrs.sample,
            aggr: self.attrs.aggr,
            max_nr_regions: most,
            ..*attrs
        };
        Ok(true)
    }

    /// Makes it stay within `share` of one CPU, choosing among `looks`. Before the first step.
    #[must_use]
    pub fn with_budget(mut self, share: CpuShare, looks: Looks) -> Self {
        let budget = Budget::new(share, Nanos::ZERO);
        let asked = self.attrs;
        self.chooser = Some(Chooser {
            looks,
            budget,
            asked,
            regions_each: 0,
            total: Nanos::ZERO,
            total_at_start: Nanos::ZERO,
            cost: None,
            swept_once: false,
            nr_regions: 0,
            retry_at: None,
            retry_after: RETRY,
            warm_up: None,
            updated: false,
        });
        self
    }

    /// Tells what looking has cost so far, all in all. After every step, where a budget is to be kept.
    pub fn spent(&mut self, now: Nanos, total: Nanos) {
        let until_update = self.until_update(now);
        let Some(chooser) = &mut self.chooser else { return };
        let cost = total.saturating_sub(chooser.total);
        chooser.budget.spend(now, cost);
        chooser.total = total;
        let share = chooser.share();
        let warm_up = chooser.warm_up.as_mut();
        if warm_up.is_some_and(|warm_up| warm_up.spent(cost, share)) {
            // Samples are planned by what samples cost.
            chooser.total_at_start += cost;
        }
        if std::mem::take(&mut chooser.updated) {
            let rest = chooser.share().time_for(cost) * UPDATE_PART;
            self.schedule.next_update = now.saturating_add(until_update.max(rest));
        }
    }

    /// When to really call again, now that it is known what the step that said `next` has cost: calling in debt
    /// would only add to it.
    #[must_use]
    pub fn rest(&self, next: Next) -> Next {
        let Some(chooser) = &self.chooser else { return next };
        match next {
            Next::At(due) => Next::At(due.max(chooser.budget.free_at().min(self.schedule.next_update))),
            Next::Finished => Next::Finished,
        }
    }

    /// With a budget, a step that brought the targets up to date does nothing else, so that it is known what
    /// that costs. True when the step is over.
    pub(super) fn ends_step_after_update(&mut self) -> bool {
        self.chooser.as_mut().is_some_and(|chooser| {
            chooser.updated = true;
            true
        })
    }

    pub(super) fn choose_first(&mut self, now: Nanos, ops: &dyn Operations, sink: &mut dyn Sink) {
        let warms_up = self.is_to_warm_up(ops.can_sweep());
        let Some(chooser) = &mut self.chooser else { return };
        chooser.warm_up = warms_up.then(WarmUp::new);
        chooser.budget = Budget::new(chooser.budget.share(), now);
        if chooser.looks == Looks::Sweep && !ops.can_sweep() {
            let text = "every page cannot be looked at here: looking at a page of each region instead";
            sink.on(&Event::Warning { now, text });
        }
        let (way, attrs) = chooser.first(ops.can_sweep(), warms_up);
        self.adopt(now, way, attrs, sink);
    }

    /// What it will begin with where a budget chooses, on operations that can sweep or not.
    #[must_use]
    pub fn first_plan(&self, can_sweep: bool) -> Option<Plan> {
        let chooser = self.chooser.as_ref()?;
        let (way, attrs) = chooser.first(can_sweep, self.is_to_warm_up(can_sweep));
        Some(Plan {
            share: chooser.share(),
            way,
            attrs,
        })
    }

    /// Looks at what the aggregation that just ended cost, and whether another choice fits better.
    pub(super) fn choose_after_aggregation(&mut self, now: Nanos, ops: &dyn Operations, sink: &mut dyn Sink) {
        let nr_regions = self.nr_regions();
        let Some(chooser) = &mut self.chooser else { return };
        let cost = chooser.total.saturating_sub(chooser.total_at_start);
        chooser.total_at_start = chooser.total;
        let next = match self.way {
            _ if chooser.looks == Looks::Asked => None,
            Way::Sweep => chooser.after_round(now, cost, &self.attrs, self.targets.len()),
            Way::Sample => chooser.after_samples(now, cost, &self.attrs, ops.can_sweep()),
        };
        chooser.nr_regions = nr_regions;
        if let Some((way, attrs)) = next {
            self.adopt(now, way, attrs, sink);
        }
    }

    /// Samples from now on if the round that is under way shows already that sweeps are too slow.
    pub(super) fn give_up_slow_round(&mut self, began: Nanos, now: Nanos, sink: &mut dyn Sink) {
        let Some(chooser) = &mut self.chooser else { return };
        let mut longest = chooser.longest_round(self.targets.len()) * 2;
        if !chooser.swept_once {
            longest = longest.max(LONGEST_FIRST_ROUND);
        }
        if chooser.looks == Looks::Auto && now.saturating_sub(began) > longest {
            let (way, attrs) = chooser.give_up_sweeps(now);
            self.adopt(now, way, attrs, sink);
        }
    }

    pub(super) fn adopt(&mut self, now: Nanos, way: Way, attrs: Attrs, sink: &mut dyn Sink) {
        if (self.way, way) == (Way::Sweep, Way::Sample) && self.nr_regions() > attrs.max_nr_regions {
            // Samples of them all would take minutes.
            self.take_regions_from_pages(attrs.max_nr_regions, now);
        }
        self.change_to(way, attrs);
        self.aggr_start = Some(now);
        if let Some(plan) = self.plan() {
            sink.on(&Event::Planned { now, plan: &plan });
        }
    }
}

impl Chooser {
    fn first(&self, can_sweep: bool, warms_up: bool) -> (Way, Attrs) {
        match self.looks {
            Looks::Asked => (Way::Sample, self.asked),
            Looks::Auto if warms_up => self.first_samples(self.share().half()),
            Looks::Auto | Looks::Sweep if can_sweep => (Way::Sweep, sweep_attrs(&self.asked, SHORTEST_ROUND)),
            Looks::Auto | Looks::Sample | Looks::Sweep => self.first_samples(self.share()),
        }
    }

    fn first_samples(&self, share: CpuShare) -> (Way, Attrs) {
        let attrs = sample_attrs(share, &self.asked, GUESSED_LOOK, usize::MAX);
        (Way::Sample, attrs)
    }

    /// What samples may cost.
    const fn share_of_samples(&self) -> CpuShare {
        if self.warm_up.is_some() {
            self.share().half()
        } else {
            self.share()
        }
    }

    /// Sweeps alone from now on: their first round is through.
    pub(super) fn go_over_to_sweeps(&mut self) -> (Way, Attrs) {
        self.warm_up = None;
        self.swept_once = true;
        self.cost = None;
        self.total_at_start = self.total;
        (Way::Sweep, sweep_attrs(&self.asked, SHORTEST_ROUND))
    }

    pub(super) fn give_up_sweeps(&mut self, now: Nanos) -> (Way, Attrs) {
        self.retry_at = Some(now.saturating_add(self.retry_after));
        self.retry_after = self.retry_after * 2;
        self.warm_up = None;
        self.cost = None;
        // What the round that is given up cost says nothing about samples.
        self.total_at_start = self.total;
        self.first_samples(self.share())
    }

    /// Takes in what an aggregation of `interval` cost, or a look of it. Single ones vary, and where heat moves those cost
    /// more that come just after it did. A plan should not follow each, so it goes by the mean of some seconds.
    fn smoothed(&mut self, cost: Nanos, interval: Nanos) -> Nanos {
        let weight = u128::from(interval.0.min(SMOOTHED_OVER.0 / 4));
        let (new, all) = (u128::from(cost.0), u128::from(SMOOTHED_OVER.0));
        let mean = |old: Nanos| (u128::from(old.0) * (all - weight) + new * weight) / all;
        let cost = self
            .cost
            .map_or(cost, |old| Nanos(u64::try_from(mean(old)).unwrap_or(u64::MAX)));
        self.cost = Some(cost);
        cost
    }

    /// Whether samples could see anything of so many targets: as many regions as the least each is to have, which the
    /// budget can pay for.
    pub(super) fn can_sample(&self, nr_targets: usize) -> bool {
        let (_, attrs) = self.first_samples(self.share());
        nr_targets * self.asked.min_nr_regions <= attrs.max_nr_regions
    }

    /// How long rounds over so many targets may last.
    fn longest_round(&self, nr_targets: usize) -> Nanos {
        if self.can_sample(nr_targets) {
            LONGEST_ROUND
        } else {
            LONGEST_ROUND_OF_MANY
        }
    }

    fn after_round(
        &mut self,
        now: Nanos,
        cost: Nanos,
        attrs: &Attrs,
        nr_targets: usize,
    ) -> Option<(Way, Attrs)> {
        if !std::mem::replace(&mut self.swept_once, true) {
            return None;
        }
        let needed = self.share().time_for(self.smoothed(cost, attrs.aggr));
        if needed > self.longest_round(nr_targets) && self.looks == Looks::Auto {
            return Some(self.give_up_sweeps(now));
        }
        let interval = next_round(needed, attrs.aggr)?;
        Some((Way::Sweep, sweep_attrs(&self.asked, interval)))
    }

    fn after_samples(
        &mut self,
        now: Nanos,
        cost: Nanos,
        attrs: &Attrs,
        can_sweep: bool,
    ) -> Option<(Way, Attrs)> {
        let retry = self.retry_at.is_some_and(|then| now >= then);
        if retry && can_sweep && self.looks == Looks::Auto {
            (self.retry_at, self.cost, self.swept_once) = (None, None, false);
            return Some((Way::Sweep, sweep_attrs(&self.asked, SHORTEST_ROUND)));
        }
        let cost = Nanos(cost.0 / u64::from(attrs.max_nr_accesses()));
        let cost = self.smoothed(cost, attrs.aggr);
        if self.nr_regions == 0 {
            return None;
        }
        let look = Nanos((cost.0 / self.nr_regions as u64).max(1));
        let mut next = sample_attrs(self.share_of_samples(), &self.asked, look, self.nr_regions);
        let (most, was) = (next.max_nr_regions, attrs.max_nr_regions);
        if most.abs_diff(was) * 3 > was {
            return Some((Way::Sample, next));
        }
        let needed = self.share_of_samples().time_for(cost);
        next = sample_each(next_sample(needed, attrs.sample)?, next);
        Some((Way::Sample, next))
    }
}
