//! Regions smaller than a huge page, judged together: huge page by huge page.
//!
//! Where every page is looked at, a region is a run of pages that are alike. Of a huge page that a program uses at
//! random, a few pages are idle in any window; a pattern that asked every run for itself would never find such a huge
//! page hot, though nearly all of it is. So for actions on huge pages, what fills a huge page together is one region:
//! as hot as its pages in the mean, and as old as the youngest of them.

use crate::action::Action;
use crate::region::Region;
use thermo_units::Bytes;
use thermo_units::{Addr, AddrRange};

/// The regions an action on huge pages is to judge: whole aligned units only, of `regions` (ascending).
///
/// What is not there all over is left out, but for [`Action::Collapse`], which is made to fill holes: whether there is
/// enough of it is for the operations to see.
pub(super) fn by_units(regions: &[Region], action: Action) -> Vec<Region> {
    let unit = action.unit();
    let mut units = Vec::new();
    let mut mixed: Option<Mixed> = None;
    for region in regions {
        let mut at = region.range.start;
        while at < region.range.end {
            let base = Addr(at.0 / unit.0 * unit.0);
            let next = Addr(base.0.saturating_add(unit.0));
            if mixed.as_ref().is_some_and(|mixed| mixed.base != base) {
                units.extend(mixed.take().and_then(|mixed| mixed.region(action)));
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
                    .get_or_insert_with(|| Mixed::new(base))
                    .add(range.len(), region);
            }
            at = end;
        }
    }
    units.extend(mixed.and_then(|mixed| mixed.region(action)));
    units
}

/// A unit that several regions lie in.
#[derive(Debug)]
struct Mixed {
    base: Addr,
    /// Bytes of it that lie in regions.
    covered: u64,
    unknown: u64,
    /// Sum over its bytes of how often they were accessed, as [`Region::nr_accesses_bp`] counts.
    accesses: u128,
    age: u32,
}

impl Mixed {
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

    fn region(self, action: Action) -> Option<Region> {
        const ONE_LOOK: u64 = 10_000;
        let unit = action.unit().0;
        if self.covered < unit && action != Action::Collapse {
            return None;
        }
        let mean = u64::try_from(self.accesses / u128::from(self.covered.max(1))).unwrap_or(u64::MAX);
        // Rarely accessed is not never accessed.
        let least = if self.accesses > 0 { ONE_LOOK } else { 0 };
        let nr_accesses_bp = mean.max(least);
        // A part that cannot be judged could be hot; that a part of it is hot is known whatever the rest is.
        let unknown = if action.is_for_cold() {
            self.unknown > 0
        } else {
            self.unknown * 2 > self.covered
        };
        Some(Region {
            nr_accesses: u32::try_from(nr_accesses_bp / ONE_LOOK).unwrap_or(u32::MAX),
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

    /// Pages, accesses and age of each.
    fn joined(regions: &[Region], action: Action) -> Vec<(u64, u64, u32, u32)> {
        let units = by_units(regions, action).into_iter();
        let told = |unit: Region| {
            let (start, end) = (unit.range.start.0 / PAGE_SIZE, unit.range.end.0 / PAGE_SIZE);
            (start, end, unit.moving_nr_accesses(), unit.age)
        };
        units.map(told).collect()
    }

    #[test]
    fn a_huge_page_is_as_hot_as_its_pages_are_in_the_mean_and_as_old_as_the_youngest() {
        let regions = [
            region(0, 128, 70, 4),
            region(128, 129, 0, 9),
            region(129, 512, 70, 6),
            // Alone in three whole ones and in parts of two.
            region(512, 2060, 30, 2),
            region(2060, 2560, 0, 50),
        ];
        assert_eq!(
            joined(&regions, Action::Hugepage),
            [(0, 512, 69, 4), (512, 2048, 30, 2), (2048, 2560, 1, 2)]
        );
    }

    #[test]
    fn holes_are_for_a_collapse_alone() {
        let regions = [
            region(0, 500, 70, 4),
            region(520, 1024, 70, 4),
            region(1024, 1030, 7, 1),
        ];
        assert_eq!(joined(&regions, Action::Nohugepage), []);
        assert_eq!(
            joined(&regions, Action::Collapse),
            [(0, 512, 70, 4), (512, 1024, 70, 4), (1024, 1536, 7, 1)]
        );
    }

    #[test]
    fn a_part_that_is_not_known_is_not_cold() {
        let unknown = Region {
            unknown: true,
            ..region(0, 1, 0, 9)
        };
        let regions = [unknown, region(1, 512, 0, 9)];
        let is_unknown = |action| {
            by_units(&regions, action)
                .iter()
                .map(|unit| unit.unknown)
                .collect::<Vec<_>>()
        };
        assert_eq!(is_unknown(Action::Nohugepage), [true]);
        assert_eq!(is_unknown(Action::Hugepage), [false]);
    }
}
