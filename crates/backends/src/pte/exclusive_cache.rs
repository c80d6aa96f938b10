//! Pages whose accessed bit was set again right after clearing, and which are known to be mapped exclusively
//! by their process.
//!
//! If a bit is still set after clearing, the page is accessed all the time, or the kernel skipped the page
//! because other processes map it too. The pagemap shows which, but reading it costs more than the rest of
//! the check of such a page. So a page that was found to be exclusive is assumed to stay exclusive. As a
//! check, one page of each page-table page, another in each pass, is looked up again: a fork shares all of
//! them at once. If single pages become shared, they count as accessed until all pages are looked up again.

use std::collections::BTreeMap;

use thermo_pagetable::ones;
use thermo_units::{Addr, PAGE_SIZE};

use super::page_bits::{PageBits, TABLE_SIZE};

/// All pages are looked up again after this many passes, one page-table page in this many in each pass. Many
/// passes, because with spot checks (`spot_check.rs`) only an eighth of the pages is checked in a pass.
const REFRESH_PASSES: u64 = 64;

/// The cache.
#[derive(Debug, Default)]
pub(super) struct ExclusiveCache {
    passes: u64,
    pages: BTreeMap<u64, PageBits>,
}

impl ExclusiveCache {
    /// Begins a pass: drops the pages that are due to be looked up again.
    pub(super) fn begin_pass(&mut self) {
        self.passes = self.passes.wrapping_add(1);
        let turn = self.passes % REFRESH_PASSES;
        self.pages.retain(|table, _| table % REFRESH_PASSES != turn);
    }

    /// Adds the page at `addr`.
    pub(super) fn add(&mut self, addr: Addr) {
        let nth = addr.0 % TABLE_SIZE / PAGE_SIZE;
        let pages = self.pages.entry(addr.0 / TABLE_SIZE).or_default();
        pages[(nth / 64) as usize] |= 1 << (nth % 64);
    }

    /// Those of `accessed` that are known to be exclusive. `accessed` are pages of the table that maps memory
    /// from `base` on. One known page is verified with `is_exclusive`; if it is shared now, all are
    /// forgotten.
    pub(super) fn known(
        &mut self,
        base: Addr,
        accessed: &PageBits,
        is_exclusive: impl FnOnce(Addr) -> bool,
    ) -> PageBits {
        let table = base.0 / TABLE_SIZE;
        let Some(pages) = self.pages.get(&table) else {
            return [0; 8];
        };
        let known = std::array::from_fn(|nth| pages[nth] & accessed[nth]);
        // Another page in each pass.
        let turn = self.passes.checked_rem(ones(known).count() as u64);
        let checked = turn.and_then(|turn| ones(known).nth(turn as usize));
        if checked.is_none_or(|nth| is_exclusive(Addr(base.0 + nth as u64 * PAGE_SIZE))) {
            return known;
        }
        self.pages.remove(&table);
        [0; 8]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_known_page_is_checked_in_each_pass() {
        let mut cache = ExclusiveCache::default();
        let pages = [70, 71, 300].map(|page| Addr(5 * TABLE_SIZE + page * PAGE_SIZE));
        pages.iter().for_each(|page| cache.add(*page));
        let known = [0, 0b1100_0000, 0, 0, 1 << 44, 0, 0, 0];
        let mut checked = Vec::new();
        for _ in 0..3 {
            cache.begin_pass();
            let found = cache.known(Addr(5 * TABLE_SIZE), &[u64::MAX; 8], |page| {
                checked.push(page);
                true
            });
            assert_eq!(found, known);
        }
        checked.sort_unstable();
        assert_eq!(checked, pages);
        let untouched = cache.known(Addr(5 * TABLE_SIZE), &[0; 8], |_| {
            unreachable!("nothing is accessed")
        });
        assert_eq!(untouched, [0; 8]);
        assert_eq!(cache.known(Addr(0), &known, |_| true), [0; 8]);
        // After a fork the verified page is shared, and all pages are looked up again.
        assert_eq!(cache.known(Addr(5 * TABLE_SIZE), &known, |_| false), [0; 8]);
        assert_eq!(cache.known(Addr(5 * TABLE_SIZE), &known, |_| true), [0; 8]);
    }

    #[test]
    fn all_pages_are_rechecked_over_time() {
        let mut cache = ExclusiveCache::default();
        (0..128).for_each(|table| cache.add(Addr(table * TABLE_SIZE)));
        for pass in 1..=64 {
            cache.begin_pass();
            assert_eq!(cache.pages.len(), 128 - pass * 2);
        }
    }
}
