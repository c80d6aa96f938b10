//! A budget chooses: which way to look, how often, with how many regions; anew whenever what it costs shows
//! that another choice fits better.

mod intervals;
mod mean;

pub(super) use self::intervals::{LONGEST_ROUND, SHORTEST_ROUND, next_round};
use self::intervals::{next_sample, sample_attrs, sample_each, sweep_attrs};
pub(super) use self::mean::MeanCost;
use super::beside::Beside;
use super::parting::Rate;
use super::{Context, Next};
use crate::attrs::{Attrs, AttrsError};
use crate::budget::{Budget, CpuShare, Looks, Plan, PlannedRounds, Way};
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
    /// Whether the step that was made last ended what was done so far: what it cost is of that.
    is_new_account: bool,
    /// What a round or a sampling interval has cost of late.
    cost: MeanCost,
    /// Whether a round was finished since sweeping began.
    swept_once: bool,
    /// Regions that were sampled when the aggregation that is running began.
    nr_regions: usize,
    /// From when on sweeping is tried again, after it was given up.
    retry_at: Option<Nanos>,
    retry_after: Nanos,
    /// Rounds that go on beside samples, with half of the budget each.
    pub(super) beside: Option<Beside>,
    /// What rounds were found to cost when there was last a reason to ask.
    pub(super) rate: Option<Rate>,
    /// Whether the operations can sweep.
    can_sweep: bool,
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

    /// Whether it may choose between sweeps and samples.
    pub(super) fn is_free(&self) -> bool {
        self.looks == Looks::Auto && self.can_sweep
    }

    /// Whether sweeps of all targets were given up for some time.
    pub(super) const fn has_given_up(&self) -> bool {
        self.retry_at.is_some()
    }

    /// Whether a first round goes on beside samples.
    pub(super) fn is_warming_up(&self) -> bool {
        self.beside.as_ref().is_some_and(|beside| beside.rounds.is_none())
    }

    /// What a round costs, as far as is known.
    pub(super) fn cost_of_round(&self) -> Nanos {
        let so_far = || self.total.saturating_sub(self.total_at_start);
        match &self.beside {
            Some(beside) => beside.cost_of_round(),
            None => self.cost.get().unwrap_or_else(so_far),
        }
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
        match self.way {
            Way::Sweep => self.most_regions_of_pages(),
            Way::Sample if self.is_parted() => self.attrs.max_nr_regions + self.most_regions_of_pages(),
            Way::Sample => self.attrs.max_nr_regions,
        }
    }

    /// How many of them targets may have that are told of by their pages.
    pub(super) fn most_regions_of_pages(&self) -> usize {
        let Some(chooser) = &self.chooser else {
            return self.attrs.max_nr_regions;
        };
        let asked = match self.way {
            Way::Sweep => self.attrs.max_nr_regions,
            Way::Sample => chooser.asked.max_nr_regions / 2,
        };
        let room = chooser.regions_each.saturating_mul(self.nr_swept());
        asked.max(room).max(1)
    }

    /// How many regions are sampled.
    fn nr_sampled_regions(&self) -> usize {
        let sampled = self.targets.iter().filter(|target| target.way == Way::Sample);
        sampled.map(|target| target.regions.len()).sum()
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
            is_new_account: false,
            cost: MeanCost::NONE,
            swept_once: false,
            nr_regions: 0,
            retry_at: None,
            retry_after: RETRY,
            beside: None,
            rate: None,
            can_sweep: false,
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
        let beside = chooser.beside.as_mut();
        let is_of_beside = beside.is_some_and(|beside| beside.add(cost, share));
        if is_of_beside || std::mem::take(&mut chooser.is_new_account) {
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
        let Some(chooser) = &mut self.chooser else { return };
        chooser.budget = Budget::new(chooser.budget.share(), now);
        chooser.can_sweep = ops.can_sweep();
        if chooser.looks == Looks::Sweep && !ops.can_sweep() {
            let text = "every page cannot be looked at here: looking at a page of each region instead";
            sink.on(&Event::Warning { now, text });
        }
        self.choose_anew(now, ops, sink);
    }

    /// Chooses as if nothing were known of what looking costs.
    pub(super) fn choose_anew(&mut self, now: Nanos, ops: &dyn Operations, sink: &mut dyn Sink) {
        if self.is_any_delicate() {
            return self.part_from_sweeps(now, sink);
        }
        let warms_up = self.is_to_warm_up(ops.can_sweep());
        let Some(chooser) = &mut self.chooser else { return };
        chooser.end_rounds();
        chooser.beside = warms_up.then(|| Beside::first_round(chooser.total));
        let (way, attrs) = chooser.first(ops.can_sweep());
        self.adopt(now, way, attrs, sink);
    }

    /// What it will begin with where a budget chooses, on operations that can sweep or not.
    #[must_use]
    pub fn first_plan(&self, can_sweep: bool) -> Option<Plan> {
        let chooser = self.chooser.as_ref()?;
        let (way, attrs) = match self.is_to_warm_up(can_sweep) {
            true => (Way::Sample, chooser.samples_within(chooser.share().half())),
            false => chooser.first(can_sweep),
        };
        Some(Plan {
            share: chooser.share(),
            way,
            attrs,
            rounds: None,
            nr_delicate: 0,
        })
    }

    /// The plan in force, where a budget chooses.
    #[must_use]
    pub fn plan(&self) -> Option<Plan> {
        let chooser = self.chooser.as_ref()?;
        let beside = chooser.beside.as_ref().filter(|_| self.is_parted());
        let rounds = beside.and_then(|beside| beside.rounds.as_ref());
        Some(Plan {
            share: chooser.share(),
            way: self.way,
            attrs: Attrs {
                max_nr_regions: self.most_regions(),
                ..self.attrs
            },
            rounds: rounds.map(|rounds| PlannedRounds {
                nr_targets: self.nr_swept(),
                of: self.targets.len(),
                each: rounds.each,
            }),
            nr_delicate: self.nr_delicate(),
        })
    }

    /// Looks at what the aggregation that just ended cost, and whether another choice fits better.
    pub(super) fn choose_after_aggregation(&mut self, now: Nanos, ops: &dyn Operations, sink: &mut dyn Sink) {
        let nr_regions = self.nr_sampled_regions();
        let is_any_delicate = self.is_any_delicate();
        let Some(chooser) = &mut self.chooser else { return };
        let cost = chooser.total.saturating_sub(chooser.total_at_start);
        chooser.total_at_start = chooser.total;
        if chooser.is_free() && !is_any_delicate && chooser.retry_at.is_some_and(|then| now >= then) {
            return self.try_sweeps_again(now, ops, sink);
        }
        let next = match self.way {
            _ if chooser.looks == Looks::Asked => None,
            Way::Sweep => match chooser.after_round(cost, &self.attrs, self.targets.len()) {
                Round::Fits => None,
                Round::FitsEach(attrs) => Some((Way::Sweep, attrs)),
                Round::TooLong => return self.give_up_sweeps(now, sink),
            },
            Way::Sample => chooser
                .after_samples(cost, &self.attrs)
                .map(|attrs| (Way::Sample, attrs)),
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
            self.give_up_sweeps(now, sink);
        }
    }

    pub(super) fn adopt(&mut self, now: Nanos, way: Way, attrs: Attrs, sink: &mut dyn Sink) {
        self.begin(now, way, attrs);
        self.tell_plan(now, sink);
    }

    /// Looks in this way from now on, without a word.
    pub(super) fn begin(&mut self, now: Nanos, way: Way, attrs: Attrs) {
        if way != self.way {
            self.look_alike(way);
        }
        self.change_to(attrs);
        self.aggr_start = Some(now);
    }

    pub(super) fn tell_plan(&self, now: Nanos, sink: &mut dyn Sink) {
        if let Some(plan) = self.plan() {
            sink.on(&Event::Planned { now, plan: &plan });
        }
    }
}

