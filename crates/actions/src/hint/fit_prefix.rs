//! Fits a range with missing pages into a byte limit.

use thermo_engine::Action;
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

use super::page_kind::PageKind;

/// The longest start of `step` that holds at most `left` bytes (at least a page) to which `action` applies,
/// and the number of these bytes. Every page counts where the pagemap cannot be read.
pub(super) fn fit_prefix(
    pagemap: &Pagemap,
    step: AddrRange,
    left: Bytes,
    action: Action,
    only: Option<PageKind>,
) -> (AddrRange, Bytes) {
    let mut pages = Vec::new();
    let readable = pagemap.read(step, &mut pages).is_ok();
    let counts = |page: &Page| {
        let eligible = (action == Action::Willneed) != page.is_present();
        eligible && only.is_none_or(|kind| page.is_file() == (kind == PageKind::File))
    };
    let max_pages = (left.0 / PAGE_SIZE).max(1);
    let mut nr_eligible = 0;
    for (addr, page) in (step.start.align_down().0..step.end.0)
        .step_by(PAGE_SIZE as usize)
        .zip(pages.iter().map(Some).chain(std::iter::repeat(None)))
    {
        // The pagemap of a process that has just ended is empty.
        let is_eligible = page.map_or(!readable, counts);
        if is_eligible && nr_eligible == max_pages {
            let end = Addr(addr);
            return (AddrRange { end, ..step }, Bytes(nr_eligible * PAGE_SIZE));
        }
        nr_eligible += u64::from(is_eligible);
    }
    (step, Bytes(nr_eligible * PAGE_SIZE))
}
