//! Which pages we know to have been without accessed mark lately: a mark found there is of an access since.
//!
//! A page cleared long ago tells little when a mark is found on it (the access may be as old), so only the
//! newest are kept, in two generations: when the younger is full it becomes the older, and the older is forgotten.
//!
//! Pages are noted far more often than they are asked for, so noting is an append, and sorting waits for a question.

use thermo_engine::TargetId;
use thermo_units::{Addr, AddrRange};

/// How many pages a generation holds: some sampling intervals of 1000 regions. All of a region's are looked at
/// before it is paged out, so more would cost more than they tell.
const GENERATION: usize = 8192;

/// The set.
#[derive(Debug, Default)]
pub(crate) struct Cleared {
    young: Generation,
    old: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    pages: Vec<(TargetId, Addr)>,
    /// How many of them, from the first, are sorted and different.
    sorted: usize,
}

impl Generation {
    fn sort(&mut self) {
        if self.sorted < self.pages.len() {
            self.pages.sort_unstable();
            self.pages.dedup();
            self.sorted = self.pages.len();
        }
    }

    fn within(&self, target: TargetId, range: AddrRange) -> impl Iterator<Item = Addr> {
        let first = self.pages.partition_point(|page| *page < (target, range.start));
        let rest = self.pages[first..].iter();
        rest.take_while(move |page| **page < (target, range.end))
            .map(|(_, page)| *page)
    }
}

impl Cleared {
    pub(crate) fn insert(&mut self, target: TargetId, page: Addr) {
        if self.young.pages.len() >= GENERATION {
            // The same few pages again and again fill no generation.
            self.young.sort();
            if self.young.pages.len() > GENERATION / 2 {
                std::mem::swap(&mut self.young, &mut self.old);
                self.young.pages.clear();
                self.young.sorted = 0;
            }
        }
        self.young.pages.push((target, page));
    }

    /// The pages of `target` in `range`; a page of both generations comes twice.
    pub(crate) fn within(&mut self, target: TargetId, range: AddrRange) -> impl Iterator<Item = Addr> {
        self.young.sort();
        self.old.sort();
        self.young
            .within(target, range)
            .chain(self.old.within(target, range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_pages_are_kept() {
        let mut cleared = Cleared::default();
        let all = AddrRange::new(0, u64::MAX);
        for page in 0..3 * GENERATION as u64 {
            cleared.insert(TargetId(1), Addr(page << 12));
        }
        assert!(cleared.within(TargetId(1), all).count() <= 2 * GENERATION);
        assert!(
            cleared
                .within(TargetId(1), AddrRange::new(0, 4096))
                .next()
                .is_none()
        );
        assert_eq!(cleared.within(TargetId(0), all).count(), 0);
        let last = Addr((3 * GENERATION as u64 - 1) << 12);
        let page = AddrRange::new(last.0, last.0 + 1);
        assert_eq!(cleared.within(TargetId(1), page).collect::<Vec<_>>(), [last]);
    }

    #[test]
    fn the_same_pages_again_push_none_out() {
        let mut cleared = Cleared::default();
        cleared.insert(TargetId(0), Addr(0x5000));
        for nth in 0..5 * GENERATION as u64 {
            cleared.insert(TargetId(1), Addr((100 - nth % 100) << 12));
        }
        let all = AddrRange::new(0, u64::MAX);
        assert_eq!(
            cleared.within(TargetId(0), all).collect::<Vec<_>>(),
            [Addr(0x5000)]
        );
        let kept: Vec<Addr> = cleared.within(TargetId(1), all).collect();
        let expected: Vec<Addr> = (1..=100).map(|page| Addr(page << 12)).collect();
        assert_eq!(kept, expected);
        let part = AddrRange::new(10 << 12, 12 << 12);
        assert_eq!(cleared.within(TargetId(1), part).count(), 2);
    }
}
