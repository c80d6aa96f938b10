//! The pages of a page-table page, a bit each: what is kept of memory by several parts of the tracker.

use std::collections::BTreeMap;

use thermo_core::{PAGE_SIZE, TargetId};

/// What a page-table page maps.
pub(super) const TABLE: u64 = 512 * PAGE_SIZE;

/// Some of the pages of one, the first page the lowest bit of the first word.
pub(super) type Pages = [u64; 8];

/// What is kept of tables, by target and address.
pub(super) type OfTables<V> = BTreeMap<(TargetId, u64), V>;

/// Whether page `nth` is among `pages`.
pub(super) const fn is_set(pages: &Pages, nth: usize) -> bool {
    pages[nth / 64] >> (nth % 64) & 1 == 1
}

/// Drops what is kept of target `id`, where it is kept by addresses of some kind, of which none is less than the default.
pub(super) fn forget<A: Ord + Default, V>(kept: &mut BTreeMap<(TargetId, A), V>, id: TargetId) {
    // Asked for each target before each sample, and hardly ever is there anything.
    let first = kept.range((id, A::default())..).next();
    if first.is_some_and(|((of, _), _)| *of == id) {
        kept.retain(|(of, _), _| *of != id);
    }
}
