//! Events that a context emits, and the sinks that receive them. A sink never calls back.

use crate::access_tables::AccessTables;
use crate::attrs::Attrs;
use crate::budget::{Method, Plan};
use crate::ops::{Applied, Skip, TargetRange};
use crate::region::Region;
use crate::scheme::{AgeDecision, SchemeStats};
use crate::target_id::TargetId;
use thermo_units::AddrRange;
use thermo_units::{Bytes, Nanos};

/// A snapshot of a target and its regions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetRegions<'a> {
    /// Identifier of the target.
    pub id: TargetId,
    /// Process of the target, if it has one.
    pub pid: Option<u32>,
    /// Monitoring method.
    pub method: Method,
    /// Regions: ascending, disjoint.
    pub regions: &'a [Region],
    /// Page-exact results. `None` with in-kernel DAMON, which reports only regions.
    pub tables: Option<&'a AccessTables>,
    /// Resident bytes in regions whose pages differ in state, because regions were coalesced to limit their
    /// number.
    pub averaged: Bytes,
}

/// Something that happened in a context.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A sampling interval ended and its access checks are counted. (The seed's `after_sampling` callback.)
    Sampled {
        /// Time of the event.
        now: Nanos,
    },
    /// An aggregation interval ended. Regions are merged and aged; counts are not yet reset and regions not
    /// yet split. (The seed's `after_aggregation` callback.)
    Aggregated {
        /// Start of the aggregation.
        start: Nanos,
        /// End of the aggregation.
        end: Nanos,
        /// Attributes in force during the aggregation.
        attrs: &'a Attrs,
        /// All targets.
        targets: &'a [TargetRegions<'a>],
    },
    /// A scheme was applied to the regions that matched it.
    SchemeApplied {
        /// Time of the event.
        now: Nanos,
        /// Index of the scheme in the context, from 0.
        scheme: usize,
        /// The regions that were tried, in order, as they were before the action.
        tried: &'a [TriedRegion],
        /// Bytes skipped in all these regions, by reason.
        skipped: &'a [(Skip, Bytes)],
        /// The results by target, in the order of the targets; without those in which nothing was tried. With
        /// in-kernel DAMON they are not known.
        by_target: &'a [(TargetId, Applied)],
        /// Totals since the scheme was installed.
        stats: &'a SchemeStats,
    },
    /// Watermarks activated or deactivated a scheme.
    SchemeActive {
        /// Time of the event.
        now: Nanos,
        /// Index of the scheme in the context, from 0.
        scheme: usize,
        /// True if the scheme is active from now on.
        active: bool,
        /// Value of the watermark metric.
        metric: u64,
    },
    /// The automatic age of a scheme changed.
    AutoAge {
        /// Time of the event.
        now: Nanos,
        /// Index of the scheme in the context, from 0.
        scheme: usize,
        /// The new age and its reason.
        decision: &'a AgeDecision,
    },
    /// The CPU budget chose a new method, new intervals or a new number of regions.
    Planned {
        /// Time of the event.
        now: Nanos,
        /// The new plan.
        plan: &'a Plan,
    },
    /// Intervals were tuned towards a goal. (The kernel's `damon_monitor_intervals_tune` trace event.)
    Tuned {
        /// Time of the event.
        now: Nanos,
        /// Attributes from now on.
        attrs: &'a Attrs,
    },
    /// A target appeared.
    TargetAppeared {
        /// Time of the event.
        now: Nanos,
        /// Identifier of the target.
        id: TargetId,
        /// Process of the target, if it has one.
        pid: Option<u32>,
        /// The monitored ranges.
        ranges: &'a [AddrRange],
    },
    /// A target disappeared.
    TargetGone {
        /// Time of the event.
        now: Nanos,
        /// Identifier of the target.
        id: TargetId,
        /// Process of the target, if it has one.
        pid: Option<u32>,
    },
    /// A warning for the user. Each text is reported once.
    Warning {
        /// Time of the event.
        now: Nanos,
        /// One sentence.
        text: &'a str,
    },
}

/// A region that a scheme tried, as it was before the action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TriedRegion {
    /// Target and address range.
    pub target_range: TargetRange,
    /// Moving access count, in access checks.
    pub nr_accesses: u32,
    /// Age, in aggregations.
    pub age: u32,
    /// Bytes that passed the ops filters; 0 without ops filters.
    pub passed_filters: Bytes,
}

/// Receives the events of a context.
pub trait Sink {
    /// Handles `event`.
    fn on(&mut self, event: &Event<'_>);
}

/// A closure is a sink.
impl<F: FnMut(&Event<'_>)> Sink for F {
    fn on(&mut self, event: &Event<'_>) {
        self(event);
    }
}
