//! Spot checks of memory that is touched all the time.
//!
//! To take a mark off costs a look at the page's struct page, which is in no cache, and moves the page on the kernel's
//! lists; it is nearly all that sweeps cost, and of memory that was touched in each of the last rounds it finds out what
//! was known. So of the 512 pages of a page-table page that were all touched 64 are looked at in each round, the next 64
//! in the next, and the marks of the rest are left set. (64 that are neighbours: for every range the processors that run
//! the target are interrupted, which costs as much as so many pages.)
//!
//! When one of those that were looked at was not touched, the heat has changed: the others count as what most of the 64
//! are, and all their marks come off, so that the next round is exact again; those of the page-table page behind as well,
//! and in the next round of the one before. A change of fewer pages is seen when it is their turn, within eight rounds.
//!
//! Those that were looked at tell also between two rounds, where another look is worth it because something else began to
//! be touched: if by then none of the 64 is, what was hot has been left for that.

use std::collections::BTreeMap;

use thermo_core::{Addr, TargetId};

use super::table::{Pages, Table, table_of};

const ALL: Pages = [u64::MAX; 8];

/// Where the marks of the last round say less than they seem to.
#[derive(Debug, Default)]
pub(super) struct Spots {
    round: u64,
    /// Where only some pages were looked at: which eighth, and in which round, this or the last.
    checked: BTreeMap<Table, (usize, u64)>,
    /// The round in which the heat was seen to have changed, of this round and the last.
    changed: BTreeMap<Table, u64>,
}

/// What is made of the small pages of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// They were touched since the last round.
    pub(super) touched: Pages,
    /// Their marks are left as they are.
    pub(super) left: Pages,
}

/// What the marks of a table say between two rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Between {
    /// What they say.
    AsMarked,
    /// None of those that were looked at was touched since: all count as untouched.
    Ended,
    /// They go on being touched, or it cannot be told.
    NothingNew,
}

impl Spots {
    /// A round begins. What the last did not come by is looked at as a whole when it is back.
    pub(super) fn begin_round(&mut self) {
        let last = self.round;
        self.round += 1;
        self.checked.retain(|_, (_, round)| *round == last);
        self.changed.retain(|_, round| *round == last);
    }

    /// Judges the small pages of the table that maps what is from `base` on, as far as it is looked at: which are `there`,
    /// which `touched` by what their marks say, and whether all of them were touched in each of the last rounds.
    pub(super) fn judge(
        &mut self,
        id: TargetId,
        base: Addr,
        there: &Pages,
        touched: &Pages,
        is_steady: bool,
    ) -> Verdict {
        let table = table_of(id, base);
        let mut verdict = Verdict {
            touched: *touched,
            left: [0; 8],
        };
        let checked = self.checked.remove(&table).map(|(nth, _)| nth);
        // Where what was looked at is gone nothing was found out, and the rest is as it was.
        if let Some(nth) = checked.filter(|nth| there[*nth] != 0 && touched[*nth] != u64::MAX) {
            self.changed.insert(table, self.round);
            if touched[nth].count_ones() * 2 < there[nth].count_ones() {
                verdict.touched = [0; 8];
                verdict.touched[nth] = touched[nth];
            }
        } else if is_steady && *touched == ALL && !self.has_changed_beside(table) {
            let nth = (self.round % 8) as usize;
            self.checked.insert(table, (nth, self.round));
            verdict.left = all_but(nth);
        }
        verdict
    }

    /// Between two rounds: whether the table that maps what is from `base` on was looked at in parts by the last one, and
    /// what its pages are by what their marks, `touched`, say since then.
    pub(super) fn judge_between(
        &mut self,
        id: TargetId,
        base: Addr,
        there: &Pages,
        touched: &Pages,
    ) -> Between {
        let table = table_of(id, base);
        let Some((nth, _)) = self.checked.get(&table) else {
            return Between::AsMarked;
        };
        // In so short a time some are not touched that will be in the next round: that tells nothing yet.
        if there[*nth] == 0 || touched[*nth] != 0 {
            return Between::NothingNew;
        }
        self.checked.remove(&table);
        self.changed.insert(table, self.round);
        Between::Ended
    }

    fn has_changed_beside(&self, (id, number): Table) -> bool {
        [number.wrapping_sub(1), number + 1]
            .iter()
            .any(|beside| self.changed.contains_key(&(id, *beside)))
    }

    /// Whose marks this round left set in the table that maps what is from `base` on.
    pub(super) fn left(&self, id: TargetId, base: Addr) -> Pages {
        let checked = self.checked.get(&table_of(id, base));
        checked.map_or([0; 8], |(nth, _)| all_but(*nth))
    }

    /// Forgets all: from now on others than rounds take marks off.
    pub(super) fn clear(&mut self) {
        self.checked.clear();
        self.changed.clear();
    }
}

