//! The actor: applies the actions of schemes to the memory of processes, with a result per range.
//!
//! For each range:
//! 1. Pages rejected by filters (and, for pageout, by the young check) are skipped.
//! 2. The rest is advised in calls of at most 1024 ranges and 2 GiB. Mappings that the kernel refuses are
//!    skipped.
//! 3. The effect is verified where it can be observed, because success of a call only means that the kernel
//!    tried.
//!
//! Consecutive ranges share system calls and verification, and each still has its own result.
//!
//! | action | method | effect verified in |
//! | --- | --- | --- |
//! | `stat` | none | - |
//! | `willneed` | `MADV_WILLNEED` of pages in swap, and of absent pages of files | not verified: the call only starts the reads |
//! | `cold`, `lru_deprio` | `MADV_COLD` | not verified: the kernel does not expose LRU lists |
//! | `pageout` | `MADV_PAGEOUT` | pagemap: pages that were present and no longer are, nor in the swap cache (`swap_cache.rs`) |
//! | `lru_prio` | two `process_vm_readv` of each present page, five with MGLRU | not verified |
//! | `hugepage` | `MADV_COLLAPSE` of each 2 MiB with at least one page | page tables, where the tracker reads them |
//! | `collapse` | `MADV_COLLAPSE` of each 2 MiB that is at least 80 % present | the same |
//! | `migrate_hot`, `migrate_cold` | `move_pages` | `move_pages` asked for the node of each page |
//! | `nohugepage` | the mapping's flag, set by the target; `MADV_COLD` on a part splits huge pages | the same |
//!
//! A dry run makes the same checks, and stops before the system calls (`dry_run.rs`).
//!
//! With too little free swap, or none, `pageout` takes only pages of files. It stops where the contents do
//! not compress (`net_guard.rs`).
//!
//! `pageout` counts page by page in ranges up to 256 MiB and estimates larger ranges from evenly spaced
//! samples. `cold` and `lru_deprio` count page by page.
//!
//! **Young check of pageout**: a page whose accessed bit we cleared and that is set again was accessed since,
//! so it is skipped. A page that was never scanned is judged by its region. A `young` filter of the scheme
//! replaces this check.

mod advisor;
mod cold;
mod collapse;
mod dry_run;
mod filter;
mod flag_journal;
mod flags;
mod huge;
mod huge_state;
mod migrate;
mod move_journal;
mod net_guard;
mod node_count;
mod nodes;
mod pagemap_stats;
mod pageout;
mod pageout_guard;
mod plan;
mod prefetch;
mod range_ops;
mod refault;
mod refused;
mod returns;
mod split;
mod state;
mod stop;
mod swap_cache;
mod touch;
mod units;
mod unverified;
mod vma_flags;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thermo_engine::TargetId;
use thermo_engine::action::Action;
use thermo_engine::ops::{Applied, OpsError, Outcome, Request, Skip, TargetRange};
use thermo_kernel::clock;
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::pagemap::Pagemap;
use thermo_kernel::refusal::{Call, Refusal};
use thermo_targets::{Inspector, PageInspector, Process, Processes};
use thermo_units::{AddrRange, Nanos};

use self::filter::{PageFilters, PageReader};
use self::huge_state::Huge;
pub use self::huge_state::HugeOptions;
use self::move_journal::MoveJournal;
pub use self::move_journal::{MigrationMeter, Moved};
use self::nodes::Nodes;
pub use self::nodes::{check_destinations, check_goal_node};
use self::pageout_guard::PageoutGuard;
pub use self::pageout_guard::{PageoutLimits, below_swap_floor};
use self::plan::{RangePlan, Task};
use self::prefetch::FileMappings;
use self::range_ops::Ranges;
pub use self::refault::{RefaultCheck, RefaultMeter};
use self::refused::skip_refused;
use self::returns::ReturnSamples;
pub use self::returns::Returns;
pub use self::state::Actor;
pub use self::stop::HeldProcesses;
use self::stop::Stop;

impl Actor {
    /// An actor that pages out within `limits`. With `dry_run` it makes every check and no system call that
    /// acts, and counts what it would do ([`Skip::DryRun`]).
    #[must_use]
    pub fn new(limits: PageoutLimits, dry_run: bool) -> Self {
        let root = PathBuf::from("/");
        Self {
            frames: PageFrames::open(&root).ok(),
            huge: Huge::new(&root),
            nodes: Nodes::read(&root),
            journal: MoveJournal::default(),
            root,
            promised: BTreeMap::new(),
            returns: ReturnSamples::default(),
            guard: PageoutGuard::new(limits),
            dry_run,
            stop: Stop::default(),
        }
    }

