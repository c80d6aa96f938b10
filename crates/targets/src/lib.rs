//! Targets: the processes and control groups to monitor, and which of their mappings are monitored.
//!
//! A [`TargetSpec`] says what the user named. A [`Discovery`] finds the processes that match it now.
//! [`TrackedProcesses`] holds each of these processes by a pidfd, and determines the ranges to monitor.
//! Backends and actions, which do not know each other, share this crate. It also has the [`PageInspector`],
//! through which actions read page tables, and the [`metric`]s of goals and watermarks.
//!
//! A process that appears, ends or executes another program is an event, not an error. A [`TargetId`]
//! identifies one address space for the life of a context: when a process executes another program, its old
//! target vanishes and a new target appears.
//!
//! [`TargetId`]: thermo_engine::TargetId

mod discovery;
mod error;
mod exclude;
mod layout;
pub mod metric;
mod new_pids;
mod page_inspector;
mod process;
mod reread;
mod spec;
mod target_set;
mod tracked_processes;

pub use discovery::{Changes, DiscoveredProcess, Discovery};
pub use error::TargetError;
pub use layout::{LayoutRule, backing_of, backings};
pub use page_inspector::{Inspector, PageInspector, PageView};
pub use process::{Process, Processes};
pub use reread::Reread;
pub use spec::TargetSpec;
pub use target_set::TargetSet;
pub use tracked_processes::{OTHER_FILES, TrackedProcesses};
