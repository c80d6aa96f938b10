//! What one look at a piece of memory found: a bit a page.

use crate::addr::{Addr, AddrRange, PAGE_SIZE};
use crate::units::Bytes;

/// Bytes of the pages of one word of bits.
pub(super) const WORD: u64 = 64 * PAGE_SIZE;

/// Bits of the pages of a range: there, touched, or not to be told. Words begin at multiples of 64 pages, as those of
/// page tables do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Piece {
    range: AddrRange,
    words: Vec<Word>,
    is_part: bool,
}

/// What is booked of 64 neighbouring pages, the first at a multiple of so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Word {
    /// Which of them are asked for.
    pub(super) within: u64,
    pub(super) present: u64,
    pub(super) accessed: u64,
    pub(super) unknown: u64,
    /// See [`Piece::is_steady`].
    steady: bool,
}

impl Word {
    fn book(&mut self, present: u64, accessed: u64) {
        self.present |= present & self.within;
        self.accessed |= accessed & self.within;
    }

    pub(super) fn get(&self, nth: usize) -> PageSeen {
        let is_set = |bits: u64| bits >> nth & 1 == 1;
        if is_set(self.unknown) {
            PageSeen::Unknown
        } else if is_set(self.accessed) {
            PageSeen::Accessed
        } else if is_set(self.present) {
            PageSeen::Idle
        } else {
            PageSeen::Absent
        }
    }
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
        self.is_part = false;
        self.words.clear();
        if !range.is_empty() {
            let words = range.start.0 / WORD..range.end.0.div_ceil(WORD);
            self.words.extend(words.map(|number| Word {
                within: pages_within(number * WORD, range),
                ..Word::default()
            }));
        }
    }

    /// Asks for the pages of `ranges` (page-aligned) only: nothing is booked of others, and their marks are to stay. But of
    /// memory that was touched all the time, and where it is known by now that it is not any more, that may be told too.
    pub fn ask_only(&mut self, ranges: impl Iterator<Item = AddrRange>) {
        self.is_part = true;
        self.words.iter_mut().for_each(|word| word.within = 0);
        ranges.for_each(|range| self.ask(range));
    }

    /// Asks for the pages of `range` (page-aligned), too.
    pub fn ask(&mut self, range: AddrRange) {
        self.each_word(range, |word, pages| word.within |= pages);
    }

    /// Asks no more for the pages of `range` (page-aligned), of which nothing is booked.
    pub fn leave_out(&mut self, range: AddrRange) {
        self.is_part = true;
        self.each_word(range, |word, pages| word.within &= !pages);
    }

    /// Calls `each` with the words that have pages of `range`, and with which of the 64 these are.
    fn each_word(&mut self, range: AddrRange, each: impl Fn(&mut Word, u64)) {
        let covered = range.intersection(&self.range).unwrap_or_default();
        for number in covered.start.0 / WORD..covered.end.0.div_ceil(WORD) {
            if let Some(word) = self.word_mut(Addr(number * WORD)) {
                each(word, pages_within(number * WORD, covered));
            }
        }
    }

    /// Whether only some of its pages are asked for.
    #[must_use]
    pub const fn is_part(&self) -> bool {
        self.is_part
    }

    /// Which of the 64 pages that the one at `addr` is among are asked for: a bit each.
    #[must_use]
    pub fn asked(&self, addr: Addr) -> u64 {
        self.word(addr).within
    }

    /// Whether the page at `addr` is asked for.
    #[must_use]
    pub fn asks_for(&self, addr: Addr) -> bool {
        self.asked(addr) & bit_of(addr) != 0
    }

    /// What it covers.
    #[must_use]
    pub const fn range(&self) -> AddrRange {
        self.range
    }

    /// Books the page at `addr` as there, touched or not. Pages outside of the range are ignored.
    pub fn set(&mut self, addr: Addr, accessed: bool) {
        let bit = bit_of(addr);
        self.set_pages(addr, bit, if accessed { bit } else { 0 });
    }

    /// Books the 64 pages that the one at `addr` is among: bit by bit, which are there, and which of these were touched.
    /// Pages outside of the range are ignored.
    pub fn set_pages(&mut self, addr: Addr, present: u64, accessed: u64) {
        if let Some(word) = self.word_mut(addr) {
            word.book(present, accessed);
        }
    }

    /// Books all pages of `range` (page-aligned) as there, touched or not, as far as they are covered.
    pub fn set_range(&mut self, range: AddrRange, accessed: bool) {
        self.each_word(range, |word, pages| {
            word.book(pages, if accessed { pages } else { 0 })
        });
    }

    /// Books the page at `addr` as there, but not to be judged.
    pub fn set_unknown(&mut self, addr: Addr) {
        let bit = bit_of(addr);
        if let Some(word) = self.word_mut(addr) {
            word.present |= bit & word.within;
            word.unknown |= bit & word.within;
        }
    }

    /// Books all pages as not to be judged that were not seen to be touched.
    pub fn set_idle_unknown(&mut self) {
        for word in &mut self.words {
            word.unknown |= word.present & !word.accessed;
        }
    }

    /// Says of the 64 pages that the one at `addr` is among that all of them were touched in each of the last rounds.
    pub fn set_steady(&mut self, addr: Addr) {
        if let Some(word) = self.word_mut(addr) {
            word.steady = true;
        }
    }

    /// Whether all pages of `range`, at multiples of 64, were touched in each of the last rounds. Known before a look: to
    /// look at a few of them is enough while these go on being touched.
    #[must_use]
    pub fn is_steady(&self, range: AddrRange) -> bool {
        (range.start.0..range.end.0)
            .step_by(WORD as usize)
            .all(|at| self.word(Addr(at)).steady)
    }

    /// What is booked of the page at `addr`.
    #[must_use]
    pub fn get(&self, addr: Addr) -> PageSeen {
        self.word(addr).get(nth_of(addr))
    }

    /// How much is there, and how much of that is not to be judged.
    #[must_use]
    pub fn present_and_unknown(&self) -> (Bytes, Bytes) {
        let bytes = |bits: fn(&Word) -> u64| {
            let pages = self.words.iter().map(|word| u64::from(bits(word).count_ones()));
            Bytes(pages.sum::<u64>() * PAGE_SIZE)
        };
        (bytes(|word| word.present), bytes(|word| word.unknown))
    }

    /// True when nothing is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| word.present == 0)
    }

    /// What is booked of the 64 pages that the one at `addr` is among.
    pub(super) fn word(&self, addr: Addr) -> Word {
        let nth = self.nth_word(addr);
        nth.and_then(|nth| self.words.get(nth))
            .copied()
            .unwrap_or_default()
    }

    fn word_mut(&mut self, addr: Addr) -> Option<&mut Word> {
        let nth = self.nth_word(addr)?;
        self.words.get_mut(nth)
    }

    fn nth_word(&self, addr: Addr) -> Option<usize> {
        let nth = (addr.0 / WORD).checked_sub(self.range.start.0 / WORD)?;
        usize::try_from(nth).ok()
    }
}

