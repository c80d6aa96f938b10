//! Making huge pages: which 2 MiB units are worth it.

use thermo_engine::ops::{Applied, Skip};
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_targets::{Inspector, PageView, Process};
use thermo_units::{AddrRange, PAGE_SIZE, Permille};

use super::spans;
use super::units::{HUGE_PAGE, views};

const PAGES: usize = (HUGE_PAGE.0 / PAGE_SIZE) as usize;

/// How many of a unit's 512 pages must be there: `least` of them, so that making it huge takes little memory that was
/// not in use, and at least one.
fn least_pages(least: Permille) -> usize {
    (PAGES * least.0 as usize).div_ceil(1000).max(1)
}

/// Whether a page is memory that the unit has already: the kernel's page of zeroes, which stands wherever nothing was
/// written, and pages shared with a child are not, and a huge page would have to be filled with copies of them.
const fn takes_memory(page: &Page) -> bool {
    page.is_present() && (page.is_exclusive() || page.is_file())
}

/// How units are chosen.
pub(super) struct Choice<'a> {
    pub process: &'a Process,
    pub pagemap: &'a Pagemap,
    /// How much of a unit must be there.
    pub least: Permille,
}

impl Choice<'_> {
    /// The units of `kept` that are worth it. Those that are huge already count as applied; the rest is counted by its
    /// reasons.
    pub(super) fn units(
        &self,
        kept: &[AddrRange],
        pte: Inspector<'_>,
        applied: &mut Applied,
    ) -> Vec<AddrRange> {
        let mut units = spans::aligned_units(kept, HUGE_PAGE);
        // A piece smaller than a huge page, or across its borders, cannot become one.
        applied.skip(
            Skip::Unadvisable,
            spans::sum(kept).saturating_sub(spans::sum(&units)),
        );
        let views = views(self.process, &units, pte);
        let mut huge = views
            .iter()
            .map(PageView::is_huge)
            .chain(std::iter::repeat(false));
        let mut pages = Vec::new();
        units.retain(|unit| {
            if huge.next() == Some(true) {
                applied.applied += unit.len();
                return false;
            }
            let present = match self.pagemap.read(*unit, &mut pages) {
                Ok(()) => pages.iter().filter(|page| takes_memory(page)).count(),
                Err(_) => 0,
            };
            let is_worth_it = present >= least_pages(self.least);
            if !is_worth_it {
                applied.skip(Skip::NotPresent, unit.len());
            }
            is_worth_it
        });
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collapse_asks_for_four_fifths_of_the_pages() {
        assert_eq!(least_pages(Permille(800)), 410);
        assert_eq!(least_pages(Permille(0)), 1);
        assert_eq!(least_pages(Permille(1000)), 512);
    }

    #[test]
    fn pages_of_zeroes_are_no_memory_that_is_there() {
        let (present, file, exclusive) = (1 << 63, 1 << 61, 1 << 56);
        for (bits, takes) in [
            (present | exclusive, true),
            (present | file, true),
            (present, false),
            (1 << 62, false),
            (0, false),
        ] {
            assert_eq!(takes_memory(&Page::from_bits(bits)), takes, "{bits:x}");
        }
    }
}
