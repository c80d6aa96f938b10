//! What stops an actor: for all processes, or for some.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use thermo_engine::ops::Skip;

/// Processes whose memory an actor skips until the next change, by number. Copies share one set.
#[derive(Debug, Clone, Default)]
pub struct HeldProcesses(Arc<RwLock<BTreeSet<u32>>>);

impl HeldProcesses {
    /// Skips the memory of these processes from now on, and of no others.
    pub fn set(&self, pids: BTreeSet<u32>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = pids;
    }

    fn contains(&self, pid: u32) -> bool {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&pid)
    }
}

/// Asked between system calls, each of which takes at most about 0.1 s.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop {
    /// Set while nothing may be done.
    pub(super) cancel: Arc<AtomicBool>,
    /// See [`HeldProcesses`].
    pub(super) held: HeldProcesses,
}

impl Stop {
    /// Why the memory of process `pid` is skipped now.
    pub(super) fn reason(&self, pid: u32) -> Option<Skip> {
        let stops = self.cancel.load(Ordering::Relaxed) || self.held.contains(pid);
        stops.then_some(Skip::Cancelled)
    }
}
