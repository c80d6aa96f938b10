//! The engine: what DAMON is, as a function of (settings, hits, now, seed).
//!
//! Regions of targets are looked at by sampling, summed up by aggregation, aged, merged and split so that
//! their number stays within bounds; schemes are applied to those that match. [`Context`] is the one loop.
//! The machine is behind [`Operations`]; what is learnt goes to a [`Sink`]. Here are no clock, no I/O, no
//! threads and no unsafe code.

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
pub use context::{Context, Next};
pub use ops::{Operations, OpsError, TargetLayout};
pub use region::Region;
pub use scheme::Scheme;
pub use sink::{Event, Sink};
pub use target_id::TargetId;
pub use tuning::{IntervalsGoal, IntervalsGoalError};
