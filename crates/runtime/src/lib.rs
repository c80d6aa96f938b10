//! The runtime combines targets, a backend and actions into the operations of the engine, and runs the engine
//! in a thread.

mod best_tracker;
pub mod cpu_share;
pub mod kdamond;
pub mod target_records;
mod vaddr;

pub use best_tracker::{best_tracker, named_best_tracker};
pub use vaddr::Vaddr;