/// Where in its word the page at `addr` is.
const fn nth_of(addr: Addr) -> usize {
    (addr.0 / PAGE_SIZE % 64) as usize
}

const fn bit_of(addr: Addr) -> u64 {
    1 << nth_of(addr)
}

/// Which of the 64 pages from `base` on lie in `range`.
fn pages_within(base: u64, range: AddrRange) -> u64 {
    let page = |addr: Addr| addr.0.saturating_sub(base).min(WORD) / PAGE_SIZE;
    let below = |page: u64| 1_u64.checked_shl(page as u32).map_or(u64::MAX, |bit| bit - 1);
    below(page(range.end)) & !below(page(range.start))
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

    #[test]
    fn pages_outside_are_ignored_wherever_words_begin() {
        let mut piece = Piece::default();
        let range = AddrRange::new(70 * PAGE_SIZE, 130 * PAGE_SIZE);
        piece.reset(range);
        piece.set_range(AddrRange::new(0, 200 * PAGE_SIZE), true);
        piece.set(Addr(69 * PAGE_SIZE), true);
        piece.set(Addr(130 * PAGE_SIZE), true);
        piece.set_unknown(Addr(1 << 40));
        for page in 0..300 {
            let expected = match (70..130).contains(&page) {
                true => PageSeen::Accessed,
                false => PageSeen::Absent,
            };
            assert_eq!(piece.get(Addr(page * PAGE_SIZE)), expected, "{page}");
        }
        piece.reset(range);
        piece.set_range(AddrRange::new(127 * PAGE_SIZE, 129 * PAGE_SIZE), false);
        piece.set_pages(Addr(128 * PAGE_SIZE), 0b110, 0b010);
        assert_eq!(piece.present_and_unknown(), (Bytes(3 * PAGE_SIZE), Bytes(0)));
        let seen = [126, 127, 128, 129, 130].map(|page| piece.get(Addr(page * PAGE_SIZE)));
        use PageSeen::{Absent, Accessed, Idle};
        assert_eq!(seen, [Absent, Idle, Idle, Accessed, Absent]);
    }

    #[test]
    fn more_is_asked_for_and_less() {
        let pages = |from: u64, to: u64| AddrRange::new(from * PAGE_SIZE, to * PAGE_SIZE);
        let mut piece = Piece::default();
        piece.reset(pages(10, 300));
        piece.leave_out(pages(0, 130));
        assert!(piece.is_part());
        piece.ask(pages(5, 12));
        piece.ask(pages(299, 320));
        piece.leave_out(pages(140, 299));
        let asked: Vec<u64> = (0..400)
            .filter(|page| piece.asks_for(Addr(page * PAGE_SIZE)))
            .collect();
        let expected: Vec<u64> = (10..12).chain(130..140).chain([299]).collect();
        assert_eq!(asked, expected);
    }

    #[test]
    fn only_what_is_asked_for_is_booked() {
        let mut piece = Piece::default();
        piece.reset(AddrRange::new(0, 300 * PAGE_SIZE));
        let asked = [
            AddrRange::new(60 * PAGE_SIZE, 70 * PAGE_SIZE),
            AddrRange::new(290 * PAGE_SIZE, 400 * PAGE_SIZE),
        ];
        piece.ask_only(asked.into_iter());
        piece.set_range(piece.range(), true);
        piece.set_unknown(Addr(0));
        for page in 0..400 {
            let is_asked = (60..70).contains(&page) || (290..300).contains(&page);
            assert_eq!(piece.asks_for(Addr(page * PAGE_SIZE)), is_asked, "{page}");
            let expected = if is_asked {
                PageSeen::Accessed
            } else {
                PageSeen::Absent
            };
            assert_eq!(piece.get(Addr(page * PAGE_SIZE)), expected, "{page}");
        }
    }
}
