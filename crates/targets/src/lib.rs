//! Targets: which processes they are, what of each is monitored, and what the machine says of memory.
//!
//! What the user named is a [`TargetSpec`], who that is now a [`Discovery`], and [`TrackedProcesses`] hold each of them by a
//! pidfd, with what to monitor of it. Backends and actions, which do not know each other, share these: also the
//! [`PageInspector`], by which actions look at page tables, and the [`metric`]s of goals and watermarks.
//!
//! A process that ends, runs another program or appears is an event, not an error. A [`TargetId`] names one
//! address space for the life of a context: when a process runs another program, its old target is gone and a new one
//! appears.
//!
//! [`TargetId`]: thermo_engine::TargetId

mod discovery;
mod error;
mod exclude;
#[cfg(test)]
mod fake;
mod growth_guard;
mod layout;
mod memory_pressure;
pub mod metric;
mod page_inspector;
mod process;
mod spec;
mod tracked_processes;

pub use discovery::{Changes, Discovery, Member};
pub use error::TargetError;
pub use layout::LayoutRule;
pub use memory_pressure::MemoryPressure;
pub use page_inspector::{Inspector, PageInspector, PageView};
pub use process::{Process, Processes};
pub use spec::TargetSpec;
pub use tracked_processes::TrackedProcesses;