/// What a round says of those to come.
enum Round {
    /// They may come as they do.
    Fits,
    /// They should come in other intervals.
    FitsEach(Attrs),
    /// They take longer than a picture is worth.
    TooLong,
}

impl Chooser {
    fn first(&self, can_sweep: bool) -> (Way, Attrs) {
        match self.looks {
            Looks::Asked => (Way::Sample, self.asked),
            Looks::Auto if self.is_warming_up() => (Way::Sample, self.first_samples()),
            Looks::Auto | Looks::Sweep if can_sweep => (Way::Sweep, sweep_attrs(&self.asked, SHORTEST_ROUND)),
            Looks::Auto | Looks::Sample | Looks::Sweep => (Way::Sample, self.first_samples()),
        }
    }

    /// Samples before it is known what they cost.
    pub(super) fn first_samples(&self) -> Attrs {
        self.samples_within(self.share_of_samples())
    }

    fn samples_within(&self, share: CpuShare) -> Attrs {
        sample_attrs(share, &self.asked_of_samples(), GUESSED_LOOK, usize::MAX)
    }

    /// The most regions samples may be of.
    pub(super) fn most_sampled(&self) -> usize {
        self.first_samples().max_nr_regions
    }

    /// What samples may cost.
    fn share_of_samples(&self) -> CpuShare {
        let beside = self.beside.as_ref();
        beside.map_or(self.share(), |beside| beside.leaves(self.share()))
    }

