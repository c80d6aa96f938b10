//! The interface between a context and the machine: access checks, scans and actions. All calls are batched,
//! because one system call per page would dominate the cost.

use std::fmt;
use std::sync::Arc;

use crate::access_tables::Backing;
use crate::action::Action;
use crate::attrs::Attrs;
use crate::region::Region;
use crate::scan::{Alias, Preparation, ScanChunk};
use crate::scheme::{Destination, OpsFilter, Scheme, SchemeStats, SystemMetric};
pub use crate::target_id::TargetId;
use thermo_units::{Addr, AddrRange};
use thermo_units::{Bytes, Nanos};

/// A target and its mappings at an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetLayout {
    /// Identifier of the target.
    pub id: TargetId,
    /// The process of an address space. `None` for physical memory and for simulated machines without
    /// processes.
    pub pid: Option<u32>,
    /// Ranges to monitor: page-aligned, ascending, disjoint. Empty while they are not known yet.
    pub ranges: Arc<[AddrRange]>,
    /// Resident memory, hugetlb pages included; `None` if unknown.
    pub resident: Option<Bytes>,
    /// Memory in hugetlb pages.
    pub hugetlb: Bytes,
    /// Backing of the mappings: ascending, disjoint. Addresses outside count as anonymous memory.
    pub backings: Arc<[(AddrRange, Backing)]>,
    /// Mappings of memory that is mapped at lower addresses as well: ascending, disjoint.
    pub aliases: Arc<[Alias]>,
    /// True if the process started after the previous update: accessed bits set on its pages are recent.
    pub is_new: bool,
}

impl TargetLayout {
    /// A target of which only the mapped ranges are known.
    #[must_use]
    pub fn new(id: TargetId, pid: Option<u32>, ranges: Vec<AddrRange>) -> Self {
        Self {
            id,
            pid,
            ranges: ranges.into(),
            resident: None,
            hugetlb: Bytes::ZERO,
            backings: Arc::default(),
            aliases: Arc::default(),
            is_new: false,
        }
    }

    /// Total size of the ranges.
    #[must_use]
    pub fn mapped(&self) -> Bytes {
        self.ranges.iter().map(AddrRange::len).sum()
    }

    /// Weight among all targets: resident memory if known, otherwise mapped memory.
    #[must_use]
    pub fn weight(&self) -> Bytes {
        self.resident.unwrap_or_else(|| self.mapped())
    }
}

/// Result of an access check of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckResult {
    /// Accessed since the check was prepared.
    Accessed,
    /// Not accessed, or not resident.
    Idle,
    /// The check has no answer: the page is shared or unreadable, or its accessed bit could not be cleared.
    Unknown,
}

/// An access check of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Target of the page.
    pub target: TargetId,
    /// Address of the page.
    pub addr: Addr,
    /// Result, set by [`Operations::check_accesses`].
    pub result: CheckResult,
}

/// An address range of one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetRange {
    /// The target.
    pub target: TargetId,
    /// Addresses in the target.
    pub range: AddrRange,
}

/// A request of a scheme to apply an action.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The action.
    pub action: Action,
    /// The ranges to act on, in this order.
    pub ranges: &'a [TargetRange],
    /// Filters that select the pages to skip.
    pub filters: &'a [OpsFilter],
    /// The nodes to migrate to; empty for actions that do not migrate.
    pub destinations: &'a [Destination],
}

/// Reason why requested bytes were skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Skip {
    /// The page is not resident.
    NotPresent,
    /// The page is in memory already.
    Resident,
    /// The page was accessed recently.
    Young,
    /// Other processes map the page too, so the kernel skips it.
    Shared,
    /// The mapping is locked into memory.
    Locked,
    /// The mapping does not support the advice (device memory, hugetlb).
    Unadvisable,
    /// The process itself may not read the mapping (`PROT_NONE`), so its pages cannot be read for it.
    Unreadable,
    /// The program handles the page faults of the mapping itself (`userfaultfd`), so the kernel makes no huge
    /// page of absent or protected pages there.
    Userfaultfd,
    /// A filter of the scheme excludes the page.
    Filtered,
    /// Too little swap is free.
    SwapFloor,
    /// Too many of the pages paged out before were refaulted.
    Refaults,
    /// The contents do not compress: of the target's pages that went to zram, too little was saved.
    Incompressible,
    /// The page is on the node already.
    OnNode,
    /// The node has too little free memory.
    NodeFull,
    /// The cpuset of the process forbids the node.
    Cpuset,
    /// The page was moved the other way too recently.
    CoolDown,
    /// The kernel uses the page at the moment, or it is pinned.
    Busy,
    /// The kernel found no free huge page.
    NoHugePage,
    /// The limit of the process's control group allows no huge page.
    CgroupLimit,
    /// The process does not map the page any more, but its contents are still in memory: the swap device did
    /// not take them.
    SwapCache,
    /// The target is gone.
    TargetGone,
    /// The target holds the lock of its address space, so that no call for it returns.
    NotAnswering,
    /// We lack the right to act on the process.
    NotPermitted,
    /// The kernel lacks the system call or the advice, or a system call filter forbids it.
    Unsupported,
    /// The kernel refused for another reason: [`Applied::error`] has the call and its error.
    Refused,
    /// Dry run: the action was decided and counted, but not applied.
    DryRun,
    /// The request was cancelled before the range was reached.
    Cancelled,
}

