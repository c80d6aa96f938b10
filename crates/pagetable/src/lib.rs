//! Reading other processes' page tables, on a stock kernel, through a BPF program.
//!
//! [`PageTables::open`] loads the program (`src/bpf/pagetable.bpf.c`) and finds the kernel's direct map of
//! physical memory; [`PageTables::entries`] reads the entries that map scattered addresses, and
//! [`PageTables::tables`] copies the whole tables of a range. Nothing is changed and no lock is taken, so what is
//! read is a picture of a moving thing: an entry may be gone when it is looked at.
//!
//! Who takes accessed marks off and keeps account of it (in-kernel DAMON, the idle-page bitmap) notes in the page's
//! folio that it is *young*. No interface shows that to user space; it is read from the kernel's array of struct
//! page, found by pages of our own (`page_array`), where [`Folios`] asks for it.
//!
//! How entries are laid out is told by [`Layout`]: x86-64 with 4 and 5 levels, and arm64 with 4 KiB pages.

mod calibrate;
mod error;
mod folios;
mod layout;
mod load;
mod max_pfn;
mod run;
mod shared;
mod tables;
mod vmemmap;

pub use error::{BpfError, NoFolios, WalkError};
pub use folios::Folios;
pub use layout::{Arch, Entry, Layout, Leaf};
pub use run::MAX_OPEN;
pub use tables::{Leaves, PageTables, Table, ones};
