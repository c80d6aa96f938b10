//! The account of a budget and what follows from it for intervals and regions; when it is asked: `choosing`.

use super::super::beside::Beside;
use super::super::parting::Rate;
use super::FIRST_COSTS;
use super::intervals::{
    LONGEST_ROUND, SHORTEST_ROUND, next_round, next_sample, sample_attrs, sample_each, sweep_attrs,
};
use super::mean::MeanCost;
use crate::attrs::Attrs;
use crate::budget::{Budget, CpuShare, Looks, Way};
use crate::units::Nanos;

/// Where samples would see next to nothing, because there are so many targets, rounds may be longer.
const LONGEST_ROUND_OF_MANY: Nanos = Nanos::secs(60);
/// How long samples are taken before it is tried again whether sweeps fit by now; each time twice as long.
const RETRY: Nanos = Nanos::secs(300);
/// What a look costs before any was measured.
const GUESSED_LOOK: Nanos = Nanos::micros(4);

/// Chooses, and keeps the account.
#[derive(Debug)]
pub(in crate::context) struct Chooser {
    pub(in crate::context) looks: Looks,
    pub(super) budget: Budget,
    /// What the user asked for; only the numbers of regions and the update interval count.
    pub(super) asked: Attrs,
    /// Regions that each target has room for in sweeps, however few were asked for.
    pub(super) regions_each: usize,
    /// All that was spent on looking so far.
    pub(super) total: Nanos,
    /// The same when the aggregation that is running began.
    pub(super) total_at_start: Nanos,
    /// Whether the step that was made last ended what was done so far: what it cost is of that.
    pub(super) is_new_account: bool,
    /// What a round or a sampling interval has cost of late.
    pub(super) cost: MeanCost,
    /// Whether a round was finished since sweeping began.
    pub(super) swept_once: bool,
    /// Regions that were sampled when the aggregation that is running began.
    pub(super) nr_regions: usize,
    /// From when on sweeping is tried again, after it was given up.
    pub(super) retry_at: Option<Nanos>,
    pub(super) retry_after: Nanos,
    /// Rounds that go on beside samples, with half of the budget each.
    pub(in crate::context) beside: Option<Beside>,
    /// What rounds were found to cost when there was last a reason to ask.
    pub(in crate::context) rate: Option<Rate>,
    /// Whether the operations can sweep.
    pub(super) can_sweep: bool,
    /// Whether the step that was made last brought the targets up to date and did nothing else.
    pub(super) updated: bool,
}

impl Chooser {
    /// Stays within `share`, choosing among `looks`, for who asked for `asked`.
    pub(super) const fn new(share: CpuShare, looks: Looks, asked: Attrs) -> Self {
        Self {
            looks,
            budget: Budget::new(share, Nanos::ZERO),
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
        }
    }

    /// All that was spent on looking so far.
    pub(in crate::context) const fn total(&self) -> Nanos {
        self.total
    }

    pub(in crate::context) const fn share(&self) -> CpuShare {
        self.budget.share()
    }

    /// Whether it may choose between sweeps and samples.
    pub(in crate::context) fn is_free(&self) -> bool {
        self.looks == Looks::Auto && self.can_sweep
    }

    /// Whether sweeps of all targets were given up for some time.
    pub(in crate::context) const fn has_given_up(&self) -> bool {
        self.retry_at.is_some()
    }

    /// Whether a first round goes on beside samples.
    pub(in crate::context) fn is_warming_up(&self) -> bool {
        self.beside.as_ref().is_some_and(|beside| beside.rounds.is_none())
    }

    /// Whether rounds over some targets do.
    fn has_rounds_beside(&self) -> bool {
        self.beside.as_ref().is_some_and(|beside| beside.rounds.is_some())
    }

    /// What a round costs, as far as is known.
    pub(in crate::context) fn cost_of_round(&self) -> Nanos {
        let so_far = || self.total.saturating_sub(self.total_at_start);
        match &self.beside {
            Some(beside) => beside.cost_of_round(),
            None if self.swept_once => self.cost.get().unwrap_or_else(so_far),
            None => Nanos(so_far().0 / FIRST_COSTS),
        }
    }

    /// Whether something was saved up that may be spent at `now`.
    pub(in crate::context) fn has_saved(&self, now: Nanos) -> bool {
        self.budget.saved_at(now) > Nanos::ZERO
    }

