//! The result of scanning one chunk of memory, as bitmaps with one bit per page.

use thermo_units::Bytes;
use thermo_units::{Addr, AddrRange, PAGE_SIZE};

/// Bytes of memory that one word of a bitmap covers.
pub(super) const WORD: u64 = 64 * PAGE_SIZE;

/// The result of scanning a range: whether each page is resident, accessed or unknown. Words begin at
/// multiples of 64 pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScanChunk {
    range: AddrRange,
    words: Vec<Word>,
}

/// Bitmaps of 64 neighbouring pages, the first at a multiple of 64 pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Word {
    /// Pages that lie in the chunk's range.
    pub(super) within: u64,
    pub(super) present: u64,
    pub(super) accessed: u64,
    pub(super) unknown: u64,
    /// Pages mapped by a huge page.
    pub(super) huge: u64,
    /// See [`ScanChunk::is_steadily_accessed`].
    pub(super) is_steadily_accessed: bool,
}

impl Word {
    fn set(&mut self, present: u64, accessed: u64) {
        self.present |= present & self.within;
        self.accessed |= accessed & self.within;
    }

    /// True if the page with this index was accessed.
    pub(super) fn is_accessed(&self, nth: usize) -> bool {
        self.get(nth) == ScanResult::Accessed
    }

    pub(super) fn get(&self, nth: usize) -> ScanResult {
        let is_set = |bits: u64| bits >> nth & 1 == 1;
        if is_set(self.unknown) {
            ScanResult::Unknown
        } else if is_set(self.accessed) {
            ScanResult::Accessed
        } else if is_set(self.present) {
            ScanResult::Idle
        } else {
            ScanResult::Absent
        }
    }
}

/// Progress of the preparation of joint passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preparation {
    /// Preparation is complete: passes can begin.
    Ready,
    /// One part is done and more remain. May carry a warning for the user.
    InProgress(Option<String>),
}

/// Result of scanning one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanResult {
    /// Not resident.
    Absent,
    /// Resident, not accessed since the previous scan.
    Idle,
    /// Accessed since the previous scan.
    Accessed,
    /// Resident, but the accessed bit is not meaningful.
    Unknown,
}

impl ScanChunk {
    /// Clears the chunk and sets its range (page-aligned). No page is resident.
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

    /// Calls `update` with each word that has pages of `range` and with the bitmap of these pages.
    fn update_words(&mut self, range: AddrRange, update: impl Fn(&mut Word, u64)) {
        let covered = range.intersection(&self.range).unwrap_or_default();
        for number in covered.start.0 / WORD..covered.end.0.div_ceil(WORD) {
            if let Some(word) = self.word_mut(Addr(number * WORD)) {
                update(word, pages_within(number * WORD, covered));
            }
        }
    }

    /// The range of the chunk.
    #[must_use]
    pub const fn range(&self) -> AddrRange {
        self.range
    }

    /// Marks the page at `addr` as resident, accessed or not. Pages outside the range are ignored.
    pub fn set(&mut self, addr: Addr, accessed: bool) {
        let bit = bit_of(addr);
        self.set_pages(addr, bit, if accessed { bit } else { 0 });
    }

    /// Marks pages of the word that contains `addr` as resident and as accessed, by bitmaps. Pages outside
    /// the range are ignored.
    pub fn set_pages(&mut self, addr: Addr, present: u64, accessed: u64) {
        if let Some(word) = self.word_mut(addr) {
            word.set(present, accessed);
        }
    }

    /// Marks all pages of `range` (page-aligned) as resident, accessed or not. Pages outside the chunk's
    /// range are ignored.
    pub fn set_range(&mut self, range: AddrRange, accessed: bool) {
        self.update_words(range, |word, pages| {
            word.set(pages, if accessed { pages } else { 0 })
        });
    }

    /// Marks all pages of `range` (page-aligned) as not resident. Pages outside the chunk's range are
    /// ignored.
    pub fn unset_range(&mut self, range: AddrRange) {
        self.update_words(range, |word, pages| {
            word.present &= !pages;
            word.accessed &= !pages;
            word.unknown &= !pages;
            word.huge &= !pages;
        });
    }

