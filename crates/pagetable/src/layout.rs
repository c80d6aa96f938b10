//! How the entries of page tables are laid out.
//!
//! Sources: arch/x86/include/asm/pgtable_types.h and Intel's manual vol. 3A §4.5; arch/arm64/include/asm/
//! pgtable-hwdef.h and Arm's ARM D8.3. Only 4 KiB pages: every table holds 512 entries, and an entry of level `n`
//! spans `4096 << 9n` bytes.

use thermo_units::Bytes;

use crate::shared::UNREADABLE;

/// A processor architecture whose tables can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

/// How to read the tables of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Whose format.
    pub arch: Arch,
    /// How many levels lie between the top table and a page: 3 to 5.
    pub levels: u32,
    /// The bits of an entry that are a physical address.
    pub frame_mask: u64,
}

/// An entry that maps memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leaf {
    /// 0 for a page, 1 for a huge page of 2 MiB, 2 for one of 1 GiB.
    pub level: u8,
    /// Whether the processor has marked it accessed since the mark was last taken off.
    pub accessed: bool,
    /// The number of its first 4 KiB page frame.
    pub pfn: u64,
    /// Whether its folio is marked young: somebody who keeps account of it took the accessed mark off this or another
    /// page of the folio. False where that was not asked.
    pub young: bool,
    /// Whether its folio is larger than a page, where that was asked.
    pub is_large: Option<bool>,
}

/// What was found at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Memory is mapped there.
    Leaf(Leaf),
    /// A table of the next lower level. Seen only in whole tables.
    Table,
    /// No memory is mapped there now: never touched, swapped out, or a hole. The level says how far at least:
    /// `4096 << 9 * level` bytes around the address.
    Absent(u8),
    /// The tables changed under the look, or hold what cannot be.
    Unreadable,
}

const X86_PRESENT: u64 = 1;
const X86_ACCESSED: u64 = 1 << 5;
const X86_HUGE: u64 = 1 << 7;
/// With `X86_PRESENT` off: the page is there, but every access to it faults (NUMA balancing, `mprotect`).
const X86_PROTNONE: u64 = 1 << 8;

const ARM_VALID: u64 = 1;
/// In upper levels: a table, not a block.
const ARM_TABLE: u64 = 1 << 1;
const ARM_ACCESSED: u64 = 1 << 10;
/// One of [`TOGETHER`] neighbours that map one piece of memory: the processor may mark any of them for all.
const ARM_CONTIGUOUS: u64 = 1 << 52;

/// So many entries make one contiguous mapping of arm64's, with pages of 4 KiB.
pub(crate) const TOGETHER: u64 = 16;

/// Bits 12 to 51 on x86-64 and 12 to 47 on arm64.
const X86_FRAME: u64 = 0x000f_ffff_ffff_f000;
const ARM_FRAME: u64 = 0x0000_ffff_ffff_f000;

impl Leaf {
    /// Whether it was accessed since both its mark and that of its folio were last taken off.
    #[must_use]
    pub const fn is_touched(&self) -> bool {
        self.accessed || self.young
    }

    /// How many bytes it maps.
    #[must_use]
    pub const fn len(&self) -> Bytes {
        Bytes(4096 << (9 * self.level as u64))
    }

    /// False: a leaf maps at least a page.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }
}

impl Layout {
    /// The layout of `arch` with so many `levels`, on a machine whose physical memory ends at `memory_end`.
    ///
    /// Bits above the memory's size are not part of the frame: that is where memory encryption (SME, SEV) keeps
    /// its mark.
    #[must_use]
    pub const fn new(arch: Arch, levels: u32, memory_end: u64) -> Self {
        let frame = match arch {
            Arch::X86_64 => X86_FRAME,
            Arch::Aarch64 => ARM_FRAME,
        };
        let reachable = match memory_end.checked_next_power_of_two() {
            Some(power) => power - 1,
            None => u64::MAX,
        };
        Self {
            arch,
            levels,
            frame_mask: frame & reachable,
        }
    }

