//! The actor: does what schemes ask to the memory of processes, and tells what came of it.
//!
//! For each run: the pages that filters (and, for pageout, the young check) keep out are left out; the rest is
//! advised in calls of at most 1024 ranges and 2 GiB, past mappings that the kernel refuses; then what really
//! changed is looked up, because success of a call means that it was tried. Runs that follow each other share calls
//! and looks; what came of it is told for each.
//!
//! | action | done by | changed is seen in |
//! | --- | --- | --- |
//! | `stat` | nothing | – |
//! | `willneed` | `MADV_WILLNEED` | not at all: it only begins the reading |
//! | `cold`, `lru_deprio` | `MADV_COLD` | not at all: LRU lists are not shown |
//! | `pageout` | `MADV_PAGEOUT` | the pagemap: pages that were present and are not |
//! | `lru_prio` | two `process_vm_readv` of each present page, five with MGLRU | not at all |
//! | `hugepage` | `MADV_COLLAPSE` of every 2 MiB with a page in it | page tables, where the tracker reads them |
//! | `collapse` | the same where at least 80 % are present | the same |
//! | `nohugepage` | the mapping's flag, set by the target; huge pages split by `MADV_COLD` on a part | the same |
//!
//! Where swap is short or absent, `pageout` takes pages of files only.
//!
//! What is paged out is counted page by page in ranges up to 256 MiB, and estimated above from chunks evenly spread over
//! them. What `cold` and `lru_deprio` moved is counted page by page.
//!
//! **The young check of pageout**: a page whose mark we took off and that has it again was touched since, and is
//! left alone. A page we never looked at is judged by its region. A `young` filter of the scheme replaces it.

mod act;
mod cold;
mod collapse;
mod filter;
mod flag_journal;
mod flag_needs;
mod flags;
mod guard;
mod huge;
mod huge_state;
mod madvise_batch;
mod pagemap_stats;
mod pageout;
mod plan;
mod refault;
mod spans;
mod split;
mod state;
mod touch;
mod units;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thermo_engine::action::Action;
use thermo_engine::ops::{Applied, OpsError, Outcome, Request, Skip, TargetRange};
use thermo_kernel::clock;
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::pagemap::Pagemap;
use thermo_targets::{Inspector, PageInspector, Process, Processes};
use thermo_units::AddrRange;

use self::filter::{PageFilters, PageReader};
use self::guard::Guard;
pub use self::guard::{PageoutLimits, below_swap_floor};
use self::huge_state::Huge;
pub use self::huge_state::HugeOptions;
use self::plan::{RangePlan, Task};
use self::spans::Ranges;
pub use self::state::Actor;

impl Actor {
    /// An actor that pages out within `limits`, and with `dry_run` decides and counts everything but does nothing.
    #[must_use]
    pub fn new(limits: PageoutLimits, dry_run: bool) -> Self {
        let root = PathBuf::from("/");
        Self {
            frames: PageFrames::open(&root).ok(),
            huge: Huge::new(&root),
            root,
            guard: Guard::new(limits),
            dry_run,
            cancel: Arc::new(AtomicBool::new(false)),
        }
    }

    /// The same, making and forbidding huge pages as `options` say.
    #[must_use]
    pub fn with_huge(mut self, options: HugeOptions) -> Self {
        self.huge.options = options;
        self.huge.flags.keep = options.keep_flags;
        self
    }

