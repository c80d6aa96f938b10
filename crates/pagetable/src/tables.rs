//! The page tables of other processes.

use std::fs;
use std::ops::{ControlFlow, Range};

use thermo_units::{Addr, AddrRange, PAGE_SIZE};

use crate::calibrate::{Machine, calibrate};
use crate::error::{BpfError, NoFolios, WalkError};
use crate::folios::Folios;
use crate::layout::{Arch, Entry, Layout, Leaf, TOGETHER};
use crate::load::{Kind, failed, load, load_as};
use crate::max_pfn::memory_end;
use crate::run::Runner;
use crate::shared::{
    Call, FOLIO_LARGE, FOLIO_READ, FOLIO_YOUNG, MAX_PROBES, ProbeSlot, UNREADABLE, WHAT_PROBES, WHAT_TABLES,
};
use crate::vmemmap;

/// A way to read the page tables of any process.
#[derive(Debug)]
pub struct PageTables {
    runner: Runner,
    machine: Machine,
    /// Whether it is seen which folios are marked young.
    young: Result<(), NoFolios>,
}

/// A copy of one table.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    /// The first address it maps: entry `i` maps the addresses from `base + i * (4096 << 9 * level)` on.
    pub base: Addr,
    /// 0: its entries are pages. 1: they are huge pages of 2 MiB, holes, and tables of level 0, which follow
    /// as tables of their own.
    pub level: u8,
    /// Its entries as the processor reads them; [`Layout::decode`] tells what they mean.
    pub entries: &'a [u64; 512],
    /// A bit for each entry: it is not marked accessed, but its folio is marked young. Zeroes where not asked.
    pub young: &'a [u64; 8],
}

/// Which entries of a table map memory themselves, and what is seen of those: bits, the first entry's the lowest of the
/// first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leaves {
    /// They map memory.
    pub there: [u64; 8],
    /// They are marked accessed.
    pub accessed: [u64; 8],
    /// They are not, but their folio is marked young. Zeroes where not asked.
    pub young: [u64; 8],
}

impl Leaves {
    /// Leaves out all but `entries`.
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

    /// Leaves out those of `entries`, a bit each.
    #[must_use]
    pub fn without(self, entries: &[u64; 8]) -> Self {
        self.masked(|nth| !entries[nth])
    }

    fn masked(mut self, mask: impl Fn(usize) -> u64) -> Self {
        for nth in 0..8 {
            let mask = mask(nth);
            self.there[nth] &= mask;
            self.accessed[nth] &= mask;
            self.young[nth] &= mask;
        }
        self
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.there.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The numbers of the entries, ascending.
    pub fn each(&self) -> impl Iterator<Item = usize> + use<> {
        ones(self.there)
    }

    /// Those that were touched, as [`Leaf::is_touched`].
    #[must_use]
    pub fn touched(&self) -> [u64; 8] {
        std::array::from_fn(|nth| self.accessed[nth] | self.young[nth])
    }

    /// The numbers of their entries, ascending.
    pub fn each_touched(&self) -> impl Iterator<Item = usize> + use<> {
        ones(self.touched())
    }
}

/// The numbers of the bits that are set in what [`Leaves`] are made of, ascending.
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
    /// How many bytes an entry maps.
    #[must_use]
    pub const fn span(&self) -> u64 {
        PAGE_SIZE << (9 * self.level as u64)
    }

    /// What `nth` of the 512 entries maps, or would.
    #[must_use]
    pub const fn range(&self, nth: usize) -> AddrRange {
        let start = self.base.0 + nth as u64 * self.span();
        AddrRange::new(start, start + self.span())
    }

    /// Which entry maps `addr`, if one of this table's does.
    #[must_use]
    pub fn nth(&self, addr: Addr) -> Option<usize> {
        let nth = addr.0.checked_sub(self.base.0)? / self.span();
        usize::try_from(nth).ok().filter(|nth| *nth < 512)
    }

