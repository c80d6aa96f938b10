//! Reads the page tables of other processes on a stock kernel, through a BPF program.
//!
//! [`PageTables::open`] loads the program (`src/bpf/pagetable.bpf.c`) and finds the kernel's direct map of
//! physical memory. [`PageTables::entries`] reads the entries of scattered addresses. [`PageTables::tables`]
//! copies whole tables of a range. Nothing is written and no lock is taken, so the result is a snapshot of
//! tables that change meanwhile: an entry may be outdated by the time the caller sees it.
//!
//! In-kernel DAMON and the idle-page bitmap clear accessed bits and record an earlier access as the *young*
//! flag of the folio. No interface shows this flag to user space. It is read from the kernel's array of
//! struct page (`vmemmap`), where [`Folios`] requests it.
//!
//! [`Layout`] describes the entries: x86-64 with 4 and 5 levels, and arm64 with 4 KiB pages.

mod calibrate;
mod confidential;
mod direct_map;
mod error;
mod folios;
#[doc(hidden)]
pub mod fuzzing;
mod layout;
mod load;
mod max_pfn;
mod run;
mod shared;
mod tables;
mod vmemmap;

pub use error::{BpfError, FolioError, WalkError};
pub use folios::Folios;
pub use layout::{Arch, Entry, Layout, Leaf};
pub use run::MAX_OPEN_FILES;
pub use tables::{Leaves, PageTables, Table, ones};
