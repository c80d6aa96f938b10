//! How processes are watched and acted on: trackers (which pages were touched?) and actors (do this to that).

pub mod kdamond;
pub mod process;
pub mod tracker;

pub use process::{Process, Processes};
pub use tracker::Tracker;