    /// Which entries map memory.
    #[must_use]
    pub fn leaves(&self, layout: &Layout) -> Leaves {
        let mut leaves = Leaves::default();
        let (words, _) = self.entries.as_chunks::<64>();
        for (nth, entries) in words.iter().enumerate() {
            let (there, accessed) = layout.leaves(entries, self.level);
            leaves.there[nth] = there;
            leaves.accessed[nth] = accessed;
            leaves.young[nth] = self.young[nth] & there;
        }
        leaves
    }

    /// Understands an entry. There are 512.
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
    /// Loads the program and learns how this machine lays out its memory. Takes some milliseconds, and 1 MiB of
    /// kernel memory until dropped.
    ///
    /// # Errors
    /// The reason why tables cannot be read here, and the way out.
    pub fn open() -> Result<Self, BpfError> {
        Self::with(Runner::new(load()?))
    }

    /// The same through the iterator form of the program, which older kernels and pid namespaces need.
    ///
    /// # Errors
    /// As [`PageTables::open`].
    pub fn open_by_iterator() -> Result<Self, BpfError> {
        Self::with(Runner::new(load_as(Kind::Iterator)?))
    }

    fn with(mut runner: Runner) -> Result<Self, BpfError> {
        let arch = match std::env::consts::ARCH {
            "x86_64" => Arch::X86_64,
            "aarch64" => Arch::Aarch64,
            other => {
                return Err(BpfError::Unsupported(format!(
                    "the tables of {other} are not known"
                )));
            }
        };
        let page_size = rustix::param::page_size();
        if page_size != 4096 {
            return Err(BpfError::Unsupported(format!(
                "pages are {page_size} bytes, not 4096"
            )));
        }
        let zones = fs::read_to_string("/proc/zoneinfo")
            .map_err(|error| failed("reading /proc/zoneinfo, to learn where memory ends", error))?;
        let end = memory_end(&zones).ok_or_else(|| {
            failed(
                "reading /proc/zoneinfo",
                "it names no memory zone with a start_pfn",
            )
        })?;
        let mut machine = calibrate(&mut runner, arch, end)?;
        let young = vmemmap::find(&mut runner, &machine).and_then(|found| {
            machine.page_array = found.base;
            found.has_young.then_some(()).ok_or(NoFolios::NoMark)
        });
        Ok(Self {
            runner,
            machine,
            young,
        })
    }

