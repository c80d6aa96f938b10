//! The page tables of other processes.

use std::fs;
use std::ops::{ControlFlow, Range};

use thermo_units::{Addr, AddrRange, PAGE_SIZE};

use crate::calibrate::{Machine, calibrate};
use crate::error::{BpfError, FolioError, WalkError};
use crate::folios::Folios;
use crate::layout::{Arch, CONT_PTES, Entry, Layout, Leaf};
use crate::load::{Kind, failed, load, load_as};
use crate::max_pfn::memory_end;
use crate::run::Runner;
use crate::shared::{
    Call, FOLIO_LARGE, FOLIO_READ, FOLIO_YOUNG, MAX_PROBES, OP_PROBES, OP_TABLES, ProbeSlot, UNREADABLE,
};
use crate::vmemmap;

/// Reads the page tables of any process.
#[derive(Debug)]
pub struct PageTables {
    runner: Runner,
    machine: Machine,
    /// Whether the young flags of folios can be read.
    young: Result<(), FolioError>,
}

/// A copy of one table.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    /// The first address that the table maps: entry `i` maps the addresses from `base + i * span()` on.
    pub base: Addr,
    /// 0: the entries map pages. 1: the entries map huge pages of 2 MiB, are holes, or point to tables of
    /// level 0. Those follow as separate tables.
    pub level: u8,
    /// The raw entries. [`Layout::decode`] decodes them.
    pub entries: &'a [u64; 512],
    /// One bit an entry: the accessed bit is clear, but the folio is young. Zero where folios were not
    /// requested.
    pub young: &'a [u64; 8],
}

/// The entries of a table that map memory: bitmaps of 512 bits. The first entry is the lowest bit of the
/// first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leaves {
    /// Entries that map memory.
    pub present: [u64; 8],
    /// Entries whose accessed bit is set.
    pub accessed: [u64; 8],
    /// Entries whose accessed bit is clear but whose folio is young. Zero where folios were not requested.
    pub young: [u64; 8],
}

impl Leaves {
    /// Keeps only the leaves within `entries`.
    #[must_use]
    pub fn within(self, entries: Range<usize>) -> Self {
        self.masked(|nth| {
            let below = |entry: usize| match entry.saturating_sub(nth * 64) {
                bits @ 0..64 => (1 << bits) - 1,
                _ => u64::MAX,
            };
            below(entries.end) & !below(entries.start)
        })
    }

    /// Removes the leaves whose bit is set in `entries`.
    #[must_use]
    pub fn without(self, entries: &[u64; 8]) -> Self {
        self.masked(|nth| !entries[nth])
    }

    fn masked(mut self, mask: impl Fn(usize) -> u64) -> Self {
        for nth in 0..8 {
            let mask = mask(nth);
            self.present[nth] &= mask;
            self.accessed[nth] &= mask;
            self.young[nth] &= mask;
        }
        self
    }

    /// The number of leaves.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.present.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The indices of the entries that map memory, ascending.
    pub fn entries(&self) -> impl Iterator<Item = usize> + use<> {
        ones(self.present)
    }

    /// Entries that were accessed, as in [`Leaf::was_accessed`].
    #[must_use]
    pub fn accessed_or_young(&self) -> [u64; 8] {
        std::array::from_fn(|nth| self.accessed[nth] | self.young[nth])
    }

    /// The indices of the accessed entries, ascending.
    pub fn accessed_entries(&self) -> impl Iterator<Item = usize> + use<> {
        ones(self.accessed_or_young())
    }
}

/// The indices of the bits that are set in a bitmap of [`Leaves`], ascending.
pub fn ones(words: [u64; 8]) -> impl Iterator<Item = usize> {
    words.into_iter().enumerate().flat_map(|(nth, mut word)| {
        std::iter::from_fn(move || {
            let lowest = (word != 0).then(|| word.trailing_zeros() as usize)?;
            word &= word - 1;
            Some(nth * 64 + lowest)
        })
    })
}

