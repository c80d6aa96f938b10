//! Rounds of sweeps beside samples: small pieces of them in the time between two looks, with half of the budget each.
//!
//! There are two occasions:
//!
//! * **The first round.** It takes off all the marks of the past, which costs many times what later rounds do, and tells
//!   nothing before it is through: of large memory that can be a minute within a budget. So samples are looked at
//!   meanwhile; what the budget has saved up at its beginning is the round's alone, which is enough for a GiB. When the round
//!   is through, sweeps go on alone, and where it takes too long, they are given up. Not where schemes act: what they do can
//!   be exact, so they wait for it. And not where there are so many targets that samples would see next to nothing of each.
//! * **Rounds over some targets**, while the others are sampled; see `parting`.

use super::Context;
use super::choosing::{
    Chooser, FIRST_COSTS, LONGEST_FIRST_ROUND, LONGEST_ROUND, MeanCost, SHORTEST_ROUND, next_round,
};
use crate::action::Action;
use crate::budget::{CpuShare, Looks, Way};
use crate::ops::Operations;
use crate::sink::Sink;
use crate::sweep::{Of, WINDOW};
use crate::units::Nanos;

/// Bytes of address space looked at in one go: multiples of what a page-table page maps, and no more than what
/// costs about [`PIECE_TIME`] of the budget, so that samples are not kept waiting.
const LEAST_PIECE: u64 = 2 << 20;
const FIRST_PIECE: u64 = 8 << 20;
const LARGEST_PIECE: u64 = 64 << 20;
const PIECE_TIME: Nanos = Nanos::millis(50);

/// Rounds that go on beside samples.
#[derive(Debug)]
pub(super) struct Beside {
    /// None: it is the first round, of all targets.
    pub(super) rounds: Option<Rounds>,
    piece: u64,
    /// What its pieces have cost, and all that was spent on looking before them.
    spent: Nanos,
    before: Nanos,
    /// Whether the step that was made last looked at one of them.
    stepped: bool,
}

/// Rounds over some targets.
#[derive(Debug)]
pub(super) struct Rounds {
    /// From the beginning of one to that of the next.
    pub(super) each: Nanos,
    /// Whether one is through: the first takes off the marks of the past.
    is_one_through: bool,
    /// What the one that is under way has cost, as far as it is known.
    spent: Nanos,
    /// What they have cost of late.
    cost: MeanCost,
}

impl Rounds {
    /// The share of a CPU that they take.
    fn share(&self) -> CpuShare {
        self.cost
            .get()
            .map_or(CpuShare(0), |cost| CpuShare::of_time(cost, self.each))
    }
}

impl Beside {
    /// A first round, where `before` was spent so far.
    pub(super) const fn first_round(before: Nanos) -> Self {
        Self {
            rounds: None,
            piece: FIRST_PIECE,
            spent: Nanos::ZERO,
            before,
            stepped: false,
        }
    }

    /// Rounds over some targets.
    pub(super) const fn rounds(before: Nanos) -> Self {
        let rounds = Rounds {
            each: SHORTEST_ROUND,
            is_one_through: false,
            spent: Nanos::ZERO,
            cost: MeanCost::NONE,
        };
        Self {
            rounds: Some(rounds),
            ..Self::first_round(before)
        }
    }

    /// Which targets its rounds are of.
    pub(super) const fn of(&self) -> Of {
        match self.rounds {
            None => Of::All,
            Some(_) => Of::Swept,
        }
    }

    /// What is left of `share` for samples.
    pub(super) fn leaves(&self, share: CpuShare) -> CpuShare {
        let taken = self.rounds.as_ref().map_or(share, Rounds::share);
        CpuShare(share.0 - taken.0.min(share.half().0))
    }

    /// What a round costs, by the last ones or by the one that is under way.
    pub(super) fn cost_of_round(&self) -> Nanos {
        match &self.rounds {
            Some(rounds) if rounds.is_one_through => {
                rounds.spent.max(rounds.cost.get().unwrap_or(Nanos::ZERO))
            }
            Some(rounds) => Nanos(rounds.spent.0 / FIRST_COSTS),
            None => Nanos(self.spent.0 / FIRST_COSTS),
        }
    }

    /// Takes in what the last step cost, within a budget of `share`; returns whether that was a piece's.
    pub(super) fn add(&mut self, cost: Nanos, share: CpuShare) -> bool {
        let was_piece = std::mem::take(&mut self.stepped);
        if was_piece {
            self.spent += cost;
            if let Some(rounds) = &mut self.rounds {
                rounds.spent += cost;
            }
            let fits =
                u128::from(self.piece) * u128::from(share.of(PIECE_TIME).0) / u128::from(cost.0.max(1));
            let fits = u64::try_from(fits).unwrap_or(u64::MAX);
            self.piece = fits.clamp(LEAST_PIECE, LARGEST_PIECE) / LEAST_PIECE * LEAST_PIECE;
        }
        was_piece
    }
}

