//! Huge pages: what is left to do, how they are made and split, and who is told.
//!
//! | action | done to each aligned 2 MiB |
//! | --- | --- |
//! | `hugepage` | flags of ours that forbid huge pages are taken back; where consented, the flag that asks for them is set; `MADV_COLLAPSE` where at least one page is there |
//! | `collapse` | `MADV_COLLAPSE` where enough pages are there |
//! | `nohugepage` | the flag, where the kernel could make huge pages by itself; huge pages are split, and what of them was never written is given back |

use std::collections::BTreeMap;
use std::path::Path;

use thermo_engine::TargetId;
use thermo_engine::action::Action;
use thermo_engine::ops::{Applied, Run};
use thermo_inject::HugeFlag;
use thermo_kernel::process_madvise::Advice;
use thermo_kernel::{clock, thp, uname};
use thermo_targets::{Inspector, PageView, Process};
use thermo_units::{Addr, AddrRange, Bytes, Nanos, Permille};

use super::flags::Flags;
use super::plan::{Plan, Task};
use super::units::{HUGE_PAGE, views};
use super::{Actor, collapse, spans};

/// How huge pages are made and forbidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugeOptions {
    /// `hugepage` also sets the mapping's own flag, by a call the target is made to make, so that the kernel goes on by
    /// itself. `nohugepage` sets its flag always: that is what it is.
    pub set_flag: bool,
    /// Flags stay when the actor ends.
    pub keep_flags: bool,
    /// How much of a unit must be there for `collapse`.
    pub least_present: Permille,
}

impl Default for HugeOptions {
    fn default() -> Self {
        Self {
            set_flag: false,
            keep_flags: false,
            least_present: Permille(800),
        }
    }
}

/// A unit that could not be made huge is left alone for this long, and twice as long each further time: often a page of
/// it was only in use by the kernel at that moment.
const FIRST_REST: Nanos = Nanos::secs(2);
/// But no longer than this.
const LONGEST_REST: Nanos = Nanos::secs(64);
/// So many of them are remembered.
const MOST_RESTING: usize = 1 << 16;

/// What the actor remembers of huge pages.
#[derive(Debug)]
pub(super) struct Huge {
    pub(super) options: HugeOptions,
    pub(super) flags: Flags,
    /// Splitting alone gives back what is all zeroes.
    pub(super) split_frees: bool,
    resting: BTreeMap<(TargetId, Addr), Rest>,
}

/// How long a unit is left alone.
#[derive(Debug, Clone, Copy)]
struct Rest {
    until: Nanos,
    span: Nanos,
}

impl Rest {
    /// The one that begins now, after `last`.
    fn after(last: Option<&Self>, now: Nanos) -> Self {
        let span = last.map_or(FIRST_REST, |last| (last.span * 2).min(LONGEST_REST));
        Self {
            until: now.saturating_add(span),
            span,
        }
    }
}

impl Huge {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            options: HugeOptions::default(),
            flags: Flags::new(root),
            // Since 6.12 the parts of a page that is split are mapped to the page of zeroes where they are that.
            split_frees: uname::read(root).at_least(6, 12),
            resting: BTreeMap::new(),
        }
    }

    /// Notes which of `tried` did not become huge.
    fn rest(&mut self, target: TargetId, tried: &[AddrRange], became: &[bool]) {
        let now = clock::monotonic();
        if self.resting.len() > MOST_RESTING {
            self.resting.clear();
        }
        for (unit, became) in tried.iter().zip(became) {
            let key = (target, unit.start);
            if *became {
                self.resting.remove(&key);
            } else {
                let rest = Rest::after(self.resting.get(&key), now);
                self.resting.insert(key, rest);
            }
        }
    }

    fn rests(&self, target: TargetId, unit: Addr, now: Nanos) -> bool {
        self.resting
            .get(&(target, unit))
            .is_some_and(|rest| now < rest.until)
    }
}