impl Table<'_> {
    /// The size in bytes that one entry maps.
    #[must_use]
    pub const fn span(&self) -> u64 {
        PAGE_SIZE << (9 * self.level as u64)
    }

    /// The range of entry `nth` of 512.
    #[must_use]
    pub const fn range(&self, nth: usize) -> AddrRange {
        let start = self.base.0 + nth as u64 * self.span();
        AddrRange::new(start, start + self.span())
    }

    /// The index of the entry that maps `addr`, if this table covers it.
    #[must_use]
    pub fn nth(&self, addr: Addr) -> Option<usize> {
        let nth = addr.0.checked_sub(self.base.0)? / self.span();
        usize::try_from(nth).ok().filter(|nth| *nth < 512)
    }

    /// The entries that map memory.
    #[must_use]
    pub fn leaves(&self, layout: &Layout) -> Leaves {
        let mut leaves = Leaves::default();
        let (words, _) = self.entries.as_chunks::<64>();
        for (nth, entries) in words.iter().enumerate() {
            let (present, accessed) = layout.leaves(entries, self.level);
            leaves.present[nth] = present;
            leaves.accessed[nth] = accessed;
            leaves.young[nth] = self.young[nth] & present;
        }
        leaves
    }

    /// Decodes entry `nth` of 512.
    #[must_use]
    pub const fn decode(&self, layout: &Layout, nth: usize) -> Entry {
        match layout.decode(self.entries[nth], self.level) {
            Entry::Leaf(leaf) => Entry::Leaf(Leaf {
                young: self.young[nth / 64] >> (nth % 64) & 1 == 1,
                ..leaf
            }),
            other => other,
        }
    }
}

impl PageTables {
    /// Loads the program and detects the memory layout of this machine. Takes some milliseconds, and 1 MiB of
    /// kernel memory until dropped.
    ///
    /// # Errors
    /// The reason why page tables cannot be read here, and the way out.
    pub fn open() -> Result<Self, BpfError> {
        Self::from_runner(Runner::new(load()?))
    }

    /// As [`PageTables::open`], through the iterator form of the program, which older kernels and pid
    /// namespaces need.
    ///
    /// # Errors
    /// As [`PageTables::open`].
    pub fn open_by_iterator() -> Result<Self, BpfError> {
        Self::from_runner(Runner::new(load_as(Kind::Iterator)?))
    }

    fn from_runner(mut runner: Runner) -> Result<Self, BpfError> {
        let arch = match std::env::consts::ARCH {
            "x86_64" => Arch::X86_64,
            "aarch64" => Arch::Aarch64,
            other => {
                return Err(BpfError::Unsupported(format!(
                    "the processor architecture {other} is not supported"
                )));
            }
        };
        let page_size = rustix::param::page_size();
        if page_size != 4096 {
            return Err(BpfError::Unsupported(format!(
                "the page size is {page_size} bytes, not 4096"
            )));
        }
        let zones = fs::read_to_string("/proc/zoneinfo")
            .map_err(|error| failed("cannot read the end of memory from /proc/zoneinfo", error))?;
        let end = memory_end(&zones).ok_or_else(|| {
            failed(
                "cannot read the end of memory from /proc/zoneinfo",
                "no memory zone has a start_pfn",
            )
        })?;
        let mut machine = calibrate(&mut runner, arch, end)?;
        let young = vmemmap::find(&mut runner, &machine).and_then(|found| {
            machine.vmemmap = found.base;
            found.has_young.then_some(()).ok_or(FolioError::NoYoungFlag)
        });
        Ok(Self {
            runner,
            machine,
            young,
        })
    }

