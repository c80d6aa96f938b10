//! Spot checks of memory that is accessed all the time.
//!
//! Clearing an accessed bit reads the page's struct page, which is in no cache, and moves the page on the
//! kernel's LRU lists. This is nearly all that a scan costs. For memory that was accessed in each of the last
//! passes the result is already known. So of the 512 pages of a page-table page that were all accessed, 64
//! are checked in a pass and the next 64 in the next pass. The bits of the others stay set. (The 64 pages are
//! neighbours: every range interrupts the CPUs that run the target, which costs as much as that many pages.)
//!
//! If one of the checked pages was not accessed, the access pattern has changed. Then the unchecked pages
//! count as most of the 64 do, and all their bits are cleared, so that the next pass is exact again. The next
//! page-table page is cleared too, and in the next pass the previous one. If fewer pages change, this is seen
//! when they are checked, within eight passes.
//!
//! Huge pages are checked in groups of eight neighbours: if all were accessed in each of the last passes, one
//! is checked. Clearing the bit of one huge page interrupts the CPUs twice.

use std::array;
use std::collections::BTreeMap;

use thermo_units::{Addr, AddrRange};

use super::page_bits::{PageBits, TABLE_SIZE};

const ALL: PageBits = [u64::MAX; 8];
/// Size of a group of huge pages.
const HUGE_GROUP_SIZE: u64 = 8 * TABLE_SIZE;

/// State of the spot checks of a target.
#[derive(Debug, Default)]
pub(super) struct SpotCheck {
    /// Groups of small pages: one page-table page each.
    small: Groups,
    /// Groups of eight huge pages. Each huge page counts as 64 of 512 pages.
    huge: Groups,
}

/// The result for the pages of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Pages that count as accessed since the last pass.
    pub(super) accessed: PageBits,
    /// Pages whose bits are kept, that is not cleared.
    pub(super) kept: PageBits,
}

/// The pages of a table, with their accessed bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct TablePages<'a> {
    /// 0: its entries map small pages. 1: huge pages.
    pub(super) level: u8,
    /// The first address it maps.
    pub(super) base: Addr,
    pub(super) present: &'a PageBits,
    /// Pages whose accessed bit is set, or whose folio is young.
    pub(super) accessed: &'a PageBits,
}

impl SpotCheck {
    /// Begins a pass. Groups that the last pass did not visit are checked in full when they are visited
    /// again.
    pub(super) fn begin_pass(&mut self) {
        self.small.begin_pass();
        self.huge.begin_pass();
    }

    /// Evaluates the pages of a table. `is_steady` returns whether all pages of a range were accessed in each
    /// of the last passes.
    pub(super) fn evaluate(
        &mut self,
        table: &TablePages<'_>,
        is_steady: impl Fn(AddrRange) -> bool,
    ) -> Verdict {
        let mut verdict = Verdict {
            accessed: *table.accessed,
            kept: [0; 8],
        };
        let Some(groups) = self.groups_of_level(table.level) else {
            return verdict;
        };
        for group in table.groups() {
            let (present, accessed) = (group.extract(table.present), group.extract(table.accessed));
            let result = groups.evaluate(group.number(), &present, &accessed, || is_steady(group.range));
            group.write(&result.accessed, &mut verdict.accessed);
            group.write(&result.kept, &mut verdict.kept);
        }
        verdict
    }

    const fn groups_of_level(&mut self, level: u8) -> Option<&mut Groups> {
        match level {
            0 => Some(&mut self.small),
            1 => Some(&mut self.huge),
            _ => None,
        }
    }
}

impl TablePages<'_> {
    /// The groups of a table: the whole table if it maps small pages; otherwise the groups of eight huge
    /// pages of which any is present.
    fn groups(&self) -> impl Iterator<Item = Group> + use<> {
        let (base, present) = (self.base.0, *self.present);
        let small_group = (self.level == 0).then_some(Group {
            range: AddrRange::new(base, base + TABLE_SIZE),
            huge_group: None,
        });
        let huge_groups = (0..64).filter(move |nth| small_group.is_none() && group_byte(&present, *nth) != 0);
        small_group.into_iter().chain(huge_groups.map(move |nth| Group {
            range: AddrRange::new(
                base + nth as u64 * HUGE_GROUP_SIZE,
                base + (nth as u64 + 1) * HUGE_GROUP_SIZE,
            ),
            huge_group: Some(nth),
        }))
    }
}

