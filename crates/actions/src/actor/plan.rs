//! The task for one process, and the plan for each range.

use thermo_engine::action::Action;
use thermo_engine::ops::Applied;
use thermo_engine::scheme::Destination;
use thermo_kernel::pagemap::Pagemap;
use thermo_targets::{Process, Processes};

use super::filter::PageFilters;
use super::prefetch::FileMappings;
use super::range_ops::Ranges;

/// A request for the memory of one process.
pub(super) struct Task<'a> {
    pub(super) processes: &'a Processes,
    pub(super) process: &'a Process,
    pub(super) action: Action,
    pub(super) destinations: &'a [Destination],
    pub(super) filters: &'a PageFilters,
    pub(super) pagemap: &'a Pagemap,
    pub(super) files: FileMappings,
}

/// The memory of a range to act on (`kept`), and the result so far.
#[derive(Default)]
pub(super) struct RangePlan {
    pub(super) applied: Applied,
    pub(super) kept: Ranges,
}

impl RangePlan {
    /// Nothing is left to do for the range.
    pub(super) fn nothing(applied: Applied) -> Self {
        Self {
            applied,
            kept: Ranges::new(),
        }
    }
}