    /// Marks the page at `addr` as resident and unknown.
    pub fn set_unknown(&mut self, addr: Addr) {
        let bit = bit_of(addr);
        if let Some(word) = self.word_mut(addr) {
            word.present |= bit & word.within;
            word.unknown |= bit & word.within;
        }
    }

    /// Marks all resident pages that were not accessed as unknown.
    pub fn set_idle_unknown(&mut self) {
        for word in &mut self.words {
            word.unknown |= word.present & !word.accessed;
        }
    }

    /// Marks all pages of `range` (page-aligned) as mapped by huge pages. Pages outside the chunk's range are
    /// ignored.
    pub fn set_huge(&mut self, range: AddrRange) {
        self.update_words(range, |word, pages| word.huge |= pages);
    }

    /// Records that each of the last two passes found all 64 pages of the word that contains `addr` accessed.
    pub fn set_steadily_accessed(&mut self, addr: Addr) {
        if let Some(word) = self.word_mut(addr) {
            word.is_steadily_accessed = true;
        }
    }

    /// True if each of the last two passes found all pages of `range` accessed. `range` consists of whole
    /// words of 64 pages. Known before the scan: while such pages stay accessed, a backend may check only a
    /// few of them.
    #[must_use]
    pub fn is_steadily_accessed(&self, range: AddrRange) -> bool {
        (range.start.0..range.end.0)
            .step_by(WORD as usize)
            .all(|at| self.word(Addr(at)).is_steadily_accessed)
    }

    /// The result for the page at `addr`.
    #[must_use]
    pub fn get(&self, addr: Addr) -> ScanResult {
        self.word(addr).get(nth_of(addr))
    }

    /// Resident bytes and, of these, unknown bytes.
    #[must_use]
    pub fn present_and_unknown(&self) -> (Bytes, Bytes) {
        let bytes = |bits: fn(&Word) -> u64| {
            let pages = self.words.iter().map(|word| u64::from(bits(word).count_ones()));
            Bytes(pages.sum::<u64>() * PAGE_SIZE)
        };
        (bytes(|word| word.present), bytes(|word| word.unknown))
    }

    /// True if no page is resident.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| word.present == 0)
    }

    /// The word that contains the page at `addr`. Empty outside the range.
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

/// Index of the page at `addr` in its word.
const fn nth_of(addr: Addr) -> usize {
    (addr.0 / PAGE_SIZE % 64) as usize
}

const fn bit_of(addr: Addr) -> u64 {
    1 << nth_of(addr)
}