    /// The same actor with these options for huge pages.
    #[must_use]
    pub fn with_huge(mut self, options: HugeOptions) -> Self {
        self.huge.options = options;
        self.huge.flags.keep = options.keep_flags;
        self
    }

    /// The same actor, which reports its checks of refaults to `meter`.
    #[must_use]
    pub fn with_refault_meter(mut self, meter: RefaultMeter) -> Self {
        self.guard.set_meter(meter);
        self
    }

    /// The same actor, which leaves memory where it was moved to for `cool_down`, and reports what it moved
    /// to `meter`.
    #[must_use]
    pub fn with_migration(mut self, cool_down: Nanos, meter: MigrationMeter) -> Self {
        (self.journal.cool_down, self.journal.meter) = (cool_down, meter);
        self
    }

    /// The same actor, which obeys `flag` as its [`Actor::cancel_flag`].
    #[must_use]
    pub fn with_cancel_flag(mut self, flag: Arc<AtomicBool>) -> Self {
        self.stop.cancel = flag;
        self
    }

    /// The same actor, which skips the memory of `held` processes ([`Skip::Cancelled`]).
    #[must_use]
    pub fn with_held_processes(mut self, held: HeldProcesses) -> Self {
        self.stop.held = held;
        self
    }

    /// When set to true, the actor skips all memory that it has not started on ([`Skip::Cancelled`]). Checked
    /// between system calls, each of which takes at most about 0.1 s.
    #[must_use]
    pub fn cancel_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop.cancel)
    }

    /// Whether the memory of process `pid` is skipped now: the cancel flag is set, or the process is held.
    #[must_use]
    pub fn is_held(&self, pid: u32) -> bool {
        self.stop.reason(pid).is_some()
    }

    /// Changes whether this actor only counts what it would do.
    pub const fn set_dry_run(&mut self, dry_run: bool) {
        self.dry_run = dry_run;
    }

    /// What came back of the memory that this actor paged out, by target, since the last call; and what is
    /// still out. From samples: see [`Returns`]. Call it about once a second.
    pub fn check_returns(&mut self, processes: &Processes, now: Nanos) -> Vec<(TargetId, Returns)> {
        self.returns.check(&self.root, processes, now)
    }

    /// Whether `request` is supported for processes of this machine.
    fn check(&self, request: &Request<'_>) -> Result<(), OpsError> {
        match (request.action.migrates(), request.destinations) {
            (false, _) => Ok(()),
            (true, []) => Err(OpsError::Unsupported {
                what: format!("the action {} without a node", request.action),
                why: "only a scheme names the node to migrate to, with target_nid or dests".to_owned(),
            }),
            (true, destinations) => check_destinations(&self.root, destinations),
        }
    }

    /// Applies `request` to the memory of `processes`. `pte` gives access to accessed bits and huge pages.
    ///
    /// # Errors
    /// [`OpsError::Unsupported`] for an action or a filter that is not available here. Nothing was done.
    pub fn apply(
        &mut self,
        processes: &Processes,
        request: &Request<'_>,
        mut pte: Inspector<'_>,
    ) -> Result<Outcome, OpsError> {
        let began = clock::thread_cpu();
        let action = request.action;
        self.check(request)?;
        let filters = PageFilters::new(&self.root, request.filters, pte.is_some(), self.frames.is_some())?;
        self.guard.begin_request(processes);
        self.promised.clear();
        let mut results = Vec::with_capacity(request.ranges.len());
        for group in request.ranges.chunk_by(|a, b| a.target == b.target) {
            let opened = self.open(processes, group);
            for runs in batches(action, group) {
                let (process, pagemap) = match &opened {
                    Ok((process, pagemap)) if process.is_alive() => (*process, pagemap),
                    Ok(_) => {
                        results.extend(runs.iter().map(|run| all_skipped(Skip::TargetGone, run.range)));
                        continue;
                    }
                    Err(why) => {
                        results.extend(runs.iter().map(|run| why.skip_all(run.range)));
                        continue;
                    }
                };
                let task = Task {
                    processes,
                    process,
                    action,
                    destinations: request.destinations,
                    filters: &filters,
                    pagemap,
                    files: FileMappings::default(),
                };
                let plans = runs.iter().map(|run| self.plan(&task, run, pte.as_deref_mut()));
                let plans: Vec<RangePlan> = plans.collect();
                match action {
                    Action::Nohugepage => results.extend(self.forbid_huge(&task, plans, pte.as_deref_mut())),
                    Action::Hugepage | Action::Collapse => {
                        results.extend(self.make_huge(&task, plans, pte.as_deref_mut()));
                    }
                    Action::Cold | Action::LruDeprio => results.extend(self.cold(&task, plans)),
                    Action::Pageout => results.extend(self.pageout(&task, runs, plans)),
                    Action::Willneed => results.extend(self.prefetch(&task, plans)),
                    Action::LruPrio => results.extend(self.touch(&task, plans)),
                    Action::MigrateHot | Action::MigrateCold => results.extend(self.migrate(&task, plans)),
                    // `stat` only counts.
                    Action::Stat => results.extend(plans.into_iter().map(|plan| plan.applied)),
                }
            }
        }
        if self.dry_run {
            results.iter_mut().for_each(Applied::into_dry_run);
        }
        let mut notes = self.huge.flags.take_notes();
        for error in results.iter().filter_map(|applied| applied.error.as_ref()) {
            if !notes.contains(error) {
                notes.push(error.clone());
            }
        }
        notes.extend(self.guard.net.take_notes());
        Ok(Outcome {
            results,
            spent: clock::thread_cpu().saturating_sub(began),
            notes,
        })
    }

    /// The process of `group`, whose ranges have the same target, or the reason to skip it.
    fn open<'a>(
        &self,
        processes: &'a Processes,
        group: &[TargetRange],
    ) -> Result<(&'a Process, Pagemap), NotOpened> {
        let process = group.first().and_then(|run| processes.get(&run.target));
        let process = process.ok_or(NotOpened::Skipped(Skip::TargetGone))?;
        if let Some(why) = self.stop.reason(process.pid) {
            return Err(NotOpened::Skipped(why));
        }
        let refused = |error| NotOpened::Refused(Refusal::new(Call::OpenPagemap, &error));
        let pagemap = Pagemap::open(&self.root, process.pid).map_err(refused)?;
        Ok((process, pagemap))
    }

    /// Decides which memory of a range is acted on.
    fn plan(&self, task: &Task<'_>, run: &TargetRange, mut pte: Inspector<'_>) -> RangePlan {
        let mut applied = Applied::default();
        if let Some(why) = self.stop.reason(task.process.pid) {
            return RangePlan::nothing(all_skipped(why, run.range));
        }
        let kept = self.kept(task, run, pte.as_deref_mut(), &mut applied);
        applied.passed_filters = range_ops::sum(&kept);
        if task.action == Action::Stat {
            return RangePlan::nothing(applied);
        }
        let kept = match pte.filter(|_| task.action == Action::Pageout && !task.filters.needs_young()) {
            Some(pte) => skip_young(task.process, run.range, kept, pte, &mut applied),
            None => kept,
        };
        let kept = match task.action {
            Action::Willneed => prefetch::absent(&self.root, task, &kept, &mut applied),
            _ => kept,
        };
        RangePlan { applied, kept }
    }

    /// The memory of the range that passes the filters.
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
        let include_absent = task.action == Action::Willneed;
        task.filters
            .passed(task.process, whole_pages, include_absent, &mut reader, applied)
            .into()
    }
}

