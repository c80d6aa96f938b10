//! The state of scanning between steps.

use crate::attrs::Attrs;
use crate::region::Region;
use crate::scan::Scheduler;
use crate::target_id::TargetId;
use thermo_units::Nanos;

/// The state of scanning between steps.
#[derive(Debug, Default)]
pub(super) struct Scanning {
    pub(super) scheduler: Scheduler,
    /// Time of the next snapshot.
    pub(super) next_snapshot: Nanos,
    /// Earliest time at which the budget allows to derive regions from pages again.
    pub(super) next_regions: Nanos,
    /// Earliest time at which the budget allows to apply schemes to runs of pages again.
    pub(super) next_schemes: Nanos,
    /// Runs that quotas left over, for the next quota windows.
    pub(super) deferred: Option<DeferredRegions>,
}

/// The runs of pages of the last snapshot, kept because a quota stopped a scheme before it had tried all.
#[derive(Debug)]
pub(super) struct DeferredRegions(pub(super) Vec<(TargetId, Vec<Region>)>);

impl DeferredRegions {
    /// Converts ages from aggregations of `old` to aggregations of `new`.
    pub(super) fn rescale(&mut self, old: &Attrs, new: &Attrs) {
        for region in self.0.iter_mut().flat_map(|(_, runs)| runs) {
            region.age = new.aggrs_in(old.aggr * u64::from(region.age));
        }
    }

    /// The runs of each of `targets`, in order. A target that appeared since has none.
    pub(super) fn of_targets(mut self, targets: impl Iterator<Item = TargetId>) -> Vec<Vec<Region>> {
        let runs_of = |id| {
            let found = self.0.iter_mut().find(|(target, _)| *target == id);
            found.map(|(_, runs)| std::mem::take(runs)).unwrap_or_default()
        };
        targets.map(runs_of).collect()
    }
}
