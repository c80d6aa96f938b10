//! What one scan of a chunk of memory found: a bit a page.

use thermo_units::Bytes;
use thermo_units::{Addr, AddrRange, PAGE_SIZE};

/// Bytes of the pages of one word of bits.
pub(super) const WORD: u64 = 64 * PAGE_SIZE;

/// Bits of the pages of a range: present, accessed, unknown. Words begin at multiples of 64 pages, as those of page
/// tables do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScanChunk {
    range: AddrRange,
    words: Vec<Word>,
}

/// What was found of 64 neighbouring pages, the first at a multiple of 64 pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Word {
    /// Which of them lie in the chunk's range.
    pub(super) within: u64,
    pub(super) present: u64,
    pub(super) accessed: u64,
    pub(super) unknown: u64,
    /// Which of them a huge page maps.
    pub(super) huge: u64,
    /// See [`ScanChunk::is_steady`].
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

/// How far the preparation of passes is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preparation {
    /// Nothing is left to do: passes can begin.
    Ready,
    /// A part of it was done, with a sentence the user should know, if there is one.
    Part(Option<String>),
}

/// What a scan found of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageSeen {
    /// Not resident.
    Absent,
    /// Resident, not accessed.
    Idle,
    /// Accessed since the scan before.
    Accessed,
    /// Resident; the accessed bit does not tell.
    Unknown,
}

impl ScanChunk {
    /// Begins anew with `range` (page-aligned): no page is resident.
    pub fn reset(&mut self, range: AddrRange) {
        self.range = range;
        self.words.clear();
        if !range.is_empty() {
            let words = range.start.0 / WORD..range.end.0.div_ceil(WORD);
            self.words.extend(words.map(|number| Word {
                within: pages_within(number * WORD, range),
                ..Word::default()
            }));
        }
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

    /// What it covers.
    #[must_use]
    pub const fn range(&self) -> AddrRange {
        self.range
    }

    /// Marks the page at `addr` as resident, accessed or not. Pages outside of the range are ignored.
    pub fn set(&mut self, addr: Addr, accessed: bool) {
        let bit = bit_of(addr);
        self.set_pages(addr, bit, if accessed { bit } else { 0 });
    }

    /// Marks the 64 pages that the one at `addr` is among: bit by bit, which are resident, and which of these were
    /// accessed. Pages outside of the range are ignored.
    pub fn set_pages(&mut self, addr: Addr, present: u64, accessed: u64) {
        if let Some(word) = self.word_mut(addr) {
            word.book(present, accessed);
        }
    }

    /// Marks all pages of `range` (page-aligned) as resident, accessed or not, as far as they are covered.
    pub fn set_range(&mut self, range: AddrRange, accessed: bool) {
        self.each_word(range, |word, pages| {
            word.book(pages, if accessed { pages } else { 0 })
        });
    }

    /// Marks the page at `addr` as resident, accessed or not is unknown.
    pub fn set_unknown(&mut self, addr: Addr) {
        let bit = bit_of(addr);
        if let Some(word) = self.word_mut(addr) {
            word.present |= bit & word.within;
            word.unknown |= bit & word.within;
        }
    }

    /// Marks all pages as unknown that were not found accessed.
    pub fn set_idle_unknown(&mut self) {
        for word in &mut self.words {
            word.unknown |= word.present & !word.accessed;
        }
    }

    /// Marks all pages of `range` (page-aligned) as mapped by huge pages, as far as they are covered.
    pub fn set_huge(&mut self, range: AddrRange) {
        self.each_word(range, |word, pages| word.huge |= pages);
    }

    /// Says of the 64 pages that the one at `addr` is among that the last passes found all of them accessed.
    pub fn set_steady(&mut self, addr: Addr) {
        if let Some(word) = self.word_mut(addr) {
            word.steady = true;
        }
    }

    /// Whether the last passes found all pages of `range`, at multiples of 64, accessed. Known before a scan: checking a
    /// few of them is enough while these go on being accessed.
    #[must_use]
    pub fn is_steady(&self, range: AddrRange) -> bool {
        (range.start.0..range.end.0)
            .step_by(WORD as usize)
            .all(|at| self.word(Addr(at)).steady)
    }

    /// What was found of the page at `addr`.
    #[must_use]
    pub fn get(&self, addr: Addr) -> PageSeen {
        self.word(addr).get(nth_of(addr))
    }

    /// Resident bytes, and how many of these are unknown.
    #[must_use]
    pub fn present_and_unknown(&self) -> (Bytes, Bytes) {
        let bytes = |bits: fn(&Word) -> u64| {
            let pages = self.words.iter().map(|word| u64::from(bits(word).count_ones()));
            Bytes(pages.sum::<u64>() * PAGE_SIZE)
        };
        (bytes(|word| word.present), bytes(|word| word.unknown))
    }

    /// True when no page is resident.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| word.present == 0)
    }

    /// What was found of the 64 pages that the one at `addr` is among.
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
        let mut chunk = ScanChunk::default();
        chunk.reset(AddrRange::new(0x10_0000, 0x10_0000 + 100 * PAGE_SIZE));
        let page = |nth: u64| Addr(0x10_0000 + nth * PAGE_SIZE);
        chunk.set(page(0), true);
        chunk.set(page(63), false);
        chunk.set(page(64), true);
        chunk.set_unknown(page(99));
        chunk.set(page(100), true);
        let seen: Vec<PageSeen> = [0, 1, 63, 64, 99, 100]
            .into_iter()
            .map(|nth| chunk.get(page(nth)))
            .collect();
        use PageSeen::{Absent, Accessed, Idle, Unknown};
        assert_eq!(seen, [Accessed, Absent, Idle, Accessed, Unknown, Absent]);
        assert_eq!(
            chunk.present_and_unknown(),
            (Bytes(4 * PAGE_SIZE), Bytes(PAGE_SIZE))
        );
        chunk.reset(AddrRange::new(0x10_0000, 0x10_0000 + 10 * PAGE_SIZE));
        assert_eq!(chunk.get(page(0)), Absent);
    }

    #[test]
    fn pages_outside_are_ignored_wherever_words_begin() {
        let mut chunk = ScanChunk::default();
        let range = AddrRange::new(70 * PAGE_SIZE, 130 * PAGE_SIZE);
        chunk.reset(range);
        chunk.set_range(AddrRange::new(0, 200 * PAGE_SIZE), true);
        chunk.set(Addr(69 * PAGE_SIZE), true);
        chunk.set(Addr(130 * PAGE_SIZE), true);
        chunk.set_unknown(Addr(1 << 40));
        for page in 0..300 {
            let expected = match (70..130).contains(&page) {
                true => PageSeen::Accessed,
                false => PageSeen::Absent,
            };
            assert_eq!(chunk.get(Addr(page * PAGE_SIZE)), expected, "{page}");
        }
        chunk.reset(range);
        chunk.set_range(AddrRange::new(127 * PAGE_SIZE, 129 * PAGE_SIZE), false);
        chunk.set_pages(Addr(128 * PAGE_SIZE), 0b110, 0b010);
        assert_eq!(chunk.present_and_unknown(), (Bytes(3 * PAGE_SIZE), Bytes(0)));
        let seen = [126, 127, 128, 129, 130].map(|page| chunk.get(Addr(page * PAGE_SIZE)));
        use PageSeen::{Absent, Accessed, Idle};
        assert_eq!(seen, [Absent, Idle, Idle, Accessed, Absent]);
    }
}