fn all_but(nth: usize) -> Pages {
    let mut pages = ALL;
    pages[nth] = 0;
    pages
}

#[cfg(test)]
mod tests {
    use super::super::table::TABLE;
    use super::*;

    const ID: TargetId = TargetId(3);

    fn judge(spots: &mut Spots, table: u64, touched: Pages, steady: bool) -> Verdict {
        spots.judge(ID, Addr(table * TABLE), &ALL, &touched, steady)
    }

    /// A round over one table.
    fn round(spots: &mut Spots, touched: Pages, steady: bool) -> Verdict {
        spots.begin_round();
        judge(spots, 1, touched, steady)
    }

    #[test]
    fn of_steady_pages_each_is_looked_at_in_eight_rounds() {
        let mut spots = Spots::default();
        assert_eq!(round(&mut spots, ALL, false).left, [0; 8]);
        let mut seen = [0; 8];
        for _ in 0..8 {
            let verdict = round(&mut spots, ALL, true);
            assert_eq!(verdict.touched, ALL);
            assert_eq!(spots.left(ID, Addr(TABLE)), verdict.left);
            let looked_at = verdict.left.map(|left| !left);
            assert_eq!(looked_at.iter().filter(|pages| **pages == u64::MAX).count(), 1);
            seen = std::array::from_fn(|nth| seen[nth] + looked_at[nth].count_ones());
        }
        assert_eq!(seen, [64; 8]);
    }

    #[test]
    fn a_change_is_seen_at_once_and_exactly_in_the_next_round() {
        let mut spots = Spots::default();
        let left = round(&mut spots, ALL, true).left;
        // All are idle: those that were looked at have no mark, the rest their old ones.
        let verdict = round(&mut spots, left, true);
        assert_eq!((verdict.touched, verdict.left), ([0; 8], [0; 8]));
        let exact = [0, 0, 0, 7, u64::MAX, 0, 0, 0];
        assert_eq!(round(&mut spots, exact, false).touched, exact);
    }

    #[test]
    fn where_most_of_those_looked_at_are_touched_the_others_are_too() {
        let mut spots = Spots::default();
        round(&mut spots, ALL, true);
        let mut touched = ALL;
        touched[1] = u64::MAX << 20;
        let verdict = round(&mut spots, touched, true);
        assert_eq!((verdict.touched, verdict.left), (touched, [0; 8]));
    }

    #[test]
    fn what_ended_is_told_between_rounds() {
        let mut spots = Spots::default();
        let between =
            |spots: &mut Spots, touched: &Pages| spots.judge_between(ID, Addr(TABLE), &ALL, touched);
        assert_eq!(between(&mut spots, &ALL), Between::AsMarked);
        let left = round(&mut spots, ALL, true).left;
        let mut one = left;
        one[1] = 1;
        assert_eq!(between(&mut spots, &one), Between::NothingNew);
        // It is as before for the next round.
        let left = round(&mut spots, ALL, true).left;
        assert_eq!(between(&mut spots, &left), Between::Ended);
        assert_eq!(spots.left(ID, Addr(TABLE)), [0; 8]);
        assert_eq!(between(&mut spots, &[0; 8]), Between::AsMarked);
        let verdict = round(&mut spots, ALL, true);
        assert_eq!((verdict.touched, verdict.left), (ALL, all_but(3)));
        let mut there = ALL;
        there[3] = 0;
        let gone = spots.judge_between(ID, Addr(TABLE), &there, &there);
        assert_eq!(gone, Between::NothingNew);
    }

    #[test]
    fn beside_a_change_all_is_looked_at() {
        let mut spots = Spots::default();
        let steady = |spots: &mut Spots| {
            spots.begin_round();
            [1, 2, 3, 4, 5].map(|table| judge(spots, table, ALL, true).left != [0; 8])
        };
        assert_eq!(steady(&mut spots), [true; 5]);
        spots.begin_round();
        let left = [1, 2, 3, 4, 5].map(|table| {
            let touched = if table == 3 { [0; 8] } else { ALL };
            judge(&mut spots, table, touched, true).left != [0; 8]
        });
        assert_eq!(left, [true, true, false, false, true]);
        assert_eq!(steady(&mut spots), [true, false, true, false, true]);
        assert_eq!(steady(&mut spots), [true; 5]);
    }

    #[test]
    fn what_goes_takes_what_was_known_along() {
        let mut spots = Spots::default();
        round(&mut spots, ALL, true);
        // What was looked at is not mapped any more.
        let mut there = ALL;
        there[1] = 0;
        spots.begin_round();
        let verdict = spots.judge(ID, Addr(TABLE), &there, &there, true);
        assert_eq!((verdict.touched, verdict.left), (there, [0; 8]));
        round(&mut spots, ALL, true);
        spots.begin_round();
        // A round that did not come by: what was left then is too old to tell.
        spots.begin_round();
        assert!(spots.checked.is_empty());
    }
}
