//! Which pages we know to have been without accessed mark lately: a mark found there is of an access since.
//!
//! A page cleared long ago tells little when a mark is found on it (the access may be as old), so only the
//! newest are kept, in two generations: when the younger is full it becomes the older, and the older is forgotten.

use std::collections::BTreeSet;

use thermo_core::{Addr, AddrRange, TargetId};

/// How many pages a generation holds: some sampling intervals of 1000 regions. All of a region's are looked at
/// before it is paged out, so more would cost more than they tell.
const GENERATION: usize = 8192;

/// The set.
#[derive(Debug, Default)]
pub(crate) struct Cleared {
    young: BTreeSet<(TargetId, Addr)>,
    old: BTreeSet<(TargetId, Addr)>,
}

impl Cleared {
    pub(crate) fn insert(&mut self, target: TargetId, page: Addr) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert((target, page));
    }

    /// The pages of `target` in `range`; a page of both generations comes twice.
    pub(crate) fn within(&self, target: TargetId, range: AddrRange) -> impl Iterator<Item = Addr> {
        let keys = (target, range.start)..(target, range.end.max(range.start));
        self.young
            .range(keys.clone())
            .chain(self.old.range(keys))
            .map(|(_, page)| *page)
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
}
