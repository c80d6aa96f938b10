//! Tables of a process, each with the leaves of it that map a part of a range.

use std::ops::ControlFlow;

use thermo_pagetable::{Entry, Folios, Layout, Leaf, Leaves, PageTables, Table, WalkError};
use thermo_units::{Addr, AddrRange, PAGE_SIZE};

use super::spot_check::Marks;
use super::table::Pages;

/// A table, and which of its leaves map a part of what is looked at.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) table: &'a Table<'a>,
    pub(super) layout: &'a Layout,
    pub(super) leaves: Leaves,
}

impl Part<'_> {
    /// Calls `each` with the leaves that `nths` are, and with what each maps of `range`.
    pub(super) fn each_of(
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

    /// What is judged of it, where those are `touched`.
    pub(super) const fn marks<'b>(&'b self, touched: &'b Pages) -> Marks<'b> {
        Marks {
            level: self.table.level,
            base: self.table.base,
            there: &self.leaves.there,
            touched,
        }
    }
}

/// Calls `each` with the tables that map parts of `range`; huge pages of a GiB before the small pages of it.
pub(super) fn each_part(
    tables: &mut PageTables,
    pid: u32,
    range: AddrRange,
    folios: Folios,
    each: &mut impl FnMut(&Part<'_>),
) -> Result<(), WalkError> {
    each_part_until(tables, pid, range, folios, &mut |part| {
        each(part);
        ControlFlow::Continue(())
    })
}

/// The same until `each` says to stop, and then with what was read together with that part.
pub(super) fn each_part_until(
    tables: &mut PageTables,
    pid: u32,
    range: AddrRange,
    folios: Folios,
    each: &mut impl FnMut(&Part<'_>) -> ControlFlow<()>,
) -> Result<(), WalkError> {
    let layout = *tables.layout();
    tables.tables(pid, range, folios, &mut |table| {
        let entry = |bytes: u64| usize::try_from(bytes).unwrap_or(512).min(512);
        let from = (range.start.0.saturating_sub(table.base.0)) / table.span();
        let to = (range.end.0.saturating_sub(table.base.0)).div_ceil(table.span());
        each(&Part {
            table: &table,
            layout: &layout,
            leaves: table.leaves(&layout).within(entry(from)..entry(to)),
        })
    })
}

/// Calls `each` with every leaf that maps a part of `range`, and with that part, as [`each_part`].
pub(super) fn each_leaf(
    tables: &mut PageTables,
    pid: u32,
    range: AddrRange,
    folios: Folios,
    each: &mut impl FnMut(AddrRange, Leaf),
) -> Result<(), WalkError> {
    each_part(tables, pid, range, folios, &mut |part| {
        part.each_of(part.leaves.each(), range, each);
    })
}

pub(super) fn pages_of(at: AddrRange) -> impl Iterator<Item = Addr> {
    (at.start.0..at.end.0).step_by(PAGE_SIZE as usize).map(Addr)
}
