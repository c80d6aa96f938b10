//! Builds regions from runs of pages, and says what merging two of them would tell wrongly.

use super::page_states::{State, StateRun};
use super::{MAX_NR_ACCESSES, PER_PASS, WINDOW};
use crate::region::Region;
use thermo_units::AddrRange;
use thermo_units::{Bytes, Nanos};

/// What the gap between two runs costs when they become one region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GapCost {
    /// As much as the heat that would be told of it: for snapshots, whose readers know what is mapped.
    ByHeat,
    /// Its bytes, whatever the heat: for schemes, which act on what they are told.
    ByBytes,
}

/// So many bytes of a hole told as idle are as bad as one byte told wrongly: what lies between the libraries of a
/// process costs less than a few pages of heat, what lies between its heap and its mappings more than all it has.
const IDLE_HOLE: u128 = 4096;

/// How hot is what was idle for a round only, so far above nothing that no time of 64 bits makes two times alike. See
/// [`RegionBuilder::rate`].
const IDLE: u64 = 64 * 50;

/// How hot the unknown is taken to be where it is joined with what is known, so that it is far from what is hot; and
/// how unlike the two are at least, however long the known has been idle.
const UNKNOWN: u64 = IDLE - WINDOW as u64 * 100;
const UNLIKE_UNKNOWN: u64 = WINDOW as u64 * 50;

/// A run of memory on its way to become a region.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegionBuilder {
    /// Whose it is, by number.
    pub(super) target: usize,
    range: AddrRange,
    /// Resident bytes in it.
    present: u64,
    /// Whether it holds pages that are not alike.
    mixed: bool,
    unknown: u64,
    /// Sum over its judged bytes of the rounds they were touched in.
    touched: u128,
    /// Sum over its judged bytes of how long they have been idle.
    idle: u128,
    /// How hot it is; see [`RegionBuilder::rate`].
    score: u64,
}

impl RegionBuilder {
    pub(super) fn new(run: &StateRun, now: Nanos, interval: Nanos) -> Self {
        let len = run.range.len().0;
        let mut builder = Self {
            target: 0,
            range: run.range,
            present: len,
            mixed: false,
            unknown: 0,
            touched: 0,
            idle: 0,
            score: 0,
        };
        match run.state {
            State::Accessed(rounds) => builder.touched = u128::from(rounds) * u128::from(len),
            State::Idle(since) => builder.idle = u128::from(now.saturating_sub(since).0) * u128::from(len),
            State::Unknown => builder.unknown = len,
        }
        builder.score = builder.rate(interval);
        builder
    }

    fn judged(&self) -> u64 {
        self.present - self.unknown
    }

    /// One number for how hot it is: above [`IDLE`] by the rounds it was touched in, below it the colder the
    /// longer it has been idle, each doubling of the time half a step. In hundredths.
    fn rate(&self, interval: Nanos) -> u64 {
        let judged = u128::from(self.judged().max(1));
        if self.touched > 0 {
            return IDLE + u64::try_from(self.touched * 100 / judged).unwrap_or(0);
        }
        let rounds = self.idle_time().0 / interval.0.max(1);
        IDLE - log2_hundredths(rounds.max(1)) / 2
    }

