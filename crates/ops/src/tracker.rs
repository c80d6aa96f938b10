//! A tracker: a way to see which pages of processes were touched.
//!
//! Each takes off the accessed marks of the probes' pages ([`Tracker::prepare`]) and later tells which marks
//! came back ([`Tracker::check`]). A tracker never fails: what it cannot tell, such as pages of a process that
//! died meanwhile, is [`Seen::Unknown`].
//!
//! [`Seen::Unknown`]: thermo_engine::ops::Seen::Unknown

use std::path::Path;

use thermo_engine::ops::Probe;

use crate::process::Processes;
use crate::pte::PteTracker;
use crate::smaps::Smaps;

/// A way to see which pages were touched.
pub trait Tracker {
    /// Takes the accessed marks off the pages of `probes`, which come sorted by target, then address.
    fn prepare(&mut self, processes: &Processes, probes: &[Probe]);

    /// Answers in `seen`, for the probes last prepared (the same, in the same order), whether they were touched
    /// since.
    fn check(&mut self, processes: &Processes, probes: &mut [Probe]);

    /// Whether it can scan every page ([`PteTracker::scan`]).
    fn can_scan(&self) -> bool {
        false
    }

    /// Whether passes over all targets must begin together.
    fn scans_jointly(&self) -> bool {
        false
    }

    /// Whether it sees the accessed marks that in-kernel DAMON and the idle-page bitmap took off before it, in the
    /// flag by which they keep account of them.
    fn sees_marks_taken(&self) -> bool {
        false
    }

    /// Whether it sees what virtual machines touch, which leaves no mark in the page tables of who runs them.
    fn sees_guests(&self) -> bool {
        false
    }

    /// Itself, if it is the one that reads page tables: the actor asks that one which pages were touched.
    fn as_pte(&mut self) -> Option<&mut PteTracker> {
        None
    }
}

/// The best tracker there is here, for the machine at `root` (`/`): the one that reads page tables where it may, the
/// one that needs no privilege otherwise. That one takes its random choices from `seed`.
#[must_use]
pub fn best(root: &Path, seed: u64) -> Box<dyn Tracker + Send> {
    match PteTracker::new() {
        Ok(tracker) => Box::new(tracker),
        Err(_) => Box::new(Smaps::new(root, seed)),
    }
}
