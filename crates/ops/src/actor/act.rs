//! The actions themselves, each with the look at what came of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use thermo_core::action::Action;
use thermo_core::ops::{Applied, Run, Skip};
use thermo_core::{AddrRange, Bytes};
use thermo_sys::clock;
use thermo_sys::pagemap::Pagemap;
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
        let before = survey(deed.pagemap, deed.kept, COUNT_PAGEOUT);
        let done = {
            let (guard, root, cancel) = (&mut self.guard, &self.root, &self.cancel);
            let mut asked = Bytes::ZERO;
            let mut stop = |so_far: Bytes| {
                guard.asked(so_far.saturating_sub(asked));
                asked = so_far;
                let cancelled = cancel.load(Ordering::Relaxed).then_some(Skip::Cancelled);
                cancelled.or_else(|| guard.objection(root, deed.processes, clock::monotonic()))
            };
            Advisor {
                root,
                process,
                advice: Advice::PageOut,
                stop: &mut stop,
            }
            .advise(deed.kept, applied)
        };
        // What was refused is as it was before, so the rest of what was there before was in what was advised.
        let refused = survey(deed.pagemap, &spans::without(deed.kept, &done), COUNT_PAGEOUT);
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
