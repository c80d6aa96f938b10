//! Moving memory down the LRU lists.
//!
//! The runs of a process are advised together (`madvise_batch.rs`), and then every page of them is looked up in the pagemap: the
//! kernel shows no LRU lists, so what was advised, is present and is mapped by nobody else counts as applied.

use thermo_engine::ops::{Applied, Skip};
use thermo_kernel::process_madvise::Advice;

use super::pagemap_stats::{PagemapStats, survey_plans};
use super::plan::{RangePlan, Task};
use super::spans;
use super::state::Actor;

impl Actor {
    /// Moves down what `plans` keep of the runs of one process.
    pub(super) fn cold(&self, task: &Task<'_>, mut plans: Vec<RangePlan>) -> impl Iterator<Item = Applied> {
        self.advise(task.process, Advice::Cold, &mut plans);
        let mut found = survey_plans(task.pagemap, &plans);
        // A number that was given to another process in the meantime: what was read is not the target's.
        if !task.process.is_alive() {
            found.fill(PagemapStats::default());
        }
        plans.into_iter().zip(found).map(book)
    }
}

fn book((plan, there): (RangePlan, PagemapStats)) -> Applied {
    let RangePlan { mut applied, kept } = plan;
    applied.skip(Skip::NotPresent, spans::sum(&kept).saturating_sub(there.present));
    applied.skip(Skip::Shared, there.shared);
    applied.applied = there.present.saturating_sub(there.shared);
    applied
}
