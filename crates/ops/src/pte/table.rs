//! The pages of a page-table page, a bit each: what is kept of memory by several parts of the tracker.

use std::collections::BTreeMap;

use thermo_core::{PAGE_SIZE, TargetId};

/// What a page-table page maps.
pub(super) const TABLE: u64 = 512 * PAGE_SIZE;

/// Some of the pages of one, the first page the lowest bit of the first word.
pub(super) type Pages = [u64; 8];

/// What is kept of tables, by target and address.
pub(super) type OfTables<V> = BTreeMap<(TargetId, u64), V>;

/// Drops what is kept of target `id`.
pub(super) fn forget<V>(kept: &mut OfTables<V>, id: TargetId) {
    // Asked for each target before each sample, and hardly ever is there anything.
    if kept.range((id, 0)..=(id, u64::MAX)).next().is_some() {
        kept.retain(|(of, _), _| *of != id);
    }
}
