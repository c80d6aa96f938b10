//! Builds regions from runs of pages and computes the cost of merging two of them.

use super::page_states::{State, StateRun};
use super::{MAX_NR_ACCESSES, PER_PASS, WINDOW};
use crate::region::Region;
use thermo_units::AddrRange;
use thermo_units::{Bytes, Nanos};

/// Cost of including the gap between two runs in one region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GapCost {
    /// By the accesses that the region would report for the gap. For snapshots, whose readers know the
    /// mappings.
    ByAccesses,
    /// By the bytes of the gap. For schemes, which act on the whole region.
    ByBytes,
}

/// So many bytes of a gap in an idle region cost as much as one byte reported wrongly. The gaps between the
/// libraries of a process then cost less than a few accessed pages; the gap between heap and mappings costs
/// more than all its memory.
const IDLE_GAP_DIVISOR: u128 = 4096;

/// Score of memory that has been idle for one interval. Large enough that 64-bit idle times never reach score
/// 0, where different times would get the same score. See [`RegionBuilder::compute_score`].
const IDLE_SCORE: u64 = 64 * 50;

/// Score of unknown memory when compared with known memory: far below accessed memory.
const UNKNOWN_SCORE: u64 = IDLE_SCORE - WINDOW as u64 * 100;
/// Minimum difference between unknown and known memory, however long the known memory has been idle.
const MIN_UNKNOWN_DIFFERENCE: u64 = WINDOW as u64 * 50;

/// A run of memory, or several merged runs, that becomes a region.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegionBuilder {
    /// Index of the target.
    pub(super) target: usize,
    range: AddrRange,
    /// Resident bytes.
    resident: u64,
    /// True if pages with different states were merged.
    is_mixed: bool,
    /// Resident bytes with unknown state.
    unknown: u64,
    /// Number of passes in which the memory was accessed, summed over the known bytes.
    accessed_sum: u128,
    /// Idle time in nanoseconds, summed over the known bytes.
    idle_sum: u128,
    /// Access frequency; see [`RegionBuilder::compute_score`].
    score: u64,
}

impl RegionBuilder {
    pub(super) fn new(run: &StateRun, now: Nanos, interval: Nanos) -> Self {
        let len = run.range.len().0;
        let mut builder = Self {
            target: 0,
            range: run.range,
            resident: len,
            is_mixed: false,
            unknown: 0,
            accessed_sum: 0,
            idle_sum: 0,
            score: 0,
        };
        match run.state {
            State::Accessed(passes) => builder.accessed_sum = u128::from(passes) * u128::from(len),
            State::Idle(since) => {
                builder.idle_sum = u128::from(now.saturating_sub(since).0) * u128::from(len);
            }
            State::Unknown => builder.unknown = len,
        }
        builder.score = builder.compute_score(interval);
        builder
    }

    /// Resident bytes with known state.
    fn known(&self) -> u64 {
        self.resident - self.unknown
    }

    /// Access frequency as one number, in hundredths of a pass. Accessed memory: [`IDLE_SCORE`] plus the mean
    /// number of passes that found an access. Idle memory: [`IDLE_SCORE`] minus half a pass for each doubling
    /// of the idle time.
    fn compute_score(&self, interval: Nanos) -> u64 {
        let known = u128::from(self.known().max(1));
        if self.accessed_sum > 0 {
            return IDLE_SCORE + u64::try_from(self.accessed_sum * 100 / known).unwrap_or(0);
        }
        let intervals = self.idle_time().0 / interval.0.max(1);
        IDLE_SCORE - log2_hundredths(intervals.max(1)) / 2
    }

