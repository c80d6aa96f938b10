//! Which pages of a region were touched since last asked: a bit a page.
//!
//! Marking costs one or two instructions an access, or a word for 64 pages of a sequential run, so what is
//! measured stays what it was.

use thermo_units::{AddrRange, PAGE_SIZE};

/// The touched pages of one region.
pub(crate) struct Touched {
    start: u64,
    words: Vec<u64>,
}

impl Touched {
    /// Nothing touched of the `len` bytes from `start`, which must be the begin of a page.
    pub(crate) fn new(start: u64, len: usize) -> Self {
        let pages = (len as u64).div_ceil(PAGE_SIZE);
        Self {
            start,
            words: vec![0; usize::try_from(pages.div_ceil(64)).unwrap_or(usize::MAX)],
        }
    }

    /// The page of the byte at `offset` was touched.
    #[inline]
    pub(crate) fn mark(&mut self, offset: usize) {
        let page = offset >> PAGE_SIZE.trailing_zeros();
        self.words[page / 64] |= 1 << (page % 64);
    }

    /// All pages from that of the byte at `first` to that of the byte at `last` were touched.
    pub(crate) fn mark_through(&mut self, first: usize, last: usize) {
        let shift = PAGE_SIZE.trailing_zeros();
        let (first, last) = (first >> shift, last >> shift);
        let (from, to) = (first / 64, last / 64);
        for word in from..=to {
            let low = if word == from { !0 << (first % 64) } else { !0 };
            let high = if word == to { !0 >> (63 - last % 64) } else { !0 };
            self.words[word] |= low & high;
        }
    }

    /// Adds the touched runs to `ranges`, in ascending order, joined with what ends where they begin; forgets them.
    pub(crate) fn drain(&mut self, ranges: &mut Vec<AddrRange>) {
        for (index, word) in self.words.iter_mut().enumerate() {
            let mut bits = std::mem::take(word);
            let base = self.start + index as u64 * 64 * PAGE_SIZE;
            while bits != 0 {
                let skip = bits.trailing_zeros();
                let run = (bits >> skip).trailing_ones();
                let begin = base + u64::from(skip) * PAGE_SIZE;
                AddrRange::new(begin, begin + u64::from(run) * PAGE_SIZE).join_onto(ranges);
                // Adding the lowest set bit carries through the run; what stays set is behind it.
                bits &= bits.wrapping_add(1 << skip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(touched: &mut Touched) -> Vec<(u64, u64)> {
        let mut ranges = Vec::new();
        touched.drain(&mut ranges);
        ranges
            .iter()
            .map(|range| (range.start.0 / PAGE_SIZE, range.end.0 / PAGE_SIZE))
            .collect()
    }

    #[test]
    fn runs_join_over_the_border_of_a_word() {
        let mut touched = Touched::new(0, 200 * 4096);
        touched.mark_through(60 * 4096, 130 * 4096 + 17);
        touched.mark(140 * 4096 + 4095);
        touched.mark(142 * 4096);
        assert_eq!(pages(&mut touched), [(60, 131), (140, 141), (142, 143)]);
        assert_eq!(pages(&mut touched), []);
    }

    #[test]
    fn whole_words_and_last_bits_are_found() {
        let mut touched = Touched::new(0, 128 * 4096);
        touched.mark_through(0, 128 * 4096 - 1);
        assert_eq!(pages(&mut touched), [(0, 128)]);
        touched.mark(63 * 4096);
        touched.mark(127 * 4096);
        assert_eq!(pages(&mut touched), [(63, 64), (127, 128)]);
    }

    #[test]
    fn neighbouring_regions_join() {
        let mut ranges = Vec::new();
        for start in [0x10000, 0x11000] {
            let mut touched = Touched::new(start, 4096);
            touched.mark(5);
            touched.drain(&mut ranges);
        }
        assert_eq!(ranges, [AddrRange::new(0x10000, 0x12000)]);
    }
}
