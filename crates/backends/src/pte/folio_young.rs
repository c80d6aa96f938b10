//! Accessed bits that others cleared: when scans ask folios for their young flag.
//!
//! In-kernel DAMON and the idle-page bitmap mark a folio *young* when they clear an accessed bit, and `MADV_COLD` clears
//! that flag too. So a page was accessed since the last pass if its accessed bit is set or its folio is young. To see the
//! flag costs a read of kernel memory for every page *without* accessed bit: 5 to 10 times the rest of a pass over idle memory.
//!
//! So nothing is asked where no others exist. The first pass beside others asks all folios: their flags may be years old,
//! so they are cleared and do not count. From then on each pass asks a 32nd of the memory, in turns, so that no access
//! is seen later than 32 passes. Where more than a fiftieth of the accesses there had lost their bit, passes
//! ask everywhere, until four in a row found less. Small targets are always asked everywhere.

use thermo_pagetable::{Folios, Leaves};

/// Each pass asks one chunk in so many.
const TURNS: u64 = 32;
/// So many passes ask everywhere after one that found much.
const PASSES: u32 = 4;
/// It matters from so many lost bits on, and from one lost in so many accesses.
const LEAST_TAKEN: u64 = 16;
const MATTERS: u64 = 50;
/// Of no more pages than these (128 MiB) all are asked.
const SMALL: u64 = 1 << 15;

/// Where the passes over a target stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    /// No others exist.
    #[default]
    Off,
    /// Flags are cleared and do not count.
    First,
    /// So many passes more ask everywhere.
    On(u32),
}

/// What passes over one target ask of folios.
#[derive(Debug, Default)]
pub(super) struct FolioYoung {
    stage: Stage,
    passes: u64,
    is_small: bool,
    /// Of the pass that is running: pages; and, where folios were asked, accesses and those that lost their bit.
    pages: u64,
    accessed: u64,
    taken: u64,
}

impl FolioYoung {
    /// A pass begins. Whether `others` exist.
    pub(super) fn begin_pass(&mut self, others: bool) {
        self.stage = match self.stage {
            _ if !others => Stage::Off,
            Stage::Off => Stage::First,
            Stage::First => Stage::On(PASSES),
            Stage::On(_) if self.matters() => Stage::On(PASSES),
            Stage::On(left) => Stage::On(left.saturating_sub(1)),
        };
        self.is_small = self.pages <= SMALL;
        self.passes = self.passes.wrapping_add(1);
        (self.pages, self.accessed, self.taken) = (0, 0, 0);
    }

    /// In turns, flags are those of as many passes.
    const fn matters(&self) -> bool {
        let taken = if self.asks_everywhere() {
            self.taken
        } else {
            self.taken / TURNS
        };
        taken >= LEAST_TAKEN && taken * MATTERS >= self.accessed
    }

    const fn asks_everywhere(&self) -> bool {
        self.is_small || matches!(self.stage, Stage::First | Stage::On(1..))
    }

    /// What is asked in the chunk of this number.
    pub(super) const fn asks(&self, chunk: u64) -> Folios {
        match self.stage {
            Stage::Off => Folios::Unasked,
            _ if self.asks_everywhere() || chunk % TURNS == self.passes % TURNS => Folios::OfUnmarked,
            _ => Folios::Unasked,
        }
    }

    /// Which leaves of a table were accessed since the last pass, as far as can be seen.
    pub(super) fn accessed(&mut self, leaves: &Leaves, asked: Folios) -> [u64; 8] {
        self.pages += leaves.count();
        if asked == Folios::Unasked || self.stage == Stage::First {
            return leaves.accessed;
        }
        let count = |words: &[u64; 8]| words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        self.taken += count(&leaves.young);
        self.accessed += count(&leaves.touched());
        leaves.touched()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pass over so many chunks of 16,384 pages each, of which 100 are accessed and `taken` young; in how many it asked.
    fn pass(young: &mut FolioYoung, others: bool, chunks: u64, taken: u32) -> usize {
        young.begin_pass(others);
        let bits = |count: u32| std::array::from_fn(|nth| if nth == 0 { (1_u64 << count) - 1 } else { 0 });
        let asked = (0..chunks).filter(|chunk| {
            let asks = young.asks(*chunk);
            let leaves = Leaves {
                there: [u64::MAX; 8],
                accessed: [0, 0, 0xffff_ffff, 0, 0, 0, 0, 0],
                young: if asks == Folios::Unasked {
                    [0; 8]
                } else {
                    bits(taken)
                },
            };
            for _ in 0..32 {
                young.accessed(&leaves, asks);
            }
            asks != Folios::Unasked
        });
        asked.count()
    }

    #[test]
    fn nothing_is_asked_where_no_others_exist() {
        let mut young = FolioYoung::default();
        assert_eq!([0, 1, 2].map(|_| pass(&mut young, false, 32, 9)), [0; 3]);
        assert_eq!(pass(&mut young, true, 32, 0), 32);
        assert_eq!(pass(&mut young, false, 32, 0), 0);
    }

    #[test]
    fn one_chunk_in_32_is_asked_while_few_bits_are_lost() {
        let mut young = FolioYoung::default();
        let asked: Vec<usize> = (0..9).map(|_| pass(&mut young, true, 32, 0)).collect();
        assert_eq!(asked, [32, 32, 32, 32, 32, 1, 1, 1, 1]);
        // Two of 34 in one pass; in turns they are of 32 passes.
        assert_eq!(pass(&mut young, true, 32, 2), 1);
        assert_eq!(pass(&mut young, true, 32, 0), 1);
        assert_eq!(pass(&mut young, true, 32, 60), 1);
        let asked: Vec<usize> = (0..5).map(|_| pass(&mut young, true, 32, 0)).collect();
        assert_eq!(asked, [32, 32, 32, 32, 1]);
    }

    #[test]
    fn each_chunk_has_its_turn() {
        let mut young = FolioYoung::default();
        for _ in 0..5 {
            pass(&mut young, true, 32, 0);
        }
        let mut turns = [0; 32];
        for _ in 0..TURNS {
            young.pages = SMALL + 1;
            young.begin_pass(true);
            (0..32)
                .filter(|chunk| young.asks(*chunk) != Folios::Unasked)
                .for_each(|chunk| turns[chunk as usize] += 1);
        }
        assert_eq!(turns, [1; 32]);
    }

    #[test]
    fn small_targets_are_asked_everywhere() {
        let mut young = FolioYoung::default();
        assert!((0..20).all(|_| pass(&mut young, true, 2, 0) == 2));
    }

    #[test]
    fn flags_of_the_first_pass_do_not_count() {
        let leaves = Leaves {
            there: [0b111; 8],
            accessed: [0b010; 8],
            young: [0b100; 8],
        };
        let mut young = FolioYoung::default();
        young.begin_pass(true);
        assert_eq!(young.accessed(&leaves, Folios::OfUnmarked), [0b010; 8]);
        young.begin_pass(true);
        assert_eq!(young.accessed(&leaves, Folios::OfUnmarked), [0b110; 8]);
    }
}
