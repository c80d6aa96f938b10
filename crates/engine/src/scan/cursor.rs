//! Where the scan of a target is.

use thermo_units::{Addr, Bytes, Nanos};

/// Passes over a target do not begin more often: seven of them, which tell hot from warm, span nearly a second.
const SHORTEST_PASS: Nanos = Nanos::millis(125);
/// A target whose scan is deferred is scanned nevertheless when its last pass is so old.
const LONGEST_DEFERRAL: Nanos = Nanos::secs(60);

/// Where the scan of a target is.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// Where the pass under way goes on, if one is.
    pub(super) at: Option<Addr>,
    /// When the pass that is under way, or was last, began.
    pub(super) began: Option<Nanos>,
    /// CPU time spent on it, divided by its weight.
    pub(super) virtual_time: u64,
    /// Whether its last pass ended before the next may begin. Time in which it had no turn gives it none later.
    pub(super) waits: bool,
    /// Address space scanned since the target's regions were derived last.
    pub(crate) scanned: Bytes,
}

impl Cursor {
    /// What the first pass has not scanned yet begins here.
    pub(crate) fn reached(&self) -> Addr {
        self.at.unwrap_or(Addr(0))
    }

    /// When the next pass over a target may begin, whose scan is deferred or not; none: at once.
    pub(super) fn due(&self, defer_scan: bool) -> Option<Nanos> {
        let least = if defer_scan {
            LONGEST_DEFERRAL
        } else {
            SHORTEST_PASS
        };
        Some(self.began?.saturating_add(least))
    }
}
