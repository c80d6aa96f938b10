//! What a context asks of the machine it watches: a tracker (which pages were touched?) and an actor (do
//! this to that). Batched, because a system call per page is the known cost.

use std::fmt;

use crate::access_tables::Backing;
use crate::action::Action;
use crate::attrs::Attrs;
use crate::region::Region;
use crate::scan::{Preparation, ScanChunk};
use crate::scheme::{OpsFilter, Scheme, SchemeStats, SystemMetric};
pub use crate::target_id::TargetId;
use thermo_units::{Addr, AddrRange};
use thermo_units::{Bytes, Nanos};

/// A target as the operations see it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetLayout {
    /// Which one.
    pub id: TargetId,
    /// The process, for an address space; `None` for physical memory and simulated machines without one.
    pub pid: Option<u32>,
    /// What to monitor of it: page-aligned, ascending, disjoint. Empty while nothing can be said yet.
    pub ranges: Vec<AddrRange>,
    /// How much of it is in memory; none where that is not known.
    pub resident: Option<Bytes>,
    /// What backs the mappings: ascending, disjoint. What lies outside counts as anonymous.
    pub backings: Vec<(AddrRange, Backing)>,
    /// True for a process that started since targets were last brought up to date: accessed bits that are found on its
    /// pages are of accesses since then, not of years ago.
    pub is_new: bool,
    /// True while the kernel is about to decide by accessed bits what to page out: the target grows, or comes back from
    /// swap, and there is no room for all. Accessed bits that a scan clears would be missed, so its scan waits.
    pub defer_scan: bool,
}

impl TargetLayout {
    /// Of a target of which only is known what is mapped.
    #[must_use]
    pub const fn new(id: TargetId, pid: Option<u32>, ranges: Vec<AddrRange>) -> Self {
        Self {
            id,
            pid,
            ranges,
            resident: None,
            backings: Vec::new(),
            is_new: false,
            defer_scan: false,
        }
    }

    /// All that is to be monitored of it.
    #[must_use]
    pub fn mapped(&self) -> Bytes {
        self.ranges.iter().map(AddrRange::len).sum()
    }

    /// What it counts for beside others: how much of it is in memory, or else all that it maps.
    #[must_use]
    pub fn weight(&self) -> Bytes {
        self.resident.unwrap_or_else(|| self.mapped())
    }
}

/// What a look at a page found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Touched since it was prepared.
    Accessed,
    /// Not touched, or not there.
    Idle,
    /// Cannot be told: shared, unreadable, its mark could not be taken off.
    Unknown,
}

/// One page to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Of which target.
    pub target: TargetId,
    /// Where.
    pub addr: Addr,
    /// What [`Operations::check_accesses`] found.
    pub seen: Seen,
}

/// Memory to act on, in one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetRange {
    /// Of which target.
    pub target: TargetId,
    /// Where.
    pub range: AddrRange,
}

/// What a scheme asks an actor to do.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What to do.
    pub action: Action,
    /// To what, in the order it should be done.
    pub runs: &'a [TargetRange],
    /// Which pages of it to leave alone.
    pub filters: &'a [OpsFilter],
}

/// Why bytes that were asked for were not acted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Skip {
    /// No page is there.
    NotPresent,
    /// The page was touched a moment ago.
    Young,
    /// The page is mapped by others too; the kernel leaves it alone.
    Shared,
    /// The mapping is locked into memory.
    Locked,
    /// The mapping is of a kind that cannot be advised (device, hugetlb).
    Unadvisable,
    /// A filter of the scheme keeps it out.
    Filtered,
    /// Too little swap is free.
    SwapFloor,
    /// Too much of what was paged out came back.
    Refaults,
    /// The target is gone.
    TargetGone,
    /// The kernel refused for another reason.
    Refused,
    /// Decided and counted, but not done: a dry run.
    DryRun,
    /// The run was stopped before it was reached.
    Cancelled,
}

impl Skip {
    /// The word in reports and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotPresent => "not_present",
            Self::Young => "young",
            Self::Shared => "shared",
            Self::Locked => "locked",
            Self::Unadvisable => "unadvisable",
            Self::Filtered => "filtered",
            Self::SwapFloor => "swap_floor",
            Self::Refaults => "refaults",
            Self::TargetGone => "target_gone",
            Self::Refused => "refused",
            Self::DryRun => "dry_run",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What became of one [`TargetRange`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// Bytes that passed the scheme's ops filters.
    pub passed_filters: Bytes,
    /// Bytes the kernel was successfully asked to act on.
    pub applied: Bytes,
    /// Bytes seen to have changed afterwards. `None`: this action leaves no trace that could be read.
    pub changed: Option<Bytes>,
    /// Why not, for the rest; each reason at most once.
    pub skipped: Vec<(Skip, Bytes)>,
}

impl Applied {
    /// Counts `bytes` as skipped for `why`.
    pub fn skip(&mut self, why: Skip, bytes: Bytes) {
        if bytes == Bytes::ZERO {
            return;
        }
        match self.skipped.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, sum)) => *sum += bytes,
            None => self.skipped.push((why, bytes)),
        }
    }
}

