//! Actions on huge pages, each applied to aligned units of 2 MiB.
//!
//! * `hugepage`: replaces `MADV_NOHUGEPAGE` flags that we set; sets `MADV_HUGEPAGE` if the user allowed it;
//!   collapses units with at least one present page (`MADV_COLLAPSE`).
//! * `collapse`: collapses units with enough present pages.
//! * `nohugepage`: sets `MADV_NOHUGEPAGE` where the kernel could make huge pages by itself; splits huge pages
//!   and frees the parts that were never written.

use thermo_engine::action::Action;
use thermo_engine::ops::{Applied, TargetRange};
use thermo_inject::HugeFlag;
use thermo_kernel::process_madvise::Advice;
use thermo_kernel::{clock, thp};
use thermo_targets::{Inspector, PageView, Process};
use thermo_units::{AddrRange, Bytes, Permille};

use super::plan::{RangePlan, Task};
use super::state::Actor;
use super::units::{HUGE_PAGE, first_page_views};
use super::{collapse, range_ops};

impl Actor {
    /// The parts of `run` on which `action` still has work to do.
    pub fn pending(
        &mut self,
        process: &Process,
        action: Action,
        run: &TargetRange,
        pte: Inspector<'_>,
    ) -> Vec<AddrRange> {
        let units = range_ops::aligned_units(&[run.range], HUGE_PAGE);
        let views = first_page_views(process, &units, pte);
        if views.len() != units.len() {
            return vec![run.range];
        }
        let now = clock::monotonic();
        let forbids = action == Action::Nohugepage;
        let flag = if forbids { Some(HugeFlag::NoHugePage) } else { None };
        let flag =
            flag.or((action == Action::Hugepage && self.huge.options.set_flag).then_some(HugeFlag::HugePage));
        let mut left = Vec::new();
        for (unit, view) in units.iter().zip(&views) {
            let lacks_flag = || flag.is_some_and(|flag| !self.huge.flags.is_settled(process, *unit, flag));
            let to_do = match view {
                // No page was ever mapped here.
                PageView::Absent { all: true } => forbids && lacks_flag(),
                view if view.is_huge() => forbids || lacks_flag(),
                _ if forbids => lacks_flag(),
                _ => !self.huge.is_backed_off(process.id, unit.start, now) || lacks_flag(),
            };
            if to_do {
                unit.coalesce_into(&mut left);
            }
        }
        left
    }

    /// Makes huge pages in the kept memory of `plans`.
    pub(super) fn make_huge(
        &mut self,
        task: &Task<'_>,
        plans: Vec<RangePlan>,
        mut pte: Inspector<'_>,
    ) -> Vec<Applied> {
        let in_all = all_units(&plans);
        let mut choose = |plan: RangePlan| self.choose(task, plan, pte.as_deref_mut());
        let mut chosen: Vec<(Applied, Vec<AddrRange>)> = plans.into_iter().map(&mut choose).collect();
        if self.dry_run {
            // Setting a flag is a call in the target.
        } else if task.action == Action::Hugepage {
            self.huge.flags.allow_again(task.process, &in_all);
            if self.huge.options.set_flag {
                self.huge
                    .flags
                    .change(task.process, &in_all, HugeFlag::HugePage, true);
            }
        } else {
            let units: Vec<AddrRange> = chosen.iter().flat_map(|(_, units)| units).copied().collect();
            self.huge.flags.allow_again(task.process, &units);
        }
        for (applied, units) in &mut chosen {
            self.collapse(task.process, units, pte.as_deref_mut(), applied);
        }
        chosen.into_iter().map(|(applied, _)| applied).collect()
    }

    /// The units in the kept memory of `plan` that are worth collapsing.
    fn choose(&self, task: &Task<'_>, plan: RangePlan, pte: Inspector<'_>) -> (Applied, Vec<AddrRange>) {
        let RangePlan { mut applied, kept } = plan;
        if kept.is_empty() {
            return (applied, Vec::new());
        }
        let min_present = match task.action {
            Action::Collapse => self.huge.options.min_present,
            _ => Permille(0),
        };
        let choice = collapse::Choice {
            process: task.process,
            pagemap: task.pagemap,
            min_present,
        };
        applied.changed = pte.is_some().then_some(Bytes::ZERO);
        let units = choice.units(&kept, pte, &mut applied);
        (applied, units)
    }

    /// Collapses `units` and checks which became huge.
    fn collapse(
        &mut self,
        process: &Process,
        units: &[AddrRange],
        mut pte: Inspector<'_>,
        applied: &mut Applied,
    ) {
        if units.is_empty() {
            return;
        }
        let mut neighbours = Vec::new();
        units.iter().for_each(|unit| unit.coalesce_into(&mut neighbours));
        let mut plan = RangePlan {
            applied: std::mem::take(applied),
            kept: neighbours.into(),
        };
        self.advise(process, Advice::Collapse, std::slice::from_mut(&mut plan));
        *applied = plan.applied;
        if self.dry_run {
            return;
        }
        let is_huge: Vec<bool> = first_page_views(process, units, pte.as_deref_mut())
            .iter()
            .map(PageView::is_huge)
            .collect();
        if pte.is_some() {
            let nr_huge = is_huge.iter().filter(|is_huge| **is_huge).count() as u64;
            applied.changed = Some(Bytes(HUGE_PAGE.0 * nr_huge));
            self.huge.record_tries(process.id, units, &is_huge);
        }
    }

    /// Forbids huge pages in the kept memory of `plans`, and splits existing ones.
    pub(super) fn forbid_huge(
        &mut self,
        task: &Task<'_>,
        plans: Vec<RangePlan>,
        mut pte: Inspector<'_>,
    ) -> Vec<Applied> {
        let units = all_units(&plans);
        let always = thp::read(&self.root).ok().flatten() == Some(thp::ThpMode::Always);
        // In other modes the kernel makes huge pages only in mappings with MADV_HUGEPAGE.
        if !self.dry_run {
            let flag = HugeFlag::NoHugePage;
            self.huge.flags.change(task.process, &units, flag, always);
        }
        let mut split = |plan: RangePlan| self.split(task, plan, pte.as_deref_mut());
        plans.into_iter().map(&mut split).collect()
    }
}

/// The units in the kept memory of all plans, ascending.
fn all_units(plans: &[RangePlan]) -> Vec<AddrRange> {
    let mut units: Vec<AddrRange> = plans
        .iter()
        .flat_map(|plan| range_ops::aligned_units(&plan.kept, HUGE_PAGE))
        .collect();
    units.sort_unstable_by_key(|unit| unit.start);
    units.dedup();
    units
}
