//! Making huge pages: which 2 MiB units are worth it, and which became huge.

use thermo_bpf::Entry;
use thermo_core::action::Action;
use thermo_core::ops::{Applied, Skip};
use thermo_core::{Addr, AddrRange, Bytes, PAGE_SIZE};
use thermo_sys::pagemap::Pagemap;

use super::spans;
use crate::process::Process;
use crate::pte::PteTracker;

/// The size of a huge page, and of what becomes one.
pub(super) const HUGE_PAGE: Bytes = Bytes::mib(2);

const PAGES: usize = (HUGE_PAGE.0 / PAGE_SIZE) as usize;

/// How many of a unit's 512 pages must be there. For `collapse` 80 %, so that making it huge takes little memory
/// that was not in use; for `hugepage` one, as a page fault would do it.
const fn least_present(action: Action) -> usize {
    match action {
        Action::Collapse => (PAGES * 4).div_ceil(5),
        _ => 1,
    }
}

/// Units to be made huge.
pub(super) struct Units<'a> {
    process: &'a Process,
    pte: Option<&'a mut PteTracker>,
    units: Vec<AddrRange>,
}

/// Picks the units of `kept` that are worth it. Those that are huge already count as applied; the rest is counted
/// by its reasons.
pub(super) fn units<'a>(
    action: Action,
    process: &'a Process,
    kept: &[AddrRange],
    pagemap: &Pagemap,
    pte: Option<&'a mut PteTracker>,
    applied: &mut Applied,
) -> Units<'a> {
    let all = spans::aligned_units(kept, HUGE_PAGE);
    // A piece smaller than a huge page, or across its borders, cannot become one.
    applied.skip(
        Skip::Unadvisable,
        spans::sum(kept).saturating_sub(spans::sum(&all)),
    );
    let mut units = Units {
        process,
        pte,
        units: all,
    };
    let huge = units.huge();
    let mut pages = Vec::new();
    let mut is_huge = huge.into_iter().chain(std::iter::repeat(false));
    units.units.retain(|unit| {
        if is_huge.next() == Some(true) {
            applied.applied += unit.len();
            return false;
        }
        let present = match pagemap.read(*unit, &mut pages) {
            Ok(()) => pages.iter().filter(|page| page.is_present()).count(),
            Err(_) => 0,
        };
        if present < least_present(action) {
            applied.skip(Skip::NotPresent, unit.len());
            return false;
        }
        true
    });
    units
}

impl Units<'_> {
    /// Has `advise` make them huge, and counts those that have become so.
    pub(super) fn make(mut self, applied: &mut Applied, advise: impl FnOnce(&[AddrRange], &mut Applied)) {
        advise(&self.units, applied);
        let can_see = self.pte.is_some();
        let became = self.huge().into_iter().filter(|huge| *huge).count() as u64;
        applied.changed = can_see.then_some(Bytes(became * HUGE_PAGE.0));
    }

    /// For each unit, whether it is mapped by a huge page; nothing where that cannot be seen.
    fn huge(&mut self) -> Vec<bool> {
        let Some(pte) = self.pte.as_deref_mut() else {
            return Vec::new();
        };
        let bases: Vec<Addr> = self.units.iter().map(|unit| unit.start).collect();
        let mut entries = Vec::new();
        // Of a process that is gone nothing is huge.
        if pte
            .tables()
            .entries(self.process.pid, &bases, &mut entries)
            .is_err()
        {
            return Vec::new();
        }
        entries
            .iter()
            .map(|entry| matches!(entry, Entry::Leaf(leaf) if leaf.level > 0))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collapse_asks_for_four_fifths_of_the_pages() {
        assert_eq!(least_present(Action::Collapse), 410);
        assert_eq!(least_present(Action::Hugepage), 1);
    }
}
