//! The size of a history: 24 hours of 50 targets stay below 150 MB.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::Path;

use thermo_engine::access_tables::AccessTables;
use thermo_engine::budget::Method;
use thermo_engine::ops::TargetId;
use thermo_recording::history::*;
use thermo_recording::model::*;
use thermo_units::{Bytes, Nanos};

const SECOND: u64 = 1_000_000_000;
const TARGETS: u32 = 50;
/// More than a scan keeps by default: 1,000 regions for all targets.
const REGIONS: u64 = 40;
const MAPPINGS: u64 = 300;

/// A xorshift generator: the test needs numbers that do not compress.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A target of 800 MiB of which every number changes with every snapshot: anonymous memory and files of all
/// ages, re-accesses after most ages.
fn target(id: u32, random: &mut Random) -> Target {
    let mut tables = AccessTables::new(Method::Scan);
    (tables.nr_passes, tables.pass) = (
        1000 + random.below(9000),
        Nanos(900_000_000 + random.below(1 << 27)),
    );
    tables.as_of = Nanos(random.below(1 << 40));
    for kind in [0, 2] {
        for age in 0..12 {
            tables.idle[kind][age] = Bytes(random.below(16 << 10) * 4096);
        }
    }
    tables.unknown[0] = Bytes(random.below(4096) * 4096);
    for age in 0..6 {
        tables.reaccessed[age] = Bytes(random.below(4096) * 4096);
    }
    let mut start = 0x5555_0000_0000 + (u64::from(id) << 36);
    let regions = (0..REGIONS).map(|_| {
        start += random.below(3) * 4096 * random.below(100);
        let region = Region {
            start,
            end: start + 4096 * (1 + random.below(10_000)),
            nr_accesses: u32::try_from(random.below(4) * random.below(8)).unwrap(),
            age: Some(u32::try_from(random.below(2000)).unwrap()),
            unknown: false,
        };
        start = region.end;
        region
    });
    let regions = regions.collect();
    Target {
        id,
        pid: Some(1000 + id),
        scanned: Some(true),
        averaged: random.below(100) * 4096,
        regions,
        tables: Some(Box::new(tables)),
    }
}

fn mappings(id: u32, time_ns: u64, random: &mut Random) -> Record {
    let mut start = 0x7f00_0000_0000;
    let mapping = |index: u64| {
        start += 4096 * (1 + random.below(100));
        let mapping = Mapping {
            start,
            end: start + 4096 * (1 + random.below(1000)),
            name: format!("/usr/lib/x86_64-linux-gnu/lib{}.so.{}", index / 4, id % 7),
        };
        start = mapping.end;
        mapping
    };
    Record::Mappings(Mappings {
        time_ns,
        target: id,
        mappings: (0..MAPPINGS).map(mapping).collect(),
    })
}

/// Bytes of `hours` hours of `TARGETS` targets in `policies` policies. Snapshots come every 5 s.
fn written(dir: &Path, policies: u32, hours: u64) -> u64 {
    let mut random = Random(42);
    let clocks = |second: u64| Clocks {
        monotonic: Nanos::secs(second),
        unix: Nanos(1_790_000_000 * SECOND + second * SECOND),
    };
    for policy in 0..policies {
        let name = format!("policy-{policy}");
        let limits = WriteLimits::default();
        let mut writer = SegmentWriter::new(dir, &name, limits, clocks(0), Metadata::default).unwrap();
        let ids = (0..TARGETS / policies).map(|id| id + policy * 1000);
        for id in ids.clone() {
            writer.name(
                Nanos(1),
                TargetId(id),
                Some(1000 + id),
                &format!("unit-{id}.service"),
            );
        }
        for second in (5..hours * 3600).step_by(5) {
            for id in ids.clone().filter(|_| second % 60 == 0) {
                writer.record(&mappings(id, second * SECOND, &mut random));
                writer.record(&Record::Footprint(Footprint {
                    time_ns: second * SECOND,
                    target: id,
                    vsz: random.below(1 << 40),
                    rss: random.below(1 << 30),
                    swap: random.below(1 << 28),
                }));
            }
            let snapshot = Snapshot {
                start_ns: (second - 5) * SECOND,
                time_ns: second * SECOND + random.below(1 << 20),
                aggr_ns: SECOND,
                max_nr_accesses: 20,
                targets: ids.clone().map(|id| target(id, &mut random)).collect(),
            };
            writer.record(&Record::Snapshot(snapshot));
            writer.tick(clocks(second));
        }
        assert_eq!(writer.finish(), Vec::<String>::new());
    }
    let segments = segments(dir).unwrap();
    segments.iter().map(|segment| segment.bytes).sum()
}

#[test]
fn day_of_fifty_targets_fits_into_150_mb() {
    for policies in [1, 5] {
        let dir = tempfile::tempdir().unwrap();
        let day = written(dir.path(), policies, 1) * 24;
        let each = day / u64::from(TARGETS) / 8640;
        println!(
            "{policies} policies: {} MB a day, {each} bytes for each target and snapshot",
            day / 1_000_000
        );
        let began = std::time::Instant::now();
        let mut records = History::open(dir.path())
            .unwrap()
            .records(&Query::default())
            .unwrap();
        assert!(records.by_ref().count() > 300);
        println!("one hour is read in {:?}", began.elapsed());
        assert!(day <= 150_000_000, "{policies} policies: {day} bytes a day");
    }
}
