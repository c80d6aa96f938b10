//! The kernel's DAMON modules as presets. Each preset has the module's parameters, with their names and
//! defaults, and builds the attributes and schemes that they stand for.

mod error;
mod lru_sort;
mod parameter;
mod reclaim;
mod wmarks;

pub use error::PresetError;
pub use lru_sort::LruSort;
pub use parameter::ParameterError;
pub use reclaim::Reclaim;
pub use wmarks::{Wmarks, monitor_region};
