//! The layout of page-table entries.
//!
//! Sources: arch/x86/include/asm/pgtable_types.h and Intel's manual vol. 3A section 4.5;
//! arch/arm64/include/asm/pgtable-hwdef.h and Arm's ARM D8.3. Only 4 KiB pages are supported: every table
//! holds 512 entries, and an entry of level `n` spans `4096 << 9n` bytes.

use thermo_units::Bytes;

use crate::shared::UNREADABLE;

/// A supported processor architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

/// The page-table layout of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The architecture.
    pub arch: Arch,
    /// Number of table levels: 3 to 5.
    pub levels: u32,
    /// The bits of an entry that hold a physical address.
    pub frame_mask: u64,
}

/// An entry that maps memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leaf {
    /// 0 for a page, 1 for a huge page of 2 MiB, 2 for one of 1 GiB.
    pub level: u8,
    /// Whether the accessed bit is set.
    pub accessed: bool,
    /// The number of its first 4 KiB page frame (pfn).
    pub pfn: u64,
    /// Whether its folio is young: another user of accessed bits cleared the bit of this or another page of
    /// the folio, and recorded the access. False where folios were not requested.
    pub young: bool,
    /// Whether its folio is larger than a page; `None` where folios were not requested or could not be read.
    pub is_large: Option<bool>,
}

/// The entry for an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Memory is mapped there.
    Leaf(Leaf),
    /// A table of the next lower level. Occurs only in copies of whole tables.
    Table,
    /// No memory is mapped now: never accessed, swapped out, or a hole. The level gives the size of the hole:
    /// at least `4096 << 9 * level` bytes around the address.
    Absent(u8),
    /// The tables changed during the read, or hold an invalid value.
    Unreadable,
}

const X86_PRESENT: u64 = 1;
const X86_ACCESSED: u64 = 1 << 5;
const X86_HUGE: u64 = 1 << 7;
/// With `X86_PRESENT` clear: the page is resident, but every access faults (NUMA balancing, `mprotect`).
const X86_PROTNONE: u64 = 1 << 8;

/// `_PAGE_SPECIAL`: see [`Layout::decode`].
const X86_SPECIAL: u64 = 1 << 9;

const ARM_VALID: u64 = 1;
/// In upper levels: a table, not a block.
const ARM_TABLE: u64 = 1 << 1;
const ARM_ACCESSED: u64 = 1 << 10;
/// One of [`CONT_PTES`] adjacent entries that map one contiguous block: the processor may set the accessed
/// bit of any of them for all.
const ARM_CONTIGUOUS: u64 = 1 << 52;

/// `PTE_SPECIAL`: see [`Layout::decode`].
const ARM_SPECIAL: u64 = 1 << 56;

/// Entries in one contiguous mapping of arm64 with 4 KiB pages.
pub(crate) const CONT_PTES: u64 = 16;

/// Bits 12 to 51 on x86-64 and 12 to 47 on arm64.
const X86_FRAME: u64 = 0x000f_ffff_ffff_f000;
const ARM_FRAME: u64 = 0x0000_ffff_ffff_f000;

