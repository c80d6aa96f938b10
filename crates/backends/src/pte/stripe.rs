//! A stripe: memory that is read and cleared at once.

use thermo_pagetable::{Folios, Table};
use thermo_units::Addr;

use super::bridge::Ranges;
use super::table::Pages;

/// What was found in a stripe of memory that is read and cleared at once.
#[derive(Debug, Default)]
pub(super) struct Stripe {
    pub(super) ranges: Ranges,
    pub(super) folios: Folios,
    /// Of each table, which accessed bits are to be cleared: those are read again.
    pub(super) cleared: Vec<(TableAt, Pages)>,
}

/// Level and first address of a table.
pub(super) type TableAt = (u8, Addr);

impl Stripe {
    /// Which bits of a table were to be cleared.
    pub(super) fn cleared(&self, table: &Table<'_>) -> Pages {
        let is_it = |(at, _): &&(TableAt, Pages)| *at == (table.level, table.base);
        self.cleared
            .iter()
            .find(is_it)
            .map_or([0; 8], |(_, pages)| *pages)
    }
}