    /// The bits that tell a leaf from a table above the lowest level, and their value in a leaf.
    pub(crate) const fn leaf_test(&self) -> (u64, u64) {
        match self.arch {
            Arch::X86_64 => (X86_HUGE, X86_HUGE),
            Arch::Aarch64 => (ARM_TABLE, 0),
        }
    }

    /// The bits of which one is set in an entry of the lowest level that maps a page.
    pub(crate) const fn present_mask(&self) -> u64 {
        match self.arch {
            Arch::X86_64 => X86_PRESENT | X86_PROTNONE,
            Arch::Aarch64 => ARM_VALID,
        }
    }

    /// The bit that is the accessed mark.
    pub(crate) const fn accessed_mask(&self) -> u64 {
        match self.arch {
            Arch::X86_64 => X86_ACCESSED,
            Arch::Aarch64 => ARM_ACCESSED,
        }
    }

    /// Which of 64 entries of a table at `level` map memory, and which of these are marked accessed: a bit each. Most of
    /// the time all are alike, and that takes a fraction of what [`Layout::decode`] does of each.
    #[must_use]
    pub fn leaves(&self, entries: &[u64; 64], level: u8) -> (u64, u64) {
        let (all, any) = entries
            .iter()
            .fold((u64::MAX, 0), |(all, any), raw| (all & raw, any | raw));
        if any & self.present_mask() == 0 {
            return (0, 0);
        }
        let page = self.plain_page();
        if level > 0 || all & page != page {
            return self.leaves_one_by_one(entries, level);
        }
        let accessed = self.accessed_mask();
        let marked = if (all ^ any) & accessed == 0 {
            if any & accessed == 0 { 0 } else { u64::MAX }
        } else {
            self.with_those_together(entries, bits(entries.map(|raw| raw & accessed != 0)))
        };
        (u64::MAX, marked)
    }

    /// Adds to `marked`, of 64 entries, those whose mark may be at a neighbour (`contpte_ptep_get()` in
    /// arch/arm64/mm/contpte.c): pages of files and large folios are mapped so since Linux 6.9.
    fn with_those_together(&self, entries: &[u64; 64], marked: u64) -> u64 {
        if self.arch != Arch::Aarch64 || marked == 0 {
            return marked;
        }
        let together = bits(entries.map(|raw| raw & ARM_CONTIGUOUS != 0));
        let groups = (0..64 / TOGETHER).map(|nth| together & ((1 << TOGETHER) - 1) << (nth * TOGETHER));
        groups
            .filter(|group| marked & group != 0)
            .fold(marked, |marked, group| marked | group)
    }

    /// Whether the mark of this entry, which has none, may be at one of its neighbours.
    pub(crate) const fn may_be_marked_beside(&self, raw: u64) -> bool {
        matches!(self.arch, Arch::Aarch64)
            && raw & ARM_CONTIGUOUS != 0
            && raw & ARM_VALID != 0
            && raw & ARM_ACCESSED == 0
    }

    fn leaves_one_by_one(&self, entries: &[u64; 64], level: u8) -> (u64, u64) {
        let decoded = entries.map(|raw| match self.decode(raw, level) {
            Entry::Leaf(leaf) => (true, leaf.accessed),
            Entry::Table | Entry::Absent(_) | Entry::Unreadable => (false, false),
        });
        let there = bits(decoded.map(|(there, _)| there));
        let marked = bits(decoded.map(|(_, accessed)| accessed));
        (there, self.with_those_together(entries, marked) & there)
    }

    /// The bits which an entry of the lowest level has, nearly always, that maps a page.
    const fn plain_page(&self) -> u64 {
        match self.arch {
            Arch::X86_64 => X86_PRESENT,
            Arch::Aarch64 => ARM_VALID | ARM_TABLE,
        }
    }

