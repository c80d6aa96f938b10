//! Looking at every page, in rounds.

use super::Context;
use super::acting::{Leftover, Turn};
use super::beside::Beside;
use super::choosing::Chooser;
use crate::budget::Way;
use crate::monitoring::Target;
use crate::ops::Operations;
use crate::region::Region;
use crate::sink::{Event, Sink};
use crate::sweep::{EVERYWHERE, Holes, MAX_NR_ACCESSES, Of, Preparation, Round, regions_of};
use crate::units::Nanos;

/// Most runs that schemes are applied to in a round: some milliseconds of work and some MiB.
const MOST_RUNS: usize = 32_768;

/// Most bytes of address space looked at in one piece: some milliseconds of work where all of it is there and
/// was touched, so that a budget of a hundredth of a CPU is kept within less than a second.
const PIECE: u64 = 64 << 20;

/// So long after the end of a round that found much changed the pages that did are looked at again, to tell earlier whether it lasts.
const LOOK_AGAIN_AFTER: Nanos = Nanos::millis(100);
/// So much of what is touched has to have changed for that: one byte in so many.
const LOOK_AGAIN_FROM: u64 = 16;

/// What sweeping remembers between steps.
#[derive(Debug, Default)]
pub(super) struct Sweeping {
    /// The round that is under way.
    round: Option<Round>,
    /// When the last one began, and when it ended.
    began: Option<Nanos>,
    ended: Nanos,
    /// Whether the round that is under way, or comes next, is but another look at what changed.
    looks_again: bool,
    /// What quotas left of the last one, for their next windows.
    pub(super) leftover: Option<Leftover>,
}

impl Sweeping {
    /// When the round that is under way, or was last, began.
    pub(super) const fn began(&self) -> Option<Nanos> {
        self.began
    }

    /// Whether a round is.
    pub(super) const fn is_under_way(&self) -> bool {
        self.round.is_some()
    }

    /// Goes on after a pause of so long.
    pub(super) fn go_on(&mut self, now: Nanos, paused: Nanos) {
        if let Some(round) = &mut self.round {
            self.began = self.began.map(|began| began.saturating_add(paused));
            round.go_on(now);
        }
    }
}

impl Context {
    /// Looks at the next piece of the round, or begins one that is due. Returns when to go on: at once while a
    /// round is under way, so that the cost of each piece is known before the next.
    pub(super) fn step_sweeping(
        &mut self,
        now: Nanos,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) -> Nanos {
        if self.sweeping.round.is_none()
            && let Some(next_round) = self.next_round().filter(|next| now < *next)
        {
            return next_round;
        }
        if self.look_on(PIECE, now, ops, sink) {
            self.give_up_slow_round(self.sweeping.began.unwrap_or(now), now, sink);
            return now;
        }
        self.finish_round(now, ops, sink);
        self.next_round().unwrap_or(now)
    }

    /// Looks at the next `piece` bytes of the round that is under way, or of a new one. False when it is over.
    pub(super) fn look_on(
        &mut self,
        piece: u64,
        now: Nanos,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) -> bool {
        let of = self.beside().map_or(Of::Swept, Beside::of);
        let sweeping = &mut self.sweeping;
        if sweeping.round.is_none() {
            // A budget in debt lets it come as late as the next round: that sees all.
            let is_late = |began: Nanos| now >= began.saturating_add(self.attrs.aggr);
            sweeping.looks_again &= !sweeping.began.is_some_and(is_late);
            sweeping.began = Some(now);
        }
        let round = sweeping.round.get_or_insert_with(|| match sweeping.looks_again {
            true => Round::again(now, PIECE, &self.targets),
            false => Round::begin(now, of),
        });
        if let Preparation::Part(news) = round.prepare(ops) {
            if let Some(text) = &news {
                sink.on(&Event::Warning { now, text });
            }
            return true;
        }
        let goes_on = round.look_on(piece, &mut self.targets, ops);
        if !goes_on {
            sweeping.round = None;
        }
        goes_on
    }

