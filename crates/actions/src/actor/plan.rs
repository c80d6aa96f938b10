//! What is to be done to the memory of one process, and what was decided for each run.

use thermo_engine::action::Action;
use thermo_engine::ops::Applied;
use thermo_kernel::pagemap::Pagemap;
use thermo_targets::{Process, Processes};

use super::filter::PageFilters;
use super::spans::Ranges;

/// What is asked for the memory of one process.
pub(super) struct Task<'a> {
    pub(super) processes: &'a Processes,
    pub(super) process: &'a Process,
    pub(super) action: Action,
    pub(super) filters: &'a PageFilters,
    pub(super) pagemap: &'a Pagemap,
}

/// What of a run is to be acted on, and what is known of the rest.
pub(super) struct RangePlan {
    pub(super) applied: Applied,
    pub(super) kept: Ranges,
}

impl RangePlan {
    /// The run ends here.
    pub(super) fn nothing(applied: Applied) -> Self {
        Self {
            applied,
            kept: Ranges::new(),
        }
    }
}
