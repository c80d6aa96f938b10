//! What one look at a piece of memory found: a bit a page.

use crate::addr::{Addr, AddrRange, PAGE_SIZE};
use crate::units::Bytes;

/// Bits of the pages of a range: there, touched, or not to be told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Piece {
    range: AddrRange,
    present: Vec<u64>,
    accessed: Vec<u64>,
    unknown: Vec<u64>,
}

/// How far a look got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swept {
    /// Everything from the piece's beginning up to here was looked at. At or behind the piece's end; behind it
    /// when it is known that nothing is mapped up to there.
    pub next: Addr,
}

/// How far the preparation of a round is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preparation {
    /// Nothing is left to do: pieces can be looked at.
    Ready,
    /// A part of it was done, with a sentence the user should know, if there is one.
    Part(Option<String>),
}

/// What is known of a page after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageSeen {
    /// It is not there.
    Absent,
    /// It was not touched.
    Idle,
    /// It was touched.
    Accessed,
    /// It cannot be told.
    Unknown,
}

impl Piece {
    /// Begins anew: `range` (page-aligned), of which nothing is there.
    pub fn reset(&mut self, range: AddrRange) {
        self.range = range;
        let words = usize::try_from(range.len().0 / PAGE_SIZE)
            .unwrap_or(0)
            .div_ceil(64);
        for bits in [&mut self.present, &mut self.accessed, &mut self.unknown] {
            bits.clear();
            bits.resize(words, 0);
        }
    }

    /// What it covers.
    #[must_use]
    pub const fn range(&self) -> AddrRange {
        self.range
    }

    /// Books the page at `addr` as there, touched or not. Pages outside of the range are ignored.
    pub fn set(&mut self, addr: Addr, accessed: bool) {
        if let Some((word, bit)) = self.place(addr) {
            self.present[word] |= bit;
            if accessed {
                self.accessed[word] |= bit;
            }
        }
    }

    /// Books the page at `addr` as there, but not to be judged.
    pub fn set_unknown(&mut self, addr: Addr) {
        if let Some((word, bit)) = self.place(addr) {
            self.present[word] |= bit;
            self.unknown[word] |= bit;
        }
    }

    /// What is booked of the page at `addr`.
    #[must_use]
    pub fn get(&self, addr: Addr) -> PageSeen {
        match self.place(addr) {
            Some((word, bit)) if self.unknown[word] & bit != 0 => PageSeen::Unknown,
            Some((word, bit)) if self.accessed[word] & bit != 0 => PageSeen::Accessed,
            Some((word, bit)) if self.present[word] & bit != 0 => PageSeen::Idle,
            _ => PageSeen::Absent,
        }
    }

    /// How much is there, and how much of that is not to be judged.
    #[must_use]
    pub fn present_and_unknown(&self) -> (Bytes, Bytes) {
        let pages = |words: &[u64]| words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        (
            Bytes(pages(&self.present) * PAGE_SIZE),
            Bytes(pages(&self.unknown) * PAGE_SIZE),
        )
    }

    /// True when nothing is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.present.iter().all(|word| *word == 0)
    }

    /// True when no page of the 64 from `addr` on is there.
    pub(crate) fn word_is_absent(&self, addr: Addr) -> bool {
        self.place(addr).is_none_or(|(word, _)| self.present[word] == 0)
    }

    fn place(&self, addr: Addr) -> Option<(usize, u64)> {
        if !self.range.contains(addr) {
            return None;
        }
        let page = (addr - self.range.start).0 / PAGE_SIZE;
        Some((usize::try_from(page / 64).ok()?, 1 << (page % 64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_what_they_were_booked_as() {
        let mut piece = Piece::default();
        piece.reset(AddrRange::new(0x10_0000, 0x10_0000 + 100 * PAGE_SIZE));
        let page = |nth: u64| Addr(0x10_0000 + nth * PAGE_SIZE);
        piece.set(page(0), true);
        piece.set(page(63), false);
        piece.set(page(64), true);
        piece.set_unknown(page(99));
        piece.set(page(100), true);
        let seen: Vec<PageSeen> = [0, 1, 63, 64, 99, 100]
            .into_iter()
            .map(|nth| piece.get(page(nth)))
            .collect();
        use PageSeen::{Absent, Accessed, Idle, Unknown};
        assert_eq!(seen, [Accessed, Absent, Idle, Accessed, Unknown, Absent]);
        assert_eq!(
            piece.present_and_unknown(),
            (Bytes(4 * PAGE_SIZE), Bytes(PAGE_SIZE))
        );
        piece.reset(AddrRange::new(0x10_0000, 0x10_0000 + 10 * PAGE_SIZE));
        assert_eq!(piece.get(page(0)), Absent);
    }
}
