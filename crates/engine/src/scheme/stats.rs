//! What a scheme did since it began. Names are those of DAMON's `stats` files.

use thermo_units::{Bytes, Nanos};

/// Totals of one scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchemeStats {
    /// Regions tried.
    pub nr_tried: u64,
    /// Bytes tried.
    pub sz_tried: Bytes,
    /// Regions of which at least one byte was acted on.
    pub nr_applied: u64,
    /// Bytes acted on.
    pub sz_applied: Bytes,
    /// Bytes that passed the ops filters.
    pub sz_ops_filter_passed: Bytes,
    /// Bytes seen to have changed afterwards, of actions that leave a trace.
    pub sz_changed: Bytes,
    /// Windows in which a quota was used up.
    pub qt_exceeds: u64,
    /// Apply intervals in which the scheme was active.
    pub nr_snapshots: u64,
    /// CPU time its actions took.
    pub spent: Nanos,
    /// The size limit in force; 0: none. A limit that allows nothing is shown as 1 byte, which no page fits.
    pub effective_sz: Bytes,
}
