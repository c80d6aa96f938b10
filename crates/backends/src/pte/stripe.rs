//! A stripe: memory that is read and cleared at once.

use thermo_pagetable::{Folios, Table};
use thermo_units::Addr;

use super::bridge::ClearRanges;
use super::page_bits::PageBits;

/// The ranges to clear in a stripe.
#[derive(Debug, Default)]
pub(super) struct Stripe {
    pub(super) to_clear: ClearRanges,
    pub(super) folios: Folios,
    /// Bits to clear in each table. These bits are read again afterwards.
    pub(super) cleared: Vec<(TableAt, PageBits)>,
}

/// Level and first address of a table.
pub(super) type TableAt = (u8, Addr);

impl Stripe {
    /// Bits of `table` that were to be cleared.
    pub(super) fn cleared(&self, table: &Table<'_>) -> PageBits {
        let is_table = |(at, _): &&(TableAt, PageBits)| *at == (table.level, table.base);
        self.cleared
            .iter()
            .find(is_table)
            .map_or([0; 8], |(_, pages)| *pages)
    }
}
