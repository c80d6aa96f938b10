//! Pages memory out and verifies the effect: counts present pages before and after, page by page up to 256
//! MiB.
//!
//! Consecutive ranges share a system call, up to the size of one call, and each has its own counts.

use thermo_engine::ops::{Applied, Skip, TargetRange};
use thermo_kernel::clock;
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_kernel::process_madvise::{Advice, MAX_RANGES};
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

use super::advisor::{Advisor, call_bytes};
use super::net_guard::{Permit, split_off};
use super::pagemap_stats::{PagemapStats, count_or_estimate, count_plans};
use super::plan::{RangePlan, Task};
use super::range_ops;
use super::range_ops::Ranges;
use super::state::Actor;
use super::swap_cache::{self, Before as SwapBefore};

/// Larger ranges are estimated from samples.
const MAX_COUNTED: Bytes = Bytes::mib(256);

/// The number of leading `runs` that share a call: at most the size of a call, ascending without overlap; at
/// least one.
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
    /// Pages out the kept memory of `plans`, which were made for `runs`: at first in parts, until it is known
    /// whether that saves memory.
    pub(super) fn pageout(
        &mut self,
        task: &Task<'_>,
        runs: &[TargetRange],
        mut plans: Vec<RangePlan>,
    ) -> Vec<Applied> {
        while plans.iter().any(|plan| !plan.kept.is_empty()) {
            let part = match self.guard.net.permit(task.process.id, clock::monotonic()) {
                Permit::All => split_off(&mut plans, Bytes::MAX),
                Permit::Part(size) => split_off(&mut plans, size),
                Permit::Nothing => {
                    for plan in &mut plans {
                        let kept = std::mem::take(&mut plan.kept);
                        plan.applied.skip(Skip::Incompressible, range_ops::sum(&kept));
                    }
                    break;
                }
            };
            let before = self.guard.net.zram(&self.root);
            let results = self.pageout_part(task, runs, part);
            let zram = before.zip(self.guard.net.zram(&self.root));
            let left = results.iter().filter_map(|applied| applied.changed).sum();
            let target = (task.process.id, task.process.pid);
            self.guard.net.record(target, left, zram, clock::monotonic());
            for (plan, result) in plans.iter_mut().zip(&results) {
                plan.applied.add(result);
            }
        }
        plans.into_iter().map(|plan| plan.applied).collect()
    }

    /// Pages out the kept memory of `plans`, and verifies the effect.
    fn pageout_part(
        &mut self,
        task: &Task<'_>,
        runs: &[TargetRange],
        mut plans: Vec<RangePlan>,
    ) -> Vec<Applied> {
        let to_swap = self.guard.swap_allows(&self.root);
        let has_work: Vec<bool> = plans.iter().map(|plan| !plan.kept.is_empty()).collect();
        for plan in plans.iter_mut().filter(|_| !to_swap) {
            let files = file_pages(task.pagemap, self.frames.as_ref(), &plan.kept, &mut plan.applied);
            plan.kept = files.into();
        }
        let kept: Vec<Ranges> = plans.iter().map(|plan| plan.kept.clone()).collect();
        let before = count(task.pagemap, &plans);
        let has_frames = self.frames.is_some();
        let swap_before = SwapBefore::read(&self.root, task.pagemap, has_frames, &plans, MAX_COUNTED);
        let dry_run = self.dry_run;
        let Self {
            guard,
            root,
            stop: held,
            ..
        } = self;
        let mut requested = Bytes::ZERO;
        let mut stop = |so_far: Bytes| {
            guard.record_requested(so_far.saturating_sub(requested));
            requested = so_far;
            let held_back = held.reason(task.process.pid);
            held_back.or_else(|| guard.stop_reason(root, task.processes, to_swap, clock::monotonic()))
        };
        let advisor = Advisor {
            root,
            process: task.process,
            advice: Advice::PageOut,
            dry_run,
        };
        advisor.advise(&mut plans, &mut stop);
        let advised: Bytes = plans.iter().map(|plan| range_ops::sum(&plan.kept)).sum();
        guard.record_requested(advised.saturating_sub(requested));
        let was_present: Vec<Bytes> = plans
            .iter()
            .zip(&kept)
            .zip(before)
            .map(|((plan, kept), before)| present_in_advised(task.pagemap, plan, kept, before))
            .collect();
        let after = count(task.pagemap, &plans);
        // A process that has ended has no present pages, but we did not page them out.
        let alive = task.process.is_alive();
        let left = left_bytes(&was_present, &after, alive);
        let stuck = swap_before
            .map(|before| before.stuck(&self.root, task.pagemap, self.frames.as_ref(), &plans, &left));
        let stuck = stuck.unwrap_or_else(|| vec![Bytes::ZERO; plans.len()]);
        if self.dry_run && to_swap {
            let promised = after.iter().map(PagemapStats::swappable).sum();
            self.guard.record_promised(promised);
        } else if stuck.iter().any(|stuck| *stuck > Bytes::ZERO) {
            self.guard.record_full_swap();
        }
        for (nth, plan) in plans.iter_mut().enumerate().filter(|(nth, _)| has_work[*nth]) {
            count_result(plan, was_present[nth], after[nth], (left[nth], stuck[nth]));
            // The pages are out for the process, wherever they are.
            let paged_out = left[nth];
            // Valid for the guard only if the whole range was counted.
            let counted = plan.kept[..] == [runs[nth].range];
            let still_present = counted.then_some(after[nth].present);
            let kept = &kept[nth];
            let gone = paged_out.saturating_sub(stuck[nth]);
            self.returns.record(task.pagemap, runs[nth].target, kept, gone);
            self.guard
                .record_paged_out(task.pagemap, runs[nth], paged_out, still_present);
        }
        plans.into_iter().map(|plan| plan.applied).collect()
    }
}

