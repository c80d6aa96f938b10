//! The position of the scan in a target.

use thermo_units::{Addr, Bytes, Nanos};

/// Minimum time between the starts of two passes over a target. The window of seven passes then spans nearly
/// a second.
const MIN_PASS_INTERVAL: Nanos = Nanos::millis(125);

/// The position of the scan in a target.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// Next address of the running pass; `None` between passes.
    pub(super) at: Option<Addr>,
    /// Start of the running pass, or of the last one between passes.
    pub(super) began: Option<Nanos>,
    /// CPU time spent on the target, divided by its weight.
    pub(super) virtual_time: u64,
    /// True if the last pass ended before the next may begin. The target gets no credit for the time it
    /// waits.
    pub(super) waits: bool,
    /// Bytes of address space scanned since the target's regions were derived.
    pub(crate) scanned: Bytes,
}

impl Cursor {
    /// Next address of the running pass. 0 between passes.
    pub(crate) fn reached(&self) -> Addr {
        self.at.unwrap_or(Addr(0))
    }

    /// Earliest start of the next pass; `None` before the first pass, which may start at once.
    pub(super) fn next_pass(&self) -> Option<Nanos> {
        Some(self.began?.saturating_add(MIN_PASS_INTERVAL))
    }
}
