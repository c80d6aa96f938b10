//! The default tracker.

use std::path::Path;

use thermo_backends::smaps::Smaps;
use thermo_backends::{PteTracker, Tracker};

/// The best tracker that this machine and its privileges allow: `pte` reads page tables; otherwise `smaps`,
/// which needs no privilege. `root` is `/` except in tests. `seed` is the seed of the random choices of
/// `smaps`.
#[must_use]
pub fn best_tracker(root: &Path, seed: u64) -> Box<dyn Tracker + Send> {
    named_best_tracker(root, seed).1
}

/// As [`best_tracker`], with the name of the tracker.
#[must_use]
pub fn named_best_tracker(root: &Path, seed: u64) -> (&'static str, Box<dyn Tracker + Send>) {
    match PteTracker::new() {
        Ok(tracker) => ("pte", Box::new(tracker)),
        Err(_) => ("smaps", Box::new(Smaps::new(root, seed))),
    }
}
