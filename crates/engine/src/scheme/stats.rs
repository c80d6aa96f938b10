//! Statistics of a scheme since its start. Names are those of DAMON's `stats` files.

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
    /// Bytes that passed the ops filters; 0 without ops filters.
    pub sz_ops_filter_passed: Bytes,
    /// Bytes that changed state, for actions whose effect can be read back.
    pub sz_changed: Bytes,
    /// Quota windows in which the quota was used up.
    pub qt_exceeds: u64,
    /// Apply intervals in which the scheme was active.
    pub nr_snapshots: u64,
    /// CPU time that the action took.
    pub spent: Nanos,
    /// Current size limit; 0: no limit. A limit that allows no memory is reported as 1 byte, which is less
    /// than a page.
    pub effective_sz: Bytes,
}