/// A group of pages, of which an eighth is checked in each pass.
#[derive(Debug, Clone, Copy)]
struct Group {
    range: AddrRange,
    /// Index of the group in a table of huge pages; `None` for small pages.
    huge_group: Option<usize>,
}

impl Group {
    /// Number of the group. Neighbouring groups have neighbouring numbers.
    const fn number(&self) -> u64 {
        self.range.start.0 / self.range.len().0
    }

    /// The group's part of `bits`, which are of a whole table.
    fn extract(&self, bits: &PageBits) -> PageBits {
        match self.huge_group {
            None => *bits,
            Some(huge_group) => {
                let byte = group_byte(bits, huge_group);
                array::from_fn(|nth| if byte >> nth & 1 == 1 { u64::MAX } else { 0 })
            }
        }
    }

    /// Writes the group's part into `bits`.
    fn write(&self, part: &PageBits, bits: &mut PageBits) {
        match self.huge_group {
            None => *bits = *part,
            Some(huge_group) => {
                for (nth, part) in part.iter().enumerate() {
                    let bit = 1 << (huge_group % 8 * 8 + nth);
                    let word = &mut bits[huge_group / 8];
                    *word = if *part == 0 { *word & !bit } else { *word | bit };
                }
            }
        }
    }
}

const fn group_byte(bits: &PageBits, nth: usize) -> u8 {
    bits[nth / 8].to_le_bytes()[nth % 8]
}

/// The groups of one page size.
#[derive(Debug, Default)]
struct Groups {
    pass: u64,
    /// Groups of which only an eighth was checked: which eighth, and in which pass (this or the last).
    checked: BTreeMap<u64, (usize, u64)>,
    /// Groups whose access pattern has changed, with the pass that saw it (this or the last).
    changed: BTreeMap<u64, u64>,
}

impl Groups {
    fn begin_pass(&mut self) {
        let last = self.pass;
        self.pass += 1;
        self.checked.retain(|_, (_, pass)| *pass == last);
        self.changed.retain(|_, pass| *pass == last);
    }

    fn evaluate(
        &mut self,
        number: u64,
        present: &PageBits,
        accessed: &PageBits,
        is_steady: impl FnOnce() -> bool,
    ) -> Verdict {
        let mut verdict = Verdict {
            accessed: *accessed,
            kept: [0; 8],
        };
        let checked = self.checked.remove(&number).map(|(nth, _)| nth);
        // If the checked pages are gone nothing is known, and the others count by their bits.
        if let Some(nth) = checked.filter(|nth| present[*nth] != 0 && accessed[*nth] != u64::MAX) {
            self.changed.insert(number, self.pass);
            if accessed[nth].count_ones() * 2 < present[nth].count_ones() {
                verdict.accessed = [0; 8];
                verdict.accessed[nth] = accessed[nth];
            }
        } else if *accessed == ALL && !self.has_changed_neighbour(number) && is_steady() {
            let nth = (self.pass % 8) as usize;
            self.checked.insert(number, (nth, self.pass));
            verdict.kept = all_but(nth);
        }
        verdict
    }

    fn has_changed_neighbour(&self, number: u64) -> bool {
        [number.wrapping_sub(1), number + 1]
            .iter()
            .any(|neighbour| self.changed.contains_key(neighbour))
    }
}

