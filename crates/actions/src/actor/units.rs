//! Huge-page units: aligned 2 MiB ranges, and how page tables map them.

use thermo_targets::{Inspector, PageView, Process};
use thermo_units::{Addr, AddrRange, Bytes};

/// The size of a huge page.
pub(super) const HUGE_PAGE: Bytes = Bytes::mib(2);

/// How the first page of each unit is mapped; empty where page tables cannot be read.
pub(super) fn first_page_views(process: &Process, units: &[AddrRange], pte: Inspector<'_>) -> Vec<PageView> {
    let Some(pte) = pte else { return Vec::new() };
    let bases: Vec<Addr> = units.iter().map(|unit| unit.start).collect();
    let mut views = Vec::new();
    // A process that has ended has no huge pages.
    pte.inspect(process, &bases, false, &mut views);
    views
}
