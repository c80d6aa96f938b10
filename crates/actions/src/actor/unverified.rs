//! Actions whose effect is not verified.

use thermo_engine::ops::Applied;
use thermo_kernel::process_madvise::Advice;
use thermo_kernel::{lru_gen, process_vm};
use thermo_targets::Process;
use thermo_units::Addr;

use super::advisor::Advisor;
use super::dry_run::DryKernel;
use super::plan::{RangePlan, Task};
use super::state::Actor;
use super::touch;

impl Actor {
    /// Moves the kept memory of `plans` up on the LRU lists.
    pub(super) fn touch(&self, task: &Task<'_>, plans: Vec<RangePlan>) -> Vec<Applied> {
        let mut stop = || self.stop.reason(task.process.pid);
        let page_data = (task.pagemap, self.frames.as_ref());
        let times = lru_gen::accesses_to_activate(&self.root);
        let results = plans.into_iter().map(|RangePlan { mut applied, kept }| {
            let dry = self.dry_run.then(|| DryKernel::new(&self.root, task.process));
            let read = |pages: &[Addr]| match &dry {
                Some(dry) => dry.touch_all(pages),
                None => process_vm::touch_all((task.process.pid, &task.process.pidfd), pages, times),
            };
            touch::touch_present(&read, task.process, page_data, &kept, &mut stop, &mut applied);
            applied
        });
        results.collect()
    }

    /// Makes the kernel start to read the kept memory of `plans` in.
    pub(super) fn prefetch(&self, task: &Task<'_>, mut plans: Vec<RangePlan>) -> Vec<Applied> {
        self.advise(task.process, Advice::WillNeed, &mut plans);
        plans.into_iter().map(|plan| plan.applied).collect()
    }

    /// Advises the kept memory of `plans` until the cancel flag is set. Afterwards the plans keep what was
    /// advised.
    pub(super) fn advise(&self, process: &Process, advice: Advice, plans: &mut [RangePlan]) {
        let mut stop = |_| self.stop.reason(process.pid);
        let advisor = Advisor {
            root: &self.root,
            process,
            advice,
            dry_run: self.dry_run,
        };
        advisor.advise(plans, &mut stop);
    }
}
