//! What scanning remembers between steps.

use crate::attrs::Attrs;
use crate::region::Region;
use crate::scan::Scheduler;
use crate::target_id::TargetId;
use thermo_units::Nanos;

/// What scanning remembers between steps.
#[derive(Debug, Default)]
pub(super) struct Scanning {
    pub(super) scheduler: Scheduler,
    /// When the next snapshot is taken.
    pub(super) next_snapshot: Nanos,
    /// When regions may be derived from pages again, as far as their cost goes.
    pub(super) next_regions: Nanos,
    /// When schemes may be applied to runs of pages again, as far as their cost goes.
    pub(super) next_schemes: Nanos,
    /// What quotas left of the last snapshot, for their next windows.
    pub(super) deferred: Option<DeferredRegions>,
}

/// The runs of pages of the last snapshot, where a quota stopped a scheme before it was through.
#[derive(Debug)]
pub(super) struct DeferredRegions(pub(super) Vec<(TargetId, Vec<Region>)>);

impl DeferredRegions {
    /// Counts the same ages, so far in the aggregations of `old`, in those of `new`.
    pub(super) fn rescale(&mut self, old: &Attrs, new: &Attrs) {
        for region in self.0.iter_mut().flat_map(|(_, runs)| runs) {
            region.age = new.aggrs_in(old.aggr * u64::from(region.age));
        }
    }

    /// The runs of each of `targets`, of which some may have gone and some have come since.
    pub(super) fn of_targets(mut self, targets: impl Iterator<Item = TargetId>) -> Vec<Vec<Region>> {
        let runs_of = |id| {
            let found = self.0.iter_mut().find(|(target, _)| *target == id);
            found.map(|(_, runs)| std::mem::take(runs)).unwrap_or_default()
        };
        targets.map(runs_of).collect()
    }
}