impl Skip {
    /// Name in reports and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotPresent => "not_present",
            Self::Resident => "resident",
            Self::Young => "young",
            Self::Shared => "shared",
            Self::Locked => "locked",
            Self::Unadvisable => "unadvisable",
            Self::Unreadable => "unreadable",
            Self::Userfaultfd => "userfaultfd",
            Self::Filtered => "filtered",
            Self::SwapFloor => "swap_floor",
            Self::Refaults => "refaults",
            Self::Incompressible => "incompressible",
            Self::OnNode => "on_node",
            Self::NodeFull => "node_full",
            Self::Cpuset => "cpuset",
            Self::CoolDown => "cool_down",
            Self::Busy => "busy",
            Self::NoHugePage => "no_huge_page",
            Self::CgroupLimit => "cgroup_limit",
            Self::SwapCache => "swap_cache",
            Self::TargetGone => "target_gone",
            Self::NotAnswering => "not_answering",
            Self::NotPermitted => "not_permitted",
            Self::Unsupported => "unsupported",
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

/// Result of an action on one [`TargetRange`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// Bytes that passed the scheme's ops filters.
    pub passed_filters: Bytes,
    /// Bytes of ranges for which the system call succeeded.
    pub applied: Bytes,
    /// Bytes whose state changed, as read afterwards. `None` if the action leaves no readable trace.
    pub changed: Option<Bytes>,
    /// The part of `changed` that went back to a node from which it had been moved before.
    pub moved_back: Bytes,
    /// Skipped bytes by reason; each reason at most once.
    pub skipped: Vec<(Skip, Bytes)>,
    /// The first error that the kernel returned, as a sentence with the call, if a reason cannot say it.
    pub error: Option<String>,
}

impl Applied {
    /// Adds `bytes` to those skipped for `reason`.
    pub fn skip(&mut self, reason: Skip, bytes: Bytes) {
        if bytes == Bytes::ZERO {
            return;
        }
        match self.skipped.iter_mut().find(|(found, _)| *found == reason) {
            Some((_, sum)) => *sum += bytes,
            None => self.skipped.push((reason, bytes)),
        }
    }

    /// Adds the result of another part of the range.
    pub fn add(&mut self, part: &Self) {
        self.passed_filters += part.passed_filters;
        self.applied += part.applied;
        self.moved_back += part.moved_back;
        if let Some(changed) = part.changed {
            self.changed = Some(self.changed.unwrap_or_default() + changed);
        }
        for (reason, bytes) in &part.skipped {
            self.skip(*reason, *bytes);
        }
        if self.error.is_none() {
            self.error.clone_from(&part.error);
        }
    }

    /// Turns what was acted on into what would have been: the result of a dry run, in which every check was
    /// made and no system call.
    pub fn into_dry_run(&mut self) {
        let would = std::mem::take(&mut self.applied);
        self.skip(Skip::DryRun, would);
        self.changed = None;
        self.moved_back = Bytes::ZERO;
    }
}

/// How many of some pages are in memory, and on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCount {
    /// Pages in memory whose node is known.
    pub resident: u64,
    /// Those of them on the node.
    pub on_node: u64,
}

/// Result of a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// One entry for each range of the request, in the same order.
    pub results: Vec<Applied>,
    /// CPU time of the calls, for time quotas.
    pub spent: Nanos,
    /// Sentences about parts of the request that could not be done. Each is reported once.
    pub notes: Vec<String>,
}

/// Error of an [`Operations`] call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpsError {
    /// The backend does not support the request, on this machine or at all.
    #[error("{what} is not supported: {why}")]
    Unsupported {
        /// The request.
        what: String,
        /// The reason, and the way out if there is one.
        why: String,
    },
    /// The kernel or a file returned an error.
    #[error("{0}")]
    Failed(String),
}

/// A machine that a context monitors and acts on.
///
/// `thermo_runtime` implements it for real processes and `thermo_sim` for a simulated machine. Both pass the
/// same conformance suite. The kernel's counterpart is `struct damon_operations` (include/linux/damon.h).
pub trait Operations {
    /// Updates the targets and returns all live ones, in the order they appeared. Called before the first
    /// access check and once every update interval.
    ///
    /// # Errors
    /// The whole backend failed. A target that vanished is no error: the list lacks it.
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError>;

