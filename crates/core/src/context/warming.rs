//! The first round of sweeps beside samples, so that there is a picture from the first moments on.
//!
//! The first round takes off all the marks of the past, which costs many times what later rounds do, and tells
//! nothing before it is through: of large memory that can be a minute within a budget. So samples are looked at meanwhile,
//! with half of the budget, and small pieces of the round in the time between them; what the budget has saved up at its
//! beginning is the round's alone, which is enough for a GiB. When the round is through, sweeps go on
//! alone, and where it takes too long, samples do.
//!
//! Not where schemes act: what they do can be exact, so they wait for it. And not where there are so many targets that
//! samples would see next to nothing of each.

use super::Context;
use super::choosing::{Chooser, LONGEST_FIRST_ROUND};
use crate::action::Action;
use crate::budget::{CpuShare, Looks};
use crate::ops::Operations;
use crate::sink::Sink;
use crate::units::Nanos;

/// Bytes of address space looked at in one go: multiples of what a page-table page maps, and no more than what
/// costs about [`PIECE_TIME`] of the budget, so that samples are not kept waiting.
const LEAST_PIECE: u64 = 2 << 20;
const FIRST_PIECE: u64 = 8 << 20;
const LARGEST_PIECE: u64 = 64 << 20;
const PIECE_TIME: Nanos = Nanos::millis(50);

/// A first round that goes on beside samples.
#[derive(Debug)]
pub(super) struct WarmUp {
    piece: u64,
    /// What its pieces have cost.
    spent: Nanos,
    /// Whether the step that was made last looked at one of them.
    stepped: bool,
}

impl WarmUp {
    pub(super) const fn new() -> Self {
        Self {
            piece: FIRST_PIECE,
            spent: Nanos::ZERO,
            stepped: false,
        }
    }

    /// Takes in what the last step cost, within a budget of `share`; returns whether that was a piece's.
    pub(super) fn spent(&mut self, cost: Nanos, share: CpuShare) -> bool {
        let was_piece = std::mem::take(&mut self.stepped);
        if was_piece {
            self.spent += cost;
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

    /// Whether a first round goes on beside samples.
    pub(super) fn is_warming_up(&self) -> bool {
        let chooser = self.chooser.as_ref();
        chooser.is_some_and(|chooser| chooser.warm_up.is_some())
    }

    /// Looks at the next piece of the first round, where one goes on and has not spent more than its half. Returns
    /// whether it did.
    pub(super) fn warm_up(&mut self, now: Nanos, ops: &mut dyn Operations, sink: &mut dyn Sink) -> bool {
        let Some(piece) = self.chooser.as_mut().and_then(|chooser| chooser.next_piece(now)) else {
            return false;
        };
        let goes_on = self.look_on(piece, now, ops, sink);
        let began = self.sweeping.began().unwrap_or(now);
        let Some(chooser) = &mut self.chooser else {
            return false;
        };
        if !goes_on {
            let (way, attrs) = chooser.go_over_to_sweeps();
            for target in &mut self.targets {
                target.heat.end_round(now);
            }
            self.adopt(now, way, attrs, sink);
        } else if now.saturating_sub(began) > LONGEST_FIRST_ROUND * 2 {
            let (way, attrs) = chooser.give_up_sweeps(now);
            self.sweeping = super::Sweeping::default();
            self.forget_pages();
            self.adopt(now, way, attrs, sink);
        }
        true
    }
}

impl Chooser {
    /// The bytes to look at next in a first round beside samples; none when that is not their turn.
    fn next_piece(&mut self, now: Nanos) -> Option<u64> {
        let total = self.total();
        // What was saved up is for this: samples cannot use it, they come at their intervals.
        let has_saved = self.has_saved(now);
        let warm_up = self.warm_up.as_mut()?;
        warm_up.stepped = has_saved || warm_up.spent * 2 <= total;
        warm_up.stepped.then_some(warm_up.piece)
    }
}