impl Actor {
    /// What of `run` is not yet as `action` would make it.
    pub fn pending(
        &mut self,
        process: &Process,
        action: Action,
        run: &Run,
        pte: Inspector<'_>,
    ) -> Vec<AddrRange> {
        let units = spans::aligned_units(&[run.range], HUGE_PAGE);
        let views = views(process, &units, pte);
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
                // Nothing was ever there.
                PageView::Absent { all: true } => forbids && lacks_flag(),
                view if view.is_huge() => forbids || lacks_flag(),
                _ if forbids => lacks_flag(),
                _ => !self.huge.rests(process.id, unit.start, now) || lacks_flag(),
            };
            if to_do {
                unit.join_onto(&mut left);
            }
        }
        left
    }

    /// Makes huge pages of what `plans` keep.
    pub(super) fn make_huge(
        &mut self,
        task: &Task<'_>,
        plans: Vec<Plan>,
        mut pte: Inspector<'_>,
    ) -> Vec<Applied> {
        let in_all = all_units(&plans);
        let mut choose = |plan: Plan| self.choose(task, plan, pte.as_deref_mut());
        let mut chosen: Vec<(Applied, Vec<AddrRange>)> = plans.into_iter().map(&mut choose).collect();
        if task.action == Action::Hugepage {
            self.huge.flags.take_back(task.process, &in_all);
            if self.huge.options.set_flag {
                self.huge
                    .flags
                    .change(task.process, &in_all, HugeFlag::HugePage, true);
            }
        } else {
            let units: Vec<AddrRange> = chosen.iter().flat_map(|(_, units)| units).copied().collect();
            self.huge.flags.take_back(task.process, &units);
        }
        for (applied, units) in &mut chosen {
            self.collapse(task.process, units, pte.as_deref_mut(), applied);
        }
        chosen.into_iter().map(|(applied, _)| applied).collect()
    }

    /// The units in what `plan` keeps that are worth making huge.
    fn choose(&self, task: &Task<'_>, plan: Plan, pte: Inspector<'_>) -> (Applied, Vec<AddrRange>) {
        let Plan { mut applied, kept } = plan;
        if kept.is_empty() {
            return (applied, Vec::new());
        }
        let least = match task.action {
            Action::Collapse => self.huge.options.least_present,
            _ => Permille(0),
        };
        let choice = collapse::Choice {
            process: task.process,
            pagemap: task.pagemap,
            least,
        };
        applied.changed = pte.is_some().then_some(Bytes::ZERO);
        let units = choice.units(&kept, pte, &mut applied);
        (applied, units)
    }

    /// Makes `units` huge, and looks at which of them became it.
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
        units.iter().for_each(|unit| unit.join_onto(&mut neighbours));
        let mut plan = Plan {
            applied: std::mem::take(applied),
            kept: neighbours.into(),
        };
        self.advise(process, Advice::Collapse, std::slice::from_mut(&mut plan));
        *applied = plan.applied;
        let became: Vec<bool> = views(process, units, pte.as_deref_mut())
            .iter()
            .map(PageView::is_huge)
            .collect();
        if pte.is_some() {
            let made = became.iter().filter(|became| **became).count() as u64;
            applied.changed = Some(Bytes(HUGE_PAGE.0 * made));
            self.huge.rest(process.id, units, &became);
        }
    }

    /// Forbids huge pages for what `plans` keep, and splits those that are there.
    pub(super) fn forbid_huge(
        &mut self,
        task: &Task<'_>,
        plans: Vec<Plan>,
        mut pte: Inspector<'_>,
    ) -> Vec<Applied> {
        let units = all_units(&plans);
        let always = thp::read(&self.root).ok().flatten() == Some(thp::ThpMode::Always);
        // In other modes the kernel makes huge pages only where they were asked for.
        self.huge
            .flags
            .change(task.process, &units, HugeFlag::NoHugePage, always);
        let mut one = |plan: Plan| self.split(task, plan, pte.as_deref_mut());
        plans.into_iter().map(&mut one).collect()
    }
}

/// The units in all of what is kept, ascending.
fn all_units(plans: &[Plan]) -> Vec<AddrRange> {
    let mut units: Vec<AddrRange> = plans
        .iter()
        .flat_map(|plan| spans::aligned_units(&plan.kept, HUGE_PAGE))
        .collect();
    units.sort_unstable_by_key(|unit| unit.start);
    units.dedup();
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_fails_again_rests_longer() {
        let now = Nanos::secs(100);
        let mut rest = Rest::after(None, now);
        assert_eq!(rest.until, Nanos::secs(102));
        for span in [4, 8, 16, 32, 64, 64] {
            rest = Rest::after(Some(&rest), now);
            assert_eq!(
                (rest.span, rest.until),
                (Nanos::secs(span), Nanos::secs(100 + span))
            );
        }
    }
}
