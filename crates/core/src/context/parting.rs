//! Some targets are looked at page by page and others by samples, where all pages of all would not do.
//!
//! There are two reasons for that. A round over all targets takes longer than a picture is worth: then the smallest are
//! swept, as many as half of the budget pays for, and those that are left are sampled with the other half. And a target may be
//! delicate ([`TargetLayout::is_delicate`]): it is sampled while it is, and the others are swept.
//!
//! What was counted by rounds is told in the units of samples, so that one picture holds both. A target that goes over to
//! samples takes its regions with it; of one that goes over to sweeps nothing is known until a round has come by all of it.
//! When all are swept and known, and nothing was given up, sweeps go on alone.
//!
//! [`TargetLayout::is_delicate`]: crate::ops::TargetLayout::is_delicate

use std::collections::BTreeSet;

use super::choosing::LONGEST_ROUND;
use super::{Context, Sweeping};
use crate::budget::Way;
use crate::monitoring::Target;
use crate::ops::{TargetId, TargetLayout};
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
    /// Those targets whose regions come from their pages, or will.
    pub(super) fn swept_mut(&mut self) -> impl Iterator<Item = &mut Target> {
        self.targets.iter_mut().filter(|target| target.way == Way::Sweep)
    }

    fn swept(&self) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(|target| target.way == Way::Sweep)
    }

    /// How many targets that is.
    pub(super) fn nr_swept(&self) -> usize {
        self.swept().count()
    }

    /// How much of them is in memory.
    fn swept_bytes(&self) -> Bytes {
        self.swept().map(|target| target.resident).sum()
    }

    /// Whether some targets are swept while samples are what goes on.
    pub(super) fn is_parted(&self) -> bool {
        self.way == Way::Sample && self.nr_swept() > 0
    }

    /// How many targets do not bear being swept, where a budget is free to choose among ways.
    pub(super) fn nr_delicate(&self) -> usize {
        let chooses = self.chooser.as_ref().is_some_and(|chooser| chooser.is_free());
        let delicate = self.targets.iter().filter(|target| target.is_delicate);
        if chooses { delicate.count() } else { 0 }
    }

    /// Whether there is any.
    pub(super) fn is_any_delicate(&self) -> bool {
        self.nr_delicate() > 0
    }

    /// In which way a target that has just appeared is looked at.
    pub(super) fn way_of_new(&self, layout: &TargetLayout) -> Way {
        match self.way {
            Way::Sweep => Way::Sweep,
            Way::Sample if !self.is_parted() || layout.is_delicate => Way::Sample,
            Way::Sample => match self.swept_bytes() + layout.weight() <= self.affordable() {
                true => Way::Sweep,
                false => Way::Sample,
            },
        }
    }

    /// Takes up what targets are now: whether they may be swept, and whether there still are any that are.
    pub(super) fn follow_targets(&mut self, now: Nanos, sink: &mut dyn Sink) {
        let is_any_delicate = self.is_any_delicate();
        let Some(chooser) = self.chooser.as_ref().filter(|chooser| chooser.is_free()) else {
            return;
        };
        if self.way == Way::Sweep || chooser.is_warming_up() {
            if is_any_delicate {
                self.part_from_sweeps(now, sink);
            }
        } else if is_any_delicate || chooser.has_given_up() || self.is_parted() {
            let before = self.nr_swept();
            if !self.is_parted_rightly() {
                self.part_ways(now);
            }
            if self.nr_swept() != before {
                self.tell_plan(now, sink);
            }
        } else {
            // It is no longer delicate, but memory is as short as it was. A first round beside samples is slow, and had the
            // kernel page out a tenth more (docs/results/2026-11-23-order.md); samples have told of it meanwhile.
            self.choose_sweeps(now, sink);
        }
    }

    /// Gives sweeps of all targets up for some time: they take too long.
    pub(super) fn give_up_sweeps(&mut self, now: Nanos, sink: &mut dyn Sink) {
        let known = self.targets.iter().map(|target| present(target.heat.sums()));
        let bytes = known.sum();
        let Some(chooser) = &mut self.chooser else { return };
        chooser.rate = Some(Rate {
            cost: chooser.cost_of_round(),
            bytes,
        });
        chooser.give_up_sweeps(now);
        self.part_from_sweeps(now, sink);
    }

    /// Tries again whether all targets can be swept: the ones that are swept already stay so meanwhile.
    pub(super) fn try_sweeps_again(&mut self, now: Nanos, sink: &mut dyn Sink) {
        let Some(chooser) = &mut self.chooser else { return };
        chooser.try_again();
        if !self.is_parted() {
            return self.choose_anew(now, sink);
        }
        self.part_ways(now);
        self.tell_plan(now, sink);
    }

    /// Notes what a round over the targets that are swept costs.
    pub(super) fn note_rate(&mut self, cost: Nanos) {
        let bytes = self.swept_bytes();
        if let Some(chooser) = &mut self.chooser {
            chooser.rate = Some(Rate { cost, bytes });
        }
    }

    /// Whether all is swept and known, so that sweeps can go on alone.
    pub(super) fn bears_sweeps_alone(&self) -> bool {
        self.chooser
            .as_ref()
            .is_some_and(|chooser| !chooser.has_given_up())
            && self.targets.iter().all(Target::is_told_by_pages)
    }

    /// Whether what was chosen fits the targets there are now.
    fn is_parted_rightly(&self) -> bool {
        let Some(chooser) = &self.chooser else { return true };
        let fits = |target: &Target| match target.way {
            Way::Sweep => !target.is_delicate,
            Way::Sample => target.is_delicate || chooser.has_given_up(),
        };
        chooser.beside.is_some() == (self.nr_swept() > 0) && self.targets.iter().all(fits)
    }

    /// Samples from now on, of those targets that must not or cannot be swept.
    pub(super) fn part_from_sweeps(&mut self, now: Nanos, sink: &mut dyn Sink) {
        let Some(chooser) = &mut self.chooser else { return };
        chooser.end_rounds();
        self.way = Way::Sample;
        self.sweeping = Sweeping::default();
        self.part_ways(now);
        if let Some(chooser) = &self.chooser {
            self.change_to(chooser.first_samples());
        }
        self.aggr_start = Some(now);
        self.tell_plan(now, sink);
    }

    /// Chooses which targets are swept beside samples of the others. For a context that samples.
    fn part_ways(&mut self, now: Nanos) {
        let swept = self.worth_sweeping();
        let leaves = |target: &Target| target.way == Way::Sweep && !swept.contains(&target.id);
        let joins = |target: &Target| target.way == Way::Sample && swept.contains(&target.id);
        let is_changed = self.targets.iter().any(|target| leaves(target) || joins(target));
        self.take_regions_to_samples(leaves, now);
        for target in &mut self.targets {
            if leaves(target) {
                target.go_over_to_samples();
            } else if joins(target) {
                target.go_over_to_sweeps();
            } else if target.way == Way::Sample {
                // Of a first round that is given up.
                target.forget_pages();
            }
        }
        let Some(chooser) = &mut self.chooser else { return };
        chooser.look_beside(!swept.is_empty());
        if is_changed {
            // A round that is under way may be past a target that joins.
            self.sweeping = Sweeping::default();
            self.change_to(self.attrs);
        }
    }

    /// The targets that rounds can be of: the smallest, as far as half of the budget goes.
    fn worth_sweeping(&self) -> BTreeSet<TargetId> {
        let mut room = self.affordable();
        let mut by_size: Vec<(Bytes, TargetId)> = self
            .targets
            .iter()
            .filter(|target| !target.is_delicate)
            .map(|target| (target.resident, target.id))
            .collect();
        by_size.sort_unstable();
        let fits = |(resident, _): &(Bytes, TargetId)| {
            let fits = *resident <= room;
            room = room.saturating_sub(*resident);
            fits
        };
        by_size.into_iter().take_while(fits).map(|(_, id)| id).collect()
    }

    /// How much memory rounds beside samples may be of: any, as long as they were not found to take too long.
    fn affordable(&self) -> Bytes {
        let given_up = self.chooser.as_ref().filter(|chooser| chooser.has_given_up());
        let rate = given_up.and_then(|chooser| Some((chooser.rate?, chooser.share())));
        rate.map_or(Bytes::MAX, |(rate, share)| {
            rate.affords(share.half().of(GOOD_ROUND))
        })
    }
}

fn present(sums: PageSums) -> Bytes {
    sums.touched + sums.idle + sums.unknown
}
