//! Backends: find out which pages of processes were accessed.
//!
//! A [`Tracker`] answers access checks and scans for a context of the engine. [`offload`] hands a whole
//! context to in-kernel DAMON. [`host`] reports which backends work here and why, and [`interference`] which
//! other programs use accessed bits. Actions on memory are in `thermo_actions`.

pub mod host;
pub mod idle;
pub mod interference;
pub mod offload;
mod pte;
pub mod smaps;
mod tracker;

pub use pte::{ClearStats, PteTracker, other_monitors_exist};
pub use tracker::Tracker;
