//! The parts of damo's JSON that a recording needs; everything else in it is passed over.

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

/// A region, already small: there can be millions.
#[derive(Deserialize)]
#[serde(from = "RawRegion")]
pub(super) struct DamoRegion {
    pub start: u64,
    pub end: u64,
    pub accesses: Accesses,
    pub age: Age,
}

/// How often it was seen accessed, as far as the file says.
#[derive(Clone, Copy)]
pub(super) enum Accesses {
    Samples(u32),
    Permyriad(u32),
}

impl Accesses {
    pub(super) fn of(self, max: u32) -> u32 {
        match self {
            Self::Samples(samples) => samples,
            Self::Permyriad(part) => {
                u32::try_from(u64::from(part) * u64::from(max) / 10_000).unwrap_or(u32::MAX)
            }
        }
    }
}

/// For how long, as far as the file says.
#[derive(Clone, Copy)]
pub(super) enum Age {
    Aggregations(u32),
    Nanos(u64),
}

impl Age {
    pub(super) fn in_units_of(self, aggr_ns: u64) -> u32 {
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
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let percent = raw.nr_accesses.percent.map_or(0, |percent| small(percent.0));
        let accesses = raw.nr_accesses.samples.map(|n| Accesses::Samples(small(n.0)));
        let age = raw.age.aggr_intervals.map(|n| Age::Aggregations(small(n.0)));
        Self {
            start: raw.start.0,
            end: raw.end.0,
            accesses: accesses.unwrap_or(Accesses::Permyriad(percent)),
            age: age.unwrap_or(Age::Nanos(raw.age.usec.map_or(0, |ns| ns.0))),
        }
    }
}