    /// Returns the warnings since the last call, one sentence each. Called after every update.
    fn take_warnings(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Clears the accessed bit of each probe's page. Probes are sorted by target, then address. If a bit
    /// cannot be cleared, the next [`Operations::check_accesses`] must answer [`CheckResult::Unknown`] for
    /// the probe.
    fn prepare_access_checks(&mut self, probes: &[Probe]);

    /// Sets the result of each probe: accessed or not since the probes were prepared.
    fn check_accesses(&mut self, probes: &mut [Probe]);

    /// True if [`Operations::scan`] is supported.
    fn can_scan(&self) -> bool {
        false
    }

    /// True if passes over all targets must begin together, each time after [`Operations::prepare_passes`].
    fn scans_jointly(&self) -> bool {
        false
    }

    /// Does the next part of the preparation of joint passes. `first` is true for the first part. Called
    /// until it returns [`Preparation::Ready`], with pauses as the budget requires.
    fn prepare_passes(&mut self, _first: bool) -> Preparation {
        Preparation::Ready
    }

    /// Notifies that a pass over `target` begins.
    fn begin_pass(&mut self, _target: TargetId) {}

    /// Reads the accessed bits of all pages of `run` into `chunk` (which covers `run.range`) and clears them.
    /// A page whose bit cannot be cleared is unknown. A target that is gone has no pages.
    ///
    /// Returns the address where the scan ended: the end of `run`, or a later address if nothing is mapped
    /// between.
    fn scan(&mut self, run: &TargetRange, _chunk: &mut ScanChunk) -> Addr {
        run.range.end
    }

    /// The interface of operations that monitor and apply schemes themselves. `None` if the engine does both.
    fn as_offload(&mut self) -> Option<&mut dyn Offload> {
        None
    }

    /// Total CPU time that other threads (such as a kernel thread) spent on this monitoring.
    fn external_cpu_time(&mut self) -> Nanos {
        Nanos::ZERO
    }

    /// Whether actions on `target` are held back now: no scheme that acts selects its memory, so its idle
    /// ages go on and no quota is spent on it.
    fn is_held(&self, _target: TargetId) -> bool {
        false
    }

    /// False once all targets are gone and no update can bring one back.
    fn any_target_left(&mut self) -> bool;

    /// The parts of `run` that `action` would still change: ascending, in whole units of the action. `run`
    /// consists of whole units too. Only these parts count against a quota. Called only for actions on huge
    /// pages and for those that migrate, with their `destinations`.
    fn pending(
        &mut self,
        _action: Action,
        _destinations: &[Destination],
        run: &TargetRange,
    ) -> Vec<AddrRange> {
        vec![run.range]
    }

    /// Counts which of `pages` are on memory node `nid`. Each page is given by its target and address; they
    /// are sorted by target, then address. Used for quota goals, a few thousand pages a quota window.
    ///
    /// # Errors
    /// [`OpsError::Unsupported`] if this machine has no such node, or no node of a page is known.
    fn count_on_node(&mut self, _nid: u32, _pages: &[(TargetId, Addr)]) -> Result<NodeCount, OpsError> {
        Err(OpsError::Unsupported {
            what: "the goal node_eligible_mem_bp".to_owned(),
            why: "the memory nodes of pages are not known here".to_owned(),
        })
    }

    /// Applies `request.action` to the ranges. A range that cannot be acted on is skipped with a reason; the
    /// others are processed.
    ///
    /// # Errors
    /// [`OpsError::Unsupported`] if the backend does not support the action at all.
    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError>;

    /// The current value of a metric for goals and watermarks.
    ///
    /// # Errors
    /// The machine lacks the metric. `Unsupported` is reported once, and the goal is ignored.
    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError>;
}

/// Operations that monitor and apply schemes themselves, as in-kernel DAMON does. The targets are those of
/// the last [`Operations::update`].
pub trait Offload {
    /// Monitors with `attrs` and applies `schemes` from now on. Called before every [`Offload::follow`];
    /// without a change it must be cheap.
    ///
    /// # Errors
    /// The parameters are refused, or monitoring has stopped although targets are left.
    fn commit_parameters(&mut self, attrs: &Attrs, schemes: &[Scheme]) -> Result<(), OpsError>;

    /// Waits for the end of the running aggregation and returns its results.
    ///
    /// # Errors
    /// The results cannot be read any more.
    fn follow(&mut self) -> Result<Snapshot, OpsError>;
}

/// Results of offloaded monitoring.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Time of the snapshot.
    pub taken: Nanos,
    /// When the next [`Offload::follow`] is worth its cost.
    pub next: Nanos,
    /// The regions of each known target, with counts and ages.
    pub targets: Vec<(TargetId, Vec<Region>)>,
    /// Totals of each scheme since it was installed, in the order of the schemes. The regions acted on are
    /// not known.
    pub schemes: Vec<SchemeStats>,
}
