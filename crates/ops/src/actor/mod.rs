//! The actor: does what schemes ask to the memory of processes, and tells what came of it.
//!
//! For each run: the pages that filters (and, for pageout, the young check) keep out are left out; the rest is
//! advised in calls of at most 1024 ranges and 2 GiB, past mappings that the kernel refuses; then what really
//! changed is looked up, because success of a call means that it was tried.
//!
//! | action | done by | changed is seen in |
//! | --- | --- | --- |
//! | `stat` | nothing | – |
//! | `willneed` | `MADV_WILLNEED` | not at all: it only begins the reading |
//! | `cold`, `lru_deprio` | `MADV_COLD` | not at all: LRU lists are not shown |
//! | `pageout` | `MADV_PAGEOUT` | the pagemap: pages that were present and are not |
//! | `lru_prio` | two `process_vm_readv` of each present page | not at all |
//! | `hugepage` | `MADV_COLLAPSE` of every 2 MiB with a page in it | page tables, where the tracker reads them |
//! | `collapse` | the same where at least 80 % are present | the same |
//!
//! Where swap is short or absent, `pageout` takes pages of files only.
//!
//! Ranges above 256 MiB (2 MiB for `cold` and `lru_deprio`) are not counted page by page but estimated from
//! chunks evenly spread over them.
//!
//! **The young check of pageout**: a page whose mark we took off and that has it again was touched since, and is
//! left alone. A page we never looked at is judged by its region. A `young` filter of the scheme replaces it.

mod act;
mod advise;
mod collapse;
mod filter;
mod guard;
mod refault;
mod spans;
mod survey;
mod touch;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thermo_core::AddrRange;
use thermo_core::action::Action;
use thermo_core::ops::{Applied, OpsError, Outcome, Request, Run, Skip};
use thermo_sys::clock;
use thermo_sys::kpageflags::PageFrames;
use thermo_sys::pagemap::Pagemap;

use self::act::Deed;
use self::filter::{Eyes, PageFilters};
use self::guard::Guard;
pub use self::guard::{PageoutLimits, below_swap_floor};
use crate::process::{Process, Processes};
use crate::pte::PteTracker;

/// The actor. See the module's text.
#[derive(Debug)]
pub struct Actor {
    root: PathBuf,
    frames: Option<PageFrames>,
    guard: Guard,
    dry_run: bool,
    cancel: Arc<AtomicBool>,
}

impl Actor {
    /// An actor that pages out within `limits`, and with `dry_run` decides and counts everything but does nothing.
    #[must_use]
    pub fn new(limits: PageoutLimits, dry_run: bool) -> Self {
        let root = PathBuf::from("/");
        Self {
            frames: PageFrames::open(&root).ok(),
            root,
            guard: Guard::new(limits),
            dry_run,
            cancel: Arc::new(AtomicBool::new(false)),
        }
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
            Action::Nohugepage => {
                "no system call takes a mapping's huge-page flag away from outside its process; \
                 use cold or pageout on what should shrink"
            }
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
        mut pte: Option<&mut PteTracker>,
    ) -> Result<Outcome, OpsError> {
        let began = clock::thread_cpu();
        Self::supports(request.action)?;
        let filters = PageFilters::new(&self.root, request.filters, pte.is_some(), self.frames.is_some())?;
        self.guard.begin();
        let runs = request.runs.iter().map(|run| match processes.get(&run.target) {
            Some(process) => self.one(
                processes,
                process,
                request.action,
                run,
                &filters,
                pte.as_deref_mut(),
            ),
            None => left_alone(Skip::TargetGone, run.range),
        });
        let runs = runs.collect();
        Ok(Outcome {
            runs,
            spent: clock::thread_cpu().saturating_sub(began),
        })
    }

    fn one(
        &mut self,
        processes: &Processes,
        process: &Process,
        action: Action,
        run: &Run,
        filters: &PageFilters,
        mut pte: Option<&mut PteTracker>,
    ) -> Applied {
        if self.cancel.load(Ordering::Relaxed) {
            return left_alone(Skip::Cancelled, run.range);
        }
        let pagemap = match Pagemap::open(&self.root, process.pid) {
            Ok(pagemap) if process.is_alive() => pagemap,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return left_alone(Skip::Refused, run.range);
            }
            _ => return left_alone(Skip::TargetGone, run.range),
        };
        let mut applied = Applied::default();
        let kept = self.kept(
            process,
            &pagemap,
            (action, run),
            filters,
            pte.as_deref_mut(),
            &mut applied,
        );
        applied.passed_filters = spans::sum(&kept);
        if action == Action::Stat {
            return applied;
        }
        let kept = match pte
            .as_deref_mut()
            .filter(|_| action == Action::Pageout && !filters.asks_for_young())
        {
            Some(pte) => leave_young(process, run.range, kept, pte, &mut applied),
            None => kept,
        };
        if self.dry_run {
            applied.skip(Skip::DryRun, spans::sum(&kept));
            return applied;
        }
        self.act(
            action,
            process,
            &Deed {
                processes,
                run,
                kept: &kept,
                pagemap: &pagemap,
            },
            pte,
            &mut applied,
        );
        applied
    }

    /// What of the run is to be acted on: what the filters let through.
    fn kept(
        &self,
        process: &Process,
        pagemap: &Pagemap,
        request: (Action, &Run),
        filters: &PageFilters,
        pte: Option<&mut PteTracker>,
        applied: &mut Applied,
    ) -> Vec<AddrRange> {
        let (action, run) = request;
        let whole_pages = AddrRange {
            start: run.range.start.align_up(),
            end: run.range.end.align_down(),
        };
        if filters.is_empty() {
            return if whole_pages.is_empty() {
                Vec::new()
            } else {
                vec![whole_pages]
            };
        }
        let mut eyes = Eyes::new(pagemap, self.frames.as_ref(), pte);
        filters.passed(
            process,
            whole_pages,
            action == Action::Willneed,
            &mut eyes,
            applied,
        )
    }
}

/// Leaves out of `kept` the pages that were touched since their marks were taken off.
fn leave_young(
    process: &Process,
    range: AddrRange,
    kept: Vec<AddrRange>,
    pte: &mut PteTracker,
    applied: &mut Applied,
) -> Vec<AddrRange> {
    // A process that is gone is found out by the action itself.
    let Ok(young) = pte.touched_since_cleared(process, range) else {
        return kept;
    };
    let rest = spans::without(&kept, &young);
    applied.skip(Skip::Young, spans::sum(&kept) - spans::sum(&rest));
    rest
}

fn left_alone(why: Skip, range: AddrRange) -> Applied {
    let mut applied = Applied::default();
    applied.skip(why, range.len());
    applied
}
