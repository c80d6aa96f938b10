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
//! Huge pages go by eights: of eight neighbours that were all touched in each of the last rounds one is looked at. To take
//! the mark off one interrupts those processors twice.

use std::array;
use std::collections::BTreeMap;

use thermo_units::{Addr, AddrRange};

use super::table::{Pages, TABLE};

const ALL: Pages = [u64::MAX; 8];
/// Huge pages that are looked at in turns.
const EIGHT: u64 = 8 * TABLE;

/// Where the marks of the last round say less than they seem to.
#[derive(Debug, Default)]
pub(super) struct SpotCheck {
    /// Of the pages of a page-table page.
    small: Checks,
    /// Of eight huge pages, each of which counts as 64 of 512.
    huge: Checks,
}

/// What is made of the pages of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// They were touched since the last round.
    pub(super) touched: Pages,
    /// Their marks are left as they are.
    pub(super) left: Pages,
}

/// A table, as far as it is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marks<'a> {
    /// 0: its entries are pages. 1: huge pages.
    pub(super) level: u8,
    /// The first address it maps.
    pub(super) base: Addr,
    pub(super) there: &'a Pages,
    /// By what their marks say.
    pub(super) touched: &'a Pages,
}

impl SpotCheck {
    /// A round begins. What the last did not come by is looked at as a whole when it is back.
    pub(super) fn begin_pass(&mut self) {
        self.small.begin_pass();
        self.huge.begin_pass();
    }

    /// Judges the pages of a table, of which `is_steady` says whether all of a range were touched in each of the last
    /// rounds.
    pub(super) fn judge(&mut self, marks: &Marks<'_>, is_steady: impl Fn(AddrRange) -> bool) -> Verdict {
        let mut verdict = Verdict {
            touched: *marks.touched,
            left: [0; 8],
        };
        let Some(checks) = self.checks(marks.level) else {
            return verdict;
        };
        for group in marks.groups() {
            let (there, touched) = (group.of(marks.there), group.of(marks.touched));
            let judged = checks.judge(group.key(), &there, &touched, || is_steady(group.range));
            group.put(&judged.touched, &mut verdict.touched);
            group.put(&judged.left, &mut verdict.left);
        }
        verdict
    }

    const fn checks(&mut self, level: u8) -> Option<&mut Checks> {
        match level {
            0 => Some(&mut self.small),
            1 => Some(&mut self.huge),
            _ => None,
        }
    }
}

impl Marks<'_> {
    /// What is looked at in turns: the pages of a page-table page; of huge pages those eights of which any is there.
    fn groups(&self) -> impl Iterator<Item = Group> + use<> {
        let (base, there) = (self.base.0, *self.there);
        let of_small = (self.level == 0).then_some(Group {
            range: AddrRange::new(base, base + TABLE),
            eight: None,
        });
        let eights = (0..64).filter(move |nth| of_small.is_none() && eighth_byte(&there, *nth) != 0);
        of_small.into_iter().chain(eights.map(move |nth| Group {
            range: AddrRange::new(base + nth as u64 * EIGHT, base + (nth as u64 + 1) * EIGHT),
            eight: Some(nth),
        }))
    }
}

/// Pages that are looked at in turns, an eighth in each round.
#[derive(Debug, Clone, Copy)]
struct Group {
    range: AddrRange,
    /// Which eight of a table of huge pages.
    eight: Option<usize>,
}

impl Group {
    /// A name among those of its kind, of which the neighbours' are one more and one less.
    const fn key(&self) -> u64 {
        self.range.start.0 / self.range.len().0
    }

    /// Its part of `bits`, which are of a whole table.
    fn of(&self, bits: &Pages) -> Pages {
        match self.eight {
            None => *bits,
            Some(eight) => {
                let byte = eighth_byte(bits, eight);
                array::from_fn(|nth| if byte >> nth & 1 == 1 { u64::MAX } else { 0 })
            }
        }
    }

    /// Puts its part into `bits`.
    fn put(&self, part: &Pages, bits: &mut Pages) {
        match self.eight {
            None => *bits = *part,
            Some(eight) => {
                for (nth, part) in part.iter().enumerate() {
                    let bit = 1 << (eight % 8 * 8 + nth);
                    let word = &mut bits[eight / 8];
                    *word = if *part == 0 { *word & !bit } else { *word | bit };
                }
            }
        }
    }
}

const fn eighth_byte(bits: &Pages, nth: usize) -> u8 {
    bits[nth / 8].to_le_bytes()[nth % 8]
}

/// What was looked at in parts, of one size of pages.
#[derive(Debug, Default)]
struct Checks {
    round: u64,
    /// Where only some pages were looked at: which eighth, and in which round, this or the last.
    checked: BTreeMap<u64, (usize, u64)>,
    /// The round in which the heat was seen to have changed, of this round and the last.
    changed: BTreeMap<u64, u64>,
}

impl Checks {
    fn begin_pass(&mut self) {
        let last = self.round;
        self.round += 1;
        self.checked.retain(|_, (_, round)| *round == last);
        self.changed.retain(|_, round| *round == last);
    }