fn all_but(nth: usize) -> PageBits {
    let mut pages = ALL;
    pages[nth] = 0;
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small<'a>(table: u64, present: &'a PageBits, accessed: &'a PageBits) -> TablePages<'a> {
        TablePages {
            level: 0,
            base: Addr(table * TABLE_SIZE),
            present,
            accessed,
        }
    }

    fn evaluate(spot_check: &mut SpotCheck, table: u64, accessed: PageBits, steady: bool) -> Verdict {
        spot_check.evaluate(&small(table, &ALL, &accessed), |_| steady)
    }

    /// A pass over one table.
    fn pass(spot_check: &mut SpotCheck, accessed: PageBits, steady: bool) -> Verdict {
        spot_check.begin_pass();
        evaluate(spot_check, 1, accessed, steady)
    }

    #[test]
    fn steady_pages_are_all_checked_in_eight_passes() {
        let mut spot_check = SpotCheck::default();
        assert_eq!(pass(&mut spot_check, ALL, false).kept, [0; 8]);
        let mut seen = [0; 8];
        for _ in 0..8 {
            let verdict = pass(&mut spot_check, ALL, true);
            assert_eq!(verdict.accessed, ALL);
            let checked = verdict.kept.map(|kept| !kept);
            assert_eq!(checked.iter().filter(|pages| **pages == u64::MAX).count(), 1);
            seen = std::array::from_fn(|nth| seen[nth] + checked[nth].count_ones());
        }
        assert_eq!(seen, [64; 8]);
    }

    #[test]
    fn changed_group_is_exact_in_next_pass() {
        let mut spot_check = SpotCheck::default();
        let kept = pass(&mut spot_check, ALL, true).kept;
        // All pages are idle: the checked ones have no bit set, the others have old ones.
        let verdict = pass(&mut spot_check, kept, true);
        assert_eq!((verdict.accessed, verdict.kept), ([0; 8], [0; 8]));
        let exact = [0, 0, 0, 7, u64::MAX, 0, 0, 0];
        assert_eq!(pass(&mut spot_check, exact, false).accessed, exact);
    }

    #[test]
    fn unchecked_pages_follow_majority_of_checked() {
        let mut spot_check = SpotCheck::default();
        pass(&mut spot_check, ALL, true);
        let mut accessed = ALL;
        accessed[1] = u64::MAX << 20;
        let verdict = pass(&mut spot_check, accessed, true);
        assert_eq!((verdict.accessed, verdict.kept), (accessed, [0; 8]));
    }

    #[test]
    fn neighbours_of_change_are_checked_in_full() {
        let mut spot_check = SpotCheck::default();
        let steady = |spot_check: &mut SpotCheck| {
            spot_check.begin_pass();
            [1, 2, 3, 4, 5].map(|table| evaluate(spot_check, table, ALL, true).kept != [0; 8])
        };
        assert_eq!(steady(&mut spot_check), [true; 5]);
        spot_check.begin_pass();
        let kept = [1, 2, 3, 4, 5].map(|table| {
            let accessed = if table == 3 { [0; 8] } else { ALL };
            evaluate(&mut spot_check, table, accessed, true).kept != [0; 8]
        });
        assert_eq!(kept, [true, true, false, false, true]);
        assert_eq!(steady(&mut spot_check), [true, false, true, false, true]);
        assert_eq!(steady(&mut spot_check), [true; 5]);
    }

    #[test]
    fn unmapped_pages_drop_their_group() {
        let mut spot_check = SpotCheck::default();
        pass(&mut spot_check, ALL, true);
        // The checked pages are not mapped any more.
        let mut present = ALL;
        present[1] = 0;
        spot_check.begin_pass();
        let verdict = spot_check.evaluate(&small(1, &present, &present), |_| true);
        assert_eq!((verdict.accessed, verdict.kept), (present, [0; 8]));
        pass(&mut spot_check, ALL, true);
        spot_check.begin_pass();
        // A pass without this table: kept bits are too old to use.
        spot_check.begin_pass();
        assert!(spot_check.small.checked.is_empty());
    }

    #[test]
    fn one_of_eight_huge_pages_is_checked() {
        let mut spot_check = SpotCheck::default();
        // The third and fourth group are complete, the last lacks one page.
        let present = [0xffff_0000, 0, 0, 0, 0, 0, 0, 0x7f00_0000_0000_0000];
        let table = |accessed| TablePages {
            level: 1,
            base: Addr(7 << 30),
            ..small(0, &present, accessed)
        };
        let steady = |range: AddrRange| {
            assert_eq!(range.len().0, 16 << 20);
            true
        };
        spot_check.begin_pass();
        let verdict = spot_check.evaluate(&table(&present), steady);
        assert_eq!(verdict.accessed, present);
        assert_eq!(verdict.kept, [0xfdfd_0000, 0, 0, 0, 0, 0, 0, 0]);
        spot_check.begin_pass();
        let verdict = spot_check.evaluate(&table(&present), steady);
        assert_eq!(verdict.kept, [0xfbfb_0000, 0, 0, 0, 0, 0, 0, 0]);
        spot_check.begin_pass();
        let idle = [0xfbff_0000, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            spot_check.evaluate(&table(&idle), steady).accessed,
            [0xff_0000, 0, 0, 0, 0, 0, 0, 0]
        );
        // Pages of 1 GiB are always checked.
        let gib = TablePages {
            level: 2,
            ..table(&present)
        };
        assert_eq!(spot_check.evaluate(&gib, steady).kept, [0; 8]);
    }
}