/// Why nothing can be done to a process.
enum NotOpened {
    /// For this reason.
    Skipped(Skip),
    /// The kernel does not show its memory.
    Refused(Refusal),
}

impl NotOpened {
    fn skip_all(&self, range: AddrRange) -> Applied {
        match self {
            Self::Skipped(why) => all_skipped(*why, range),
            Self::Refused(refusal) => {
                let mut applied = Applied::default();
                skip_refused(&mut applied, *refusal, range.len());
                applied
            }
        }
    }
}

/// The ranges of one process in the batches in which they are handled. Slow actions go in small batches:
/// processes may end and their pages may change in the meantime.
fn batches(action: Action, group: &[TargetRange]) -> impl Iterator<Item = &[TargetRange]> {
    let batch_len: fn(&[TargetRange]) -> usize = match action {
        Action::Pageout | Action::Willneed => pageout::batch_len,
        Action::LruPrio => |_: &[TargetRange]| 1,
        _ => <[TargetRange]>::len,
    };
    let mut rest = group;
    std::iter::from_fn(move || {
        let (runs, others) = rest
            .split_at_checked(batch_len(rest))
            .filter(|(runs, _)| !runs.is_empty())?;
        rest = others;
        Some(runs)
    })
}

/// Removes from `kept` the pages that were accessed since their accessed bits were cleared.
fn skip_young(
    process: &Process,
    range: AddrRange,
    kept: Ranges,
    pte: &mut dyn PageInspector,
    applied: &mut Applied,
) -> Ranges {
    // `None`: the process has ended, which the action itself will detect.
    let Some(young) = pte.accessed_since_cleared(process, range) else {
        return kept;
    };
    let rest = range_ops::without(&kept, &young);
    applied.skip(Skip::Young, range_ops::sum(&kept) - range_ops::sum(&rest));
    rest.into()
}

fn all_skipped(why: Skip, range: AddrRange) -> Applied {
    let mut applied = Applied::default();
    applied.skip(why, range.len());
    applied
}
