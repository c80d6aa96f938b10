//! How far a number of bytes reaches into memory that is there only in part.

use thermo_engine::Action;
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

use super::kind::Kind;

/// As much of `step` from its start as holds `left` bytes that `action` can be done to, at least a page; and how many
/// bytes that are. Where the pages cannot be seen every one counts.
pub(super) fn reach(
    pagemap: &Pagemap,
    step: AddrRange,
    left: Bytes,
    action: Action,
    only: Option<Kind>,
) -> (AddrRange, Bytes) {
    let mut pages = Vec::new();
    let seen = pagemap.read(step, &mut pages).is_ok();
    let counts = |page: &Page| {
        let there = action == Action::Willneed || page.is_present();
        there && only.is_none_or(|kind| page.is_file() == (kind == Kind::File))
    };
    let most = (left.0 / PAGE_SIZE).max(1);
    let mut nr_counted = 0;
    for (addr, page) in (step.start.align_down().0..step.end.0)
        .step_by(PAGE_SIZE as usize)
        .zip(pages.iter().map(Some).chain(std::iter::repeat(None)))
    {
        // A process that has just ended has no pages to see either.
        let counted = page.map_or(!seen, counts);
        if counted && nr_counted == most {
            let end = Addr(addr);
            return (AddrRange { end, ..step }, Bytes(nr_counted * PAGE_SIZE));
        }
        nr_counted += u64::from(counted);
    }
    (step, Bytes(nr_counted * PAGE_SIZE))
}
