//! The length that the kernel's `lzo-rle` gives a page.
//!
//! LZO1X-1 is a greedy compressor with a hash table of the last position of each four bytes. `lzo-rle` adds
//! an instruction for runs of zeros. Only the length is computed: no compressed data is produced. The stream
//! format is that of Documentation/staging/lzo.rst; the search for matches is that of
//! lib/lzo/lzo1x_compress.c, on processors with fast unaligned reads. All lengths of 2400 pages of four kinds
//! (2026-11-25) were equal to those of Linux 6.18.
//!
//! Libraries do not fit: `lzo1x` and `rust-lzo` have the GPL, and the pages of `lzokay-native` (MIT) were 13
//! to 23 % smaller than the kernel's, because it searches longer. Without runs of zeros (`lzo`), pages were 0
//! to 2 % smaller, and 6 % larger where they were mostly zeros.

use crate::zram::Page;

const HASH_BITS: u32 = 13;
/// The kernel's multiplier; another one would find other matches.
const HASH_FACTOR: u32 = 0x1824_429d;
/// No match begins in the last bytes of the page.
const MATCH_END: usize = size_of::<Page>() - 20;
const MIN_MATCH: usize = 4;
/// The search begins after this many literals.
const FIRST_SEARCH: usize = 4;
/// After each `1 << SKIP_SHIFT` literals the search steps one byte further.
const SKIP_SHIFT: usize = 5;
/// Zeros in one run instruction: 11 bits above the minimum.
const MAX_ZERO_RUN: usize = 4 + 2047;
/// Instruction M2: a length up to 8 at a distance up to 2 KiB in two bytes.
const M2_MAX_LEN: usize = 8;
const M2_MAX_DISTANCE: usize = 0x800;
/// Instruction M3: a length up to 33 in three bytes, one more for each 255 bytes of length.
const M3_MAX_LEN: usize = 33;
/// Longest run of literals with a count of one byte, in the middle and at the start of a stream.
const MAX_SHORT_LITERALS: usize = 18;
const MAX_FIRST_LITERALS: usize = 238;
/// Up to this many literals are counted in the instruction before them.
const MAX_FREE_LITERALS: usize = 3;
/// Two bytes for the version of the stream, three for its end.
const HEAD_AND_END: usize = 2 + 3;
const RUN_INSTRUCTION: usize = 4;

/// Work memory: the last position of each hash.
#[derive(Debug)]
pub(crate) struct LzoRle {
    last: Box<[u16; 1 << HASH_BITS]>,
}

/// A part of the page that one instruction copies.
struct Copy {
    /// Bytes of the page.
    len: usize,
    /// Bytes of the instruction.
    cost: usize,
}

impl LzoRle {
    pub(crate) fn new() -> Self {
        Self {
            last: Box::new([0; 1 << HASH_BITS]),
        }
    }

    /// The length of the compressed page in bytes.
    pub(crate) fn compressed_len(&mut self, page: &Page) -> usize {
        self.last.fill(0);
        let (mut out, mut literals_from) = (HEAD_AND_END, 0);
        let mut at = FIRST_SEARCH + 1;
        while at < MATCH_END {
            let Some(copy) = self.copy_at(page, at) else {
                at += 1 + ((at - literals_from) >> SKIP_SHIFT);
                continue;
            };
            out += literals(at - literals_from, MAX_FREE_LITERALS) + copy.cost;
            at += copy.len;
            literals_from = at;
        }
        let rest = page.len() - literals_from;
        let is_first = literals_from == 0;
        out + if is_first && rest <= MAX_FIRST_LITERALS {
            1 + rest
        } else {
            literals(rest, if is_first { 0 } else { MAX_FREE_LITERALS })
        }
    }

    /// The instruction that replaces the bytes from `at`, if there is one.
    fn copy_at(&mut self, page: &Page, at: usize) -> Option<Copy> {
        let word = word_at(page, at);
        if word == 0 {
            return Some(zero_run(page, at));
        }
        let hash = word.wrapping_mul(HASH_FACTOR) >> (32 - HASH_BITS);
        let slot = &mut self.last[hash as usize];
        let earlier = usize::from(*slot);
        // A page has fewer than 65,536 bytes.
        *slot = at as u16;
        (word_at(page, earlier) == word).then(|| {
            let len = match_len(page, at, earlier);
            let cost = match_cost(len, at - earlier);
            Copy { len, cost }
        })
    }
}

fn word_at(page: &Page, at: usize) -> u32 {
    u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]])
}

fn zero_run(page: &Page, at: usize) -> Copy {
    let limit = MATCH_END.min(at + MAX_ZERO_RUN);
    let more = page
        .iter()
        .take(limit)
        .skip(at + 4)
        .take_while(|byte| **byte == 0)
        .count();
    Copy {
        len: 4 + more,
        cost: RUN_INSTRUCTION,
    }
}

/// Length of the match at `at` with the bytes from `earlier`. The kernel compares eight bytes at a time and
/// checks for the end between, so a match may end up to 15 bytes behind [`MATCH_END`].
fn match_len(page: &Page, at: usize, earlier: usize) -> usize {
    let mut len = MIN_MATCH;
    loop {
        let (here, there) = (&page[at + len..at + len + 8], &page[earlier + len..]);
        let equal = here.iter().zip(there).take_while(|(a, b)| a == b).count();
        len += equal;
        if equal < 8 || at + len >= MATCH_END {
            return len;
        }
    }
}

/// Bytes of the instruction for a match. The distance within a page never needs the longest form, M4.
fn match_cost(len: usize, distance: usize) -> usize {
    if len <= M2_MAX_LEN && distance <= M2_MAX_DISTANCE {
        2
    } else {
        3 + len.saturating_sub(M3_MAX_LEN).div_ceil(255)
    }
}

/// Bytes of `len` literals with their count, which is free up to `free` literals.
fn literals(len: usize, free: usize) -> usize {
    let count = match len {
        0 => 0,
        _ if len <= free => 0,
        _ => 1 + len.saturating_sub(MAX_SHORT_LITERALS).div_ceil(255),
    };
    count + len
}

#[cfg(test)]
mod tests {
    use thermo_engine::rng::Rng;

    use super::*;

    /// Matches and runs of zeros that end anywhere near the end of the page.
    #[test]
    fn any_end_of_page_is_compressed() {
        let (mut lzo, mut rng) = (LzoRle::new(), Rng::new(3));
        for period in 1..200 {
            for tail in 0..40 {
                let mut page = [0; size_of::<Page>()];
                page.fill_with({
                    let mut nth = 0_usize;
                    move || {
                        nth += 1;
                        (nth % period) as u8
                    }
                });
                for byte in page.iter_mut().rev().take(tail) {
                    *byte = rng.below(3) as u8;
                }
                let len = lzo.compressed_len(&page);
                assert!(len > HEAD_AND_END && len < 400, "{period} {tail}: {len}");
            }
        }
    }

    #[test]
    fn distance_and_length_choose_the_instruction() {
        assert_eq!(match_cost(8, 2048), 2);
        assert_eq!(match_cost(9, 2048), 3);
        assert_eq!(match_cost(8, 2049), 3);
        assert_eq!(match_cost(33, 4000), 3);
        assert_eq!(match_cost(34, 1), 4);
        assert_eq!(match_cost(33 + 255, 1), 4);
        assert_eq!(match_cost(33 + 256, 1), 5);
        assert_eq!(
            [0, 3, 4, 18, 19, 273, 274].map(|nr| literals(nr, 3) - nr),
            [0, 0, 1, 1, 2, 2, 3]
        );
    }
}
