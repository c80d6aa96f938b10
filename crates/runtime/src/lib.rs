//! The runtime: targets, a backend, the engine and actions put together, and the thread that runs them.

mod best_tracker;
pub mod kdamond;
mod vaddr;

pub use best_tracker::best_tracker;
pub use vaddr::Vaddr;
