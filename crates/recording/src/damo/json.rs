//! The fields of damo's JSON that a recording needs. All other fields are ignored.
//!
//! A field that may be missing is an `Option`: left out, null, and -1, damo's marker of a missing number, are
//! all `None`. A missing value is never taken for 0.

use serde::Deserialize;

use super::quantity::{ByteCount, Count, MicrosAsNanos, Nanoseconds, Percent, optional};

/// All snapshots of one target.
#[derive(Deserialize)]
pub(super) struct TargetRecord {
    #[serde(default)]
    pub intervals: Option<Intervals>,
    pub target_id: Count,
    pub snapshots: Vec<TimedRegions>,
}

#[derive(Clone, Copy, Default, Deserialize)]
pub(super) struct Intervals {
    #[serde(default, deserialize_with = "optional")]
    pub sample_us: Option<MicrosAsNanos>,
    #[serde(default, deserialize_with = "optional")]
    pub aggr_us: Option<MicrosAsNanos>,
    #[serde(default, deserialize_with = "optional")]
    pub ops_update_us: Option<MicrosAsNanos>,
}

#[derive(Deserialize)]
pub(super) struct TimedRegions {
    pub start_time: Nanoseconds,
    pub end_time: Nanoseconds,
    pub regions: Vec<DamoRegion>,
    #[serde(default, deserialize_with = "optional")]
    pub sample_interval_us: Option<MicrosAsNanos>,
}

/// A region in compact form, because there can be millions.
#[derive(Deserialize)]
#[serde(from = "RawRegion")]
pub(super) struct DamoRegion {
    pub start: u64,
    pub end: u64,
    /// `None`: the file does not say.
    pub accesses: Option<Accesses>,
    /// `None`: the file does not say.
    pub age: Option<Age>,
}

/// Access count of a region, in the unit of the file.
#[derive(Clone, Copy)]
pub(super) enum Accesses {
    Samples(u32),
    Permyriad(u32),
}

impl Accesses {
    /// The count as `nr_accesses`, of at most `max`. A share above 0 is at least one access.
    pub(super) fn to_samples(self, max: u32) -> u32 {
        match self {
            Self::Samples(samples) => samples,
            Self::Permyriad(share) => {
                to_u32(u64::from(share) * u64::from(max) / 10_000).max(u32::from(share > 0))
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
            Self::Nanos(ns) => to_u32(ns / aggr_ns.max(1)),
        }
    }
}

#[derive(Deserialize)]
struct RawRegion {
    start: ByteCount,
    end: ByteCount,
    #[serde(default)]
    nr_accesses: Option<RawAccesses>,
    #[serde(default)]
    age: Option<RawAge>,
}

#[derive(Deserialize)]
struct RawAccesses {
    #[serde(default, deserialize_with = "optional")]
    samples: Option<Count>,
    #[serde(default, deserialize_with = "optional")]
    percent: Option<Percent>,
}

#[derive(Deserialize)]
struct RawAge {
    #[serde(default, deserialize_with = "optional")]
    usec: Option<MicrosAsNanos>,
    #[serde(default, deserialize_with = "optional")]
    aggr_intervals: Option<Count>,
}

impl RawAccesses {
    fn get(&self) -> Option<Accesses> {
        let samples = self.samples.map(|n| Accesses::Samples(to_u32(n.0)));
        samples.or_else(|| self.percent.map(|share| Accesses::Permyriad(to_u32(share.0))))
    }
}

impl RawAge {
    fn get(&self) -> Option<Age> {
        let aggregations = self.aggr_intervals.map(|n| Age::Aggregations(to_u32(n.0)));
        aggregations.or_else(|| self.usec.map(|ns| Age::Nanos(ns.0)))
    }
}

impl From<RawRegion> for DamoRegion {
    fn from(raw: RawRegion) -> Self {
        Self {
            start: raw.start.0,
            end: raw.end.0,
            accesses: raw.nr_accesses.and_then(|accesses| accesses.get()),
            age: raw.age.and_then(|age| age.get()),
        }
    }
}

fn to_u32(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
