//! Some targets are looked at page by page and others by samples, where all pages of all would not do.
//!
//! There are two reasons for that. A round over all targets takes longer than a picture is worth: then the smallest are
//! swept, as many as half of the budget pays for, and those that are left are sampled with the other half. And a target may be
//! delicate ([`TargetLayout::is_delicate`]): it is sampled while it is, and the others are swept.
//!
//! What was counted by rounds is told in the units of samples, so that one picture holds both.
//!
//! [`TargetLayout::is_delicate`]: crate::ops::TargetLayout::is_delicate

use super::beside::Beside;
use super::choosing::LONGEST_ROUND;
use super::{Context, Sweeping};
use crate::budget::{Looks, Way};
use crate::monitoring::Target;
use crate::ops::{Operations, TargetId};
use crate::sink::Sink;
use crate::sweep::PageSums;
use crate::units::{Bytes, Nanos};

/// Rounds over the targets that are swept may take so long, by what rounds have cost before. Some less than what they are
/// given up for.
const GOOD_ROUND: Nanos = Nanos(LONGEST_ROUND.0 / 2);

/// What rounds cost, for how much memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    cost: Nanos,
    bytes: Bytes,
}

impl Rate {
    /// How much memory can be looked at for `cost`.
    fn affords(self, cost: Nanos) -> Bytes {
        let bytes = u128::from(self.bytes.0) * u128::from(cost.0) / u128::from(self.cost.0.max(1));
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl Context {
    /// Those targets that are told of by their pages.
    pub(super) fn swept_mut(&mut self) -> impl Iterator<Item = &mut Target> {
        self.targets.iter_mut().filter(|target| target.way == Way::Sweep)
    }

    /// How many targets that is.
    pub(super) fn nr_swept(&self) -> usize {
        self.targets
            .iter()
            .filter(|target| target.way == Way::Sweep)
            .count()
    }

    /// Whether some targets are swept while samples are what goes on.
    pub(super) fn is_parted(&self) -> bool {
        self.way == Way::Sample && self.targets.iter().any(|target| target.way == Way::Sweep)
    }

    /// How many targets do not bear being swept, where a budget is free to choose among ways.
    pub(super) fn nr_delicate(&self) -> usize {
        let looks = self.chooser.as_ref().map(|chooser| chooser.looks);
        match looks {
            Some(Looks::Auto) => self.targets.iter().filter(|target| target.is_delicate).count(),
            _ => 0,
        }
    }

    /// Whether there is any.
    pub(super) fn is_any_delicate(&self) -> bool {
        self.nr_delicate() > 0
    }

    /// Takes up what targets are now: those that must not be swept, and those that are new.
    pub(super) fn follow_targets(&mut self, now: Nanos, ops: &dyn Operations, sink: &mut dyn Sink) {
        let is_any_delicate = self.is_any_delicate();
        let Some(chooser) = &mut self.chooser else { return };
        if chooser.looks != Looks::Auto || !ops.can_sweep() {
            return;
        }
        let too_dear = chooser.has_given_up();
        let goes_on_alone = self.way == Way::Sweep || chooser.is_warming_up();
        if is_any_delicate && goes_on_alone {
            let attrs = chooser.samples_instead();
            self.begin(now, Way::Sample, attrs);
            self.part_ways();
            self.tell_plan(now, sink);
        } else if is_any_delicate || too_dear {
            let before = self.nr_swept();
            if !self.is_parted_rightly() {
                self.part_ways();
            }
            if self.nr_swept() != before {
                self.tell_plan(now, sink);
            }
        } else if !goes_on_alone {
            self.choose_anew(now, ops, sink);
        }
    }

    /// Gives sweeps of all targets up for some time: they take too long.
    pub(super) fn give_up_sweeps(&mut self, now: Nanos, sink: &mut dyn Sink) {
        let bytes = self
            .targets
            .iter()
            .map(|target| present(target.heat.sums()))
            .sum();
        let Some(chooser) = &mut self.chooser else { return };
        chooser.rate = Some(Rate {
            cost: chooser.cost_of_round(),
            bytes,
        });
        let attrs = chooser.give_up_sweeps(now);
        self.begin(now, Way::Sample, attrs);
        self.part_ways();
        self.tell_plan(now, sink);
    }

    /// Notes what a round over the targets that are swept costs.
    pub(super) fn note_rate(&mut self, cost: Nanos) {
        let bytes = self.swept_mut().map(|target| target.resident).sum();
        if let Some(chooser) = &mut self.chooser {
            chooser.rate = Some(Rate { cost, bytes });
        }
    }

    /// Whether what was chosen fits the targets there are now.
    fn is_parted_rightly(&self) -> bool {
        let Some(chooser) = &self.chooser else { return true };
        let fits = |target: &Target| match target.way {
            Way::Sweep => !target.is_delicate,
            Way::Sample => target.is_delicate || chooser.has_given_up(),
        };
        chooser.is_parted && self.targets.iter().all(fits)
    }

    /// Chooses which targets are swept beside samples of the others. For a context that samples.
    pub(super) fn part_ways(&mut self) {
        let swept = self.worth_sweeping();
        let mut is_changed = false;
        for target in &mut self.targets {
            let way = match swept.contains(&target.id) {
                true => Way::Sweep,
                false => Way::Sample,
            };
            let stays_swept = (target.way, way) == (Way::Sweep, Way::Sweep);
            is_changed |= target.way != way;
            target.way = way;
            if !stays_swept {
                target.forget_pages();
            }
        }
        let Some(chooser) = &mut self.chooser else { return };
        chooser.is_parted = true;
        if is_changed || chooser.beside.is_none() {
            self.sweeping = Sweeping::default();
            let total = chooser.total();
            chooser.beside = (!swept.is_empty()).then(|| Beside::rounds(total));
        }
        if is_changed {
            self.change_to(self.attrs);
            // What is not told of by pages has to cover holes again, too.
            self.schedule.next_update = Nanos::ZERO;
        }
    }

    /// The targets that rounds can be of: the smallest, as far as half of the budget goes.
    fn worth_sweeping(&self) -> Vec<TargetId> {
        let Some(chooser) = &self.chooser else {
            return Vec::new();
        };
        let affordable = chooser.share().half().of(GOOD_ROUND);
        let mut room = match chooser.rate {
            Some(rate) => rate.affords(affordable),
            None => Bytes(u64::MAX),
        };
        let mut by_size: Vec<(Bytes, TargetId)> = self
            .targets
            .iter()
            .filter(|target| !target.is_delicate)
            .map(|target| (target.resident, target.id))
            .collect();
        by_size.sort_unstable();
        let fits = |(resident, _): &(Bytes, TargetId)| {
            let fits = *resident <= room;
            room = Bytes(room.0.saturating_sub(resident.0));
            fits
        };
        by_size.into_iter().take_while(fits).map(|(_, id)| id).collect()
    }
}

fn present(sums: PageSums) -> Bytes {
    sums.touched + sums.idle + sums.unknown
}
