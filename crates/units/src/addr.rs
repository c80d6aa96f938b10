//! Addresses and address ranges.

use std::fmt;
use std::ops::{Add, Sub};

use crate::Bytes;

/// The page size, and the minimum size and alignment of a region (`DAMON_MIN_REGION`).
pub const PAGE_SIZE: u64 = 4096;

/// An address in a target's address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Addr(pub u64);

impl Addr {
    /// The page boundary at or below this address.
    #[must_use]
    pub const fn align_down(self) -> Self {
        Self(self.0 & !(PAGE_SIZE - 1))
    }

    /// The page boundary at or above this address; for the last page, its start.
    #[must_use]
    pub const fn align_up(self) -> Self {
        Self(self.0.saturating_add(PAGE_SIZE - 1) & !(PAGE_SIZE - 1))
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl Add<Bytes> for Addr {
    type Output = Self;
    fn add(self, len: Bytes) -> Self {
        Self(self.0 + len.0)
    }
}

impl Sub<Bytes> for Addr {
    type Output = Self;
    fn sub(self, len: Bytes) -> Self {
        Self(self.0 - len.0)
    }
}

impl Sub for Addr {
    type Output = Bytes;
    fn sub(self, other: Self) -> Bytes {
        Bytes(self.0 - other.0)
    }
}

/// A half-open address range: `start` is included, `end` is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AddrRange {
    /// The first byte.
    pub start: Addr,
    /// The byte after the last one.
    pub end: Addr,
}

impl AddrRange {
    /// The range from `start` up to, but not including, `end`.
    #[must_use]
    pub const fn new(start: u64, end: u64) -> Self {
        Self {
            start: Addr(start),
            end: Addr(end),
        }
    }

    /// The size of the range; 0 if `end` is not above `start`.
    #[must_use]
    pub const fn len(&self) -> Bytes {
        Bytes(self.end.0.saturating_sub(self.start.0))
    }

    /// True if the range contains no byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.end.0 <= self.start.0
    }

    /// True if the range contains `addr`.
    #[must_use]
    pub fn contains(&self, addr: Addr) -> bool {
        self.start <= addr && addr < self.end
    }

    /// True if both ranges share at least one byte.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The shared part, if any.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let shared = Self {
            start: self.start.max(other.start),
            end: self.end.min(other.end),
        };
        (!shared.is_empty()).then_some(shared)
    }

    /// Appends the range to `ranges`, or extends the last one if they touch. Empty ranges are dropped. Ranges
    /// that are added in ascending order and do not overlap stay so, and no two of them touch.
    pub fn coalesce_into(self, ranges: &mut Vec<Self>) {
        match ranges.last_mut() {
            _ if self.is_empty() => {}
            Some(last) if last.end == self.start => last.end = self.end,
            _ => ranges.push(self),
        }
    }
}

impl fmt::Display for AddrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_excludes_its_end() {
        let range = AddrRange::new(0x1000, 0x3000);
        assert!(range.contains(Addr(0x1000)) && !range.contains(Addr(0x3000)));
        assert_eq!(range.len(), Bytes(0x2000));
    }

    #[test]
    fn adjacent_ranges_do_not_overlap() {
        let (a, b) = (AddrRange::new(0, 0x1000), AddrRange::new(0x1000, 0x2000));
        assert!(!a.overlaps(&b));
        assert_eq!(a.intersection(&b), None);
    }

    #[test]
    fn coalesce_into_merges_adjacent_and_drops_empty() {
        let mut ranges = Vec::new();
        for (start, end) in [(3, 3), (1, 2), (2, 4), (4, 4), (4, 3), (5, 6), (6, 9), (2, 5)] {
            AddrRange::new(start, end).coalesce_into(&mut ranges);
        }
        // Only the last range is compared: the caller ensures the order.
        let expected = [(1, 4), (5, 9), (2, 5)].map(|(start, end)| AddrRange::new(start, end));
        assert_eq!(ranges, expected);
    }

    #[test]
    fn align_up_does_not_wrap_at_last_address() {
        assert_eq!(Addr(u64::MAX).align_up(), Addr(!(PAGE_SIZE - 1)));
        assert_eq!(Addr(4097).align_up(), Addr(8192));
        assert_eq!(Addr(4097).align_down(), Addr(4096));
    }
}
