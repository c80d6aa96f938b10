//! The runtime combines targets, a backend and actions into the operations of the engine, and runs the engine
//! in a thread.

pub mod cpu_share;
pub mod host;
pub mod kdamond;
pub mod target_records;
mod vaddr;

pub use vaddr::Vaddr;
