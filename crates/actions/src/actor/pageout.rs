//! Paging out, and the look at what left: at every page up to 256 MiB, before and after.
//!
//! Runs that follow each other are paged out together, as much as goes into one call of the kernel, and each is counted by
//! itself.

use std::sync::atomic::Ordering;

use thermo_engine::ops::{Applied, Skip, TargetRange};
use thermo_kernel::clock;
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_kernel::process_madvise::{Advice, MAX_RANGES};
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

use super::madvise_batch::{Advisor, call_bytes};
use super::pagemap_stats::{PagemapStats, survey, survey_plans};
use super::plan::{RangePlan, Task};
use super::spans;
use super::spans::Ranges;
use super::state::Actor;

/// Pages are counted one by one in runs up to this size.
const COUNTED: Bytes = Bytes::mib(256);

/// How many of the first runs are paged out at once: as much as one call takes, and no page twice. At least one.
pub(super) fn batch_len(runs: &[TargetRange]) -> usize {
    let (mut sum, mut end) = (Bytes::ZERO, Addr(0));
    let fits = runs.iter().take(MAX_RANGES).take_while(|run| {
        sum += run.range.len();
        let follows = end <= run.range.start;
        end = run.range.end;
        follows && sum <= call_bytes(Advice::PageOut)
    });
    fits.count().max(1)
}

impl Actor {
    /// Pages out what `plans` keep of `runs`.
    pub(super) fn pageout(
        &mut self,
        task: &Task<'_>,
        runs: &[TargetRange],
        mut plans: Vec<RangePlan>,
    ) -> Vec<Applied> {
        let asked: Vec<bool> = plans.iter().map(|plan| !plan.kept.is_empty()).collect();
        if !asked.contains(&true) {
            return plans.into_iter().map(|plan| plan.applied).collect();
        }
        let to_swap = self.guard.swap_allows(&self.root);
        for plan in plans.iter_mut().filter(|_| !to_swap) {
            let files = file_pages(task.pagemap, self.frames.as_ref(), &plan.kept, &mut plan.applied);
            plan.kept = files.into();
        }
        let before = surveys(task.pagemap, &plans);
        let was_there = self.push_out(task, to_swap, &mut plans, &before);
        let after = surveys(task.pagemap, &plans);
        // A process that died has nothing there either, but nothing was paged out by us.
        let alive = task.process.is_alive();
        for (nth, plan) in plans.iter_mut().enumerate().filter(|(nth, _)| asked[*nth]) {
            let (was_there, after) = (was_there[nth], after[nth]);
            plan.applied
                .skip(Skip::NotPresent, spans::sum(&plan.kept).saturating_sub(was_there));
            plan.applied.skip(Skip::Shared, after.shared);
            plan.applied.applied = was_there.saturating_sub(after.shared);
            let left = if alive {
                was_there.saturating_sub(after.present)
            } else {
                Bytes::ZERO
            };
            plan.applied.changed = Some(left);
            // The whole run was counted just now.
            let counted = plan.kept[..] == [runs[nth].range];
            let still_there = counted.then_some(after.present);
            self.guard.left(task.pagemap, runs[nth], left, still_there);
        }
        plans.into_iter().map(|plan| plan.applied).collect()
    }

    /// Has the kernel page out what `plans` keep; then they keep what it took. Returns how much of that was there.
    fn push_out(
        &mut self,
        task: &Task<'_>,
        to_swap: bool,
        plans: &mut [RangePlan],
        before: &[PagemapStats],
    ) -> Vec<Bytes> {
        let Self {
            guard, root, cancel, ..
        } = self;
        let kept: Vec<Ranges> = plans.iter().map(|plan| plan.kept.clone()).collect();
        let mut asked = Bytes::ZERO;
        let mut stop = |so_far: Bytes| {
            guard.asked(so_far.saturating_sub(asked));
            asked = so_far;
            let cancelled = cancel.load(Ordering::Relaxed).then_some(Skip::Cancelled);
            cancelled.or_else(|| guard.objection(root, task.processes, to_swap, clock::monotonic()))
        };
        let advisor = Advisor {
            root,
            process: task.process,
            advice: Advice::PageOut,
            stop: &mut stop,
        };
        advisor.advise(plans);
        let taken: Bytes = plans.iter().map(|plan| spans::sum(&plan.kept)).sum();
        guard.asked(taken.saturating_sub(asked));
        let was_there = plans.iter().zip(&kept).zip(before).map(|((plan, kept), before)| {
            if plan.kept == *kept {
                return before.present;
            }
            // What was refused is as it was before, so the rest of what was there before was in what was advised.
            let refused = survey(task.pagemap, &spans::without(kept, &plan.kept), COUNTED);
            before.present.saturating_sub(refused.present)
        });
        was_there.collect()
    }
}

/// What is there of what each of `plans` keeps.
fn surveys(pagemap: &Pagemap, plans: &[RangePlan]) -> Vec<PagemapStats> {
    if let [plan] = plans {
        return vec![survey(pagemap, &plan.kept, COUNTED)];
    }
    survey_plans(pagemap, plans)
}

/// The pages of `ranges` that need no swap to be paged out; the others are counted as kept by the swap floor.
/// Without root, files that live in memory only cannot be told from others: the kernel moves them to swap if it
/// has room.
fn file_pages(
    pagemap: &Pagemap,
    frames: Option<&PageFrames>,
    ranges: &[AddrRange],
    applied: &mut Applied,
) -> Vec<AddrRange> {
    let goes_to_swap = |page: &Page| {
        let flags = page
            .pfn()
            .zip(frames)
            .and_then(|(pfn, frames)| frames.flags(pfn).ok());
        !page.is_file() || flags.is_some_and(|flags| flags.is_swap_backed())
    };
    let mut files = Vec::new();
    let mut pages = Vec::new();
    for chunk in spans::cut(ranges, Bytes::mib(2)) {
        // What cannot be read is not there.
        if pagemap.read(chunk, &mut pages).is_err() {
            pages.clear();
        }
        for (n, start) in (chunk.start.0..chunk.end.0)
            .step_by(PAGE_SIZE as usize)
            .enumerate()
        {
            let page = AddrRange::new(start, start + PAGE_SIZE);
            match pages.get(n).filter(|page| page.is_present()) {
                None => applied.skip(Skip::NotPresent, page.len()),
                Some(seen) if goes_to_swap(seen) => applied.skip(Skip::SwapFloor, page.len()),
                Some(_) => page.join_onto(&mut files),
            }
        }
    }
    files
}
