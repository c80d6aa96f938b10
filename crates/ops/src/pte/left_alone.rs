//! Pages whose marks were seen to stay because the kernel passes over what is mapped more than once (libraries, mostly) or
//! refuses it.
//!
//! They are half of what small processes have. To advise them in every round, and to find out again why their marks
//! stayed, is half of what looking at hundreds of processes costs. So as long as the same frame is mapped and marked they
//! are unknown without a question. Every so many rounds the question is asked again: who shared them may have ended.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::iter::Peekable;

use thermo_bpf::Entry;
use thermo_core::{Addr, AddrRange, TargetId};

use super::part::Part;
use super::table::Pages;

/// After so many rounds it is asked again, of one target in so many in each.
const ROUNDS: u32 = 8;
/// Most pages kept of a target: libraries have fewer, and what a large process shares with a child for a while has more.
pub(super) const MOST: usize = 4096;

/// The pages, with the frames behind them.
#[derive(Debug, Default)]
pub(super) struct LeftAlone {
    rounds: u32,
    frames: BTreeMap<TargetId, BTreeMap<Addr, u64>>,
}

impl LeftAlone {
    /// Says that a round begins: of some targets it is asked again.
    pub(super) fn begin_round(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        let turn = self.rounds % ROUNDS;
        self.frames.retain(|id, _| id.0 % ROUNDS != turn);
    }

    /// Keeps the small page at `addr`, which maps the frame `pfn` and whose mark stayed.
    pub(super) fn add(&mut self, id: TargetId, addr: Addr, pfn: u64) {
        let frames = self.frames.entry(id).or_default();
        if frames.len() < MOST {
            frames.insert(addr, pfn);
        }
    }

    /// Those of `range`.
    pub(super) fn within(&self, id: TargetId, range: AddrRange) -> Known<'_> {
        let frames = self.frames.get(&id);
        Known(frames.map(|frames| frames.range(range.start..range.end).peekable()))
    }
}

/// What is kept of a range, for who comes by its page-table pages in ascending order.
pub(super) struct Known<'a>(Option<Peekable<Range<'a, Addr, u64>>>);

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
        while let Some((addr, pfn)) = self
            .0
            .as_mut()
            .and_then(|kept| kept.next_if(|(at, _)| **at < end))
        {
            each(*addr, *pfn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_bpf::{Arch, Layout, Table};

    use crate::pte::table::is_set;

    const ALL: AddrRange = AddrRange::new(0, 1 << 20);

    /// Which of the first five pages of a table are known, which map the frames 100 to 104.
    fn known(left_alone: &LeftAlone, id: u32, level: u8) -> [bool; 5] {
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
        let pages = left_alone.within(TargetId(id), ALL).of(&part);
        [0, 1, 2, 3, 4].map(|nth| is_set(&pages, nth))
    }

    #[test]
    fn same_frame_at_same_place_is_known() {
        let mut left_alone = LeftAlone::default();
        for (page, pfn) in [(1, 101), (2, 999), (4, 104)] {
            left_alone.add(TargetId(7), Addr(page * 4096), pfn);
        }
        assert_eq!(known(&left_alone, 7, 0), [false, true, false, false, true]);
        assert_eq!(known(&left_alone, 8, 0), [false; 5]);
        // Huge pages tell nothing of the small ones that were there.
        assert_eq!(known(&left_alone, 7, 1), [false; 5]);
    }

    #[test]
    fn after_eight_rounds_each_was_asked_again() {
        let mut left_alone = LeftAlone::default();
        (0..20).for_each(|id| left_alone.add(TargetId(id), Addr(4096), 101));
        let mut left = Vec::new();
        for _ in 0..ROUNDS {
            left_alone.begin_round();
            left.push((0..20).filter(|id| known(&left_alone, *id, 0)[1]).count());
        }
        assert_eq!(left, [17, 14, 11, 9, 7, 5, 3, 0]);
    }

    #[test]
    fn of_very_many_pages_only_some_are_kept() {
        let mut left_alone = LeftAlone::default();
        (0..MOST as u64 + 5).for_each(|page| left_alone.add(TargetId(0), Addr(page * 4096), page));
        assert_eq!(left_alone.frames[&TargetId(0)].len(), MOST);
    }
}
