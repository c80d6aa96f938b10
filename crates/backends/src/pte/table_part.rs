//! Page tables of a process, each with its leaves that map part of a range.

use std::ops::ControlFlow;

use thermo_pagetable::{Entry, Folios, Layout, Leaf, Leaves, PageTables, Table, WalkError};
use thermo_units::{Addr, AddrRange, PAGE_SIZE};

use super::page_bits::PageBits;
use super::spot_check::TablePages;

/// A page table, and those of its leaves that map part of the range.
#[derive(Debug)]
pub(super) struct TablePart<'a> {
    pub(super) table: &'a Table<'a>,
    pub(super) layout: &'a Layout,
    pub(super) leaves: Leaves,
}

impl TablePart<'_> {
    /// Calls `each` with those of the entries `nths` that are leaves, and with the part of `range` that each
    /// leaf maps.
    pub(super) fn for_each_entry(
        &self,
        nths: impl Iterator<Item = usize>,
        range: AddrRange,
        each: &mut impl FnMut(AddrRange, Leaf),
    ) {
        for nth in nths {
            let at = self.table.range(nth).intersection(&range);
            if let (Entry::Leaf(leaf), Some(at)) = (self.table.decode(self.layout, nth), at) {
                each(at, leaf);
            }
        }
    }

    /// The pages of the table, of which `accessed` were accessed.
    pub(super) const fn pages<'b>(&'b self, accessed: &'b PageBits) -> TablePages<'b> {
        TablePages {
            level: self.table.level,
            base: self.table.base,
            present: &self.leaves.present,
            accessed,
        }
    }
}

/// Calls `each` with the tables that map parts of `range`. Tables with pages of a GiB come before tables with
/// small pages.
pub(super) fn for_each_table(
    tables: &mut PageTables,
    pid: u32,
    range: AddrRange,
    folios: Folios,
    each: &mut impl FnMut(&TablePart<'_>),
) -> Result<(), WalkError> {
    for_each_table_until(tables, pid, range, folios, &mut |part| {
        each(part);
        ControlFlow::Continue(())
    })
}

/// Like [`for_each_table`], but stops reading when `each` breaks. `each` still gets the tables that were read
/// in the same call.
pub(super) fn for_each_table_until(
    tables: &mut PageTables,
    pid: u32,
    range: AddrRange,
    folios: Folios,
    each: &mut impl FnMut(&TablePart<'_>) -> ControlFlow<()>,
) -> Result<(), WalkError> {
    let layout = *tables.layout();
    tables.tables(pid, range, folios, &mut |table| {
        let entry = |bytes: u64| usize::try_from(bytes).unwrap_or(512).min(512);
        let from = (range.start.0.saturating_sub(table.base.0)) / table.span();
        let to = (range.end.0.saturating_sub(table.base.0)).div_ceil(table.span());
        each(&TablePart {
            table: &table,
            layout: &layout,
            leaves: table.leaves(&layout).within(entry(from)..entry(to)),
        })
    })
}

/// Calls `each` with every leaf that maps part of `range`, and with that part. In the order of
/// [`for_each_table`].
pub(super) fn for_each_leaf(
    tables: &mut PageTables,
    pid: u32,
    range: AddrRange,
    folios: Folios,
    each: &mut impl FnMut(AddrRange, Leaf),
) -> Result<(), WalkError> {
    for_each_table(tables, pid, range, folios, &mut |part| {
        part.for_each_entry(part.leaves.entries(), range, each);
    })
}

pub(super) fn pages_of(at: AddrRange) -> impl Iterator<Item = Addr> {
    (at.start.0..at.end.0).step_by(PAGE_SIZE as usize).map(Addr)
}
