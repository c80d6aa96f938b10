//! Pages whose marks were seen to stay because the kernel passes over what is mapped more than once (libraries, mostly) or
//! refuses it.
//!
//! They are half of what small processes have. To advise them in every round, and to find out again why their marks
//! stayed, is half of what looking at hundreds of processes costs. So as long as the same frame is mapped and marked they
//! are unknown without a question. Every so many rounds the question is asked again: who shared them may have ended.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::iter::Peekable;

use thermo_bpf::Leaf;
use thermo_core::{Addr, AddrRange, TargetId};

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

/// What is kept of a range, for who comes by its small pages in ascending order.
pub(super) struct Known<'a>(Option<Peekable<Range<'a, Addr, u64>>>);

impl Known<'_> {
    /// Whether the page at `addr` was left alone as it is mapped now, by `leaf`.
    pub(super) fn has(&mut self, addr: Addr, leaf: Leaf) -> bool {
        let Some(frames) = self.0.as_mut().filter(|_| leaf.level == 0) else {
            return false;
        };
        while frames.next_if(|(at, _)| **at < addr).is_some() {}
        let here = frames.next_if(|(at, _)| **at == addr);
        here.is_some_and(|(_, pfn)| *pfn == leaf.pfn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: AddrRange = AddrRange::new(0, 1 << 20);

    const fn leaf(pfn: u64, level: u8) -> Leaf {
        Leaf {
            level,
            accessed: true,
            pfn,
            young: false,
            is_large: None,
        }
    }

    /// What is known of the pages 0 to 4 of a target, which map the frames 100 to 104.
    fn known(left_alone: &LeftAlone, id: u32) -> [bool; 5] {
        let mut known = left_alone.within(TargetId(id), ALL);
        [0, 1, 2, 3, 4].map(|page| known.has(Addr(page * 4096), leaf(100 + page, 0)))
    }

    #[test]
    fn the_same_frame_at_the_same_place_is_known() {
        let mut left_alone = LeftAlone::default();
        for (page, pfn) in [(1, 101), (2, 999), (4, 104)] {
            left_alone.add(TargetId(7), Addr(page * 4096), pfn);
        }
        assert_eq!(known(&left_alone, 7), [false, true, false, false, true]);
        assert_eq!(known(&left_alone, 8), [false; 5]);
        // A huge page that begins there now has pieces that tell nothing of each other.
        let mut known = left_alone.within(TargetId(7), ALL);
        assert!(!known.has(Addr(4096), leaf(101, 1)));
    }

    #[test]
    fn after_eight_rounds_each_was_asked_again() {
        let mut left_alone = LeftAlone::default();
        (0..20).for_each(|id| left_alone.add(TargetId(id), Addr(4096), 101));
        let mut left = Vec::new();
        for _ in 0..ROUNDS {
            left_alone.begin_round();
            left.push((0..20).filter(|id| known(&left_alone, *id)[1]).count());
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
