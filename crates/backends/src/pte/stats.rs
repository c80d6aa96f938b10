//! Totals of clearing accessed bits.

use thermo_units::Nanos;

/// Number of cleared ranges and pages, and the CPU time of the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClearStats {
    /// Ranges passed to `process_madvise`.
    pub ranges: u64,
    /// Present pages of 4 KiB in them; huge pages are not counted.
    pub pages: u64,
    /// CPU time of the calls.
    pub spent: Nanos,
}

impl ClearStats {
    pub(super) fn add(&mut self, ranges: u64, pages: u64, spent: Nanos) {
        self.ranges += ranges;
        self.pages += pages;
        self.spent += spent;
    }
}
