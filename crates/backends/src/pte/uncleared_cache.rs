//! Pages whose accessed bit the kernel did not clear, because they are mapped more than once (mostly
//! libraries) or refused.
//!
//! They are half of the pages of small processes. Advising them in every pass, and finding out again why
//! their bits stay set, is half the cost of scanning hundreds of processes. So while the same frame is mapped
//! and its bit is set, such a page is unknown without a further check. Every eight passes it is checked
//! again, because the other processes that mapped it may have ended.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::iter::Peekable;

use thermo_engine::TargetId;
use thermo_pagetable::Entry;
use thermo_units::{Addr, AddrRange};

use super::page_bits::PageBits;
use super::table_part::TablePart;

/// Pages are checked again after this many passes.
const PASSES: u32 = 8;
/// Maximum number of pages of a target. Libraries have fewer; memory that a large process shares with a child
/// for a while has more.
pub(super) const MAX_PAGES: usize = 4096;

/// The pages of a target, with their frame numbers.
#[derive(Debug)]
pub(super) struct UnclearedCache {
    passes: u32,
    frames: BTreeMap<Addr, u64>,
}

impl UnclearedCache {
    /// Empty cache of target `id`. Targets that started together are checked again in different passes.
    pub(super) const fn new(id: TargetId) -> Self {
        Self {
            passes: id.0 % PASSES,
            frames: BTreeMap::new(),
        }
    }

    /// Begins a pass. Drops all pages if it is time to check them again.
    pub(super) fn begin_pass(&mut self) {
        self.passes = (self.passes + 1) % PASSES;
        if self.passes == 0 {
            self.frames.clear();
        }
    }

    /// Adds the small page at `addr`, which maps the frame `pfn` and whose bit stayed set.
    pub(super) fn add(&mut self, addr: Addr, pfn: u64) {
        if self.frames.len() < MAX_PAGES {
            self.frames.insert(addr, pfn);
        }
    }

    /// The pages of `range`.
    pub(super) fn in_range(&self, range: AddrRange) -> CachedPages<'_> {
        CachedPages(self.frames.range(range.start..range.end).peekable())
    }
}

/// The cached pages of a range, for a caller that visits page-table pages in ascending order.
pub(super) struct CachedPages<'a>(Peekable<Range<'a, Addr, u64>>);

impl CachedPages<'_> {
    /// The pages of a table that map the same frames as when they were cached.
    pub(super) fn in_table(&mut self, part: &TablePart<'_>) -> PageBits {
        let mut pages = [0; 8];
        if part.table.level == 0 {
            self.each_below(part.table.range(512).start, |addr, pfn| {
                if let Some(nth) = part.table.nth(addr)
                    && matches!(part.table.decode(part.layout, nth), Entry::Leaf(leaf) if leaf.pfn == pfn)
                {
                    pages[nth / 64] |= 1 << (nth % 64);
                }
            });
        }
        pages
    }

    fn each_below(&mut self, end: Addr, mut each: impl FnMut(Addr, u64)) {
        while let Some((addr, pfn)) = self.0.next_if(|(at, _)| **at < end) {
            each(*addr, *pfn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_pagetable::{Arch, Layout, Table};

    use crate::pte::page_bits::is_set;

    const ALL: AddrRange = AddrRange::new(0, 1 << 20);

    /// Which of the first five pages of a table are cached. The pages map the frames 100 to 104.
    fn cached(uncleared: &UnclearedCache, level: u8) -> [bool; 5] {
        let layout = Layout::new(Arch::X86_64, 4, 64 << 30);
        let mut entries = [0; 512];
        (0..5).for_each(|nth| entries[nth] = ((100 + nth as u64) << 12) | 1);
        let table = Table {
            base: Addr(0),
            level,
            entries: &entries,
            young: &[0; 8],
        };
        let part = TablePart {
            table: &table,
            layout: &layout,
            leaves: table.leaves(&layout),
        };
        let pages = uncleared.in_range(ALL).in_table(&part);
        [0, 1, 2, 3, 4].map(|nth| is_set(&pages, nth))
    }

    #[test]
    fn cache_matches_same_frame_at_same_address() {
        let mut uncleared = UnclearedCache::new(TargetId(7));
        for (page, pfn) in [(1, 101), (2, 999), (4, 104)] {
            uncleared.add(Addr(page * 4096), pfn);
        }
        assert_eq!(cached(&uncleared, 0), [false, true, false, false, true]);
        // A huge page does not match cached small pages.
        assert_eq!(cached(&uncleared, 1), [false; 5]);
    }

    #[test]
    fn each_page_is_rechecked_within_eight_passes() {
        for id in [0, 3, 7, 8] {
            let mut uncleared = UnclearedCache::new(TargetId(id));
            uncleared.add(Addr(4096), 101);
            let rechecked = (0..PASSES).filter(|_| {
                uncleared.begin_pass();
                !std::mem::replace(&mut uncleared.frames, BTreeMap::from([(Addr(4096), 101)]))
                    .contains_key(&Addr(4096))
            });
            assert_eq!(rechecked.count(), 1, "{id}");
        }
    }

    #[test]
    fn cache_is_limited() {
        let mut uncleared = UnclearedCache::new(TargetId(0));
        (0..MAX_PAGES as u64 + 5).for_each(|page| uncleared.add(Addr(page * 4096), page));
        assert_eq!(uncleared.frames.len(), MAX_PAGES);
    }
}