    /// Reads the raw entry of a table at `level`.
    #[must_use]
    pub const fn decode(&self, raw: u64, level: u8) -> Entry {
        if level == UNREADABLE {
            return Entry::Unreadable;
        }
        let (present, leaf, accessed) = match self.arch {
            Arch::X86_64 => {
                let huge = level == 0 || raw & X86_HUGE != 0;
                let protnone = raw & X86_PRESENT == 0 && raw & X86_PROTNONE != 0 && huge;
                (raw & X86_PRESENT != 0 || protnone, huge, raw & X86_ACCESSED != 0)
            }
            // A page whose entry is not valid may be there too (PROT_NONE); the bit that says so has moved from
            // release to release, so such a page is taken for absent, which only makes it look idle.
            Arch::Aarch64 => {
                let leaf = if level == 0 {
                    raw & ARM_TABLE != 0
                } else {
                    raw & ARM_TABLE == 0
                };
                (
                    raw & ARM_VALID != 0 && (leaf || level > 0),
                    leaf,
                    raw & ARM_ACCESSED != 0,
                )
            }
        };
        match (present, leaf) {
            (false, _) => Entry::Absent(level),
            (true, false) => Entry::Table,
            (true, true) => {
                let span = 4096_u64 << (9 * level as u64);
                // Where it is not to be reached, x86 kernels keep the frame inverted (L1TF; pgtable-invert.h).
                let is_inverted = matches!(self.arch, Arch::X86_64) && raw & X86_PRESENT == 0;
                let frame = if is_inverted { !raw } else { raw };
                Entry::Leaf(Leaf {
                    level,
                    accessed,
                    pfn: (frame & self.frame_mask & !(span - 1)) >> 12,
                    young: false,
                    is_large: None,
                })
            }
        }
    }
}

