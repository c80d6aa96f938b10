//! A region: adjacent memory that is assumed to have one access rate.

use thermo_units::Bytes;
use thermo_units::{Addr, AddrRange, PAGE_SIZE};

/// One region of a target, with its access counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Address range. Page-aligned, never empty.
    pub range: AddrRange,
    /// Access checks of this aggregation that found an access.
    pub nr_accesses: u32,
    /// `nr_accesses` of the last aggregation.
    pub last_nr_accesses: u32,
    /// Moving sum of accesses over the time of one aggregation, in ten-thousandths of an access check. Gives
    /// a current value to schemes that are applied more than once an aggregation.
    pub nr_accesses_bp: u64,
    /// Number of aggregations in which `nr_accesses` changed by no more than the merge threshold.
    pub age: u32,
    /// Access checks of this aggregation with an unknown result.
    pub nr_unknown: u32,
    /// True if no access check of the last aggregation found an access and at least half of the results were
    /// unknown. No scheme treats the region as cold.
    pub unknown: bool,
    /// Resident bytes, from full scans; `None` with sampling.
    pub resident: Option<Bytes>,
}

impl Region {
    /// A region without access checks.
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

    /// Size.
    #[must_use]
    pub const fn len(&self) -> Bytes {
        self.range.len()
    }

    /// False: a region is never empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The moving access count in whole access checks, as used by schemes.
    #[must_use]
    pub fn moving_nr_accesses(&self) -> u32 {
        u32::try_from(self.nr_accesses_bp / 10_000).unwrap_or(u32::MAX)
    }

    /// Adds the result of one access check, of at most `max_nr_accesses` in an aggregation, as the kernel's
    /// `damon_update_region_access_rate()` does.
    pub fn count_access_check(&mut self, accessed: bool, max_nr_accesses: u32) {
        let expired = u64::from(self.last_nr_accesses) * 10_000 / u64::from(max_nr_accesses.max(1));
        self.nr_accesses_bp = self.nr_accesses_bp.saturating_sub(expired);
        if accessed {
            self.nr_accesses += 1;
            self.nr_accesses_bp += 10_000;
        }
    }

    /// Splits the region at `at`, a page boundary inside the region. `self` keeps the left part; the right
    /// part is returned. Both keep the access counts. Resident bytes are divided in proportion to size.
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

    /// Merges the adjacent region on the right into this one. Counts and ages become means weighted by size,
    /// rounded down, as in the kernel.
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
    fn split_divides_resident_bytes() {
        const PAGE: u64 = PAGE_SIZE;
        for (pages, resident, at, parts) in [
            (10, 10, 3, (3, 7)),
            (10, 5, 3, (1, 4)),
            (3, 1, 1, (0, 1)),
            (4, 0, 2, (0, 0)),
        ] {
            let mut left = Region {
                resident: Some(Bytes(resident * PAGE)),
                ..Region::new(AddrRange::new(0, pages * PAGE))
            };
            let right = left.split_off(Addr(at * PAGE));
            let resident = |region: &Region| region.resident.map(|bytes| bytes.0 / PAGE);
            assert_eq!(
                (resident(&left), resident(&right)),
                (Some(parts.0), Some(parts.1))
            );
        }
    }
}
