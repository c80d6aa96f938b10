//! Page-exact monitoring: every page of a target is scanned, pass after pass.
//!
//! * A **pass** scans all mapped memory of a target once, in chunks. The cost of each chunk is known before
//!   the next. Each target has its own pace: `scheduler` divides the budget among them.
//! * The state of a page is one byte. 512 neighbouring pages in the same state share a byte: `page_states`.
//! * Tables of idle ages and re-accesses are computed from the page states directly ([`AccessTables`]).
//!   Regions are derived from runs of pages in the same state; the most similar ones are coalesced until
//!   there are few enough (`coalesce`).
//!
//! [`AccessTables`]: crate::AccessTables

mod aliases;
mod chunk;
mod coalesce;
mod cursor;
mod page_states;
mod region_builder;
mod scheduler;

pub use aliases::Alias;
pub(crate) use aliases::Aliases;
pub use chunk::{Preparation, ScanChunk, ScanResult};
pub(crate) use coalesce::{CoalescedRuns, coalesce_targets};
pub(crate) use cursor::Cursor;
pub use page_states::PageStates;
pub(crate) use page_states::{State, StateRun};
pub(crate) use region_builder::GapCost;
pub(crate) use scheduler::{ScanProgress, Scheduler};

/// Number of passes over which a page's access rate is counted.
pub const WINDOW: u32 = 7;

/// Value in `nr_accesses` of one pass that found the page accessed. Ten instead of one, so that the mean over
/// the pages of a region keeps one decimal digit.
pub const PER_PASS: u32 = 10;

/// Maximum `nr_accesses` of a scanned region. A snapshot interval counts as this many sampling intervals.
pub const MAX_NR_ACCESSES: u32 = WINDOW * PER_PASS;
