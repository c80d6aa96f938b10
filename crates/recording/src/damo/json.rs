//! The fields of damo's JSON that a recording needs. All other fields are ignored.

use serde::Deserialize;

use super::quantity::{ByteCount, Count, MicrosAsNanos, Nanoseconds, Percent};

/// All snapshots of one target.
#[derive(Deserialize)]
pub(super) struct TargetRecord {
    #[serde(default)]
    pub intervals: Option<Intervals>,
    pub target_id: Count,
    pub snapshots: Vec<TimedRegions>,
}

#[derive(Deserialize)]
pub(super) struct Intervals {
    pub sample_us: MicrosAsNanos,
    pub aggr_us: MicrosAsNanos,
    pub ops_update_us: MicrosAsNanos,
}

#[derive(Deserialize)]
pub(super) struct TimedRegions {
    pub start_time: Nanoseconds,
    pub end_time: Nanoseconds,
    pub regions: Vec<DamoRegion>,
    #[serde(default)]
    pub sample_interval_us: Option<MicrosAsNanos>,
}

/// A region in compact form, because there can be millions.
#[derive(Deserialize)]
#[serde(from = "RawRegion")]
pub(super) struct DamoRegion {
    pub start: u64,
    pub end: u64,
    pub accesses: Accesses,
    pub age: Age,
}

/// Access count of a region, in the unit of the file.
#[derive(Clone, Copy)]
pub(super) enum Accesses {
    Samples(u32),
    Permyriad(u32),
}

impl Accesses {
    /// The count as `nr_accesses`, of at most `max`.
    pub(super) fn to_samples(self, max: u32) -> u32 {
        match self {
            Self::Samples(samples) => samples,
            Self::Permyriad(share) => {
                u32::try_from(u64::from(share) * u64::from(max) / 10_000).unwrap_or(u32::MAX)
            }
        }
    }
}

/// Age of a region, in the unit of the file.
#[derive(Clone, Copy)]
pub(super) enum Age {
    Aggregations(u32),
    Nanos(u64),
}

impl Age {
    pub(super) fn to_aggregations(self, aggr_ns: u64) -> u32 {
        match self {
            Self::Aggregations(age) => age,
            Self::Nanos(ns) => u32::try_from(ns / aggr_ns.max(1)).unwrap_or(u32::MAX),
        }
    }
}

#[derive(Deserialize)]
struct RawRegion {
    start: ByteCount,
    end: ByteCount,
    #[serde(default)]
    nr_accesses: RawAccesses,
    #[serde(default)]
    age: RawAge,
}

#[derive(Deserialize, Default)]
struct RawAccesses {
    #[serde(default)]
    samples: Option<Count>,
    #[serde(default)]
    percent: Option<Percent>,
}

#[derive(Deserialize, Default)]
struct RawAge {
    #[serde(default)]
    usec: Option<MicrosAsNanos>,
    #[serde(default)]
    aggr_intervals: Option<Count>,
}

impl From<RawRegion> for DamoRegion {
    fn from(raw: RawRegion) -> Self {
        let to_u32 = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let percent = raw.nr_accesses.percent.map_or(0, |percent| to_u32(percent.0));
        let accesses = raw.nr_accesses.samples.map(|n| Accesses::Samples(to_u32(n.0)));
        let age = raw.age.aggr_intervals.map(|n| Age::Aggregations(to_u32(n.0)));
        Self {
            start: raw.start.0,
            end: raw.end.0,
            accesses: accesses.unwrap_or(Accesses::Permyriad(percent)),
            age: age.unwrap_or(Age::Nanos(raw.age.usec.map_or(0, |ns| ns.0))),
        }
    }
}
