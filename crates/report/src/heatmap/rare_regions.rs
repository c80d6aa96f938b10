//! Regions that come less often than snapshots: a history has access tables every ten seconds, and regions
//! every minute.

use std::collections::BTreeMap;

use thermo_recording::model::{Snapshot, Target};

/// The times without regions, by target. Regions cover the time since the ones before.
#[derive(Debug, Clone, Default)]
pub(super) struct RareRegions(BTreeMap<u32, Without>);

#[derive(Debug, Clone, Copy)]
struct Without {
    since_ns: u64,
    until_ns: u64,
}

impl RareRegions {
    /// Begin of the time that the regions of `target` in `snapshot` cover; `None` if it has no regions.
    pub(super) fn begin(&mut self, target: &Target, snapshot: &Snapshot) -> Option<u64> {
        let start_ns = snapshot.start_ns;
        // A target that was absent in between was not watched then.
        let known = self
            .0
            .remove(&target.id)
            .filter(|known| known.until_ns >= start_ns);
        let since_ns = known.map_or(start_ns, |known| known.since_ns);
        if !target.regions.is_empty() {
            return Some(since_ns);
        }
        // Before the end of the first pass there are no regions because nothing is known.
        if target
            .tables
            .as_deref()
            .is_some_and(|tables| tables.nr_passes > 0)
        {
            let until_ns = snapshot.time_ns;
            self.0.insert(target.id, Without { since_ns, until_ns });
        }
        None
    }
}
