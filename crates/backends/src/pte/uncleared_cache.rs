//! Pages whose marks were seen to stay because the kernel passes over what is mapped more than once (libraries, mostly) or
//! refuses it.
//!
//! They are half of what small processes have. To advise them in every round, and to find out again why their marks
//! stayed, is half of what looking at hundreds of processes costs. So as long as the same frame is mapped and marked they
//! are unknown without a question. Every so many rounds the question is asked again: who shared them may have ended.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::iter::Peekable;

use thermo_engine::TargetId;
use thermo_pagetable::Entry;
use thermo_units::{Addr, AddrRange};

use super::part::Part;
use super::table::Pages;

/// After so many passes it is asked again.
const PASSES: u32 = 8;
/// Most pages kept of a target: libraries have fewer, and what a large process shares with a child for a while has more.
pub(super) const MOST: usize = 4096;

/// The pages of a target, with the frames behind them.
#[derive(Debug)]
pub(super) struct UnclearedCache {
    passes: u32,
    frames: BTreeMap<Addr, u64>,
}

impl UnclearedCache {
    /// Of target `id`: of targets that began together it is not asked again in the same pass.
    pub(super) const fn of(id: TargetId) -> Self {
        Self {
            passes: id.0 % PASSES,
            frames: BTreeMap::new(),
        }
    }

    /// Says that a pass begins: of each eighth it is asked again.
    pub(super) fn begin_pass(&mut self) {
        self.passes = (self.passes + 1) % PASSES;
        if self.passes == 0 {
            self.frames.clear();
        }
    }

    /// Keeps the small page at `addr`, which maps the frame `pfn` and whose mark stayed.
    pub(super) fn add(&mut self, addr: Addr, pfn: u64) {
        if self.frames.len() < MOST {
            self.frames.insert(addr, pfn);
        }
    }

    /// Those of `range`.
    pub(super) fn within(&self, range: AddrRange) -> Known<'_> {
        Known(self.frames.range(range.start..range.end).peekable())
    }
}

/// What is kept of a range, for who comes by its page-table pages in ascending order.
pub(super) struct Known<'a>(Peekable<Range<'a, Addr, u64>>);

impl Known<'_> {
    /// Which pages of a table were left alone as they are mapped now.
    pub(super) fn of(&mut self, part: &Part<'_>) -> Pages {
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

    use crate::pte::table::is_set;

    const ALL: AddrRange = AddrRange::new(0, 1 << 20);

    /// Which of the first five pages of a table are known, which map the frames 100 to 104.
    fn known(uncleared: &UnclearedCache, level: u8) -> [bool; 5] {
        let layout = Layout::new(Arch::X86_64, 4, 64 << 30);
        let mut entries = [0; 512];
        (0..5).for_each(|nth| entries[nth] = ((100 + nth as u64) << 12) | 1);
        let table = Table {
            base: Addr(0),
            level,
            entries: &entries,
            young: &[0; 8],
        };
        let part = Part {
            table: &table,
            layout: &layout,
            leaves: table.leaves(&layout),
        };
        let pages = uncleared.within(ALL).of(&part);
        [0, 1, 2, 3, 4].map(|nth| is_set(&pages, nth))
    }

    #[test]
    fn same_frame_at_same_place_is_known() {
        let mut uncleared = UnclearedCache::of(TargetId(7));
        for (page, pfn) in [(1, 101), (2, 999), (4, 104)] {
            uncleared.add(Addr(page * 4096), pfn);
        }
        assert_eq!(known(&uncleared, 0), [false, true, false, false, true]);
        // Huge pages tell nothing of the small ones that were there.
        assert_eq!(known(&uncleared, 1), [false; 5]);
    }

    #[test]
    fn each_page_is_asked_about_again_within_eight_passes() {
        for id in [0, 3, 7, 8] {
            let mut uncleared = UnclearedCache::of(TargetId(id));
            uncleared.add(Addr(4096), 101);
            let asked = (0..PASSES).filter(|_| {
                uncleared.begin_pass();
                !std::mem::replace(&mut uncleared.frames, BTreeMap::from([(Addr(4096), 101)]))
                    .contains_key(&Addr(4096))
            });
            assert_eq!(asked.count(), 1, "{id}");
        }
    }

    #[test]
    fn of_very_many_pages_only_some_are_kept() {
        let mut uncleared = UnclearedCache::of(TargetId(0));
        (0..MOST as u64 + 5).for_each(|page| uncleared.add(Addr(page * 4096), page));
        assert_eq!(uncleared.frames.len(), MOST);
    }
}
