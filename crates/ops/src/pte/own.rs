//! Pages whose marks were set again by the time we looked, and which were found to be mapped by their process alone.
//!
//! A mark that is still there after it was taken off is of a page that is touched all the time, or of one that the kernel
//! passed over because others map it too. Which of both is told by the pagemap, and to ask it costs more than the rest of
//! a look at such a page. So what was found to be the process's own is taken to be that for some rounds: what it shares
//! from a fork on counts as touched, which it was, until it is asked again.

use std::collections::BTreeMap;

use thermo_core::{Addr, PAGE_SIZE, TargetId};

/// After so many rounds it is asked again, of one page-table page in so many in each.
const ROUNDS: u64 = 8;
/// What a page-table page maps.
const TABLE: u64 = 512 * PAGE_SIZE;

/// The pages: a bit each, by target and address / [`TABLE`].
#[derive(Debug, Default)]
pub(super) struct Own {
    rounds: u64,
    pages: BTreeMap<(TargetId, u64), [u64; 8]>,
}

impl Own {
    /// Says that a round begins: of some pages it is asked again.
    pub(super) fn begin_round(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        let turn = self.rounds % ROUNDS;
        self.pages
            .retain(|(id, table), _| (u64::from(id.0) + table) % ROUNDS != turn);
    }

    /// Adds the page at `addr`.
    pub(super) fn add(&mut self, id: TargetId, addr: Addr) {
        let nth = addr.0 % TABLE / PAGE_SIZE;
        let pages = self.pages.entry((id, addr.0 / TABLE)).or_default();
        pages[(nth / 64) as usize] |= 1 << (nth % 64);
    }

    /// Those of the page-table page that maps what is from `base` on.
    pub(super) fn of_table(&self, id: TargetId, base: Addr) -> [u64; 8] {
        let pages = self.pages.get(&(id, base.0 / TABLE));
        pages.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_processs_own_is_asked_again_after_eight_rounds() {
        let mut own = Own::default();
        (0..32).for_each(|table| own.add(TargetId(3), Addr(table * TABLE + 70 * PAGE_SIZE)));
        assert_eq!(
            own.of_table(TargetId(3), Addr(TABLE)),
            [0, 1 << 6, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(own.of_table(TargetId(4), Addr(TABLE)), [0; 8]);
        let left = |own: &Own| {
            let known = |table: &u64| own.of_table(TargetId(3), Addr(table * TABLE)) != [0; 8];
            (0..32).filter(known).count()
        };
        for round in 1..=8 {
            own.begin_round();
            assert_eq!(left(&own), 32 - round * 4);
        }
    }
}
