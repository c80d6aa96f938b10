//! Pages whose marks were set again by the time we looked, and which were found to be mapped by their process alone.
//!
//! A mark that is still there after it was taken off is of a page that is touched all the time, or of one that the kernel
//! passed over because others map it too. Which of both is told by the pagemap, and to ask it costs more than the rest of
//! a look at such a page. So what was found to be the process's own is taken to be that, as long as one page of each
//! page-table page, another in every round, is found to be so still: a fork shares them all. A few pages among them that
//! are shared by and by count as touched until it is asked of all again.

use std::collections::BTreeMap;

use thermo_pagetable::ones;
use thermo_units::{Addr, PAGE_SIZE};

use super::table::{Pages, TABLE};

/// After so many rounds it is asked of all again, of one page-table page in so many in each. Many, for where only an eighth
/// of the pages is looked at (`spot_check.rs`) it takes eight rounds to come by all of them.
const ROUNDS: u64 = 64;

/// The pages.
#[derive(Debug, Default)]
pub(super) struct ExclusiveCache {
    rounds: u64,
    pages: BTreeMap<u64, Pages>,
}

impl ExclusiveCache {
    /// Says that a pass begins: of some pages it is asked again.
    pub(super) fn begin_pass(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        let turn = self.rounds % ROUNDS;
        self.pages.retain(|table, _| table % ROUNDS != turn);
    }

    /// Adds the page at `addr`.
    pub(super) fn add(&mut self, addr: Addr) {
        let nth = addr.0 % TABLE / PAGE_SIZE;
        let pages = self.pages.entry(addr.0 / TABLE).or_default();
        pages[(nth / 64) as usize] |= 1 << (nth % 64);
    }

    /// Which of `touched`, pages of the table that maps what is from `base` on, are known to be the process's own, after
    /// one of these is, too, by what `is_own` finds.
    pub(super) fn known(&mut self, base: Addr, touched: &Pages, is_own: impl FnOnce(Addr) -> bool) -> Pages {
        let table = base.0 / TABLE;
        let Some(pages) = self.pages.get(&table) else {
            return [0; 8];
        };
        let known = std::array::from_fn(|nth| pages[nth] & touched[nth]);
        // Another one in each round.
        let turn = self.rounds.checked_rem(ones(known).count() as u64);
        let asked = turn.and_then(|turn| ones(known).nth(turn as usize));
        if asked.is_none_or(|nth| is_own(Addr(base.0 + nth as u64 * PAGE_SIZE))) {
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
    fn of_what_is_a_processs_own_one_page_is_asked_for_in_each_round() {
        let mut own = ExclusiveCache::default();
        let pages = [70, 71, 300].map(|page| Addr(5 * TABLE + page * PAGE_SIZE));
        pages.iter().for_each(|page| own.add(*page));
        let known = [0, 0b1100_0000, 0, 0, 1 << 44, 0, 0, 0];
        let mut asked = Vec::new();
        for _ in 0..3 {
            own.begin_pass();
            let found = own.known(Addr(5 * TABLE), &[u64::MAX; 8], |page| {
                asked.push(page);
                true
            });
            assert_eq!(found, known);
        }
        asked.sort_unstable();
        assert_eq!(asked, pages);
        let untouched = own.known(Addr(5 * TABLE), &[0; 8], |_| unreachable!("nothing is touched"));
        assert_eq!(untouched, [0; 8]);
        assert_eq!(own.known(Addr(0), &known, |_| true), [0; 8]);
        // After a fork the one that is asked for is shared, and all are asked for again.
        assert_eq!(own.known(Addr(5 * TABLE), &known, |_| false), [0; 8]);
        assert_eq!(own.known(Addr(5 * TABLE), &known, |_| true), [0; 8]);
    }

    #[test]
    fn by_and_by_all_are_asked_for_again() {
        let mut own = ExclusiveCache::default();
        (0..128).for_each(|table| own.add(Addr(table * TABLE)));
        for round in 1..=64 {
            own.begin_pass();
            assert_eq!(own.pages.len(), 128 - round * 2);
        }
    }
}
