//! How processes are watched and acted on: trackers (which pages were touched?) and actors (do this to that).

pub mod actor;
pub mod beside;
#[cfg(test)]
mod fake;
pub mod hint;
pub mod host;
pub mod idle;
pub mod inject;
pub mod inspector;
pub mod kdamond;
pub mod metric;
pub mod offload;
pub mod page_cache;
pub mod preset;
pub mod process;
pub mod pte;
mod shortage;
pub mod smaps;
pub mod targets;
pub mod tracker;
pub mod vaddr;

pub use actor::{Actor, PageoutLimits};
pub use process::{Process, Processes};
pub use pte::{PteTracker, others_clear_accessed_bits};
pub use tracker::Tracker;
pub use vaddr::Vaddr;