    /// Whether [`Leaf::young`] is told where it is asked for.
    ///
    /// # Errors
    /// The reason why not. Asking changes nothing then.
    pub const fn sees_young(&self) -> Result<(), &NoFolios> {
        match &self.young {
            Ok(()) => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// How entries are to be read.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.machine.layout
    }

    /// Reads the entries that map `addrs` in process `pid`, in the same order, into `entries` (which is emptied
    /// first), and looks at their folios as `folios` says. Costs 0.1 to 0.2 µs an address and one system call for every
    /// 4096.
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
                ..self.machine.call(WHAT_PROBES, pid)
            };
            let slots = self.runner.probe(call, batch.iter().map(|addr| addr.0))?;
            let first = entries.len();
            entries.extend(slots.iter().map(|slot| decode(&self.machine.layout, slot)));
            let unsure = |slot: &ProbeSlot| self.machine.layout.may_be_marked_beside(slot.entry);
            let unsure: Vec<usize> = (0..slots.len()).filter(|nth| unsure(&slots[*nth])).collect();
            for few in unsure.chunks(MAX_PROBES / TOGETHER as usize) {
                self.look_beside(pid, batch, few, &mut entries[first..])?;
            }
        }
        Ok(())
    }

    /// Books as accessed those of `entries`, by number, which `addrs` are of, whose mark is at a neighbour.
    fn look_beside(
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
            let first = addrs[*nth].0 / (span * TOGETHER) * (span * TOGETHER);
            (0..TOGETHER).map(move |nth| first + nth * span)
        });
        let call = self.machine.call(WHAT_PROBES, pid);
        let slots = self.runner.probe(call, neighbours)?;
        for (nth, beside) in numbers.iter().zip(slots.chunks(TOGETHER as usize)) {
            let decoded = beside.iter().map(|slot| decode(&self.machine.layout, slot));
            let is_marked = decoded
                .filter_map(|entry| leaf_of(&entry))
                .any(|leaf| leaf.accessed);
            if let Entry::Leaf(leaf) = &mut entries[*nth] {
                leaf.accessed |= is_marked;
            }
        }
        Ok(())
    }

    /// Takes notice of memory that was added since (hotplug, balloons of virtual machines): what lies in it would be taken
    /// for holes. For who goes on for weeks; some ten microseconds.
    pub fn notice_new_memory(&mut self) {
        let zones = fs::read_to_string("/proc/zoneinfo").unwrap_or_default();
        if let Some(end) = memory_end(&zones).filter(|end| *end > self.machine.memory_end) {
            self.machine.follow(end);
        }
    }

    /// Gives `each` a copy of every table of pages and of huge pages that maps a part of `range` in process
    /// `pid`: for each GiB first the table of level 1, then, ascending, those of level 0. Tables reach beyond the
    /// range where it does not lie on their borders. Pages of 1 GiB (hugetlb, devices) are left out: nothing can
    /// be done to them. Costs about 1 ms a GiB of small pages, and more where `folios` are looked at.
    ///
    /// When `each` says to stop, what was copied out together with that table comes all the same: a table of level 1
    /// comes before those of level 0 that map what is in front of it.
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
        let mut last_middle = None;
        while cursor < range.end.0 {
            let call = Call {
                cursor,
                start: cursor,
                end: range.end.0,
                folios: folios as u32,
                ..self.machine.call(WHAT_TABLES, pid)
            };
            let answer = self.runner.run(call)?;
            let loaded = &self.runner.loaded;
            let count = answer.nr_tables as usize;
            let mut stops = false;
            for (head, entries) in loaded.heads.get().iter().zip(loaded.tables.get()).take(count) {
                // A call that begins inside a GiB copies its level-1 table anew.
                if head.level == 1 && last_middle.replace(head.base) == Some(head.base) {
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
            // Every call gets on, but what is read from the kernel's memory is not trusted with our patience.
            if answer.cursor <= cursor {
                break;
            }
            cursor = answer.cursor;
        }
        Ok(())
    }
}

/// What was found at a probe's address, and of its folio.
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
    fn what_was_not_read_of_a_folio_is_not_made_up() {
        let leaf = |folio| {
            let slot = ProbeSlot {
                addr: 0x1000,
                entry: PAGE,
                level: 0,
                folio,
            };
            match decode(&layout(), &slot) {
                Entry::Leaf(leaf) => (leaf.is_touched(), leaf.is_large),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(leaf(0), (false, None));
        assert_eq!(leaf(FOLIO_READ), (false, Some(false)));
        assert_eq!(leaf(FOLIO_READ | FOLIO_YOUNG), (true, Some(false)));
        assert_eq!(leaf(FOLIO_READ | FOLIO_YOUNG | FOLIO_LARGE), (true, Some(true)));
    }

    #[test]
    fn leaves_are_counted_within_a_range_of_entries() {
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
        assert_eq!(leaves.each_touched().collect::<Vec<_>>(), [100, 130, 191]);
        let part = leaves.within(63..130);
        assert_eq!(part.each().collect::<Vec<_>>(), (63..130).collect::<Vec<_>>());
        assert_eq!(part.each_touched().collect::<Vec<_>>(), [100]);
        assert_eq!(leaves.within(0..512), leaves);
        assert_eq!(leaves.within(64..64).count(), 0);
        let others = leaves.without(&[u64::MAX, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(others, leaves.within(64..512));
        assert_eq!(table.range(3), AddrRange::new(0x20_3000, 0x20_4000));
    }

    #[test]
    fn a_table_tells_which_of_its_entries_are_young() {
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
            .filter(|nth| matches!(table.decode(&layout(), *nth), Entry::Leaf(leaf) if leaf.is_touched()))
            .collect();
        assert_eq!(found, [66], "74 maps nothing");
    }
}
