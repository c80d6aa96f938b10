//! What this host can do: facts, gathered once, and the rules that follow from them.
//!
//! [`HostFacts::gather`] asks the kernel; [`trackers`] and [`actions`] only read the facts, so that every answer can be
//! tested with a struct. Each answer carries a reason a user can read: what it stands on, or what is missing and what
//! would change that.

mod actions;
mod facts;
mod pte;
mod report;
mod trackers;

pub use actions::{ActionReport, actions};
pub use facts::HostFacts;
pub use pte::PteOpened;
pub use report::TrackerReport;
pub use trackers::{default_tracker, trackers};
