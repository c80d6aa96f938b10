//! What a recording holds, as plain values: the shape every writer fills and every reader gets.

use serde::{Deserialize, Serialize};
pub use thermo_engine::access_tables::AccessTables;

/// The version of this shape; a reader refuses a larger one. Version 2 added [`Target::tables`] and [`Totals`].
pub const SCHEMA: u32 = 2;

/// What is true of the whole recording; written first, as metadata.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metadata {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Name and version of the writer.
    pub writer: String,
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub arch: String,
    /// Name of the tracker, as in `doctor`.
    pub tracker: String,
    /// Why that one, in words.
    pub tracker_reason: String,
    /// Seed of all random choices.
    pub seed: u64,
    /// Wall-clock time minus `CLOCK_MONOTONIC`, in nanoseconds, when the recording began.
    pub wall_clock_offset_ns: i64,
    /// When the recording began, on `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// What was watched, in words.
    pub targets: String,
    /// The settings the recording began with.
    pub settings: Settings,
    /// The schemes that were applied, each as a sentence.
    pub schemes: Vec<String>,
}

/// Monitoring settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Sampling interval.
    pub sample_ns: u64,
    /// Aggregation interval.
    pub aggr_ns: u64,
    /// Update interval.
    pub update_ns: u64,
    /// Fewest regions.
    pub min_nr_regions: u64,
    /// Most regions.
    pub max_nr_regions: u64,
    /// The CPU budget for looking, in percent of one CPU; `None`: the intervals were given by hand.
    pub cpu_budget_percent: Option<f64>,
}

/// One thing a recording tells, in the order it happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// The regions of all targets at the end of an aggregation.
    Snapshot(Snapshot),
    /// The mappings of a target, whenever they were read.
    Mappings(Mappings),
    /// How much memory a target has.
    Footprint(Footprint),
    /// What the monitoring itself costs.
    Cost(Cost),
    /// A scheme was applied.
    Scheme(SchemeApplied),
    /// Something worth a sentence: a target appeared or went, a warning, a changed plan.
    Note(Note),
    /// Where the memory of the machine or of a control group is.
    Totals(Totals),
}

/// Regions at the end of one aggregation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// When the aggregation began.
    pub start_ns: u64,
    /// When it ended.
    pub time_ns: u64,
    /// Length of its aggregation interval: the unit of `age`.
    pub aggr_ns: u64,
    /// The most `nr_accesses` could be.
    pub max_nr_accesses: u32,
    /// Every target, also one without regions.
    pub targets: Vec<Target>,
}

/// A target of a snapshot.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Target {
    /// Which one, never used again for another in this recording.
    pub id: u32,
    /// Its process; `None` for physical memory.
    pub pid: Option<u32>,
    /// Whether its pages were scanned, or regions sampled; `None` in recordings made before that was told.
    pub scanned: Option<bool>,
    /// Resident bytes in regions that hold pages which are not alike: regions were coalesced to keep their number.
    pub averaged: u64,
    /// Its page-exact results; `None` in recordings of schema 1 and where another monitoring reports regions alone.
    pub tables: Option<Box<AccessTables>>,
    /// Its regions: ascending, disjoint.
    pub regions: Vec<Region>,
}

/// A region of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// Byte after the last.
    pub end: u64,
    /// Looks that found it accessed, of `max_nr_accesses`.
    pub nr_accesses: u32,
    /// Aggregations for which that has hardly changed.
    pub age: u32,
    /// True when it could not be judged.
    pub unknown: bool,
}

/// The mappings of a target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mappings {
    /// When they were read.
    pub time_ns: u64,
    /// Of which target.
    pub target: u32,
    /// All of them, ascending.
    pub mappings: Vec<Mapping>,
}

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    /// First byte.
    pub start: u64,
    /// Byte after the last.
    pub end: u64,
    /// What the kernel calls it: a path, `[heap]`, or empty for anonymous memory.
    pub name: String,
}

/// Memory of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// When.
    pub time_ns: u64,
    /// Of which target.
    pub target: u32,
    /// Virtual size in bytes.
    pub vsz: u64,
    /// Resident bytes.
    pub rss: u64,
    /// Bytes in swap.
    pub swap: u64,
}

/// What the monitoring itself costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// When.
    pub time_ns: u64,
    /// CPU time of all our threads since the recording began.
    pub cpu_ns: u64,
    /// The part of it spent on looking (not on acting, nor on writing).
    pub monitoring_cpu_ns: u64,
    /// Our resident memory in bytes.
    pub rss: u64,
}

/// One application of a scheme.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchemeApplied {
    /// When.
    pub time_ns: u64,
    /// Which scheme, from 0.
    pub index: u32,
    /// Its action.
    pub action: String,
    /// Totals since it began: regions tried.
    pub nr_tried: u64,
    /// Bytes tried.
    pub sz_tried: u64,
    /// Regions acted on.
    pub nr_applied: u64,
    /// Bytes acted on.
    pub sz_applied: u64,
    /// Bytes that passed the ops filters.
    pub sz_ops_filter_passed: u64,
    /// Bytes seen to have changed.
    pub sz_changed: u64,
    /// Windows in which the quota was used up.
    pub qt_exceeds: u64,
    /// The size limit in force; 0: none.
    pub effective_sz: u64,
    /// Bytes left alone this time, by reason.
    pub skipped: Vec<(String, u64)>,
}

/// A sentence.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Note {
    /// When.
    pub time_ns: u64,
    /// What it is about: `target_appeared`, `target_gone`, `warning`, `plan`.
    pub kind: String,
    /// The sentence.
    pub text: String,
}

/// Where the memory of the machine or of a control group is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    /// When.
    pub time_ns: u64,
    /// Whose memory: `machine`, or the path of a control group.
    pub scope: String,
    /// Bytes by name; names are plain words, as in `mapped, monitored`.
    pub rows: Vec<(String, u64)>,
}