    /// Set to true, it makes the actor leave alone what it has not begun ([`Skip::Cancelled`]); looked at between
    /// system calls, each of which takes a tenth of a second at most.
    #[must_use]
    pub fn cancel_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cancel)
    }

    /// Whether `action` can be done to processes at all.
    ///
    /// # Errors
    /// [`OpsError::Unsupported`] with the reason.
    pub fn supports(action: Action) -> Result<(), OpsError> {
        let why = match action {
            Action::MigrateHot | Action::MigrateCold => {
                "moving pages between nodes is not built in; use lru_prio or pageout"
            }
            _ => return Ok(()),
        };
        Err(OpsError::Unsupported {
            what: format!("the action {action}"),
            why: why.into(),
        })
    }

    /// Does `request` to the memory of `processes`. With `pte`, accessed marks and huge pages are seen.
    ///
    /// # Errors
    /// [`OpsError::Unsupported`] for an action or a filter that cannot be had here; nothing was done then.
    pub fn apply(
        &mut self,
        processes: &Processes,
        request: &Request<'_>,
        mut pte: Inspector<'_>,
    ) -> Result<Outcome, OpsError> {
        let began = clock::thread_cpu();
        Self::supports(request.action)?;
        let filters = PageFilters::new(&self.root, request.filters, pte.is_some(), self.frames.is_some())?;
        self.guard.begin();
        let mut runs = Vec::with_capacity(request.runs.len());
        for group in request.runs.chunk_by(|a, b| a.target == b.target) {
            let all = |why| group.iter().map(move |run| left_alone(why, run.range));
            // `chunk_by` gives no empty groups.
            let process = group.first().and_then(|run| processes.get(&run.target));
            let opened = process.map(|process| (process, Pagemap::open(&self.root, process.pid)));
            match opened {
                _ if self.cancel.load(Ordering::Relaxed) => runs.extend(all(Skip::Cancelled)),
                Some((process, Ok(pagemap))) if process.is_alive() => {
                    let task = Task {
                        processes,
                        process,
                        action: request.action,
                        filters: &filters,
                        pagemap: &pagemap,
                    };
                    self.group(&task, group, pte.as_deref_mut(), &mut runs);
                }
                Some((_, Err(error))) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    runs.extend(all(Skip::Refused));
                }
                _ => runs.extend(all(Skip::TargetGone)),
            }
        }
        Ok(Outcome {
            runs,
            spent: clock::thread_cpu().saturating_sub(began),
            notes: self.huge.flags.take_notes(),
        })
    }

    /// Does it to the runs of one process, and adds what came of each to `done`.
    fn group(
        &mut self,
        task: &Task<'_>,
        group: &[TargetRange],
        mut pte: Inspector<'_>,
        done: &mut Vec<Applied>,
    ) {
        // What takes long outlives processes, and what was seen of them before.
        let at_once: fn(&[TargetRange]) -> usize = match task.action {
            Action::Pageout | Action::Willneed => pageout::batch_len,
            Action::LruPrio => |_: &[TargetRange]| 1,
            _ => <[TargetRange]>::len,
        };
        let mut rest = group;
        while !rest.is_empty() {
            let (runs, others) = rest.split_at(at_once(rest));
            rest = others;
            if task.process.is_alive() {
                self.batch(task, runs, pte.as_deref_mut(), done);
            } else {
                done.extend(runs.iter().map(|run| left_alone(Skip::TargetGone, run.range)));
            }
        }
    }

    /// Does it to some of them at once.
    fn batch(
        &mut self,
        task: &Task<'_>,
        runs: &[TargetRange],
        mut pte: Inspector<'_>,
        done: &mut Vec<Applied>,
    ) {
        let plans = runs.iter().map(|run| self.plan(task, run, pte.as_deref_mut()));
        let plans: Vec<RangePlan> = plans.collect();
        match task.action {
            Action::Nohugepage => done.extend(self.forbid_huge(task, plans, pte)),
            Action::Hugepage | Action::Collapse => done.extend(self.make_huge(task, plans, pte)),
            Action::Cold | Action::LruDeprio => done.extend(self.cold(task, plans)),
            Action::Pageout => done.extend(self.pageout(task, runs, plans)),
            Action::Willneed => done.extend(self.bring_in(task, plans)),
            Action::LruPrio => done.extend(self.touch(task, plans)),
            // Decided and counted is all that is done; what cannot be done at all did not come here.
            Action::Stat | Action::MigrateHot | Action::MigrateCold => {
                done.extend(plans.into_iter().map(|plan| plan.applied));
            }
        }
    }

    /// Decides what of a run is to be acted on.
    fn plan(&self, task: &Task<'_>, run: &TargetRange, mut pte: Inspector<'_>) -> RangePlan {
        let mut applied = Applied::default();
        if self.cancel.load(Ordering::Relaxed) {
            return RangePlan::nothing(left_alone(Skip::Cancelled, run.range));
        }
        let kept = self.kept(task, run, pte.as_deref_mut(), &mut applied);
        applied.passed_filters = spans::sum(&kept);
        if task.action == Action::Stat {
            return RangePlan::nothing(applied);
        }
        let kept = match pte.filter(|_| task.action == Action::Pageout && !task.filters.asks_for_young()) {
            Some(pte) => leave_young(task.process, run.range, kept, pte, &mut applied),
            None => kept,
        };
        if self.dry_run {
            applied.skip(Skip::DryRun, spans::sum(&kept));
            return RangePlan::nothing(applied);
        }
        RangePlan { applied, kept }
    }

    /// What of the run is to be acted on: what the filters let through.
    fn kept(&self, task: &Task<'_>, run: &TargetRange, pte: Inspector<'_>, applied: &mut Applied) -> Ranges {
        let whole_pages = AddrRange {
            start: run.range.start.align_up(),
            end: run.range.end.align_down(),
        };
        if task.filters.is_empty() {
            let kept = Some(whole_pages).filter(|range| !range.is_empty());
            return kept.into_iter().collect();
        }
        let mut reader = PageReader::new(task.pagemap, self.frames.as_ref(), pte);
        let absent_too = task.action == Action::Willneed;
        task.filters
            .passed(task.process, whole_pages, absent_too, &mut reader, applied)
            .into()
    }
}

/// Leaves out of `kept` the pages that were touched since their marks were taken off.
fn leave_young(
    process: &Process,
    range: AddrRange,
    kept: Ranges,
    pte: &mut dyn PageInspector,
    applied: &mut Applied,
) -> Ranges {
    // A process that is gone is found out by the action itself.
    let Some(young) = pte.touched_since_cleared(process, range) else {
        return kept;
    };
    let rest = spans::without(&kept, &young);
    applied.skip(Skip::Young, spans::sum(&kept) - spans::sum(&rest));
    rest.into()
}

fn left_alone(why: Skip, range: AddrRange) -> Applied {
    let mut applied = Applied::default();
    applied.skip(why, range.len());
    applied
}