fn bits(set: [bool; 64]) -> u64 {
    set.iter().rev().fold(0, |bits, set| bits << 1 | u64::from(*set))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB_64: u64 = 64 << 30;

    #[test]
    fn of_entries_that_map_one_piece_any_may_have_the_mark() {
        let arm = Layout::new(Arch::Aarch64, 4, GIB_64);
        // The second sixteen are one piece, of which the last is marked; beside it a page by itself, and one of another.
        let entries = std::array::from_fn(|nth| {
            let page = ARM_VALID | ARM_TABLE | (nth as u64) << 12;
            match nth {
                31 => page | ARM_CONTIGUOUS | ARM_ACCESSED,
                16..48 => page | ARM_CONTIGUOUS,
                50 => page | ARM_ACCESSED,
                _ => page,
            }
        });
        assert_eq!(arm.leaves(&entries, 0), (u64::MAX, 0xffff << 16 | 1 << 50));
        let with_a_hole = std::array::from_fn(|nth| if nth == 3 { 0 } else { entries[nth] });
        assert_eq!(arm.leaves(&with_a_hole, 0), (!8, 0xffff << 16 | 1 << 50));
        assert!(arm.may_be_marked_beside(entries[16]) && !arm.may_be_marked_beside(entries[31]));
        assert!(!arm.may_be_marked_beside(entries[0]));
        // The same bits are of the frame, or the system's, there.
        let x86 = Layout::new(Arch::X86_64, 4, GIB_64);
        assert!(!x86.may_be_marked_beside(entries[16]));
    }

    fn leaf(level: u8, accessed: bool, pfn: u64) -> Entry {
        Entry::Leaf(Leaf {
            level,
            accessed,
            pfn,
            ..Leaf::default()
        })
    }

    #[test]
    fn entries_of_x86_64() {
        let layout = Layout::new(Arch::X86_64, 4, GIB_64);
        for (raw, level, entry) in [
            // nx, frame 0x12345, dirty, accessed, user, write, present
            (0x8000_0000_1234_5067, 0, leaf(0, true, 0x12345)),
            (0x8000_0000_1234_5047, 0, leaf(0, false, 0x12345)),
            // Swapped out: no present bit, and bit 8 is never set in a swap entry.
            (0xffff_ffff_c000_0002, 0, Entry::Absent(0)),
            (0, 3, Entry::Absent(3)),
            // A page the NUMA balancer made unreachable keeps its accessed mark; its frame is inverted.
            (0x000f_ffff_edcb_a120, 0, leaf(0, true, 0x12345)),
            // A huge page of 2 MiB; bit 12 is its PAT bit, not part of the frame.
            (0x8000_0000_4020_10e7, 1, leaf(1, true, 0x40200)),
            (0x0000_0000_1234_5067, 1, Entry::Table),
            (0x0000_0001_0000_00a7, 2, leaf(2, true, 0x10_0000)),
            // Memory encryption's mark lies above memory.
            (0x0008_0000_1234_5067, 0, leaf(0, true, 0x12345)),
        ] {
            assert_eq!(layout.decode(raw, level), entry, "{raw:#x} at level {level}");
        }
    }

    #[test]
    fn entries_of_arm64() {
        let layout = Layout::new(Arch::Aarch64, 4, GIB_64);
        for (raw, level, entry) in [
            (0x00e8_0000_1234_5f43, 0, leaf(0, true, 0x12345)),
            (0x00e8_0000_1234_5b43, 0, leaf(0, false, 0x12345)),
            // At the lowest level the pattern of a block is reserved.
            (0x00e8_0000_1234_5f41, 0, Entry::Absent(0)),
            (0x0000_0000_1234_5003, 1, Entry::Table),
            (0x0060_0000_4020_0f41, 1, leaf(1, true, 0x40200)),
            (0x0060_0000_4000_0b41, 2, leaf(2, false, 0x40000)),
            (0x0000_0000_1234_5f42, 0, Entry::Absent(0)),
        ] {
            assert_eq!(layout.decode(raw, level), entry, "{raw:#x} at level {level}");
        }
    }

    #[test]
    fn words_of_entries_say_what_single_entries_say() {
        let of_x86 = [0x1234_5067, 0x1234_5047, 0x1234_5120, 0x4020_10e7, 0xc000_0002, 0];
        let of_arm = [0x1234_5f43, 0x1234_5b43, 0x1234_5f41, 0x1234_5003, 0x1234_5f42, 0];
        for (arch, raws) in [(Arch::X86_64, of_x86), (Arch::Aarch64, of_arm)] {
            let layout = Layout::new(arch, 4, GIB_64);
            for (a, b, level) in raws
                .into_iter()
                .flat_map(|a| raws.into_iter().map(move |b| (a, b)))
                .flat_map(|(a, b)| [0, 1].map(|level| (a, b, level)))
            {
                // One of the other kind among them, at a place of its own.
                let nth = (a ^ b ^ u64::from(level)) as usize % 64;
                let mut entries = [a; 64];
                entries[nth] = b;
                let decoded = entries.map(|raw| match layout.decode(raw, level) {
                    Entry::Leaf(leaf) => (true, leaf.accessed),
                    _ => (false, false),
                });
                let (there, accessed) = layout.leaves(&entries, level);
                for (nth, expected) in decoded.into_iter().enumerate() {
                    let found = (there >> nth & 1 == 1, accessed >> nth & 1 == 1);
                    assert_eq!(found, expected, "{nth} of {a:#x} and {b:#x} at level {level}");
                }
            }
        }
    }

    #[test]
    fn what_the_walk_could_not_read_is_no_entry() {
        let layout = Layout::new(Arch::X86_64, 5, GIB_64);
        assert_eq!(
            layout.decode(0x8000_0000_1234_5067, UNREADABLE),
            Entry::Unreadable
        );
    }

    #[test]
    fn leaves_span_what_their_level_says() {
        let sizes = [0, 1, 2].map(|level| {
            Leaf {
                level,
                ..Leaf::default()
            }
            .len()
        });
        assert_eq!(sizes, [Bytes::kib(4), Bytes::mib(2), Bytes::gib(1)]);
    }
}
