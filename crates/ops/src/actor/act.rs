//! The actions themselves, each with the look at what came of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use thermo_core::action::Action;
use thermo_core::ops::{Applied, Run, Skip};
use thermo_core::{AddrRange, Bytes, PAGE_SIZE};
use thermo_sys::clock;
use thermo_sys::kpageflags::PageFrames;
use thermo_sys::pagemap::{Page, Pagemap};
use thermo_sys::process_madvise::Advice;

use super::advise::Advisor;
use super::survey::survey;
use super::{Actor, Plan, Task, spans, touch};
use crate::process::Process;

/// Pages are counted one by one in ranges up to this size.
const COUNT_PAGEOUT: Bytes = Bytes::mib(256);

impl Actor {
    /// Does the action of `task` to what `plan` keeps of `run`.
    pub(super) fn act(&mut self, task: &Task<'_>, run: &Run, plan: Plan) -> Applied {
        let Plan { mut applied, kept } = plan;
        let process = task.process;
        match task.action {
            _ if kept.is_empty() => {}
            Action::Pageout => self.pageout(task, run, &kept, &mut applied),
            Action::Willneed => {
                self.advise(process, Advice::WillNeed, &kept, &mut applied);
            }
            Action::LruPrio => {
                let cancel = Arc::clone(&self.cancel);
                let mut stop = || cancel.load(Ordering::Relaxed).then_some(Skip::Cancelled);
                touch::touch_twice(process, task.pagemap, &kept, &mut stop, &mut applied);
            }
            // These end before anything is done, or are done to many runs at once.
            Action::Stat
            | Action::Hugepage
            | Action::Collapse
            | Action::Nohugepage
            | Action::MigrateHot
            | Action::MigrateCold
            | Action::Cold
            | Action::LruDeprio => {}
        }
        applied
    }

    /// Gives advice that only the cancel flag stops. Returns what was advised.
    pub(super) fn advise(
        &self,
        process: &Process,
        advice: Advice,
        ranges: &[AddrRange],
        applied: &mut Applied,
    ) -> Vec<AddrRange> {
        let mut stop = |_| self.cancel.load(Ordering::Relaxed).then_some(Skip::Cancelled);
        Advisor {
            root: &self.root,
            process,
            advice,
            stop: &mut stop,
        }
        .advise(ranges, applied)
    }

    /// Whether there is room in swap, as seen by the request before.
    pub(super) fn guard_allows_swap(&mut self) -> bool {
        self.guard.swap_allows(&self.root)
    }

    fn pageout(&mut self, task: &Task<'_>, run: &Run, kept: &[AddrRange], applied: &mut Applied) {
        let (process, pagemap) = (task.process, task.pagemap);
        let to_swap = self.guard.swap_allows(&self.root);
        let files;
        let kept = if to_swap {
            kept
        } else {
            files = file_pages(pagemap, self.frames.as_ref(), kept, applied);
            &files
        };
        let before = survey(pagemap, kept, COUNT_PAGEOUT);
        let done = {
            let (guard, root, cancel) = (&mut self.guard, &self.root, &self.cancel);
            let mut asked = Bytes::ZERO;
            let mut stop = |so_far: Bytes| {
                guard.asked(so_far.saturating_sub(asked));
                asked = so_far;
                let cancelled = cancel.load(Ordering::Relaxed).then_some(Skip::Cancelled);
                cancelled.or_else(|| guard.objection(root, task.processes, to_swap, clock::monotonic()))
            };
            Advisor {
                root,
                process,
                advice: Advice::PageOut,
                stop: &mut stop,
            }
            .advise(kept, applied)
        };
        // What was refused is as it was before, so the rest of what was there before was in what was advised.
        let refused = survey(pagemap, &spans::without(kept, &done), COUNT_PAGEOUT);
        let was_there = before.present.saturating_sub(refused.present);
        let after = survey(pagemap, &done, COUNT_PAGEOUT);
        applied.skip(Skip::NotPresent, spans::sum(&done).saturating_sub(was_there));
        applied.skip(Skip::Shared, after.shared);
        applied.applied = was_there.saturating_sub(after.shared);
        // A process that died has nothing there either, but nothing was paged out by us.
        let left = if process.is_alive() {
            was_there.saturating_sub(after.present)
        } else {
            Bytes::ZERO
        };
        applied.changed = Some(left);
        self.guard
            .left(pagemap, run.target, run.range, left, clock::monotonic());
    }
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
                Some(_) => spans::push(&mut files, page),
            }
        }
    }
    files
}