    /// Until when nothing may be spent, if that lies ahead.
    pub(in crate::context) fn resting_at(&self, now: Nanos) -> Option<Nanos> {
        Some(self.budget.free_at()).filter(|free_at| *free_at > now)
    }
}

/// What a round says of those to come.
pub(super) enum Round {
    /// They may come as they do.
    Fits,
    /// They should come in other intervals.
    FitsEach(Attrs),
    /// They take longer than a picture is worth.
    TooLong,
}

impl Chooser {
    pub(super) fn first(&self, can_sweep: bool) -> (Way, Attrs) {
        match self.looks {
            Looks::Asked => (Way::Sample, self.asked),
            Looks::Auto if self.is_warming_up() => (Way::Sample, self.first_samples()),
            Looks::Auto | Looks::Sweep if can_sweep => (Way::Sweep, sweep_attrs(&self.asked, SHORTEST_ROUND)),
            Looks::Auto | Looks::Sample | Looks::Sweep => (Way::Sample, self.first_samples()),
        }
    }

    /// Samples before it is known what they cost.
    pub(in crate::context) fn first_samples(&self) -> Attrs {
        self.samples_within(self.share_of_samples())
    }

    pub(super) fn samples_within(&self, share: CpuShare) -> Attrs {
        sample_attrs(share, &self.asked_of_samples(), GUESSED_LOOK, usize::MAX)
    }

    /// The most regions samples may be of.
    pub(in crate::context) fn most_sampled(&self) -> usize {
        self.first_samples().max_nr_regions
    }

    /// What samples may cost.
    pub(super) fn share_of_samples(&self) -> CpuShare {
        let beside = self.beside.as_ref();
        beside.map_or(self.share(), |beside| beside.leaves(self.share()))
    }

    /// What was asked of samples: beside rounds of other targets, half of the regions.
    pub(super) fn asked_of_samples(&self) -> Attrs {
        let all = self.asked.max_nr_regions;
        let most = match self.has_rounds_beside() {
            true => (all / 2).max(self.asked.min_nr_regions),
            false => all,
        };
        Attrs {
            max_nr_regions: most,
            ..self.asked
        }
    }

    /// Sweeps alone from now on: their first round is through.
    pub(in crate::context) fn go_over_to_sweeps(&mut self) -> Attrs {
        self.end_rounds();
        self.swept_once = true;
        sweep_attrs(&self.asked, SHORTEST_ROUND)
    }

    pub(in crate::context) fn give_up_sweeps(&mut self, now: Nanos) {
        self.retry_at = Some(now.saturating_add(self.retry_after));
        self.retry_after = self.retry_after * 2;
    }

    /// Takes it for possible again that all targets are swept.
    pub(in crate::context) fn try_again(&mut self) {
        (self.retry_at, self.rate, self.swept_once) = (None, None, false);
    }

    /// Rounds are over, or go on in another way.
    pub(in crate::context) fn end_rounds(&mut self) {
        self.beside = None;
        self.begin_account();
    }

    /// Whether rounds over some targets go on beside samples from now on.
    pub(in crate::context) fn look_beside(&mut self, does: bool) {
        match (does, self.has_rounds_beside()) {
            (true, false) => self.beside = Some(Beside::rounds(self.total)),
            (false, _) => self.beside = None,
            (true, true) => {}
        }
    }

    /// What was looked at so far cost otherwise than what comes.
    pub(super) const fn begin_account(&mut self) {
        self.cost = MeanCost::NONE;
        self.total_at_start = self.total;
        self.is_new_account = true;
    }

    /// Whether samples could see anything of so many targets: as many regions as the least each is to have, which the
    /// budget can pay for.
    pub(in crate::context) fn can_sample(&self, nr_targets: usize) -> bool {
        let attrs = self.samples_within(self.share());
        nr_targets * self.asked.min_nr_regions <= attrs.max_nr_regions
    }

    /// How long rounds over so many targets may last.
    pub(super) fn longest_round(&self, nr_targets: usize) -> Nanos {
        if self.can_sample(nr_targets) {
            LONGEST_ROUND
        } else {
            LONGEST_ROUND_OF_MANY
        }
    }

    pub(super) fn after_round(&mut self, cost: Nanos, attrs: &Attrs, nr_targets: usize) -> Round {
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

    pub(super) fn after_samples(&mut self, cost: Nanos, attrs: &Attrs) -> Option<Attrs> {
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