    /// What was asked of samples: beside rounds of other targets, half of the regions.
    fn asked_of_samples(&self) -> Attrs {
        let all = self.asked.max_nr_regions;
        let most = match self.beside.as_ref().is_some_and(|beside| beside.rounds.is_some()) {
            true => (all / 2).max(self.asked.min_nr_regions),
            false => all,
        };
        Attrs {
            max_nr_regions: most,
            ..self.asked
        }
    }

    /// Sweeps alone from now on: their first round is through.
    pub(super) fn go_over_to_sweeps(&mut self) -> Attrs {
        self.beside = None;
        self.swept_once = true;
        self.begin_account();
        sweep_attrs(&self.asked, SHORTEST_ROUND)
    }

    pub(super) fn give_up_sweeps(&mut self, now: Nanos) {
        self.retry_at = Some(now.saturating_add(self.retry_after));
        self.retry_after = self.retry_after * 2;
    }

    /// Takes it for possible again that all targets are swept.
    pub(super) fn try_again(&mut self) {
        (self.retry_at, self.rate, self.swept_once) = (None, None, false);
    }

    /// Rounds are over, or go on in another way.
    pub(super) fn end_rounds(&mut self) {
        self.beside = None;
        self.begin_account();
    }

    /// Whether rounds over some targets go on beside samples from now on.
    pub(super) fn look_beside(&mut self, does: bool) {
        let goes_on = self.beside.as_ref().is_some_and(|beside| beside.rounds.is_some());
        match (does, goes_on) {
            (true, false) => self.beside = Some(Beside::rounds(self.total)),
            (false, _) => self.beside = None,
            (true, true) => {}
        }
    }

    /// What was looked at so far cost otherwise than what comes.
    const fn begin_account(&mut self) {
        self.cost = MeanCost::NONE;
        self.total_at_start = self.total;
        self.is_new_account = true;
    }

    /// Whether samples could see anything of so many targets: as many regions as the least each is to have, which the
    /// budget can pay for.
    pub(super) fn can_sample(&self, nr_targets: usize) -> bool {
        let attrs = self.samples_within(self.share());
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

    fn after_round(&mut self, cost: Nanos, attrs: &Attrs, nr_targets: usize) -> Round {
        if !std::mem::replace(&mut self.swept_once, true) {
            return Round::Fits;
        }
        let needed = self.share().time_for(self.cost.take_in(cost, attrs.aggr));
        if needed > self.longest_round(nr_targets) && self.looks == Looks::Auto {
            return Round::TooLong;
        }
        next_round(needed, attrs.aggr).map_or(Round::Fits, |interval| {
            Round::FitsEach(sweep_attrs(&self.asked, interval))
        })
    }

    fn after_samples(&mut self, cost: Nanos, attrs: &Attrs) -> Option<Attrs> {
        let cost = Nanos(cost.0 / u64::from(attrs.max_nr_accesses()));
        let cost = self.cost.take_in(cost, attrs.aggr);
        if self.nr_regions == 0 {
            return None;
        }
        let look = Nanos((cost.0 / self.nr_regions as u64).max(1));
        let asked = self.asked_of_samples();
        let mut next = sample_attrs(self.share_of_samples(), &asked, look, self.nr_regions);
        let (most, was) = (next.max_nr_regions, attrs.max_nr_regions);
        if most.abs_diff(was) * 3 > was {
            return Some(next);
        }
        let needed = self.share_of_samples().time_for(cost);
        next = sample_each(next_sample(needed, attrs.sample)?, next);
        Some(next)
    }
}