impl Leaf {
    /// Whether it was accessed since both its accessed bit and the young flag of its folio were last cleared.
    #[must_use]
    pub const fn was_accessed(&self) -> bool {
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
    /// The layout of `arch` with `levels` levels, on a machine whose physical memory ends at `memory_end`.
    ///
    /// Bits above the end of memory are not part of the frame: memory encryption (SME, SEV) uses one of them
    /// as its flag.
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

    /// The bits that distinguish a leaf from a table above the lowest level, and their value in a leaf.
    pub(crate) const fn leaf_test(&self) -> (u64, u64) {
        match self.arch {
            Arch::X86_64 => (X86_HUGE, X86_HUGE),
            Arch::Aarch64 => (ARM_TABLE, 0),
        }
    }

    /// The bits of which at least one is set in a lowest-level entry that maps a page.
    pub(crate) const fn present_mask(&self) -> u64 {
        match self.arch {
            Arch::X86_64 => X86_PRESENT | X86_PROTNONE,
            Arch::Aarch64 => ARM_VALID,
        }
    }

    /// The accessed bit.
    pub(crate) const fn accessed_mask(&self) -> u64 {
        match self.arch {
            Arch::X86_64 => X86_ACCESSED,
            Arch::Aarch64 => ARM_ACCESSED,
        }
    }

    /// Which of 64 entries of a table at `level` map memory, and which of these have the accessed bit set:
    /// one bit an entry. Usually all entries are alike; that case costs a fraction of [`Layout::decode`] for
    /// each.
    #[must_use]
    pub fn leaves(&self, entries: &[u64; 64], level: u8) -> (u64, u64) {
        let (all, any) = entries
            .iter()
            .fold((u64::MAX, 0), |(all, any), raw| (all & raw, any | raw));
        if any & self.present_mask() == 0 {
            return (0, 0);
        }
        let usual = self.usual_page_bits();
        if level > 0 || all & usual != usual || any & self.special_mask() != 0 {
            return self.decode_leaves(entries, level);
        }
        let mask = self.accessed_mask();
        let accessed = if (all ^ any) & mask == 0 {
            if any & mask == 0 { 0 } else { u64::MAX }
        } else {
            self.with_contiguous_accessed(entries, bits(entries.map(|raw| raw & mask != 0)))
        };
        (u64::MAX, accessed)
    }

    /// Adds to `accessed`, a bitmap of 64 entries, the entries whose accessed bit may be set in a neighbour
    /// (`contpte_ptep_get()` in arch/arm64/mm/contpte.c): pages of files and large folios are mapped in this
    /// way since Linux 6.9.
    fn with_contiguous_accessed(&self, entries: &[u64; 64], accessed: u64) -> u64 {
        if self.arch != Arch::Aarch64 || accessed == 0 {
            return accessed;
        }
        let contiguous = bits(entries.map(|raw| raw & ARM_CONTIGUOUS != 0));
        let groups = (0..64 / CONT_PTES).map(|nth| contiguous & ((1 << CONT_PTES) - 1) << (nth * CONT_PTES));
        groups
            .filter(|group| accessed & group != 0)
            .fold(accessed, |accessed, group| accessed | group)
    }

    /// Whether the accessed bit of this entry is clear, but may be set in one of its neighbours.
    pub(crate) const fn may_be_accessed_by_neighbour(&self, raw: u64) -> bool {
        matches!(self.arch, Arch::Aarch64)
            && raw & ARM_CONTIGUOUS != 0
            && raw & ARM_VALID != 0
            && raw & ARM_ACCESSED == 0
    }

    fn decode_leaves(&self, entries: &[u64; 64], level: u8) -> (u64, u64) {
        let decoded = entries.map(|raw| match self.decode(raw, level) {
            Entry::Leaf(leaf) => (true, leaf.accessed),
            Entry::Table | Entry::Absent(_) | Entry::Unreadable => (false, false),
        });
        let present = bits(decoded.map(|(present, _)| present));
        let accessed = bits(decoded.map(|(_, accessed)| accessed));
        (
            present,
            self.with_contiguous_accessed(entries, accessed) & present,
        )
    }

    /// The bits that nearly every lowest-level entry has that maps a page.
    const fn usual_page_bits(&self) -> u64 {
        match self.arch {
            Arch::X86_64 => X86_PRESENT,
            Arch::Aarch64 => ARM_VALID | ARM_TABLE,
        }
    }

    /// The bit of entries whose page the kernel neither counts nor manages (`vm_normal_page()` in
    /// mm/memory.c).
    const fn special_mask(&self) -> u64 {
        match self.arch {
            Arch::X86_64 => X86_SPECIAL,
            Arch::Aarch64 => ARM_SPECIAL,
        }
    }

    /// Decodes a raw entry of a table at `level`.
    ///
    /// The zero page, and memory of devices that a driver inserted, count as absent: they are in no resident
    /// set, and the kernel never clears their accessed bits.
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
            // An invalid entry may still map a page (PROT_NONE). The bit that says so has moved from release
            // to release, so the page is treated as absent. It then only looks idle.
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
            (true, true) if raw & self.special_mask() != 0 => Entry::Absent(level),
            (true, true) => {
                let span = 4096_u64 << (9 * level as u64);
                // x86 kernels store the frame of an inaccessible page inverted (L1TF; pgtable-invert.h).
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
    fn contiguous_entries_share_accessed_bit() {
        let arm = Layout::new(Arch::Aarch64, 4, GIB_64);
        // Entries 16 to 47 are contiguous blocks; of the first block only the last entry has its accessed bit
        // set. Entry 50 is a single accessed page.
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
        let with_hole = std::array::from_fn(|nth| if nth == 3 { 0 } else { entries[nth] });
        assert_eq!(arm.leaves(&with_hole, 0), (!8, 0xffff << 16 | 1 << 50));
        assert!(
            arm.may_be_accessed_by_neighbour(entries[16]) && !arm.may_be_accessed_by_neighbour(entries[31])
        );
        assert!(!arm.may_be_accessed_by_neighbour(entries[0]));
        // On x86-64 these bits are part of the frame or used by software.
        let x86 = Layout::new(Arch::X86_64, 4, GIB_64);
        assert!(!x86.may_be_accessed_by_neighbour(entries[16]));
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
    fn x86_64_entries_are_decoded() {
        let layout = Layout::new(Arch::X86_64, 4, GIB_64);
        for (raw, level, entry) in [
            // nx, frame 0x12345, dirty, accessed, user, write, present
            (0x8000_0000_1234_5067, 0, leaf(0, true, 0x12345)),
            (0x8000_0000_1234_5047, 0, leaf(0, false, 0x12345)),
            // Swapped out: no present bit, and bit 8 is never set in a swap entry.
            (0xffff_ffff_c000_0002, 0, Entry::Absent(0)),
            (0, 3, Entry::Absent(3)),
            // A page made inaccessible by NUMA balancing keeps its accessed bit; its frame is inverted.
            (0x000f_ffff_edcb_a120, 0, leaf(0, true, 0x12345)),
            // A huge page of 2 MiB; bit 12 is its PAT bit, not part of the frame.
            (0x8000_0000_4020_10e7, 1, leaf(1, true, 0x40200)),
            (0x0000_0000_1234_5067, 1, Entry::Table),
            (0x0000_0001_0000_00a7, 2, leaf(2, true, 0x10_0000)),
            // The zero page; 2 MiB of a device; in the entry of a table the bit has no meaning.
            (0x8000_0000_1234_5225, 0, Entry::Absent(0)),
            (0x8000_0000_4020_02e7, 1, Entry::Absent(1)),
            (0x0000_0000_1234_5267, 1, Entry::Table),
            // The flag of memory encryption lies above the end of memory.
            (0x0008_0000_1234_5067, 0, leaf(0, true, 0x12345)),
        ] {
            assert_eq!(layout.decode(raw, level), entry, "{raw:#x} at level {level}");
        }
    }

    #[test]
    fn arm64_entries_are_decoded() {
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
            (0x01e8_0000_1234_5f43, 0, Entry::Absent(0)),
        ] {
            assert_eq!(layout.decode(raw, level), entry, "{raw:#x} at level {level}");
        }
    }

    #[test]
    fn leaves_agrees_with_decode() {
        let x86 = [0x1234_5067, 0x1234_5047, 0x1234_5120, 0x4020_10e7, 0x1234_5225, 0];
        let arm = [
            0x1234_5f43,
            0x1234_5b43,
            0x1234_5f41,
            0x1234_5003,
            1 << 56 | 0x1234_5f43,
            0,
        ];
        for (arch, raws) in [(Arch::X86_64, x86), (Arch::Aarch64, arm)] {
            let layout = Layout::new(arch, 4, GIB_64);
            for (a, b, level) in raws
                .into_iter()
                .flat_map(|a| raws.into_iter().map(move |b| (a, b)))
                .flat_map(|(a, b)| [0, 1].map(|level| (a, b, level)))
            {
                // One entry of another kind at a varying index.
                let nth = (a ^ b ^ u64::from(level)) as usize % 64;
                let mut entries = [a; 64];
                entries[nth] = b;
                let decoded = entries.map(|raw| match layout.decode(raw, level) {
                    Entry::Leaf(leaf) => (true, leaf.accessed),
                    _ => (false, false),
                });
                let (present, accessed) = layout.leaves(&entries, level);
                for (nth, expected) in decoded.into_iter().enumerate() {
                    let found = (present >> nth & 1 == 1, accessed >> nth & 1 == 1);
                    assert_eq!(found, expected, "{nth} of {a:#x} and {b:#x} at level {level}");
                }
            }
        }
    }

    #[test]
    fn unreadable_level_decodes_to_unreadable() {
        let layout = Layout::new(Arch::X86_64, 5, GIB_64);
        assert_eq!(
            layout.decode(0x8000_0000_1234_5067, UNREADABLE),
            Entry::Unreadable
        );
    }

    #[test]
    fn leaf_size_follows_level() {
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
