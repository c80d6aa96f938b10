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
use super::{Actor, collapse, spans, touch};
use crate::process::{Process, Processes};
use crate::pte::PteTracker;

/// Pages are counted one by one in ranges up to this size, where the action is dear.
const COUNT_PAGEOUT: Bytes = Bytes::mib(256);
/// The same where the action is cheap, and counting would cost as much as it.
const COUNT_COLD: Bytes = Bytes::mib(2);

/// What an action is done to.
pub(super) struct Deed<'a> {
    pub processes: &'a Processes,
    /// The run as it was asked for.
    pub run: &'a Run,
    /// What of it is to be acted on.
    pub kept: &'a [AddrRange],
    /// The pages of its process.
    pub pagemap: &'a Pagemap,
}

impl Actor {
    pub(super) fn act(
        &mut self,
        action: Action,
        process: &Process,
        deed: &Deed<'_>,
        pte: Option<&mut PteTracker>,
        applied: &mut Applied,
    ) {
        match action {
            Action::Pageout => self.pageout(process, deed, applied),
            Action::Willneed => {
                self.advise(process, Advice::WillNeed, deed.kept, applied);
            }
            Action::Cold | Action::LruDeprio => self.cold(process, deed, applied),
            Action::LruPrio => {
                let cancel = Arc::clone(&self.cancel);
                let mut stop = || cancel.load(Ordering::Relaxed).then_some(Skip::Cancelled);
                touch::touch_twice(process, deed.pagemap, deed.kept, &mut stop, applied);
            }
            Action::Hugepage | Action::Collapse => {
                let units = collapse::units(action, process, deed.kept, deed.pagemap, pte, applied);
                units.make(applied, |ranges, applied| {
                    self.advise(process, Advice::Collapse, ranges, applied);
                });
            }
            // These end before anything is done.
            Action::Stat | Action::Nohugepage | Action::MigrateHot | Action::MigrateCold => {}
        }
    }

    /// Gives advice that only the cancel flag stops. Returns what was advised.
    fn advise(
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

    fn cold(&self, process: &Process, deed: &Deed<'_>, applied: &mut Applied) {
        let done = self.advise(process, Advice::Cold, deed.kept, applied);
        let there = survey(deed.pagemap, &done, COUNT_COLD);
        applied.skip(Skip::NotPresent, spans::sum(&done).saturating_sub(there.present));
        applied.skip(Skip::Shared, there.shared);
        applied.applied = there.present.saturating_sub(there.shared);
    }

    fn pageout(&mut self, process: &Process, deed: &Deed<'_>, applied: &mut Applied) {
        let to_swap = self.guard.swap_allows(&self.root);
        let files;
        let kept = if to_swap {
            deed.kept
        } else {
            files = file_pages(deed.pagemap, self.frames.as_ref(), deed.kept, applied);
            &files
        };
        let before = survey(deed.pagemap, kept, COUNT_PAGEOUT);
        let done = {
            let (guard, root, cancel) = (&mut self.guard, &self.root, &self.cancel);
            let mut asked = Bytes::ZERO;
            let mut stop = |so_far: Bytes| {
                guard.asked(so_far.saturating_sub(asked));
                asked = so_far;
                let cancelled = cancel.load(Ordering::Relaxed).then_some(Skip::Cancelled);
                cancelled.or_else(|| guard.objection(root, deed.processes, to_swap, clock::monotonic()))
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
        let refused = survey(deed.pagemap, &spans::without(kept, &done), COUNT_PAGEOUT);
        let was_there = before.present.saturating_sub(refused.present);
        let after = survey(deed.pagemap, &done, COUNT_PAGEOUT);
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
        self.guard.left(
            deed.pagemap,
            deed.run.target,
            deed.run.range,
            left,
            clock::monotonic(),
        );
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
