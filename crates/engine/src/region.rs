//! A region: neighbouring memory that is assumed to be accessed alike.

use thermo_units::Bytes;
use thermo_units::{Addr, AddrRange, PAGE_SIZE};

/// One region of a target, with what was counted in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Where it lies. Page-aligned, never empty.
    pub range: AddrRange,
    /// Looks of this aggregation that found it accessed.
    pub nr_accesses: u32,
    /// The same of the aggregation before.
    pub last_nr_accesses: u32,
    /// Moving sum over one aggregation's time, in ten-thousandths of a look, so that schemes which apply more
    /// often than once an aggregation see the present.
    pub nr_accesses_bp: u64,
    /// Aggregations for which `nr_accesses` has hardly changed.
    pub age: u32,
    /// Looks of this aggregation that could not tell.
    pub nr_unknown: u32,
    /// True when no look of the last whole aggregation found it accessed and at least half of them could not
    /// tell. No scheme takes it for cold.
    pub unknown: bool,
    /// How many of its bytes are there, where every page was looked at; `None` where only samples were.
    pub resident: Option<Bytes>,
}

impl Region {
    /// A region about which nothing is known yet.
    #[must_use]
    pub const fn new(range: AddrRange) -> Self {
        Self {
            range,
            nr_accesses: 0,
            last_nr_accesses: 0,
            nr_accesses_bp: 0,
            age: 0,
            nr_unknown: 0,
            unknown: false,
            resident: None,
        }
    }

    /// Its size.
    #[must_use]
    pub const fn len(&self) -> Bytes {
        self.range.len()
    }

    /// False: a region is never empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The moving access count in whole looks: what schemes and tried regions go by.
    #[must_use]
    pub fn moving_nr_accesses(&self) -> u32 {
        u32::try_from(self.nr_accesses_bp / 10_000).unwrap_or(u32::MAX)
    }

    /// Counts one look: `accessed`, of at most `max_nr_accesses` in an aggregation.
    pub fn count_look(&mut self, accessed: bool, max_nr_accesses: u32) {
        let gone = u64::from(self.last_nr_accesses) * 10_000 / u64::from(max_nr_accesses.max(1));
        self.nr_accesses_bp = self.nr_accesses_bp.saturating_sub(gone);
        if accessed {
            self.nr_accesses += 1;
            self.nr_accesses_bp += 10_000;
        }
    }

    /// Cuts the region at `at`, which lies inside and on a page border; `self` keeps the left part, the right
    /// part is returned. Both keep what was counted; the bytes that are there are divided by size.
    #[must_use]
    pub fn split_off(&mut self, at: Addr) -> Self {
        debug_assert!(self.range.start < at && at < self.range.end && at.0.is_multiple_of(PAGE_SIZE));
        let left_resident = self.resident.map(|resident| {
            let part = u128::from(resident.0) * u128::from((at - self.range.start).0);
            Bytes(u64::try_from(part / u128::from(self.len().0)).unwrap_or(0) / PAGE_SIZE * PAGE_SIZE)
        });
        let right = Self {
            range: AddrRange {
                start: at,
                end: self.range.end,
            },
            resident: self.resident.zip(left_resident).map(|(all, left)| all - left),
            ..self.clone()
        };
        self.range.end = at;
        self.resident = left_resident;
        right
    }

    /// Joins the neighbour on the right into this one; counts and ages become means weighted by size, as in
    /// the kernel (whole numbers, rounded down).
    pub fn merge(&mut self, right: &Self) {
        debug_assert_eq!(self.range.end, right.range.start);
        let (left_sz, right_sz) = (u128::from(self.len().0), u128::from(right.len().0));
        let mean = |a: u32, b: u32| {
            let sum = u128::from(a) * left_sz + u128::from(b) * right_sz;
            u32::try_from(sum / (left_sz + right_sz)).unwrap_or(u32::MAX)
        };
        self.nr_accesses = mean(self.nr_accesses, right.nr_accesses);
        self.nr_accesses_bp = u64::from(self.nr_accesses) * 10_000;
        self.age = mean(self.age, right.age);
        self.nr_unknown = mean(self.nr_unknown, right.nr_unknown);
        self.resident = self
            .resident
            .zip(right.resident)
            .map(|(left, right)| left + right);
        self.range.end = right.range.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_divides_what_is_there() {
        const PAGE: u64 = PAGE_SIZE;
        for (pages, resident, cut, parts) in [
            (10, 10, 3, (3, 7)),
            (10, 5, 3, (1, 4)),
            (3, 1, 1, (0, 1)),
            (4, 0, 2, (0, 0)),
        ] {
            let mut left = Region {
                resident: Some(Bytes(resident * PAGE)),
                ..Region::new(AddrRange::new(0, pages * PAGE))
            };
            let right = left.split_off(Addr(cut * PAGE));
            let there = |region: &Region| region.resident.map(|bytes| bytes.0 / PAGE);
            assert_eq!((there(&left), there(&right)), (Some(parts.0), Some(parts.1)));
        }
    }
}
