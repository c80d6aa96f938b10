//! The engine: DAMON's monitoring and schemes as a function of (settings, access check results, now, seed).
//!
//! Each target is scanned page by page, or its regions are sampled. An aggregation counts the accesses, then
//! ages, merges and splits regions so that their number stays within bounds. Schemes are applied to the
//! regions that match. [`Context`] is the one loop. It reaches the machine through [`Operations`] and emits
//! results to a [`Sink`]. The crate has no clock, no I/O, no threads and no unsafe code.

pub mod access_tables;
pub mod action;
pub mod attrs;
pub mod budget;
pub mod context;
pub mod layout;
mod monitoring;
pub mod ops;
pub mod region;
pub mod rng;
pub mod scan;
pub mod scheme;
pub mod sink;
mod target_id;
pub mod tuning;

pub use access_tables::AccessTables;
pub use action::Action;
pub use attrs::{Attrs, AttrsError};
pub use context::{Context, Next, SampledPage};
pub use ops::{Operations, OpsError, TargetLayout};
pub use region::Region;
pub use scheme::Scheme;
pub use sink::{Event, Sink};
pub use target_id::TargetId;
pub use tuning::{IntervalsGoal, IntervalsGoalError};