    /// Whether [`Leaf::young`] is read where it is requested.
    ///
    /// # Errors
    /// The reason why not. Requests for folios then have no effect.
    pub const fn young_support(&self) -> Result<(), &FolioError> {
        match &self.young {
            Ok(()) => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// The layout of entries on this machine.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.machine.layout
    }

    /// Reads the entries that map `addrs` in process `pid`, in the same order, into `entries` (which is
    /// emptied first), and their folios as `folios` says. Costs 0.1 to 0.2 µs an address, and one system call
    /// for every 4096.
    ///
    /// # Errors
    /// [`WalkError::Gone`] when the process ended.
    pub fn entries(
        &mut self,
        pid: u32,
        addrs: &[Addr],
        folios: Folios,
        entries: &mut Vec<Entry>,
    ) -> Result<(), WalkError> {
        entries.clear();
        for batch in addrs.chunks(MAX_PROBES) {
            let call = Call {
                folios: folios as u32,
                ..self.machine.call(OP_PROBES, pid)
            };
            let slots = self.runner.probe(call, batch.iter().map(|addr| addr.0))?;
            let first = entries.len();
            entries.extend(slots.iter().map(|slot| decode(&self.machine.layout, slot)));
            let is_unsure = |slot: &ProbeSlot| self.machine.layout.may_be_accessed_by_neighbour(slot.entry);
            let unsure: Vec<usize> = (0..slots.len()).filter(|nth| is_unsure(&slots[*nth])).collect();
            for group in unsure.chunks(MAX_PROBES / CONT_PTES as usize) {
                self.read_neighbours(pid, batch, group, &mut entries[first..])?;
            }
        }
        Ok(())
    }

    /// Sets `accessed` for the entries at the indices `numbers`, whose addresses are in `addrs`, if a
    /// neighbour in the same contiguous mapping has its accessed bit set.
    fn read_neighbours(
        &mut self,
        pid: u32,
        addrs: &[Addr],
        numbers: &[usize],
        entries: &mut [Entry],
    ) -> Result<(), WalkError> {
        let leaf_of = |entry: &Entry| match entry {
            Entry::Leaf(leaf) => Some(*leaf),
            Entry::Table | Entry::Absent(_) | Entry::Unreadable => None,
        };
        let neighbours = numbers.iter().flat_map(|nth| {
            let span = leaf_of(&entries[*nth]).map_or(PAGE_SIZE, |leaf| leaf.len().0);
            let first = addrs[*nth].0 / (span * CONT_PTES) * (span * CONT_PTES);
            (0..CONT_PTES).map(move |nth| first + nth * span)
        });
        let call = self.machine.call(OP_PROBES, pid);
        let slots = self.runner.probe(call, neighbours)?;
        for (nth, group) in numbers.iter().zip(slots.chunks(CONT_PTES as usize)) {
            let decoded = group.iter().map(|slot| decode(&self.machine.layout, slot));
            let is_accessed = decoded
                .filter_map(|entry| leaf_of(&entry))
                .any(|leaf| leaf.accessed);
            if let Entry::Leaf(leaf) = &mut entries[*nth] {
                leaf.accessed |= is_accessed;
            }
        }
        Ok(())
    }

    /// Updates the end of memory after hotplug or ballooning. Memory beyond the known end would look like
    /// holes. Costs some ten microseconds; needed by processes that run for weeks.
    pub fn refresh_memory_end(&mut self) {
        let zones = fs::read_to_string("/proc/zoneinfo").unwrap_or_default();
        if let Some(end) = memory_end(&zones).filter(|end| *end > self.machine.memory_end) {
            self.machine.set_memory_end(end);
        }
    }

    /// Calls `each` with a copy of every table of pages and of huge pages that maps a part of `range` in
    /// process `pid`: for each GiB first the table of level 1, then, ascending, those of level 0. The first
    /// and the last table can extend beyond the range. Pages of 1 GiB (hugetlb, devices) are skipped: no
    /// action applies to them. Costs about 1 ms a GiB of small pages, and more where `folios` are read.
    ///
    /// After `each` returns `Break`, the tables that were copied in the same call are still passed to it: a
    /// table of level 1 comes before the tables of level 0 that map lower addresses.
    ///
    /// # Errors
    /// [`WalkError::Gone`] when the process ended.
    pub fn tables(
        &mut self,
        pid: u32,
        range: AddrRange,
        folios: Folios,
        each: &mut impl FnMut(Table<'_>) -> ControlFlow<()>,
    ) -> Result<(), WalkError> {
        let mut cursor = range.start.0;
        let mut last_pmd = None;
        while cursor < range.end.0 {
            let call = Call {
                cursor,
                start: cursor,
                end: range.end.0,
                folios: folios as u32,
                ..self.machine.call(OP_TABLES, pid)
            };
            let answer = self.runner.run(call)?;
            let loaded = &self.runner.loaded;
            let count = answer.nr_tables as usize;
            let mut stops = false;
            for (head, entries) in loaded.heads.get().iter().zip(loaded.tables.get()).take(count) {
                // A call that begins inside a GiB copies its level-1 table again.
                if head.level == 1 && last_pmd.replace(head.base) == Some(head.base) {
                    continue;
                }
                let table = Table {
                    base: Addr(head.base),
                    level: head.level as u8,
                    entries,
                    young: &head.young,
                };
                stops |= each(table).is_break();
            }
            if stops {
                break;
            }
            // Every call advances the cursor. The check prevents an endless loop on garbage from kernel
            // memory.
            if answer.cursor <= cursor {
                break;
            }
            cursor = answer.cursor;
        }
        Ok(())
    }
}

/// Decodes the entry of a probe, with the flags of its folio.
fn decode(layout: &Layout, slot: &ProbeSlot) -> Entry {
    let level = u8::try_from(slot.level).unwrap_or(UNREADABLE);
    match layout.decode(slot.entry, level) {
        Entry::Leaf(leaf) => Entry::Leaf(Leaf {
            young: slot.folio & FOLIO_YOUNG != 0,
            is_large: (slot.folio & FOLIO_READ != 0).then_some(slot.folio & FOLIO_LARGE != 0),
            ..leaf
        }),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 0x8000_0000_1234_5047;

    fn layout() -> Layout {
        Layout::new(Arch::X86_64, 4, 64 << 30)
    }

    #[test]
    fn decode_reports_only_folio_flags_that_were_read() {
        let leaf = |folio| {
            let slot = ProbeSlot {
                addr: 0x1000,
                entry: PAGE,
                level: 0,
                folio,
            };
            match decode(&layout(), &slot) {
                Entry::Leaf(leaf) => (leaf.was_accessed(), leaf.is_large),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(leaf(0), (false, None));
        assert_eq!(leaf(FOLIO_READ), (false, Some(false)));
        assert_eq!(leaf(FOLIO_READ | FOLIO_YOUNG), (true, Some(false)));
        assert_eq!(leaf(FOLIO_READ | FOLIO_YOUNG | FOLIO_LARGE), (true, Some(true)));
    }

    #[test]
    fn leaves_within_keeps_only_entries_in_range() {
        let mut entries = [0; 512];
        entries[60..200].fill(PAGE);
        entries[100] |= 1 << 5;
        let mut young = [0; 8];
        young[2] = 1 << 2 | 1 << 63;
        let table = Table {
            base: Addr(2 << 20),
            level: 0,
            entries: &entries,
            young: &young,
        };
        let leaves = table.leaves(&layout());
        assert_eq!(leaves.count(), 140);
        assert_eq!(leaves.accessed_entries().collect::<Vec<_>>(), [100, 130, 191]);
        let part = leaves.within(63..130);
        assert_eq!(part.entries().collect::<Vec<_>>(), (63..130).collect::<Vec<_>>());
        assert_eq!(part.accessed_entries().collect::<Vec<_>>(), [100]);
        assert_eq!(leaves.within(0..512), leaves);
        assert_eq!(leaves.within(64..64).count(), 0);
        let others = leaves.without(&[u64::MAX, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(others, leaves.within(64..512));
        assert_eq!(table.range(3), AddrRange::new(0x20_3000, 0x20_4000));
    }

    #[test]
    fn table_decode_reports_young_entries() {
        let mut entries = [0; 512];
        entries[65..68].fill(PAGE);
        let mut young = [0; 8];
        young[1] = 1 << 2 | 1 << 10;
        let table = Table {
            base: Addr(0),
            level: 0,
            entries: &entries,
            young: &young,
        };
        let found: Vec<usize> = (0..512)
            .filter(|nth| matches!(table.decode(&layout(), *nth), Entry::Leaf(leaf) if leaf.was_accessed()))
            .collect();
        assert_eq!(found, [66], "entry 74 maps nothing");
    }
}
