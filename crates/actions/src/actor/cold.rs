//! Moves memory down on the LRU lists.
//!
//! The ranges of a process are advised together (`advisor.rs`). Then every page is looked up in the
//! pagemap. The kernel does not expose LRU lists, so a page counts as applied if it was advised, is present,
//! and is mapped only by the target.

use thermo_engine::ops::{Applied, Skip};
use thermo_kernel::process_madvise::Advice;

use super::pagemap_stats::{PagemapStats, count_plans};
use super::plan::{RangePlan, Task};
use super::range_ops;
use super::state::Actor;

impl Actor {
    /// Moves the kept memory of one process's `plans` down.
    pub(super) fn cold(&self, task: &Task<'_>, mut plans: Vec<RangePlan>) -> impl Iterator<Item = Applied> {
        self.advise(task.process, Advice::Cold, &mut plans);
        let mut stats = count_plans(task.pagemap, &plans);
        // The pid may belong to another process by now, so the pagemap may not be the target's.
        if !task.process.is_alive() {
            stats.fill(PagemapStats::default());
        }
        plans.into_iter().zip(stats).map(result)
    }
}

fn result((plan, stats): (RangePlan, PagemapStats)) -> Applied {
    let RangePlan { mut applied, kept } = plan;
    applied.skip(
        Skip::NotPresent,
        range_ops::sum(&kept).saturating_sub(stats.present),
    );
    applied.skip(Skip::Shared, stats.shared);
    applied.applied = stats.present.saturating_sub(stats.shared);
    applied
}
