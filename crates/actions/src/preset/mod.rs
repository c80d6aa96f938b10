//! The kernel's DAMON modules as presets, and memory tiers, which have no module. Each preset has the
//! module's parameters, with their names and defaults, and builds the attributes and schemes that they stand
//! for.

mod error;
mod lru_sort;
mod parameter;
mod reclaim;
mod tier;
mod wmarks;

pub use error::PresetError;
pub use lru_sort::LruSort;
pub use parameter::ParameterError;
pub use reclaim::Reclaim;
pub use tier::{Tier, TierError};
pub use wmarks::{Wmarks, monitor_region};