/// What became of a [`Request`]: one entry a run, in the same order, and what it cost.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// One entry for each run of the request.
    pub runs: Vec<Applied>,
    /// CPU time the calls took, for time quotas.
    pub spent: Nanos,
    /// Sentences on what could not be done as asked; each is told once.
    pub notes: Vec<String>,
}

/// Why operations could not do what they were asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpsError {
    /// This back end cannot do it, here or at all.
    #[error("{what} is not supported: {why}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// The reason, and the way out if there is one.
        why: String,
    },
    /// The kernel or a file failed.
    #[error("{0}")]
    Failed(String),
}

/// A machine a context can watch and act on.
///
/// Implemented by `thermo_runtime` for real processes and by `thermo_sim` for a simulated one; both pass the same
/// conformance suite. The kernel's counterpart is `struct damon_operations` (include/linux/damon.h).
pub trait Operations {
    /// Brings the list of targets up to date: all that live now, in the order they appeared. Called before the
    /// first look and once every update interval. `min_nr_regions` tells nothing may be cut finer for.
    ///
    /// # Errors
    /// When the whole back end failed; a target that vanished is left out, not an error.
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError>;

    /// What was noticed since it was last asked that a user should know, a sentence each. Asked after every update.
    fn news(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Takes the accessed mark off each probe's page. Probes come sorted by target, then address. A probe whose
    /// mark could not be taken off must be answered [`Seen::Unknown`] by the check that follows.
    fn prepare_access_checks(&mut self, probes: &[Probe]);

    /// Answers, for the probes last prepared, whether their pages were touched since.
    fn check_accesses(&mut self, probes: &mut [Probe]);

    /// True when [`Operations::scan`] can be used.
    fn can_scan(&self) -> bool {
        false
    }

    /// True when passes over all targets must begin together, each time after [`Operations::prepare_passes`].
    fn scans_jointly(&self) -> bool {
        false
    }

    /// Does the next part of what has to be done before joint passes; `first` says that nothing of it was done. Called
    /// until it is ready, with time between that the budget asks for.
    fn prepare_passes(&mut self, _first: bool) -> Preparation {
        Preparation::Ready
    }

    /// A pass over a target begins.
    fn begin_pass(&mut self, _target: TargetId) {}

    /// Reads the accessed bits of all pages of `run` into `chunk` (which covers `run.range`) and clears them. A page
    /// whose bit cannot be cleared is unknown. A target that is gone has no pages.
    ///
    /// Returns how far it got: at or behind the end of `run`; behind it when nothing is mapped up to there.
    fn scan(&mut self, run: &TargetRange, _chunk: &mut ScanChunk) -> Addr {
        run.range.end
    }

    /// Itself, if it looks and acts by itself: the context then only follows what it does.
    fn as_offload(&mut self) -> Option<&mut dyn Offload> {
        None
    }

    /// CPU time that others (a thread of the kernel) spent on looking for it, all in all.
    fn spent_elsewhere(&mut self) -> Nanos {
        Nanos::ZERO
    }

    /// False once every target is gone for good, so that no update could bring one back.
    fn any_target_left(&mut self) -> bool;

    /// What of `run`, which consists of whole units of `action`, is not yet as the action would make it: ascending,
    /// in whole units. A quota is spent on this alone. Asked for actions on huge pages only.
    fn pending(&mut self, _action: Action, run: &TargetRange) -> Vec<AddrRange> {
        vec![run.range]
    }

    /// Does `request.action` to the runs. A run that cannot be acted on is skipped with its reason; the rest
    /// goes on.
    ///
    /// # Errors
    /// [`OpsError::Unsupported`] when this back end cannot do the action at all.
    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError>;

    /// The present value of a metric that goals and watermarks go by.
    ///
    /// # Errors
    /// When the machine does not have it; `Unsupported` is reported once and the goal is left out.
    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError>;
}

/// Operations that monitor by themselves, as the kernel's own DAMON does: they are told what to do and asked what came
/// of it. Targets are those of the last [`Operations::update`].
pub trait Offload {
    /// Makes it monitor with `attrs` and carry out `schemes` from now on. Called before every look; what is as it
    /// was costs nothing.
    ///
    /// # Errors
    /// When it refuses them, or does not run any more although targets are left.
    fn commit(&mut self, attrs: &Attrs, schemes: &[Scheme]) -> Result<(), OpsError>;

    /// What it has found by the end of the aggregation that is running; waits for that.
    ///
    /// # Errors
    /// When it cannot be asked any more.
    fn follow(&mut self) -> Result<Snapshot, OpsError>;
}

/// What monitoring that runs elsewhere has found and done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// When it was taken.
    pub taken: Nanos,
    /// When it is worth asking again.
    pub next: Nanos,
    /// The regions of each target it knows, with their counts and ages.
    pub targets: Vec<(TargetId, Vec<Region>)>,
    /// Totals of each scheme since it began, in their order. Which regions it took is not told.
    pub schemes: Vec<SchemeStats>,
}