    fn judge(
        &mut self,
        key: u64,
        there: &Pages,
        touched: &Pages,
        is_steady: impl FnOnce() -> bool,
    ) -> Verdict {
        let mut verdict = Verdict {
            touched: *touched,
            left: [0; 8],
        };
        let checked = self.checked.remove(&key).map(|(nth, _)| nth);
        // Where what was looked at is gone nothing was found out, and the rest is as it was.
        if let Some(nth) = checked.filter(|nth| there[*nth] != 0 && touched[*nth] != u64::MAX) {
            self.changed.insert(key, self.round);
            if touched[nth].count_ones() * 2 < there[nth].count_ones() {
                verdict.touched = [0; 8];
                verdict.touched[nth] = touched[nth];
            }
        } else if *touched == ALL && !self.has_changed_beside(key) && is_steady() {
            let nth = (self.round % 8) as usize;
            self.checked.insert(key, (nth, self.round));
            verdict.left = all_but(nth);
        }
        verdict
    }

    fn has_changed_beside(&self, key: u64) -> bool {
        [key.wrapping_sub(1), key + 1]
            .iter()
            .any(|beside| self.changed.contains_key(beside))
    }
}

fn all_but(nth: usize) -> Pages {
    let mut pages = ALL;
    pages[nth] = 0;
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small<'a>(table: u64, there: &'a Pages, touched: &'a Pages) -> Marks<'a> {
        Marks {
            level: 0,
            base: Addr(table * TABLE),
            there,
            touched,
        }
    }

    fn judge(spots: &mut SpotCheck, table: u64, touched: Pages, steady: bool) -> Verdict {
        spots.judge(&small(table, &ALL, &touched), |_| steady)
    }

    /// A round over one table.
    fn round(spots: &mut SpotCheck, touched: Pages, steady: bool) -> Verdict {
        spots.begin_pass();
        judge(spots, 1, touched, steady)
    }

    #[test]
    fn of_steady_pages_each_is_looked_at_in_eight_rounds() {
        let mut spots = SpotCheck::default();
        assert_eq!(round(&mut spots, ALL, false).left, [0; 8]);
        let mut seen = [0; 8];
        for _ in 0..8 {
            let verdict = round(&mut spots, ALL, true);
            assert_eq!(verdict.touched, ALL);
            let looked_at = verdict.left.map(|left| !left);
            assert_eq!(looked_at.iter().filter(|pages| **pages == u64::MAX).count(), 1);
            seen = std::array::from_fn(|nth| seen[nth] + looked_at[nth].count_ones());
        }
        assert_eq!(seen, [64; 8]);
    }

    #[test]
    fn a_change_is_seen_at_once_and_exactly_in_the_next_round() {
        let mut spots = SpotCheck::default();
        let left = round(&mut spots, ALL, true).left;
        // All are idle: those that were looked at have no mark, the rest their old ones.
        let verdict = round(&mut spots, left, true);
        assert_eq!((verdict.touched, verdict.left), ([0; 8], [0; 8]));
        let exact = [0, 0, 0, 7, u64::MAX, 0, 0, 0];
        assert_eq!(round(&mut spots, exact, false).touched, exact);
    }

    #[test]
    fn where_most_of_those_looked_at_are_touched_the_others_are_too() {
        let mut spots = SpotCheck::default();
        round(&mut spots, ALL, true);
        let mut touched = ALL;
        touched[1] = u64::MAX << 20;
        let verdict = round(&mut spots, touched, true);
        assert_eq!((verdict.touched, verdict.left), (touched, [0; 8]));
    }

    #[test]
    fn beside_a_change_all_is_looked_at() {
        let mut spots = SpotCheck::default();
        let steady = |spots: &mut SpotCheck| {
            spots.begin_pass();
            [1, 2, 3, 4, 5].map(|table| judge(spots, table, ALL, true).left != [0; 8])
        };
        assert_eq!(steady(&mut spots), [true; 5]);
        spots.begin_pass();
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
        let mut spots = SpotCheck::default();
        round(&mut spots, ALL, true);
        // What was looked at is not mapped any more.
        let mut there = ALL;
        there[1] = 0;
        spots.begin_pass();
        let verdict = spots.judge(&small(1, &there, &there), |_| true);
        assert_eq!((verdict.touched, verdict.left), (there, [0; 8]));
        round(&mut spots, ALL, true);
        spots.begin_pass();
        // A round that did not come by: what was left then is too old to tell.
        spots.begin_pass();
        assert!(spots.small.checked.is_empty());
    }

    #[test]
    fn of_eight_huge_pages_one_is_looked_at() {
        let mut spots = SpotCheck::default();
        // The third and fourth eight are there as a whole, of the last of all but one page.
        let there = [0xffff_0000, 0, 0, 0, 0, 0, 0, 0x7f00_0000_0000_0000];
        let marks = |touched| Marks {
            level: 1,
            base: Addr(7 << 30),
            ..small(0, &there, touched)
        };
        let steady = |range: AddrRange| {
            assert_eq!(range.len().0, 16 << 20);
            true
        };
        spots.begin_pass();
        let verdict = spots.judge(&marks(&there), steady);
        assert_eq!(verdict.touched, there);
        assert_eq!(verdict.left, [0xfdfd_0000, 0, 0, 0, 0, 0, 0, 0]);
        spots.begin_pass();
        let verdict = spots.judge(&marks(&there), steady);
        assert_eq!(verdict.left, [0xfbfb_0000, 0, 0, 0, 0, 0, 0, 0]);
        spots.begin_pass();
        let idle = [0xfbff_0000, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            spots.judge(&marks(&idle), steady).touched,
            [0xff_0000, 0, 0, 0, 0, 0, 0, 0]
        );
        // Nothing is left out of pages of a GiB.
        let gib = Marks {
            level: 2,
            ..marks(&there)
        };
        assert_eq!(spots.judge(&gib, steady).left, [0; 8]);
    }
}
