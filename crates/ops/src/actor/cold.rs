//! Moving memory down the LRU lists: so cheap for a page (a tenth of a microsecond) that what goes with it decides.
//!
//! The runs of a process are advised together (see `together.rs` in this folder), and then looked at together (see
//! `there.rs`): the kernel shows no LRU lists, so what was advised, was there and is mapped by nobody else counts as
//! applied.

use thermo_core::ops::{Applied, Skip};
use thermo_sys::process_madvise::Advice;

use super::survey::Survey;
use super::there::there;
use super::{Actor, Plan, Task, spans};
use crate::pte::PteTracker;

impl Actor {
    /// Moves down what `plans` keep of the runs of one process.
    pub(super) fn cold(
        &self,
        task: &Task<'_>,
        mut plans: Vec<Plan>,
        pte: Option<&mut PteTracker>,
    ) -> impl Iterator<Item = Applied> {
        self.advise_plans(task, Advice::Cold, &mut plans);
        let found = there(&self.root, task, &plans, pte);
        plans.into_iter().zip(found).map(book)
    }
}

fn book((plan, there): (Plan, Survey)) -> Applied {
    let Plan { mut applied, kept } = plan;
    applied.skip(Skip::NotPresent, spans::sum(&kept).saturating_sub(there.present));
    applied.skip(Skip::Shared, there.shared);
    applied.applied = there.present.saturating_sub(there.shared);
    applied
}
