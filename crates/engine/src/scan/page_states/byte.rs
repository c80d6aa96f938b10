//! The values of a page's byte, and the unit in which bytes are kept. See the table in the parent module.

use thermo_units::PAGE_SIZE;

pub(super) const ABSENT: u8 = 0;
pub(super) const HISTORY: u8 = 127;
pub(super) const FIRST_MOMENT: u8 = 128;
pub(super) const FIRST: u8 = 254;
pub(super) const UNKNOWN: u8 = 255;

/// Pages of one page-table page, the unit in which states are kept.
pub(super) const CHUNK_PAGES: usize = 512;
pub(super) const WORDS: usize = CHUNK_PAGES / 64;
pub(super) const CHUNK: u64 = CHUNK_PAGES as u64 * PAGE_SIZE;

/// Whether a page with this byte is idle since a known moment.
pub(super) const fn is_idle(byte: u8) -> bool {
    byte >= FIRST_MOMENT && byte < FIRST
}