    /// How long its judged pages have been idle, in the mean.
    fn idle_time(&self) -> Nanos {
        let mean = self.idle / u128::from(self.judged().max(1));
        Nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// True when both were never touched in the window and have been idle for about as long: within an eighth,
    /// or within what two rounds can tell apart.
    fn is_as_idle(&self, next: &Self, interval: Nanos) -> bool {
        let (a, b) = (self.idle_time().0, next.idle_time().0);
        let close = a.abs_diff(b) <= (a.max(b) / 8).max(interval.0.saturating_mul(2));
        self.touched == 0 && next.touched == 0 && close
    }

    /// True when both are of one target, and joining them puts at most `tolerance` bytes' worth into the wrong place.
    pub(super) fn can_join(&self, next: &Self, tolerance: u64, gaps: GapCost, interval: Nanos) -> bool {
        self.target == next.target && self.cost_of_joining(next, gaps, interval) <= tolerance
    }

    /// Whether a region of it would be unknown: more than half of it is.
    const fn is_unknown(&self) -> bool {
        self.unknown * 2 > self.present
    }

    /// Its score, or where on that scale the unknown stands.
    const fn place(&self) -> u64 {
        if self.is_unknown() { UNKNOWN } else { self.score }
    }

    /// How many bytes' worth of heat would be told wrongly if both were one region, gaps between them
    /// included. Zero for neighbours that are alike.
    fn cost_of_joining(&self, next: &Self, gaps: GapCost, interval: Nanos) -> u64 {
        let smaller = self.present.min(next.present);
        (smaller / 100)
            .saturating_mul(self.unlike(next, interval))
            .saturating_add(self.cost_of_gap(next, gaps))
    }

    /// How unlike both are, in hundredths of a step of heat.
    fn unlike(&self, next: &Self, interval: Nanos) -> u64 {
        let apart = self.place().abs_diff(next.place());
        match (self.is_unknown(), next.is_unknown()) {
            (false, false) if self.is_as_idle(next, interval) => 0,
            (false, false) => apart,
            (true, true) => 0,
            _ => apart.max(UNLIKE_UNKNOWN),
        }
    }

    /// How many bytes' worth of heat would be told of the hole between both: as much as of what is around it, and where
    /// that was touched at all, as a region touched in one round of the window. Told as idle it misleads hardly anybody,
    /// and yet no map of memory should be of gaps where there is another way.
    fn cost_of_gap(&self, next: &Self, gaps: GapCost) -> u64 {
        let hole = (next.range.start - self.range.end).0;
        if gaps == GapCost::ByBytes {
            return hole.saturating_mul(4);
        }
        let touched = self.touched + next.touched;
        let window = u128::from(WINDOW);
        let hole = u128::from(hole);
        let told_hot = match u128::from(self.judged() + next.judged()) {
            0 => 0,
            _ if touched == 0 => 0,
            judged => (hole * touched / (judged * window)).max(hole / window),
        };
        u64::try_from(told_hot + hole / IDLE_HOLE).unwrap_or(u64::MAX)
    }

    /// Resident bytes, where it holds pages that are not alike.
    pub(super) const fn averaged(&self) -> Bytes {
        Bytes(if self.mixed { self.present } else { 0 })
    }

    /// It was built so long ago; idle memory has been idle for longer since.
    pub(super) fn grow_older(&mut self, by: Nanos, interval: Nanos) {
        if self.touched == 0 {
            self.idle += u128::from(by.0) * u128::from(self.judged());
            self.score = self.rate(interval);
        }
    }

    pub(super) fn join(&mut self, next: &Self, interval: Nanos) {
        self.mixed |= next.mixed || self.unlike(next, interval) > 0;
        self.range.end = next.range.end;
        self.present += next.present;
        self.unknown += next.unknown;
        self.touched += next.touched;
        self.idle += next.idle;
        self.score = self.rate(interval);
    }

    pub(super) fn region(&self, interval: Nanos) -> Region {
        let judged = u128::from(self.judged().max(1));
        let nr_accesses = self.touched * u128::from(PER_PASS) / judged;
        // Rarely touched is not never touched: at least one look saw something.
        let least = u128::from(self.touched > 0);
        let nr_accesses = u32::try_from(nr_accesses.max(least)).unwrap_or(MAX_NR_ACCESSES);
        let age = self.idle / judged / u128::from(interval.0.max(1));
        Region {
            nr_accesses,
            nr_accesses_bp: u64::from(nr_accesses) * 10_000,
            age: if self.touched > 0 {
                0
            } else {
                u32::try_from(age).unwrap_or(u32::MAX)
            },
            unknown: self.is_unknown(),
            resident: Some(Bytes(self.present)),
            ..Region::new(self.range)
        }
    }
}

/// The logarithm to base two of `n`, at least 1, in hundredths; between powers of two along a line.
fn log2_hundredths(n: u64) -> u64 {
    let whole = u64::from(n.ilog2());
    let beyond = u128::from(n) * 100 / (1 << whole) - 100;
    whole * 100 + u64::try_from(beyond).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_in_hundredths() {
        assert_eq!([1, 2, 3, 4, 1024].map(log2_hundredths), [0, 100, 150, 200, 1000]);
    }
}
