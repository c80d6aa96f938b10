//! Bitmaps of the pages that one page-table page maps, and the sizes that scans use.

use thermo_units::PAGE_SIZE;

/// Unit in which scanned memory is recorded.
pub(super) const CHUNK_SIZE: u64 = 64 << 20;

/// Memory that is read and cleared at once where gaps are bridged: about 0.1 ms lies between reading and
/// clearing. If nothing was bridged the next stripe is twice as long, up to a chunk.
pub(super) const MIN_STRIPE: u64 = 8 << 20;

/// Memory that one page-table page maps.
pub(super) const TABLE_SIZE: u64 = 512 * PAGE_SIZE;

/// A set of these 512 pages. The first page is the lowest bit of the first word.
pub(super) type PageBits = [u64; 8];

/// Whether page `nth` is in `pages`.
pub(super) const fn is_set(pages: &PageBits, nth: usize) -> bool {
    pages[nth / 64] >> (nth % 64) & 1 == 1
}
