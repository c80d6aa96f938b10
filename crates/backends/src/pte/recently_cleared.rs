//! Pages whose accessed bit was cleared recently. If the bit of such a page is set, the page was accessed
//! since.
//!
//! Only the newest pages are kept: if a page was cleared long ago, a set bit says little about recent
//! accesses. There are two generations. When the younger is full it becomes the older, and the older is
//! dropped.
//!
//! Pages are inserted far more often than they are queried, so an insertion only appends, and a query sorts.

use thermo_engine::TargetId;
use thermo_units::{Addr, AddrRange};

/// Pages in a generation: a few sampling intervals of 1000 regions. All pages of a region in the set are
/// checked before the region is paged out, so more pages would cost more than they help.
const GENERATION: usize = 8192;

/// The set of pages.
#[derive(Debug, Default)]
pub(crate) struct RecentlyCleared {
    young: Generation,
    old: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    pages: Vec<(TargetId, Addr)>,
    /// Length of the prefix that is sorted and free of duplicates.
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

impl RecentlyCleared {
    pub(crate) fn insert(&mut self, target: TargetId, page: Addr) {
        if self.young.pages.len() >= GENERATION {
            // Repeated insertions of the same few pages do not fill a generation.
            self.young.sort();
            if self.young.pages.len() > GENERATION / 2 {
                std::mem::swap(&mut self.young, &mut self.old);
                self.young.pages.clear();
                self.young.sorted = 0;
            }
        }
        self.young.pages.push((target, page));
    }

    /// The pages of `target` in `range`. A page in both generations is returned twice.
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
    fn set_keeps_only_newest_pages() {
        let mut cleared = RecentlyCleared::default();
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
    fn repeated_pages_evict_nothing() {
        let mut cleared = RecentlyCleared::default();
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
