//! Reports what this host supports: facts, gathered once, and rules that read the facts.
//!
//! [`HostFacts::gather`] reads the kernel's files. [`trackers`] and [`actions`] only use the facts, so that
//! every answer can be tested with a struct. Each answer has a reason for the user: how it works, or what is
//! missing and how to change that.

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
