//! How much fast memory a machine with two kinds of memory would need: the memory that gets a given share of
//! all accesses.
//!
//! In each snapshot, the regions are put in order of their access rate, and memory is taken from the top
//! until it has 90, 95 or 99 % of the accesses. An access is one access check that found a page accessed;
//! with scans, the rate is the share of the last seven passes. A page that is accessed a thousand times
//! between two checks counts like one that is accessed once. So the figures say how much memory has to be
//! fast for memory that is *in use*; where few pages get most of the accesses, less is enough.
//!
//! Sizes are medians over snapshots, and the largest one. Placement is taken as perfect: each snapshot's
//! hottest memory is on the fast node at once.

mod text;

pub use text::Latencies;

use std::collections::BTreeMap;

use serde::Serialize;
use thermo_engine::budget::Method;
use thermo_recording::model::{Record, Snapshot, Target};
use thermo_units::{Bytes, Nanos};

use crate::heat::rate;
use crate::layout::Layout;
use crate::series::Series;
use crate::tables::SnapshotTables;
use crate::{Accumulator, Basis};

/// Schema version of this report's JSON.
pub const SCHEMA: u32 = 1;

/// The shares of accesses, in percent.
pub const SHARES: [u32; 3] = [90, 95, 99];

/// One snapshot of a target, or of all: resident bytes in regions, and the bytes for each of [`SHARES`].
#[derive(Debug, Clone, Copy)]
struct Point {
    bytes: u64,
    needed: [u64; SHARES.len()],
}

/// Points that are kept of each target for its medians: there may be thousands of targets.
const MAX_POINTS: usize = 64;

/// The points of a target, or of all.
#[derive(Debug, Clone)]
struct Points {
    pid: Option<u32>,
    kept: Series<Point>,
    snapshots: u64,
    /// The largest, over all points.
    max: [u64; SHARES.len()],
}

impl Points {
    const fn new(pid: Option<u32>) -> Self {
        Self {
            pid,
            kept: Series::with_limit(MAX_POINTS),
            snapshots: 0,
            max: [0; SHARES.len()],
        }
    }

    fn push(&mut self, point: Point) {
        self.snapshots += 1;
        self.max
            .iter_mut()
            .zip(point.needed)
            .for_each(|(max, needed)| *max = (*max).max(needed));
        self.kept.push(point);
    }
}

/// Builds a [`TierNeeds`] report.
#[derive(Debug, Clone)]
pub struct TierAccumulator {
    layout: Layout,
    basis: Basis,
    all: Points,
    targets: BTreeMap<u32, Points>,
    pass: Option<Nanos>,
    unknown: u64,
    is_sampled: bool,
}

impl Default for TierAccumulator {
    fn default() -> Self {
        Self {
            layout: Layout::default(),
            basis: Basis::default(),
            all: Points::new(None),
            targets: BTreeMap::new(),
            pass: None,
            unknown: 0,
            is_sampled: false,
        }
    }
}

impl Accumulator for TierAccumulator {
    type Report = TierNeeds;

    fn add(&mut self, record: &Record) {
        self.layout.add(record);
        if let Some(snapshot) = self.basis.add(record) {
            let tables = SnapshotTables::new(snapshot, &self.layout);
            tables.add_warnings(&mut self.basis);
            self.is_sampled |= tables.sum().method == Method::Sampling;
            self.pass = self.pass.max(tables.pass());
            self.add_snapshot(snapshot);
        }
    }

    fn finish(mut self) -> TierNeeds {
        if self.unknown > 0 {
            let unknown = Bytes(self.unknown);
            self.basis.warn(&format!(
                "up to {unknown} whose accesses are unknown are in no figure: they may need fast memory, too."
            ));
        }
        let mut targets: Vec<Needs> = self.targets.into_values().filter_map(Needs::new).collect();
        targets.sort_by_key(|target| std::cmp::Reverse(target.fast.map(|size| size.median_bytes)));
        TierNeeds {
            schema: SCHEMA,
            method: if self.is_sampled {
                Method::Sampling
            } else {
                Method::Scan
            }
            .name(),
            pass_ns: self.pass.map(|pass| pass.0),
            all: Needs::new(self.all),
            targets,
            basis: self.basis,
        }
    }
}

impl TierAccumulator {
    fn add_snapshot(&mut self, snapshot: &Snapshot) {
        let mut all = Vec::new();
        let (mut resident, mut unknown) = (0, 0);
        for target in &snapshot.targets {
            let heat = heat(target, snapshot.max_nr_accesses);
            let bytes = target
                .regions
                .iter()
                .map(|region| region.end - region.start)
                .sum();
            resident += bytes;
            unknown += target
                .regions
                .iter()
                .filter(|region| region.unknown)
                .map(|r| r.end - r.start)
                .sum::<u64>();
            all.extend_from_slice(&heat);
            if let Some(needed) = needed(heat) {
                let points = self.targets.entry(target.id);
                let points = points.or_insert_with(|| Points::new(target.pid));
                points.push(Point { bytes, needed });
            }
        }
        self.unknown = self.unknown.max(unknown);
        if let Some(needed) = needed(all) {
            self.all.push(Point {
                bytes: resident,
                needed,
            });
        }
    }
}

/// The access rate and the bytes of the accessed regions.
fn heat(target: &Target, max_nr_accesses: u32) -> Vec<(f64, u64)> {
    let accessed = target
        .regions
        .iter()
        .filter(|region| !region.unknown && region.nr_accesses > 0);
    accessed
        .map(|region| (rate(region, max_nr_accesses), region.end - region.start))
        .collect()
}