/// How much of the memory that `plan` keeps after the advice was present before. `kept`: what the plan kept
/// before the advice, of which `before` was present.
fn present_in_advised(pagemap: &Pagemap, plan: &RangePlan, kept: &Ranges, before: PagemapStats) -> Bytes {
    if plan.kept == *kept {
        return before.present;
    }
    // Refused memory has not changed, so the other present pages were in the advised memory.
    let refused = count_or_estimate(pagemap, &range_ops::without(kept, &plan.kept), MAX_COUNTED);
    before.present.saturating_sub(refused.present)
}

/// The bytes of each plan that its process no longer maps.
fn left_bytes(was_present: &[Bytes], after: &[PagemapStats], alive: bool) -> Vec<Bytes> {
    let left = |(before, after): (&Bytes, &PagemapStats)| match alive {
        true => before.saturating_sub(after.present),
        false => Bytes::ZERO,
    };
    was_present.iter().zip(after).map(left).collect()
}

/// Adds the effect of the advice to the result of `plan`: of the bytes that `left` the page tables, `stuck`
/// are in the swap cache.
fn count_result(
    plan: &mut RangePlan,
    was_present: Bytes,
    after: PagemapStats,
    (left, stuck): (Bytes, Bytes),
) {
    let not_present = range_ops::sum(&plan.kept).saturating_sub(was_present);
    let stuck = stuck.min(left);
    plan.applied.skip(Skip::NotPresent, not_present);
    plan.applied.skip(Skip::Shared, after.shared);
    plan.applied.skip(Skip::SwapCache, stuck);
    plan.applied.applied = was_present.saturating_sub(after.shared + stuck);
    plan.applied.changed = Some(left.saturating_sub(stuck));
    if stuck > Bytes::ZERO && plan.applied.error.is_none() {
        plan.applied.error = Some(swap_cache::SENTENCE.to_owned());
    }
}

/// Counts the kept memory of each of `plans`.
fn count(pagemap: &Pagemap, plans: &[RangePlan]) -> Vec<PagemapStats> {
    if let [plan] = plans {
        return vec![count_or_estimate(pagemap, &plan.kept, MAX_COUNTED)];
    }
    count_plans(pagemap, plans)
}

/// The pages of `ranges` that can be paged out without swap; the others are counted as skipped by the swap
/// floor. Without root, tmpfs pages look like other file pages and are included: the kernel moves them to
/// swap if there is room.
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
    for chunk in range_ops::cut(ranges, Bytes::mib(2)) {
        // Unreadable memory counts as not present.
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
                Some(_) => page.coalesce_into(&mut files),
            }
        }
    }
    files
}
