//! Backends: which pages of processes were accessed.
//!
//! A [`Tracker`] answers for pages that a context of our own asks about; [`offload`] hands the whole context to in-kernel
//! DAMON. [`host`] says which of them work here and why, and [`interference`] who else uses accessed bits.
//! Deliberately not here: what is done to memory (`thermo_actions`).

pub mod host;
pub mod idle;
pub mod interference;
pub mod offload;
mod pte;
pub mod smaps;
mod tracker;

pub use pte::{ClearStats, PteTracker, others_clear_accessed_bits};
pub use tracker::Tracker;
