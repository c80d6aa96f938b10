//! The actions that need no look at what came of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use thermo_engine::ops::{Applied, Skip};
use thermo_kernel::lru_gen;
use thermo_kernel::process_madvise::Advice;
use thermo_targets::Process;

use super::madvise_batch::Advisor;
use super::plan::{RangePlan, Task};
use super::state::Actor;
use super::touch;

impl Actor {
    /// Moves up what `plans` keep.
    pub(super) fn touch(&self, task: &Task<'_>, plans: Vec<RangePlan>) -> Vec<Applied> {
        let cancel = Arc::clone(&self.cancel);
        let mut stop = || cancel.load(Ordering::Relaxed).then_some(Skip::Cancelled);
        let seen = (task.pagemap, self.frames.as_ref());
        let times = lru_gen::uses(&self.root);
        let touched = plans.into_iter().map(|RangePlan { mut applied, kept }| {
            touch::touch_times(times, task.process, seen, &kept, &mut stop, &mut applied);
            applied
        });
        touched.collect()
    }

    /// Has the kernel begin to read what `plans` keep.
    pub(super) fn bring_in(&self, task: &Task<'_>, mut plans: Vec<RangePlan>) -> Vec<Applied> {
        self.advise(task.process, Advice::WillNeed, &mut plans);
        plans.into_iter().map(|plan| plan.applied).collect()
    }

    /// Gives advice on what `plans` keep that only the cancel flag stops. Then they keep what was advised.
    pub(super) fn advise(&self, process: &Process, advice: Advice, plans: &mut [RangePlan]) {
        let mut stop = |_| self.cancel.load(Ordering::Relaxed).then_some(Skip::Cancelled);
        let advisor = Advisor {
            root: &self.root,
            process,
            advice,
            stop: &mut stop,
        };
        advisor.advise(plans);
    }
}
