//! A bitmap of the pages of a region that were accessed since the last truth record.
//!
//! Setting a bit costs one or two instructions for an access, or one word for 64 pages of a sequential range.
//! So the bitmap hardly changes the measured workload.

use thermo_units::{AddrRange, PAGE_SIZE};

/// The accessed pages of one region.
pub(crate) struct AccessedPages {
    start: u64,
    words: Vec<u64>,
}

impl AccessedPages {
    /// A clear bitmap for the `len` bytes at `start`. `start` must be page-aligned.
    pub(crate) fn new(start: u64, len: usize) -> Self {
        let pages = (len as u64).div_ceil(PAGE_SIZE);
        Self {
            start,
            words: vec![0; usize::try_from(pages.div_ceil(64)).unwrap_or(usize::MAX)],
        }
    }

    /// Sets the bit of the page at byte `offset`.
    #[inline]
    pub(crate) fn set(&mut self, offset: usize) {
        let page = offset >> PAGE_SIZE.trailing_zeros();
        self.words[page / 64] |= 1 << (page % 64);
    }

    /// Sets the bits of all pages from that of byte `first` to that of byte `last`, both included.
    pub(crate) fn set_through(&mut self, first: usize, last: usize) {
        let shift = PAGE_SIZE.trailing_zeros();
        let (first, last) = (first >> shift, last >> shift);
        let (from, to) = (first / 64, last / 64);
        for word in from..=to {
            let low = if word == from { !0 << (first % 64) } else { !0 };
            let high = if word == to { !0 >> (63 - last % 64) } else { !0 };
            self.words[word] |= low & high;
        }
    }

    /// Appends the accessed ranges to `ranges` in ascending order, merging adjacent ranges, and clears the
    /// bitmap.
    pub(crate) fn drain(&mut self, ranges: &mut Vec<AddrRange>) {
        for (index, word) in self.words.iter_mut().enumerate() {
            let mut bits = std::mem::take(word);
            let base = self.start + index as u64 * 64 * PAGE_SIZE;
            while bits != 0 {
                let skip = bits.trailing_zeros();
                let run = (bits >> skip).trailing_ones();
                let begin = base + u64::from(skip) * PAGE_SIZE;
                AddrRange::new(begin, begin + u64::from(run) * PAGE_SIZE).coalesce_into(ranges);
                // Adding the lowest set bit carries through the run and clears it. Later bits stay set.
                bits &= bits.wrapping_add(1 << skip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(accessed: &mut AccessedPages) -> Vec<(u64, u64)> {
        let mut ranges = Vec::new();
        accessed.drain(&mut ranges);
        ranges
            .iter()
            .map(|range| (range.start.0 / PAGE_SIZE, range.end.0 / PAGE_SIZE))
            .collect()
    }

    #[test]
    fn ranges_merge_across_bitmap_words() {
        let mut accessed = AccessedPages::new(0, 200 * 4096);
        accessed.set_through(60 * 4096, 130 * 4096 + 17);
        accessed.set(140 * 4096 + 4095);
        accessed.set(142 * 4096);
        assert_eq!(pages(&mut accessed), [(60, 131), (140, 141), (142, 143)]);
        assert_eq!(pages(&mut accessed), []);
    }

    #[test]
    fn drain_finds_whole_words_and_last_bits() {
        let mut accessed = AccessedPages::new(0, 128 * 4096);
        accessed.set_through(0, 128 * 4096 - 1);
        assert_eq!(pages(&mut accessed), [(0, 128)]);
        accessed.set(63 * 4096);
        accessed.set(127 * 4096);
        assert_eq!(pages(&mut accessed), [(63, 64), (127, 128)]);
    }

    #[test]
    fn adjacent_regions_merge() {
        let mut ranges = Vec::new();
        for start in [0x10000, 0x11000] {
            let mut accessed = AccessedPages::new(start, 4096);
            accessed.set(5);
            accessed.drain(&mut ranges);
        }
        assert_eq!(ranges, [AddrRange::new(0x10000, 0x12000)]);
    }
}
