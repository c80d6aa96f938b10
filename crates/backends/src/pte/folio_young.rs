//! Decides when scans check the young flag of folios, to see accessed bits that other monitors cleared.
//!
//! In-kernel DAMON and the idle-page bitmap set a folio's *young* flag when they clear an accessed bit, and
//! `MADV_COLD` clears that flag too. So a page was accessed since the last pass if its accessed bit is set or
//! its folio is young. The check costs a read of kernel memory for every page *without* accessed bit: 5 to 10
//! times the rest of a pass over idle memory.
//!
//! So folios are checked only while other monitors exist. The first pass then checks all folios: their flags
//! may be years old, so they are cleared and do not count. From then on each pass checks 1/32 of the memory
//! in rotation, so no access is seen later than 32 passes. If more than 2 % of the accesses there had lost
//! their bit, passes check all folios, until four passes in a row found less. Small targets are always
//! checked in full.

use thermo_pagetable::{Folios, Leaves};

/// Each pass checks one chunk in this many.
const ROTATION: u64 = 32;
/// Number of passes that check all folios after one that found many lost bits.
const FULL_PASSES: u32 = 4;
/// A full check needs at least this many lost bits, and at least one lost bit in this many accesses.
const MIN_LOST: u64 = 16;
const LOST_SHARE: u64 = 50;
/// Targets of at most this many pages (128 MiB) are always checked in full.
const SMALL_TARGET: u64 = 1 << 15;

/// State of the checks of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    /// No other monitors exist.
    #[default]
    Off,
    /// Flags are cleared and do not count.
    First,
    /// Number of further passes that check all folios.
    On(u32),
}

/// Which folios of one target are checked.
#[derive(Debug, Default)]
pub(super) struct FolioYoung {
    stage: Stage,
    passes: u64,
    is_small: bool,
    /// Counts of the current pass: all pages; and, of the pages whose folios were checked, accesses and lost
    /// bits.
    pages: u64,
    accessed: u64,
    lost: u64,
}

impl FolioYoung {
    /// Begins a pass. `other_monitors`: whether other monitors exist.
    pub(super) fn begin_pass(&mut self, other_monitors: bool) {
        self.stage = match self.stage {
            _ if !other_monitors => Stage::Off,
            Stage::Off => Stage::First,
            Stage::First => Stage::On(FULL_PASSES),
            Stage::On(_) if self.has_lost_many() => Stage::On(FULL_PASSES),
            Stage::On(left) => Stage::On(left.saturating_sub(1)),
        };
        self.is_small = self.pages <= SMALL_TARGET;
        self.passes = self.passes.wrapping_add(1);
        (self.pages, self.accessed, self.lost) = (0, 0, 0);
    }

    /// Whether many bits were lost. In rotation, the young flags of 32 passes have added up.
    const fn has_lost_many(&self) -> bool {
        let lost = if self.checks_all() {
            self.lost
        } else {
            self.lost / ROTATION
        };
        lost >= MIN_LOST && lost * LOST_SHARE >= self.accessed
    }

    const fn checks_all(&self) -> bool {
        self.is_small || matches!(self.stage, Stage::First | Stage::On(1..))
    }

    /// Which folios of a chunk to check.
    pub(super) const fn folios_in(&self, chunk: u64) -> Folios {
        match self.stage {
            Stage::Off => Folios::None,
            _ if self.checks_all() || chunk % ROTATION == self.passes % ROTATION => Folios::NotAccessed,
            _ => Folios::None,
        }
    }

    /// The leaves of a table that were accessed since the last pass, as far as can be seen.
    pub(super) fn accessed(&mut self, leaves: &Leaves, checked: Folios) -> [u64; 8] {
        self.pages += leaves.count();
        if checked == Folios::None || self.stage == Stage::First {
            return leaves.accessed;
        }
        let count = |words: &[u64; 8]| words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        self.lost += count(&leaves.young);
        self.accessed += count(&leaves.accessed_or_young());
        leaves.accessed_or_young()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a pass over `chunks` chunks of 16,384 pages each, of which 32 in 512 are accessed and `lost` are
    /// young. Returns in how many chunks folios were checked.
    fn pass(young: &mut FolioYoung, other_monitors: bool, chunks: u64, lost: u32) -> usize {
        young.begin_pass(other_monitors);
        let bits = |count: u32| std::array::from_fn(|nth| if nth == 0 { (1_u64 << count) - 1 } else { 0 });
        let checked = (0..chunks).filter(|chunk| {
            let folios = young.folios_in(*chunk);
            let leaves = Leaves {
                present: [u64::MAX; 8],
                accessed: [0, 0, 0xffff_ffff, 0, 0, 0, 0, 0],
                young: if folios == Folios::None {
                    [0; 8]
                } else {
                    bits(lost)
                },
            };
            for _ in 0..32 {
                young.accessed(&leaves, folios);
            }
            folios != Folios::None
        });
        checked.count()
    }

    #[test]
    fn no_folio_is_checked_without_other_monitors() {
        let mut young = FolioYoung::default();
        assert_eq!([0, 1, 2].map(|_| pass(&mut young, false, 32, 9)), [0; 3]);
        assert_eq!(pass(&mut young, true, 32, 0), 32);
        assert_eq!(pass(&mut young, false, 32, 0), 0);
    }

    #[test]
    fn one_chunk_in_32_is_checked_normally() {
        let mut young = FolioYoung::default();
        let checked: Vec<usize> = (0..9).map(|_| pass(&mut young, true, 32, 0)).collect();
        assert_eq!(checked, [32, 32, 32, 32, 32, 1, 1, 1, 1]);
        // Two of 34 accesses lost in one pass; in rotation they add up over 32 passes.
        assert_eq!(pass(&mut young, true, 32, 2), 1);
        assert_eq!(pass(&mut young, true, 32, 0), 1);
        assert_eq!(pass(&mut young, true, 32, 60), 1);
        let checked: Vec<usize> = (0..5).map(|_| pass(&mut young, true, 32, 0)).collect();
        assert_eq!(checked, [32, 32, 32, 32, 1]);
    }

    #[test]
    fn rotation_checks_each_chunk_once() {
        let mut young = FolioYoung::default();
        for _ in 0..5 {
            pass(&mut young, true, 32, 0);
        }
        let mut turns = [0; 32];
        for _ in 0..ROTATION {
            young.pages = SMALL_TARGET + 1;
            young.begin_pass(true);
            (0..32)
                .filter(|chunk| young.folios_in(*chunk) != Folios::None)
                .for_each(|chunk| turns[chunk as usize] += 1);
        }
        assert_eq!(turns, [1; 32]);
    }

    #[test]
    fn small_targets_are_checked_in_full() {
        let mut young = FolioYoung::default();
        assert!((0..20).all(|_| pass(&mut young, true, 2, 0) == 2));
    }

    #[test]
    fn young_flags_of_first_pass_are_ignored() {
        let leaves = Leaves {
            present: [0b111; 8],
            accessed: [0b010; 8],
            young: [0b100; 8],
        };
        let mut young = FolioYoung::default();
        young.begin_pass(true);
        assert_eq!(young.accessed(&leaves, Folios::NotAccessed), [0b010; 8]);
        young.begin_pass(true);
        assert_eq!(young.accessed(&leaves, Folios::NotAccessed), [0b110; 8]);
    }
}