impl Context {
    /// Whether a first round is worth going on beside samples, on operations that can sweep or not.
    pub(super) fn is_to_warm_up(&self, can_sweep: bool) -> bool {
        let nr_targets = self.targets.len();
        let is_to_choose = |c: &Chooser| c.looks == Looks::Auto && c.can_sample(nr_targets);
        let is_free_to_choose = self.chooser.as_ref().is_some_and(is_to_choose);
        let only_looks = |action| action == Action::Stat;
        can_sweep && is_free_to_choose && self.schemes.iter().all(|s| only_looks(s.scheme().action))
    }

    /// The rounds that go on beside samples, if any do.
    pub(super) fn beside(&self) -> Option<&Beside> {
        self.chooser.as_ref()?.beside.as_ref()
    }

    /// When the next round beside samples begins, if that lies ahead of `now`.
    pub(super) fn round_beside(&self, now: Nanos) -> Option<Nanos> {
        self.next_round()
            .filter(|next| self.beside().is_some() && !self.sweeping.is_under_way() && now < *next)
    }

    /// Looks at the next piece of a round beside samples, where one goes on or is due and has not spent more than its half.
    /// Returns whether it did.
    pub(super) fn look_beside(&mut self, now: Nanos, ops: &mut dyn Operations, sink: &mut dyn Sink) -> bool {
        if self.round_beside(now).is_some() {
            return false;
        }
        let Some(piece) = self.chooser.as_mut().and_then(|chooser| chooser.next_piece(now)) else {
            return false;
        };
        let goes_on = self.look_on(piece, now, ops, sink);
        let is_first = self.rounds_beside().is_none();
        let began = self.sweeping.began().unwrap_or(now);
        if !goes_on && is_first {
            for target in &mut self.targets {
                target.heat.end_round(now);
            }
            self.go_over_to_sweeps(now, sink);
        } else if !goes_on {
            self.finish_round_beside(now, sink);
        } else if now.saturating_sub(began) > LONGEST_FIRST_ROUND * 2 {
            self.give_up_sweeps(now, sink);
        }
        true
    }

    fn rounds_beside(&mut self) -> Option<&mut Rounds> {
        self.chooser.as_mut()?.beside.as_mut()?.rounds.as_mut()
    }

    /// Sweeps alone from now on: their first round is through.
    fn go_over_to_sweeps(&mut self, now: Nanos, sink: &mut dyn Sink) {
        let Some(chooser) = &mut self.chooser else { return };
        let attrs = chooser.go_over_to_sweeps();
        self.adopt(now, Way::Sweep, attrs, sink);
    }

    /// Takes in a round over some targets, and how often they should be.
    fn finish_round_beside(&mut self, now: Nanos, sink: &mut dyn Sink) {
        for target in self.swept_mut() {
            target.heat.end_round(now);
        }
        let Some(share) = self.chooser.as_ref().map(Chooser::share) else {
            return;
        };
        // More often than the window has rounds they tell nothing more of an aggregation.
        let enough = Nanos(self.attrs.aggr.0 / u64::from(WINDOW));
        let Some(rounds) = self.rounds_beside() else {
            return;
        };
        if !std::mem::replace(&mut rounds.is_one_through, true) {
            rounds.spent = Nanos::ZERO;
            if self.bears_sweeps_alone() {
                self.go_over_to_sweeps(now, sink);
            }
            return;
        }
        let cost = rounds
            .cost
            .take_in(std::mem::take(&mut rounds.spent), rounds.each);
        let needed = share.half().time_for(cost);
        let next = next_round(needed.max(enough), rounds.each);
        if let Some(next) = next {
            rounds.each = next;
        }
        self.note_rate(cost);
        if self.bears_sweeps_alone() {
            self.go_over_to_sweeps(now, sink);
        } else if needed > LONGEST_ROUND {
            self.give_up_sweeps(now, sink);
        } else if next.is_some() {
            self.tell_plan(now, sink);
        }
    }
}

impl Chooser {
    /// The bytes to look at next in a round beside samples; none when that is not its turn.
    fn next_piece(&mut self, now: Nanos) -> Option<u64> {
        let total = self.total();
        // What was saved up is for this: samples cannot use it, they come at their intervals.
        let has_saved = self.has_saved(now);
        let beside = self.beside.as_mut()?;
        beside.stepped = has_saved || beside.spent * 2 <= total.saturating_sub(beside.before);
        beside.stepped.then_some(beside.piece)
    }
}