    /// Mean idle time of the known bytes.
    fn idle_time(&self) -> Nanos {
        let mean = self.idle_sum / u128::from(self.known().max(1));
        Nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// True if both are idle and their idle times differ by at most 1/8, or by at most two intervals.
    fn is_as_idle(&self, next: &Self, interval: Nanos) -> bool {
        let (a, b) = (self.idle_time().0, next.idle_time().0);
        let is_close = a.abs_diff(b) <= (a.max(b) / 8).max(interval.0.saturating_mul(2));
        self.accessed_sum == 0 && next.accessed_sum == 0 && is_close
    }

    /// True if both belong to one target and their merge costs at most `tolerance`.
    pub(super) fn can_merge(&self, next: &Self, tolerance: u64, gaps: GapCost, interval: Nanos) -> bool {
        self.target == next.target && self.merge_cost(next, gaps, interval) <= tolerance
    }

    /// True if more than half of the resident bytes are unknown.
    const fn is_unknown(&self) -> bool {
        self.unknown * 2 > self.resident
    }

    const fn effective_score(&self) -> u64 {
        if self.is_unknown() {
            UNKNOWN_SCORE
        } else {
            self.score
        }
    }

    /// Cost of merging both into one region, with the gap between them: the bytes that would be reported
    /// wrongly, weighted by the difference of their scores. Zero for adjacent runs in the same state.
    fn merge_cost(&self, next: &Self, gaps: GapCost, interval: Nanos) -> u64 {
        let smaller = self.resident.min(next.resident);
        (smaller / 100)
            .saturating_mul(self.difference(next, interval))
            .saturating_add(self.gap_cost(next, gaps))
    }

    /// Difference of the scores, in hundredths of a pass.
    fn difference(&self, next: &Self, interval: Nanos) -> u64 {
        let difference = self.effective_score().abs_diff(next.effective_score());
        match (self.is_unknown(), next.is_unknown()) {
            (false, false) if self.is_as_idle(next, interval) => 0,
            (false, false) => difference,
            (true, true) => 0,
            _ => difference.max(MIN_UNKNOWN_DIFFERENCE),
        }
    }

    /// Cost of reporting the gap between both as accessed. The gap would get the mean access frequency of its
    /// neighbours; if these were accessed at all, it costs at least as much as memory accessed in one pass of
    /// the window. An idle gap has a small cost too, so that regions cover gaps only if nothing cheaper is
    /// left to merge.
    fn gap_cost(&self, next: &Self, gaps: GapCost) -> u64 {
        let gap = (next.range.start - self.range.end).0;
        if gaps == GapCost::ByBytes {
            return gap.saturating_mul(4);
        }
        let accessed_sum = self.accessed_sum + next.accessed_sum;
        let window = u128::from(WINDOW);
        let gap = u128::from(gap);
        let accessed_cost = match u128::from(self.known() + next.known()) {
            0 => 0,
            _ if accessed_sum == 0 => 0,
            known => (gap * accessed_sum / (known * window)).max(gap / window),
        };
        u64::try_from(accessed_cost + gap / IDLE_GAP_DIVISOR).unwrap_or(u64::MAX)
    }

    /// Resident bytes if pages with different states were merged, otherwise 0.
    pub(super) const fn averaged(&self) -> Bytes {
        Bytes(if self.is_mixed { self.resident } else { 0 })
    }

    /// Adds `elapsed` to the idle time.
    pub(super) fn add_idle_time(&mut self, elapsed: Nanos, interval: Nanos) {
        if self.accessed_sum == 0 {
            self.idle_sum += u128::from(elapsed.0) * u128::from(self.known());
            self.score = self.compute_score(interval);
        }
    }

    pub(super) fn merge(&mut self, next: &Self, interval: Nanos) {
        self.is_mixed |= next.is_mixed || self.difference(next, interval) > 0;
        self.range.end = next.range.end;
        self.resident += next.resident;
        self.unknown += next.unknown;
        self.accessed_sum += next.accessed_sum;
        self.idle_sum += next.idle_sum;
        self.score = self.compute_score(interval);
    }

    pub(super) fn region(&self, interval: Nanos) -> Region {
        let known = u128::from(self.known().max(1));
        let nr_accesses = self.accessed_sum * u128::from(PER_PASS) / known;
        // Memory that was rarely accessed counts at least one access, so that it differs from idle memory.
        let min = u128::from(self.accessed_sum > 0);
        let nr_accesses = u32::try_from(nr_accesses.max(min)).unwrap_or(MAX_NR_ACCESSES);
        let age = self.idle_sum / known / u128::from(interval.0.max(1));
        Region {
            nr_accesses,
            nr_accesses_bp: u64::from(nr_accesses) * 10_000,
            age: if self.accessed_sum > 0 {
                0
            } else {
                u32::try_from(age).unwrap_or(u32::MAX)
            },
            unknown: self.is_unknown(),
            resident: Some(Bytes(self.resident)),
            ..Region::new(self.range)
        }
    }
}

/// Base-2 logarithm of `n` (at least 1) in hundredths. Linear between powers of two.
fn log2_hundredths(n: u64) -> u64 {
    let whole = u64::from(n.ilog2());
    let beyond = u128::from(n) * 100 / (1 << whole) - 100;
    whole * 100 + u64::try_from(beyond).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log2_is_in_hundredths() {
        assert_eq!([1, 2, 3, 4, 1024].map(log2_hundredths), [0, 100, 150, 200, 1000]);
    }
}
