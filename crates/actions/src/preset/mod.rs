//! The kernel's ready-made modules as parameter blocks over schemes: each has the module's parameters by their
//! names and with their defaults, and says which attributes and schemes they mean.

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
