//! The pages of a page-table page, a bit each: what is kept of memory by several parts of the tracker.

use thermo_units::PAGE_SIZE;

/// The unit in which is kept what was swept.
pub(super) const CHUNK: u64 = 64 << 20;

/// So much is read and cleared at once where gaps are bridged: about a tenth of a millisecond lies between both. Where nothing
/// was to be bridged the next stripe is twice as long, up to a chunk.
pub(super) const STRIPE: u64 = 8 << 20;

/// What a page-table page maps.
pub(super) const TABLE: u64 = 512 * PAGE_SIZE;

/// Some of the pages of one, the first page the lowest bit of the first word.
pub(super) type Pages = [u64; 8];

/// Whether page `nth` is among `pages`.
pub(super) const fn is_set(pages: &Pages, nth: usize) -> bool {
    pages[nth / 64] >> (nth % 64) & 1 == 1
}