    /// When the next round should begin; none: at once.
    pub(super) fn next_round(&self) -> Option<Nanos> {
        let rounds = self.beside().and_then(|beside| beside.rounds.as_ref());
        let interval = rounds.map_or(self.attrs.aggr, |rounds| rounds.each);
        let Sweeping {
            began,
            ended,
            looks_again,
            ..
        } = self.sweeping;
        Some(match looks_again {
            // What was looked at last has had that time as well.
            true => ended.saturating_add(LOOK_AGAIN_AFTER),
            false => began?.saturating_add(interval),
        })
    }

    fn finish_round(&mut self, now: Nanos, ops: &mut dyn Operations, sink: &mut dyn Sink) {
        for target in &mut self.targets {
            target.heat.end_round(now);
        }
        if self.sweeping.looks_again {
            return self.finish_second_look(now, sink);
        }
        // A round stands for as many sampling intervals as its counts can reach.
        self.schedule.passed += u64::from(MAX_NR_ACCESSES);
        let passed = self.schedule.passed;
        let runs = self.runs_for_schemes(passed, now);
        self.take_regions_from_pages(self.most_regions(), now);
        self.tell_aggregated(now, sink);
        self.sweeping.leftover = None;
        if let Some(runs) = runs {
            self.act_on_runs(Turn::Due, runs, now, ops, sink);
        }
        self.remember_counts();
        self.aggr_start = Some(now);
        self.choose_after_aggregation(now, sink);
        self.sweeping.looks_again = self.is_worth_a_second_look();
        self.sweeping.ended = now;
    }

    /// Tells what a second look has found. It is no round of its own: nothing grows older, no scheme has its turn, and
    /// what it cost is a part of what the next round costs, for plans.
    fn finish_second_look(&mut self, now: Nanos, sink: &mut dyn Sink) {
        self.take_regions_from_pages(self.most_regions(), now);
        self.sweeping.looks_again = false;
        self.tell_aggregated(now, sink);
        self.remember_counts();
        self.aggr_start = Some(now);
    }

    /// The runs of pages for schemes that are due when so many sampling intervals have passed; none when no scheme is.
    pub(super) fn runs_for_schemes(&self, passed: u64, now: Nanos) -> Option<Vec<Vec<Region>>> {
        let any_due = self.schemes.iter().any(|state| state.is_due(&self.attrs, passed));
        any_due.then(|| self.regions_from_pages(MOST_RUNS, Holes::ByBytes, now))
    }

    /// What the next round holds its counts against.
    pub(super) fn remember_counts(&mut self) {
        for region in self.swept_mut().flat_map(|t| &mut t.regions) {
            region.last_nr_accesses = region.nr_accesses;
        }
    }

    /// Whether the last round found so much changed that it is worth looking at that again soon.
    fn is_worth_a_second_look(&self) -> bool {
        // Where the next round comes as soon, that tells.
        if self.way != Way::Sweep || self.attrs.aggr < LOOK_AGAIN_AFTER * 2 {
            return false;
        }
        let changing = self
            .targets
            .iter()
            .flat_map(|target| target.heat.changing(EVERYWHERE));
        let changing: u64 = changing.map(|range| range.len().0).sum();
        if changing == 0 {
            return false;
        }
        let touched: u64 = self
            .targets
            .iter()
            .map(|target| target.heat.sums().touched.0)
            .sum();
        changing * LOOK_AGAIN_FROM >= touched
    }

    /// Replaces the regions by what is known of pages.
    pub(super) fn take_regions_from_pages(&mut self, most: usize, now: Nanos) {
        let regions = self.regions_from_pages(most, Holes::ByHeat, now);
        self.replace_regions(regions);
    }

    /// Regions from pages for those targets that are about to be sampled, where theirs are more than samples may have.
    pub(super) fn take_regions_to_samples(&mut self, leaves: impl Fn(&Target) -> bool, now: Nanos) {
        let known = |target: &Target| leaves(target) && target.is_told_by_pages();
        let regions = self.targets.iter().filter(|target| known(target));
        let most = self.chooser.as_ref().map_or(0, Chooser::most_sampled);
        if regions.map(|target| target.regions.len()).sum::<usize>() <= most {
            return;
        }
        let fewer = self.regions_of_pages(known, most, Holes::ByHeat, now);
        let targets = self.targets.iter_mut().filter(|target| known(target));
        for (target, regions) in targets.zip(fewer) {
            target.regions = regions;
        }
    }

