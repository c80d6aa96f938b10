//! Regions for actions on huge pages: one region for each huge page that holds several smaller regions.
//!
//! With full scans, a region is a range of pages with the same access history. A huge page that a program
//! accesses at random always has a few idle pages, so it consists of many regions. A pattern that is matched
//! against each of these regions never finds such a huge page hot, although nearly all of it is. Actions on
//! huge pages therefore match against the combined region of a huge page. Its access count is the mean over
//! its pages. Its age is the minimum.

use crate::action::Action;
use crate::region::Region;
use thermo_units::Bytes;
use thermo_units::{Addr, AddrRange};

/// The regions that an action on huge pages is matched against: whole aligned huge pages only. `regions` is
/// ascending.
///
/// A huge page that `regions` does not cover fully is skipped, except for [`Action::Collapse`], which may
/// fill gaps: the operations decide whether enough of the huge page is resident.
pub(super) fn huge_page_regions(regions: &[Region], action: Action) -> Vec<Region> {
    let unit = action.unit();
    let mut units = Vec::new();
    let mut mixed: Option<MixedHugePage> = None;
    for region in regions {
        let mut at = region.range.start;
        while at < region.range.end {
            let base = Addr(at.0 / unit.0 * unit.0);
            let next = Addr(base.0.saturating_add(unit.0));
            if mixed.as_ref().is_some_and(|mixed| mixed.base != base) {
                units.extend(mixed.take().and_then(|mixed| mixed.into_region(action)));
            }
            let is_whole = at == base && next <= region.range.end;
            let end = if is_whole {
                Addr(region.range.end.0 / unit.0 * unit.0)
            } else {
                next.min(region.range.end)
            };
            let range = AddrRange { start: at, end };
            if is_whole {
                units.push(Region {
                    range,
                    resident: None,
                    ..region.clone()
                });
            } else {
                mixed
                    .get_or_insert_with(|| MixedHugePage::new(base))
                    .add(range.len(), region);
            }
            at = end;
        }
    }
    units.extend(mixed.and_then(|mixed| mixed.into_region(action)));
    units
}

/// A huge page that no single region covers.
#[derive(Debug)]
struct MixedHugePage {
    base: Addr,
    /// Bytes covered by regions.
    covered: u64,
    /// Bytes covered by unknown regions.
    unknown: u64,
    /// Sum of [`Region::nr_accesses_bp`] over all covered bytes.
    accesses: u128,
    /// Lowest age of the regions.
    age: u32,
}

impl MixedHugePage {
    const fn new(base: Addr) -> Self {
        Self {
            base,
            covered: 0,
            unknown: 0,
            accesses: 0,
            age: u32::MAX,
        }
    }

    fn add(&mut self, len: Bytes, region: &Region) {
        self.covered += len.0;
        self.unknown += if region.unknown { len.0 } else { 0 };
        self.accesses += u128::from(region.nr_accesses_bp) * u128::from(len.0);
        self.age = self.age.min(region.age);
    }

    fn into_region(self, action: Action) -> Option<Region> {
        const ONE_ACCESS_BP: u64 = 10_000;
        let unit = action.unit().0;
        if self.covered < unit && action != Action::Collapse {
            return None;
        }
        let mean = u64::try_from(self.accesses / u128::from(self.covered.max(1))).unwrap_or(u64::MAX);
        // A huge page with any access is not idle, so the mean is rounded up to one access.
        let min = if self.accesses > 0 { ONE_ACCESS_BP } else { 0 };
        let nr_accesses_bp = mean.max(min);
        // An unknown part could be hot, so it rules out actions on cold memory. For other actions, most of
        // the huge page must be known.
        let unknown = if action.requires_cold() {
            self.unknown > 0
        } else {
            self.unknown * 2 > self.covered
        };
        Some(Region {
            nr_accesses: u32::try_from(nr_accesses_bp / ONE_ACCESS_BP).unwrap_or(u32::MAX),
            nr_accesses_bp,
            age: self.age,
            unknown,
            ..Region::new(AddrRange::new(self.base.0, self.base.0.saturating_add(unit)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::PAGE_SIZE;

    fn region(start: u64, end: u64, nr_accesses: u32, age: u32) -> Region {
        Region {
            nr_accesses,
            nr_accesses_bp: u64::from(nr_accesses) * 10_000,
            age,
            ..Region::new(AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE))
        }
    }

    /// First page, end page, accesses and age of each huge page region.
    fn combined(regions: &[Region], action: Action) -> Vec<(u64, u64, u32, u32)> {
        let units = huge_page_regions(regions, action).into_iter();
        let row = |unit: Region| {
            let (start, end) = (unit.range.start.0 / PAGE_SIZE, unit.range.end.0 / PAGE_SIZE);
            (start, end, unit.moving_nr_accesses(), unit.age)
        };
        units.map(row).collect()
    }

    #[test]
    fn huge_page_has_mean_accesses_and_lowest_age() {
        let regions = [
            region(0, 128, 70, 4),
            region(128, 129, 0, 9),
            region(129, 512, 70, 6),
            // Covers three whole huge pages and parts of another.
            region(512, 2060, 30, 2),
            region(2060, 2560, 0, 50),
        ];
        assert_eq!(
            combined(&regions, Action::Hugepage),
            [(0, 512, 69, 4), (512, 2048, 30, 2), (2048, 2560, 1, 2)]
        );
    }

    #[test]
    fn only_collapse_accepts_gaps() {
        let regions = [
            region(0, 500, 70, 4),
            region(520, 1024, 70, 4),
            region(1024, 1030, 7, 1),
        ];
        assert_eq!(combined(&regions, Action::Nohugepage), []);
        assert_eq!(
            combined(&regions, Action::Collapse),
            [(0, 512, 70, 4), (512, 1024, 70, 4), (1024, 1536, 7, 1)]
        );
    }

    #[test]
    fn huge_page_with_unknown_part_is_not_cold() {
        let unknown = Region {
            unknown: true,
            ..region(0, 1, 0, 9)
        };
        let regions = [unknown, region(1, 512, 0, 9)];
        let is_unknown = |action| {
            huge_page_regions(&regions, action)
                .iter()
                .map(|unit| unit.unknown)
                .collect::<Vec<_>>()
        };
        assert_eq!(is_unknown(Action::Nohugepage), [true]);
        assert_eq!(is_unknown(Action::Hugepage), [false]);
    }
}
