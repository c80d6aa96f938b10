//! Chooses the 2 MiB units that are worth collapsing.

use thermo_engine::ops::{Applied, Skip};
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_targets::{Inspector, PageView, Process};
use thermo_units::{AddrRange, PAGE_SIZE, Permille};

use super::range_ops;
use super::units::{HUGE_PAGE, first_page_views};

const PAGES: usize = (HUGE_PAGE.0 / PAGE_SIZE) as usize;

/// How many of a unit's 512 pages must be present, at least one. The limit bounds the memory that a collapse
/// adds.
fn min_pages(min_present: Permille) -> usize {
    (PAGES * min_present.0 as usize).div_ceil(1000).max(1)
}

/// Whether the unit already owns the memory of a page. The zero page (mapped where nothing was written) and
/// pages shared with a child do not count: a huge page needs new memory for copies of them.
const fn owns_memory(page: &Page) -> bool {
    page.is_present() && (page.is_exclusive() || page.is_file())
}

/// Chooses units of one process.
pub(super) struct Choice<'a> {
    pub process: &'a Process,
    pub pagemap: &'a Pagemap,
    /// Minimum share of present pages in a unit.
    pub min_present: Permille,
}

impl Choice<'_> {
    /// The units of `kept` that are worth collapsing. Units that are already huge count as applied, the
    /// others as skipped.
    pub(super) fn units(
        &self,
        kept: &[AddrRange],
        pte: Inspector<'_>,
        applied: &mut Applied,
    ) -> Vec<AddrRange> {
        let mut units = range_ops::aligned_units(kept, HUGE_PAGE);
        // Memory outside of whole aligned units cannot become a huge page.
        applied.skip(
            Skip::Unadvisable,
            range_ops::sum(kept).saturating_sub(range_ops::sum(&units)),
        );
        let views = first_page_views(self.process, &units, pte);
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
                Ok(()) => pages.iter().filter(|page| owns_memory(page)).count(),
                Err(_) => 0,
            };
            let is_worth_it = present >= min_pages(self.min_present);
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
    fn collapse_rounds_min_pages_up() {
        assert_eq!(min_pages(Permille(800)), 410);
        assert_eq!(min_pages(Permille(0)), 1);
        assert_eq!(min_pages(Permille(1000)), 512);
    }

    #[test]
    fn collapse_ignores_zero_pages() {
        let (present, file, exclusive) = (1 << 63, 1 << 61, 1 << 56);
        for (bits, owns) in [
            (present | exclusive, true),
            (present | file, true),
            (present, false),
            (1 << 62, false),
            (0, false),
        ] {
            assert_eq!(owns_memory(&Page::from_bits(bits)), owns, "{bits:x}");
        }
    }
}
