//! The units of huge pages, and what page tables say of each.

use thermo_targets::{Inspector, PageView, Process};
use thermo_units::{Addr, AddrRange, Bytes};

/// The size of a huge page, and of what becomes one.
pub(super) const HUGE_PAGE: Bytes = Bytes::mib(2);

/// What maps the begin of each unit; empty where that cannot be seen.
pub(super) fn views(process: &Process, units: &[AddrRange], pte: Inspector<'_>) -> Vec<PageView> {
    let Some(pte) = pte else { return Vec::new() };
    let bases: Vec<Addr> = units.iter().map(|unit| unit.start).collect();
    let mut views = Vec::new();
    // Of a process that is gone nothing is huge.
    pte.inspect(process, &bases, false, &mut views);
    views
}
