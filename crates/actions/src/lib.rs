//! Actions on the memory of processes, each with a result per range.
//!
//! * [`Actor`] applies the actions of schemes.
//! * [`hint`] applies actions that one program requests for the memory of another.
//! * [`page_cache`] sorts the cached pages of files on the LRU lists.
//! * [`pagein`] brings back what is in swap.
//! * [`preset`] holds the parameters of the kernel's DAMON modules and the schemes they stand for.
//!
//! Access monitoring is not here but in `thermo_backends`. An action that needs page-table data gets a
//! `PageInspector`.

// `eprintln!` panics where standard error cannot be written: use `thermo_kernel::message!`.
#![cfg_attr(not(test), warn(clippy::print_stderr))]

mod actor;
#[cfg(test)]
mod fake;
pub mod hint;
pub mod page_cache;
pub mod pagein;
pub mod preset;

pub use actor::{
    Actor, HeldProcesses, HugeOptions, MigrationMeter, Moved, PageoutLimits, RefaultCheck, RefaultMeter,
    Returns, below_swap_floor, check_destinations, check_goal_node,
};