/// Bitmap of the pages of `range` among the 64 pages from `base` on.
fn pages_within(base: u64, range: AddrRange) -> u64 {
    let page = |addr: Addr| addr.0.saturating_sub(base).min(WORD) / PAGE_SIZE;
    let below = |page: u64| 1_u64.checked_shl(page as u32).map_or(u64::MAX, |bit| bit - 1);
    below(page(range.end)) & !below(page(range.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_returns_page_results_that_were_set() {
        let mut chunk = ScanChunk::default();
        chunk.reset(AddrRange::new(0x10_0000, 0x10_0000 + 100 * PAGE_SIZE));
        let page = |nth: u64| Addr(0x10_0000 + nth * PAGE_SIZE);
        chunk.set(page(0), true);
        chunk.set(page(63), false);
        chunk.set(page(64), true);
        chunk.set_unknown(page(99));
        chunk.set(page(100), true);
        let seen: Vec<ScanResult> = [0, 1, 63, 64, 99, 100]
            .into_iter()
            .map(|nth| chunk.get(page(nth)))
            .collect();
        use ScanResult::{Absent, Accessed, Idle, Unknown};
        assert_eq!(seen, [Accessed, Absent, Idle, Accessed, Unknown, Absent]);
        assert_eq!(
            chunk.present_and_unknown(),
            (Bytes(4 * PAGE_SIZE), Bytes(PAGE_SIZE))
        );
        chunk.unset_range(AddrRange::new(page(63).0, page(100).0));
        assert_eq!([63, 64, 99].map(|nth| chunk.get(page(nth))), [Absent; 3]);
        assert_eq!(chunk.present_and_unknown(), (Bytes(PAGE_SIZE), Bytes::ZERO));
        chunk.reset(AddrRange::new(0x10_0000, 0x10_0000 + 10 * PAGE_SIZE));
        assert_eq!(chunk.get(page(0)), Absent);
    }

    #[test]
    fn chunk_ignores_pages_outside_unaligned_range() {
        let mut chunk = ScanChunk::default();
        let range = AddrRange::new(70 * PAGE_SIZE, 130 * PAGE_SIZE);
        chunk.reset(range);
        chunk.set_range(AddrRange::new(0, 200 * PAGE_SIZE), true);
        chunk.set(Addr(69 * PAGE_SIZE), true);
        chunk.set(Addr(130 * PAGE_SIZE), true);
        chunk.set_unknown(Addr(1 << 40));
        for page in 0..300 {
            let expected = match (70..130).contains(&page) {
                true => ScanResult::Accessed,
                false => ScanResult::Absent,
            };
            assert_eq!(chunk.get(Addr(page * PAGE_SIZE)), expected, "{page}");
        }
        chunk.reset(range);
        chunk.set_range(AddrRange::new(127 * PAGE_SIZE, 129 * PAGE_SIZE), false);
        chunk.set_pages(Addr(128 * PAGE_SIZE), 0b110, 0b010);
        assert_eq!(chunk.present_and_unknown(), (Bytes(3 * PAGE_SIZE), Bytes(0)));
        let seen = [126, 127, 128, 129, 130].map(|page| chunk.get(Addr(page * PAGE_SIZE)));
        use ScanResult::{Absent, Accessed, Idle};
        assert_eq!(seen, [Absent, Idle, Idle, Accessed, Absent]);
    }

    #[test]
    fn set_idle_unknown_changes_only_idle_pages() {
        let mut chunk = ScanChunk::default();
        chunk.reset(AddrRange::new(0, 4 * PAGE_SIZE));
        chunk.set(Addr(0), true);
        chunk.set(Addr(PAGE_SIZE), false);
        chunk.set_unknown(Addr(2 * PAGE_SIZE));
        chunk.set_idle_unknown();
        let seen = [0, 1, 2, 3].map(|page| chunk.get(Addr(page * PAGE_SIZE)));
        use ScanResult::{Absent, Accessed, Unknown};
        assert_eq!(seen, [Accessed, Unknown, Unknown, Absent]);
    }

    #[test]
    fn range_is_steady_if_all_its_words_are() {
        let mut chunk = ScanChunk::default();
        let words = |from: u64, to: u64| AddrRange::new(from * WORD, to * WORD);
        chunk.reset(words(2, 5));
        chunk.set_steadily_accessed(Addr(2 * WORD));
        chunk.set_steadily_accessed(Addr(3 * WORD + PAGE_SIZE));
        let ranges = [(2, 4), (3, 4), (2, 5), (4, 5), (1, 3)];
        let steady = ranges.map(|(from, to)| chunk.is_steadily_accessed(words(from, to)));
        assert_eq!(steady, [true, true, false, false, false]);
        chunk.reset(words(2, 5));
        assert!(!chunk.is_steadily_accessed(words(2, 3)), "of the previous scan");
    }

    #[test]
    fn chunk_is_empty_until_a_page_is_resident() {
        let mut chunk = ScanChunk::default();
        chunk.reset(AddrRange::new(WORD, 3 * WORD));
        chunk.set(Addr(3 * WORD), true);
        assert!(chunk.is_empty());
        chunk.set(Addr(2 * WORD), false);
        assert!(!chunk.is_empty());
    }

    #[test]
    fn huge_pages_are_marked_within_the_range_only() {
        let mut chunk = ScanChunk::default();
        chunk.reset(AddrRange::new(32 * PAGE_SIZE, 2 * WORD));
        chunk.set_huge(AddrRange::new(0, WORD + 8 * PAGE_SIZE));
        assert_eq!(chunk.word(Addr(0)).huge, u64::MAX << 32);
        assert_eq!(chunk.word(Addr(WORD)).huge, 0xff);
    }
}
