//! The contents of a recording as plain values. Writers and readers share these types.

use serde::{Deserialize, Deserializer, Serialize};
pub use thermo_engine::access_tables::AccessTables;

/// Version of the schema. A reader rejects a newer one. Version 2 added [`Target::tables`] and [`Totals`].
pub const SCHEMA: u32 = 2;

/// Metadata of the whole recording, at its beginning.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Metadata {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Name and version of the writer.
    pub writer: String,
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub arch: String,
    /// Name of the tracker, as `thermo doctor` prints it.
    pub tracker: String,
    /// Why this tracker was chosen, as text.
    pub tracker_reason: String,
    /// Seed of all random choices; `None` in recordings of other programs.
    pub seed: Option<u64>,
    /// Wall-clock time minus `CLOCK_MONOTONIC`, in nanoseconds, when the recording began; `None` in
    /// recordings of other programs.
    pub wall_clock_offset_ns: Option<i64>,
    /// When the recording began, on `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// The monitored targets, as text.
    pub targets: String,
    /// Settings at the beginning of the recording.
    pub settings: Settings,
    /// The schemes, each as a sentence.
    pub schemes: Vec<String>,
    /// True if another program wrote the recording: a target without PID may be a process.
    #[serde(skip)]
    pub imported: bool,
}

/// Name of a target: `process 12`, `physical memory`, or `target 3` if the recording does not say whose
/// memory it is ([`Metadata::imported`]).
#[must_use]
pub fn target_name(imported: bool, id: u32, pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid}"),
        None if imported => format!("target {id}"),
        None => "physical memory".to_owned(),
    }
}

/// Monitoring settings. `None`: the recording does not say.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Settings {
    /// Sampling interval.
    #[serde(default, deserialize_with = "zero_is_missing")]
    pub sample_ns: Option<u64>,
    /// Aggregation interval.
    #[serde(default, deserialize_with = "zero_is_missing")]
    pub aggr_ns: Option<u64>,
    /// Update interval.
    #[serde(default, deserialize_with = "zero_is_missing")]
    pub update_ns: Option<u64>,
    /// Minimum number of regions.
    #[serde(default, deserialize_with = "zero_is_missing")]
    pub min_nr_regions: Option<u64>,
    /// Maximum number of regions.
    #[serde(default, deserialize_with = "zero_is_missing")]
    pub max_nr_regions: Option<u64>,
    /// CPU budget for monitoring, in percent of one CPU; `None` if the user set the intervals.
    pub cpu_budget_percent: Option<f64>,
}

impl Settings {
    /// These settings, with 0 for each number that is missing.
    pub(crate) fn with_zeros(self) -> Self {
        let or_zero = |number: Option<u64>| number.or(Some(0));
        Self {
            sample_ns: or_zero(self.sample_ns),
            aggr_ns: or_zero(self.aggr_ns),
            update_ns: or_zero(self.update_ns),
            min_nr_regions: or_zero(self.min_nr_regions),
            max_nr_regions: or_zero(self.max_nr_regions),
            ..self
        }
    }
}

/// No interval and no number of regions is 0. Files have 0 for a missing one, which older readers accept.
fn zero_is_missing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::deserialize(deserializer)?.filter(|number| *number > 0))
}

/// A record. Records are in the order of their events.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// The regions of all targets at the end of an aggregation.
    Snapshot(Snapshot),
    /// The mappings of a target at one moment.
    Mappings(Mappings),
    /// Memory size of a target.
    Footprint(Footprint),
    /// Cost of the monitoring itself.
    Cost(Cost),
    /// A scheme was applied.
    Scheme(SchemeApplied),
    /// An event as text: a target appeared or ended, a warning, a new plan.
    Note(Note),
    /// Memory of the machine or of a control group, by use.
    Totals(Totals),
}

/// Regions at the end of one aggregation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// Begin of the aggregation.
    pub start_ns: u64,
    /// End of the aggregation.
    pub time_ns: u64,
    /// Aggregation interval: the unit of `age`.
    pub aggr_ns: u64,
    /// Maximum possible `nr_accesses`.
    pub max_nr_accesses: u32,
    /// All targets, including those without regions.
    pub targets: Vec<Target>,
}

