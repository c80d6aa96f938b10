//! The choice of a tracker where the user made none.

use std::path::Path;

use thermo_backends::smaps::Smaps;
use thermo_backends::{PteTracker, Tracker};

/// The best tracker there is here, for the machine at `root` (`/`): the one that reads page tables where it may, the
/// one that needs no privilege otherwise. That one takes its random choices from `seed`.
#[must_use]
pub fn best_tracker(root: &Path, seed: u64) -> Box<dyn Tracker + Send> {
    match PteTracker::new() {
        Ok(tracker) => Box::new(tracker),
        Err(_) => Box::new(Smaps::new(root, seed)),
    }
}
