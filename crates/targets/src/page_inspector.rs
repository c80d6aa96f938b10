//! The page-table queries that actions need, independent of the backend that reads the page tables.

use std::fmt::Debug;

use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

use crate::process::Process;

/// The page-table state at one address of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageView {
    /// A page is mapped.
    Page {
        /// Size of the page-table entry.
        size: Bytes,
        /// True if the page was accessed since its accessed bit was cleared, or if its folio is young (with
        /// `young`).
        accessed: bool,
    },
    /// No page is mapped: the address was never accessed, is swapped out, or lies in no mapping.
    Absent {
        /// True if the 2 MiB around the address have no page and no page table.
        all: bool,
    },
    /// The state cannot be determined.
    Unknown,
}

impl PageView {
    /// True if a huge page is mapped by one entry.
    #[must_use]
    pub const fn is_huge(&self) -> bool {
        matches!(self, Self::Page { size, .. } if size.0 > PAGE_SIZE)
    }
}

/// A reader of page tables.
pub trait PageInspector: Debug + Send {
    /// Reads the state at each of `addrs` (ascending) of `process` into `views`. With `young`, also reads the
    /// young flags of folios, which are set when another program clears an accessed bit. Returns false, and
    /// no views, if the process has ended.
    fn inspect(&mut self, process: &Process, addrs: &[Addr], young: bool, views: &mut Vec<PageView>) -> bool;

    /// The pages of `range` that are known to have been accessed since their accessed bits were last cleared,
    /// ascending. Each range is everything that the page-table entry maps. `None` if the process has ended.
    fn accessed_since_cleared(&mut self, process: &Process, range: AddrRange) -> Option<Vec<AddrRange>>;
}

/// A borrowed reader of page tables, if there is one.
pub type Inspector<'a> = Option<&'a mut (dyn PageInspector + 'static)>;
