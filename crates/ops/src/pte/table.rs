//! The pages of a page-table page, a bit each: what is kept of memory by several parts of the tracker.

use thermo_core::{Addr, PAGE_SIZE, TargetId};

/// What a page-table page maps.
pub(super) const TABLE: u64 = 512 * PAGE_SIZE;

/// Some of the pages of one, the first page the lowest bit of the first word.
pub(super) type Pages = [u64; 8];

/// Which one: of a target, by address / [`TABLE`].
pub(super) type Table = (TargetId, u64);

/// The one that maps the page at `addr`.
pub(super) const fn table_of(id: TargetId, addr: Addr) -> Table {
    (id, addr.0 / TABLE)
}
