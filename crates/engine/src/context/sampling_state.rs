//! What sampling remembers between steps.

use crate::monitoring::Evidence;
use crate::ops::Probe;
use thermo_units::Nanos;

/// What sampling remembers between steps.
#[derive(Debug, Default)]
pub(super) struct Sampling {
    /// The access checks of the sampling interval that is running, in the order of regions.
    pub(super) probes: Vec<Probe>,
    /// Access checks of each region counted in the aggregation that is running.
    pub(super) looks: u32,
    /// Where those checks were and what they found.
    pub(super) evidence: Evidence,
    /// The moment the sampling interval that is running, or was last, should end.
    pub(super) due: Option<Nanos>,
    /// Whether one is running.
    pub(super) running: bool,
}

impl Sampling {
    /// When the access checks that are under way are due, if there are any.
    pub(super) fn under_way(&self) -> Option<Nanos> {
        self.due.filter(|_| self.running)
    }

    /// Lets the next sampling interval begin whenever it does, not in step with the one before.
    pub(super) const fn lose_step(&mut self) {
        self.due = None;
    }

    /// Begins a new aggregation; the interval that is running counts nothing.
    pub(super) fn begin_anew(&mut self) {
        *self = Self::default();
    }
}
