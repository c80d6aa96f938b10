//! What actions ask of the page tables of a process, whoever reads those.

use std::fmt::Debug;

use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

use crate::process::Process;

/// What the page tables of a process say of one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageView {
    /// A page is mapped there.
    Page {
        /// What its page-table entry maps.
        size: Bytes,
        /// Whether it was accessed since its accessed bit, and that of its folio where these are asked, was cleared.
        accessed: bool,
    },
    /// No page is mapped there now: never touched, swapped out, or a hole.
    Absent {
        /// Whether all 2 MiB around the address have no page, and no page table either.
        all: bool,
    },
    /// It cannot be told.
    Unknown,
}

impl PageView {
    /// Whether a huge page is mapped there as such.
    #[must_use]
    pub const fn is_huge(&self) -> bool {
        matches!(self, Self::Page { size, .. } if size.0 > PAGE_SIZE)
    }
}

/// A reader of page tables.
pub trait PageInspector: Debug + Send {
    /// Looks at `addrs` (ascending) in `process`, and puts what it finds at each into `views`; with `young` also at the
    /// accessed bits that others moved to folios. False, and no views, when the process is gone.
    fn inspect(&mut self, process: &Process, addrs: &[Addr], young: bool, views: &mut Vec<PageView>) -> bool;

    /// The pages of `range` that are known to have been accessed since their accessed bits were cleared lately: each with
    /// all that its page-table entry maps, ascending. `None` when the process is gone.
    fn touched_since_cleared(&mut self, process: &Process, range: AddrRange) -> Option<Vec<AddrRange>>;
}

/// A reader of page tables that is lent, where there is one.
pub type Inspector<'a> = Option<&'a mut (dyn PageInspector + 'static)>;