    /// Regions from pages, at most `most` over all targets that are told of by them.
    fn regions_from_pages(&self, most: usize, holes: Holes, now: Nanos) -> Vec<Vec<Region>> {
        self.regions_of_pages(Target::is_told_by_pages, most, holes, now)
    }

    fn regions_of_pages(
        &self,
        wanted: impl Fn(&Target) -> bool,
        most: usize,
        holes: Holes,
        now: Nanos,
    ) -> Vec<Vec<Region>> {
        let swept = || self.targets.iter().filter(|target| wanted(target));
        let runs = swept().map(|target| target.heat.runs());
        let mut regions = regions_of(runs, most, holes, now, self.attrs.aggr);
        let older_by = u64::from(!self.sweeping.looks_again);
        let most_accesses = self.attrs.max_nr_accesses();
        for (regions, target) in regions.iter_mut().zip(swept()) {
            // Beside samples, in their units.
            if most_accesses != MAX_NR_ACCESSES {
                regions
                    .iter_mut()
                    .for_each(|region| recount(region, most_accesses));
            }
            inherit_ages(regions, &target.regions, older_by, most_accesses);
        }
        regions
    }
}

/// Counts what was counted of [`MAX_NR_ACCESSES`] of `most` instead; what was touched at all counts as touched.
fn recount(region: &mut Region, most: u32) {
    let count = u64::from(region.nr_accesses) * u64::from(most);
    region.nr_accesses = u32::try_from(count.div_ceil(u64::from(MAX_NR_ACCESSES))).unwrap_or(most);
    region.nr_accesses_bp = u64::from(region.nr_accesses) * 10_000;
}

/// Memory that goes on being touched as before is so many rounds older, one or none: pages remember since when they are idle, but
/// not since when they are busy, so that age is taken from the regions of the round before. Counts are of `most`.
fn inherit_ages(regions: &mut [Region], before: &[Region], older_by: u64, most: u32) {
    let mut first = 0;
    for region in regions.iter_mut().filter(|region| region.nr_accesses > 0) {
        while before
            .get(first)
            .is_some_and(|old| old.range.end <= region.range.start)
        {
            first += 1;
        }
        let overlapping = before[first..]
            .iter()
            .take_while(|old| old.range.start < region.range.end);
        let mut aged = 0;
        for old in overlapping {
            let both = old
                .range
                .intersection(&region.range)
                .map_or(0, |both| both.len().0);
            // The count of the round before, in today's units even when the intervals changed since.
            let count = old.last_nr_accesses;
            let alike = count > 0 && count.abs_diff(region.nr_accesses) <= most / 10;
            aged += u128::from(both)
                * if alike {
                    u128::from(old.age) + u128::from(older_by)
                } else {
                    0
                };
        }
        region.age = u32::try_from(aged / u128::from(region.len().0)).unwrap_or(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::AddrRange;

    #[test]
    fn busy_memory_grows_older_while_it_stays_as_busy() {
        let region = |start: u64, end: u64, nr_accesses, age| Region {
            nr_accesses,
            last_nr_accesses: nr_accesses,
            age,
            ..Region::new(AddrRange::new(start * 4096, end * 4096))
        };
        let before = [region(0, 10, 70, 4), region(10, 20, 30, 9), region(20, 30, 0, 50)];
        let mut now = [
            region(0, 10, 66, 0),
            region(10, 20, 70, 0),
            region(20, 30, 70, 0),
            region(90, 91, 70, 0),
        ];
        inherit_ages(&mut now, &before, 1, MAX_NR_ACCESSES);
        let mut again = now.clone();
        assert_eq!(now.map(|r| r.age), [5, 0, 0, 0]);
        // Half of it was as busy before, half was idle: the mean.
        let mut wide = [region(5, 15, 70, 0)];
        inherit_ages(&mut wide, &before, 1, MAX_NR_ACCESSES);
        assert_eq!(wide[0].age, 2);
        // A second look is no round.
        inherit_ages(&mut again, &before, 0, MAX_NR_ACCESSES);
        assert_eq!(again.map(|r| r.age), [4, 0, 0, 0]);
    }
}
