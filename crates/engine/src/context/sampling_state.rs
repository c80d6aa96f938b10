//! The state of sampling between steps.

use crate::monitoring::CheckLog;
use crate::ops::Probe;
use thermo_units::Nanos;

/// The state of sampling between steps.
#[derive(Debug, Default)]
pub(super) struct Sampling {
    /// The access checks of the running sampling interval, in the order of regions.
    pub(super) probes: Vec<Probe>,
    /// Number of access checks of each region in the running aggregation.
    pub(super) nr_checks: u32,
    /// Addresses and results of these checks.
    pub(super) evidence: CheckLog,
    /// End of the running sampling interval, or of the last one if none is running.
    pub(super) due: Option<Nanos>,
    /// True while a sampling interval is running.
    pub(super) running: bool,
}

impl Sampling {
    /// End of the running sampling interval; `None` if none is running.
    pub(super) fn running_until(&self) -> Option<Nanos> {
        self.due.filter(|_| self.running)
    }

    /// Forgets the end of the last interval, so that the next interval starts whenever it is requested.
    pub(super) const fn forget_due_time(&mut self) {
        self.due = None;
    }

    /// Starts a new aggregation and drops the running sampling interval.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }
}
