//! Who is watched: what the user named ([`TargetSpec`]), who that is now ([`Roster`]), and each of them held by a
//! pidfd with what to monitor of it ([`Members`]).
//!
//! A process that ends, runs another program or appears is an event, not an error. A [`TargetId`] names one
//! address space for the life of a context: when a process runs another program, its old target is gone and a new one
//! appears.
//!
//! [`TargetId`]: thermo_engine::TargetId

mod error;
mod exclude;
mod layout;
mod loading;
mod members;
mod roster;
mod spec;

pub use error::TargetError;
pub use layout::LayoutRule;
pub use members::Members;
pub use roster::{Changes, Member, Roster};
pub use spec::TargetSpec;