/// The bytes that have to be fast for each of [`SHARES`] of the accesses; `None` without accesses.
fn needed(mut heat: Vec<(f64, u64)>) -> Option<[u64; SHARES.len()]> {
    heat.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let total: f64 = heat.iter().map(|(rate, bytes)| rate * *bytes as f64).sum();
    if total <= 0.0 {
        return None;
    }
    Some(SHARES.map(|share| {
        let mut missing = total * f64::from(share) / 100.0;
        let mut sum = 0;
        for (rate, bytes) in &heat {
            let accesses = rate * *bytes as f64;
            if accesses >= missing {
                // A part of the region is enough; all of its pages are alike.
                return sum + ((missing / rate).ceil() as u64).min(*bytes);
            }
            missing -= accesses;
            sum += bytes;
        }
        sum
    }))
}

/// A size over snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Size {
    /// The share of accesses, in percent.
    pub percent: u32,
    /// The median.
    pub median_bytes: u64,
    /// The largest.
    pub max_bytes: u64,
}

/// The fast memory that a target, or all of them, would need.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Needs {
    /// The process; `None` for all targets.
    pub pid: Option<u32>,
    /// Snapshots with accesses.
    pub snapshots: u64,
    /// Median of the monitored memory.
    pub bytes: u64,
    /// Fast memory for each of [`SHARES`].
    pub fast: [Size; SHARES.len()],
}

impl Needs {
    fn new(points: Points) -> Option<Self> {
        let (pid, snapshots, max) = (points.pid, points.snapshots, points.max);
        let points = points.kept.into_points();
        let median = |of: &dyn Fn(&Point) -> u64| {
            let mut values: Vec<u64> = points.iter().map(of).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied()
        };
        let bytes = median(&|point| point.bytes)?;
        let size = |nth: usize| Size {
            percent: SHARES[nth],
            median_bytes: median(&|point| point.needed[nth]).unwrap_or(0),
            max_bytes: max[nth],
        };
        Some(Self {
            pid,
            snapshots,
            bytes,
            fast: std::array::from_fn(size),
        })
    }
}

/// The fast memory that a recording's targets would need.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierNeeds {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `scan`, or `sampling` if at least one target was sampled at some time.
    pub method: &'static str,
    /// The longest scan pass, in nanoseconds: an access check covers this time. `None` without a whole pass.
    pub pass_ns: Option<u64>,
    /// All targets together; `None` if no memory was accessed.
    pub all: Option<Needs>,
    /// Each target, the one that needs most first.
    pub targets: Vec<Needs>,
    /// What the recording covers, and warnings.
    pub basis: Basis,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_recording::model::Region;

    fn snapshot(at_s: u64, targets: &[&[(u64, u32)]]) -> Record {
        let target = |(id, regions): (u32, &&[(u64, u32)])| {
            let mut end = 0;
            let region = |(mib, nr_accesses): &(u64, u32)| {
                let start = end;
                end += mib << 20;
                Region {
                    start,
                    end,
                    nr_accesses: *nr_accesses,
                    ..Region::default()
                }
            };
            Target {
                id,
                pid: Some(100 + id),
                scanned: Some(true),
                regions: regions.iter().map(region).collect(),
                ..Target::default()
            }
        };
        Record::Snapshot(Snapshot {
            start_ns: (at_s - 1) * 1_000_000_000,
            time_ns: at_s * 1_000_000_000,
            aggr_ns: 1_000_000_000,
            max_nr_accesses: 10,
            targets: (0..).zip(targets).map(target).collect(),
        })
    }

    fn needs(snapshots: &[Record]) -> TierNeeds {
        let mut tiers = TierAccumulator::default();
        snapshots.iter().for_each(|record| tiers.add(record));
        tiers.finish()
    }

    #[test]
    fn hottest_memory_is_taken_first() {
        // 90 MiB at full rate, 100 MiB at a tenth: 90 of 100 parts of the accesses are in the first region.
        let report = needs(&[snapshot(1, &[&[(100, 1), (90, 10), (810, 0)]])]);
        let all = report.all.clone().unwrap();
        assert_eq!((all.bytes >> 20, all.snapshots), (1000, 1));
        let mib = all.fast.map(|size| size.median_bytes.div_ceil(1 << 20));
        assert_eq!(mib, [90, 140, 180]);
        let text = report.text(Latencies {
            fast_ns: 90.0,
            slow_ns: 250.0,
        });
        assert!(text.contains("90.0 %    90.0 MiB"), "{text}");
    }

    #[test]
    fn targets_are_apart_and_together() {
        let report = needs(&[
            snapshot(1, &[&[(10, 10)], &[(100, 10)]]),
            snapshot(2, &[&[(10, 10)], &[(300, 10)]]),
            snapshot(3, &[&[(10, 10)], &[(100, 10)]]),
        ]);
        let largest = &report.targets[0];
        assert_eq!(largest.pid, Some(101));
        assert_eq!(
            (
                largest.fast[0].median_bytes >> 20,
                largest.fast[0].max_bytes >> 20
            ),
            (90, 270)
        );
        assert_eq!(report.all.unwrap().fast[2].max_bytes >> 20, 306);
    }

    #[test]
    fn nothing_accessed_needs_nothing() {
        let report = needs(&[snapshot(1, &[&[(10, 0)]])]);
        assert_eq!(report.all, None);
        assert!(
            report
                .text(Latencies {
                    fast_ns: 1.0,
                    slow_ns: 2.0
                })
                .contains("No memory was accessed")
        );
    }
}
