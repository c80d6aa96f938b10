//! How far a number of bytes reaches into memory that is there only in part.

use thermo_core::{Action, Addr, AddrRange, Bytes, PAGE_SIZE};
use thermo_sys::pagemap::{Page, Pagemap};

use super::Kind;

/// As much of `step` from its start as holds `left` bytes that `action` can be done to; at least a page. All of it
/// where the pages cannot be seen.
pub(super) fn reach(
    pagemap: &Pagemap,
    step: AddrRange,
    left: Bytes,
    action: Action,
    only: Option<Kind>,
) -> AddrRange {
    let mut pages = Vec::new();
    if pagemap.read(step, &mut pages).is_err() {
        return step;
    }
    let counts = |page: &Page| {
        let there = action == Action::Willneed || page.is_present();
        there && only.is_none_or(|kind| page.is_file() == (kind == Kind::File))
    };
    let most = left.0 / PAGE_SIZE;
    let beyond = pages
        .iter()
        .enumerate()
        .filter(|(_, page)| counts(page))
        .nth(usize::try_from(most.max(1)).unwrap_or(usize::MAX))
        .map(|(n, _)| n as u64);
    let end = beyond.map_or(step.end, |n| Addr(step.start.align_down().0 + n * PAGE_SIZE));
    AddrRange {
        start: step.start,
        end: end.min(step.end),
    }
}
