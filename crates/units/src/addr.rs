//! Addresses and ranges of them.

use std::fmt;
use std::ops::{Add, Sub};

use crate::Bytes;

/// The size everything is aligned to: the smallest piece of memory a region can be (`DAMON_MIN_REGION`).
pub const PAGE_SIZE: u64 = 4096;

/// A place in a target's address space, in bytes from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Addr(pub u64);

impl Addr {
    /// The page border at or below this address.
    #[must_use]
    pub const fn align_down(self) -> Self {
        Self(self.0 & !(PAGE_SIZE - 1))
    }

    /// The page border at or above this address (the last one there is, if that would not fit).
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

/// A half-open piece of an address space: `start` belongs to it, `end` does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AddrRange {
    /// The first byte.
    pub start: Addr,
    /// The byte after the last.
    pub end: Addr,
}

impl AddrRange {
    /// The range from `start` up to, not including, `end`.
    #[must_use]
    pub const fn new(start: u64, end: u64) -> Self {
        Self {
            start: Addr(start),
            end: Addr(end),
        }
    }

    /// How many bytes it holds; 0 when `end` does not lie behind `start`.
    #[must_use]
    pub const fn len(&self) -> Bytes {
        Bytes(self.end.0.saturating_sub(self.start.0))
    }

    /// True when no byte lies in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.end.0 <= self.start.0
    }

    /// True when `addr` lies in it.
    #[must_use]
    pub fn contains(&self, addr: Addr) -> bool {
        self.start <= addr && addr < self.end
    }

    /// True when at least one byte lies in both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// What lies in both, if anything.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let both = Self {
            start: self.start.max(other.start),
            end: self.end.min(other.end),
        };
        (!both.is_empty()).then_some(both)
    }

    /// Adds it behind the last of `ranges`, as one with that where they touch; nothing where it is empty. So ranges
    /// that are added in ascending order, disjoint, stay so, and no two of them are neighbours.
    pub fn join_onto(self, ranges: &mut Vec<Self>) {
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
    fn a_range_ends_before_its_end() {
        let range = AddrRange::new(0x1000, 0x3000);
        assert!(range.contains(Addr(0x1000)) && !range.contains(Addr(0x3000)));
        assert_eq!(range.len(), Bytes(0x2000));
    }

    #[test]
    fn neighbours_do_not_overlap() {
        let (a, b) = (AddrRange::new(0, 0x1000), AddrRange::new(0x1000, 0x2000));
        assert!(!a.overlaps(&b));
        assert_eq!(a.intersection(&b), None);
    }

    #[test]
    fn neighbours_are_joined_and_what_is_empty_left_out() {
        let mut ranges = Vec::new();
        for (start, end) in [(3, 3), (1, 2), (2, 4), (4, 4), (4, 3), (5, 6), (6, 9), (2, 5)] {
            AddrRange::new(start, end).join_onto(&mut ranges);
        }
        // Only the last is looked at: order is the caller's.
        let expected = [(1, 4), (5, 9), (2, 5)].map(|(start, end)| AddrRange::new(start, end));
        assert_eq!(ranges, expected);
    }

    #[test]
    fn aligning_the_last_address_does_not_wrap() {
        assert_eq!(Addr(u64::MAX).align_up(), Addr(!(PAGE_SIZE - 1)));
        assert_eq!(Addr(4097).align_up(), Addr(8192));
        assert_eq!(Addr(4097).align_down(), Addr(4096));
    }
}
