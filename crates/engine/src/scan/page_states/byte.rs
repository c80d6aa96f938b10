//! Values of a page's state byte (see the table in the parent module) and the size of a chunk.

use thermo_units::PAGE_SIZE;

pub(super) const ABSENT: u8 = 0;
pub(super) const MAX_HISTORY: u8 = 127;
pub(super) const FIRST_TIMESTAMP: u8 = 128;
pub(super) const FIRST_SCAN: u8 = 254;
pub(super) const UNKNOWN: u8 = 255;

/// Pages of a chunk: those that one page-table page maps.
pub(super) const CHUNK_PAGES: usize = 512;
pub(super) const WORDS: usize = CHUNK_PAGES / 64;
pub(crate) const CHUNK: u64 = CHUNK_PAGES as u64 * PAGE_SIZE;

/// True if `byte` is the index of an idle page's timestamp.
pub(super) const fn is_idle(byte: u8) -> bool {
    byte >= FIRST_TIMESTAMP && byte < FIRST_SCAN
}
