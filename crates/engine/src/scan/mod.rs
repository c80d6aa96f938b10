//! Page-exact monitoring: every page of a target is scanned, pass after pass.
//!
//! * A **pass** is a cursor over what a target maps. It advances in chunks, so that the cost of each is known before the
//!   next. Each target has its own pace: `scheduler` divides the budget among them.
//! * What is known of a page is one byte, or nothing where 512 neighbours are alike: `page_states`.
//! * Tables of idle ages and re-accesses come from the page states directly ([`AccessTables`]). Regions are derived from
//!   runs of alike pages, coalesced where they differ least until there are few enough (`coalesce`).
//!
//! [`AccessTables`]: crate::AccessTables

mod chunk;
mod coalesce;
mod cursor;
mod page_states;
mod region_builder;
mod scheduler;

pub use chunk::{PageSeen, Preparation, ScanChunk};
pub(crate) use coalesce::{Condensed, regions_of};
pub(crate) use cursor::Cursor;
pub use page_states::PageStates;
pub(crate) use page_states::{State, StateRun};
pub(crate) use region_builder::GapCost;
pub(crate) use scheduler::{Scheduler, Turn};

/// How many passes a page's access rate is counted over.
pub const WINDOW: u32 = 7;

/// What one pass that found the page accessed counts in `nr_accesses`, so that the mean of a region's pages keeps a
/// figure more than whole passes would.
pub const PER_PASS: u32 = 10;

/// The most `nr_accesses` can be of a scanned region. A snapshot interval stands for this many sampling intervals.
pub const MAX_NR_ACCESSES: u32 = WINDOW * PER_PASS;
