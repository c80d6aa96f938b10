//! What a context tells the world. Sinks listen; none calls back.

use crate::access_tables::AccessTables;
use crate::attrs::Attrs;
use crate::budget::{Method, Plan};
use crate::ops::{Skip, TargetRange};
use crate::region::Region;
use crate::scheme::SchemeStats;
use crate::target_id::TargetId;
use thermo_units::AddrRange;
use thermo_units::{Bytes, Nanos};

/// A target and its regions at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetRegions<'a> {
    /// Which target.
    pub id: TargetId,
    /// Its process.
    pub pid: Option<u32>,
    /// How accesses to it are found.
    pub method: Method,
    /// Its regions: ascending, disjoint.
    pub regions: &'a [Region],
    /// Its page-exact results; none where another monitoring (in-kernel DAMON) tells of regions alone.
    pub tables: Option<&'a AccessTables>,
    /// Resident bytes in regions that hold pages which are not alike: regions were coalesced to keep their number.
    pub averaged: Bytes,
}

/// Something that happened in a context.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A sampling interval ended; its looks are counted. (The seed's `after_sampling` callback.)
    Sampled {
        /// When.
        now: Nanos,
    },
    /// An aggregation interval ended: the regions after merging and ageing, before counts are reset and
    /// regions split. (The seed's `after_aggregation` callback.)
    Aggregated {
        /// When the aggregation began.
        start: Nanos,
        /// When it ended.
        end: Nanos,
        /// The attributes it ran with.
        attrs: &'a Attrs,
        /// Every target.
        targets: &'a [TargetRegions<'a>],
    },
    /// A scheme was applied to the regions that matched it.
    SchemeApplied {
        /// When.
        now: Nanos,
        /// Which scheme, counted from 0 in the order of the context.
        scheme: usize,
        /// The regions it took, in the order it took them, as they were before.
        tried: &'a [TriedRegion],
        /// Bytes left alone and why, over all of them.
        skipped: &'a [(Skip, Bytes)],
        /// Totals since the scheme began.
        stats: &'a SchemeStats,
    },
    /// A scheme began or stopped being active by its watermarks.
    SchemeActive {
        /// When.
        now: Nanos,
        /// Which scheme.
        scheme: usize,
        /// Whether it is now.
        active: bool,
        /// The metric that decided.
        metric: u64,
    },
    /// How to look from now on was chosen, by a budget.
    Planned {
        /// When.
        now: Nanos,
        /// What was chosen.
        plan: &'a Plan,
    },
    /// Intervals were tuned towards a goal. (The kernel's `damon_monitor_intervals_tune` trace event.)
    Tuned {
        /// When.
        now: Nanos,
        /// What it is monitored with from now on.
        attrs: &'a Attrs,
    },
    /// A target appeared.
    TargetAppeared {
        /// When.
        now: Nanos,
        /// Which.
        id: TargetId,
        /// Its process.
        pid: Option<u32>,
        /// What is monitored of it.
        ranges: &'a [AddrRange],
    },
    /// A target is gone.
    TargetGone {
        /// When.
        now: Nanos,
        /// Which.
        id: TargetId,
        /// Its process.
        pid: Option<u32>,
    },
    /// Something a user should know; each text is told once.
    Warning {
        /// When.
        now: Nanos,
        /// One sentence.
        text: &'a str,
    },
}

/// A region a scheme tried, as it was when it was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TriedRegion {
    /// Where.
    pub run: TargetRange,
    /// Its moving access count, in looks.
    pub nr_accesses: u32,
    /// Its age, in aggregations.
    pub age: u32,
    /// Bytes of it that passed the ops filters.
    pub passed_filters: Bytes,
}

/// A listener.
pub trait Sink {
    /// Takes notice of `event`.
    fn on(&mut self, event: &Event<'_>);
}

/// Closures listen too.
impl<F: FnMut(&Event<'_>)> Sink for F {
    fn on(&mut self, event: &Event<'_>) {
        self(event);
    }
}