/// A target of a snapshot.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Target {
    /// Identifier, unique in the recording.
    pub id: u32,
    /// Process ID; `None` for physical memory, and in recordings of other programs ([`Metadata::imported`]).
    pub pid: Option<u32>,
    /// Monitoring method: true for a scan of all pages, false for sampling; `None` in old recordings without
    /// it.
    pub scanned: Option<bool>,
    /// Resident bytes in regions of unlike pages, which were coalesced to limit the number of regions.
    pub averaged: u64,
    /// Page-exact access tables; `None` in recordings of schema 1 and from trackers that report only regions.
    pub tables: Option<Box<AccessTables>>,
    /// Regions: ascending, disjoint.
    pub regions: Vec<Region>,
}

/// A region of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// Byte after the last.
    pub end: u64,
    /// Access checks that found the region accessed, of `max_nr_accesses`.
    pub nr_accesses: u32,
    /// Number of aggregations for which `nr_accesses` has hardly changed; `None` if the recording does not
    /// say.
    pub age: Option<u32>,
    /// True if accesses could not be checked.
    pub unknown: bool,
}

impl Region {
    /// The age in nanoseconds, with the aggregation interval of its snapshot.
    #[must_use]
    pub fn age_ns(&self, aggr_ns: u64) -> Option<u64> {
        self.age.map(|age| u64::from(age).saturating_mul(aggr_ns))
    }
}

/// The mappings of a target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mappings {
    /// Time of reading.
    pub time_ns: u64,
    /// [`Target::id`].
    pub target: u32,
    /// All mappings, ascending.
    pub mappings: Vec<Mapping>,
}

/// A mapping.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    /// First byte.
    pub start: u64,
    /// Byte after the last.
    pub end: u64,
    /// Name as in `/proc/PID/maps`: a path, `[heap]`, or empty for anonymous memory.
    pub name: String,
}

/// Memory size of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// Time of reading.
    pub time_ns: u64,
    /// [`Target::id`].
    pub target: u32,
    /// Virtual size in bytes.
    pub vsz: u64,
    /// Resident bytes.
    pub rss: u64,
    /// Bytes in swap.
    pub swap: u64,
}

/// Cost of the monitoring itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Time of measuring.
    pub time_ns: u64,
    /// CPU time of all threads of the recording process since the recording began.
    pub cpu_ns: u64,
    /// The part of `cpu_ns` spent on monitoring: without schemes and without writing the recording.
    pub monitoring_cpu_ns: u64,
    /// Resident memory of the recording process in bytes.
    pub rss: u64,
}

/// One application of a scheme. `nr_*`, `sz_*` and `qt_exceeds` are totals since the scheme began.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchemeApplied {
    /// Time of the application.
    pub time_ns: u64,
    /// Index of the scheme, from 0.
    pub index: u32,
    /// Action of the scheme.
    pub action: String,
    /// Regions tried.
    pub nr_tried: u64,
    /// Bytes tried.
    pub sz_tried: u64,
    /// Regions to which the action was applied.
    pub nr_applied: u64,
    /// Bytes to which the action was applied.
    pub sz_applied: u64,
    /// Bytes that passed the filters of the operations layer.
    pub sz_ops_filter_passed: u64,
    /// Bytes that the action verifiably changed.
    pub sz_changed: u64,
    /// Number of windows in which the quota was exceeded.
    pub qt_exceeds: u64,
    /// Effective size quota in bytes; 0: none.
    pub effective_sz: u64,
    /// Bytes skipped in this application, by reason.
    pub skipped: Vec<(String, u64)>,
}

/// An event as text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Note {
    /// Time of the event.
    pub time_ns: u64,
    /// `target_appeared`, `target_gone`, `warning`, `plan` or `scheme_active`.
    pub kind: String,
    /// The text, one sentence.
    pub text: String,
}

/// Memory of the machine or of a control group, by use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    /// Time of reading.
    pub time_ns: u64,
    /// `machine`, or the path of a control group.
    pub scope: String,
    /// Bytes by name, for example `mapped, monitored`.
    pub rows: Vec<(String, u64)>,
}
