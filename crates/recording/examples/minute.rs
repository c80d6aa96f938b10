//! Writes a synthetic recording, one minute with 1000 regions every 100 ms, for benchmarks of readers.
//!
//! `cargo run --release -p thermo-recording --example minute -- minute.arrow`

use std::path::Path;

use thermo_recording::Writer;
use thermo_recording::model::{
    Mapping, Mappings, Metadata, Record, Region, SCHEMA, Settings, Snapshot, Target,
};

const REGIONS: u64 = 1000;
const SNAPSHOTS: u64 = 600;
const AGGR_NS: u64 = 100_000_000;
const BASE: u64 = 0x7f00_0000_0000;
/// Average size of a region in pages.
const PAGES: u64 = 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: minute FILE")?;
    let mut writer = Writer::create(Path::new(&path), &metadata())?;
    writer.append(&mappings())?;
    let mut ages = vec![0; REGIONS as usize];
    for n in 0..SNAPSHOTS {
        writer.append(&snapshot(n, &mut ages))?;
    }
    writer.finish()?;
    Ok(())
}

fn metadata() -> Metadata {
    Metadata {
        schema: SCHEMA,
        writer: "the example minute".to_owned(),
        kernel: "none".to_owned(),
        arch: "none".to_owned(),
        tracker: "synthetic".to_owned(),
        tracker_reason: "for benchmarks of readers".to_owned(),
        seed: Some(0),
        wall_clock_offset_ns: Some(0),
        start_ns: 0,
        targets: "pid 1".to_owned(),
        settings: Settings {
            sample_ns: Some(5_000_000),
            aggr_ns: Some(AGGR_NS),
            update_ns: Some(1_000_000_000),
            min_nr_regions: Some(10),
            max_nr_regions: Some(REGIONS),
            cpu_budget_percent: None,
        },
        schemes: Vec::new(),
        imported: false,
    }
}

fn mappings() -> Record {
    let mapping = |n: u64| Mapping {
        start: BASE + n * 5 * PAGES * 4096,
        end: BASE + (n + 1) * 5 * PAGES * 4096,
        name: String::new(),
    };
    Record::Mappings(Mappings {
        time_ns: 0,
        target: 0,
        mappings: (0..REGIONS / 5).map(mapping).collect(),
    })
}

/// Regions with borders that differ in every snapshot, as after random splits. One region in ten is hot, and
/// others are hot every 30 snapshots.
fn snapshot(n: u64, ages: &mut [u32]) -> Record {
    let border = |r: u64| match r {
        0 | REGIONS => BASE + r * PAGES * 4096,
        _ => BASE + (r * PAGES + pseudo_random(n * REGIONS + r) % (PAGES / 2)) * 4096,
    };
    let region = |r: u64| {
        let noise = pseudo_random(!(n * REGIONS + r));
        let is_hot = (r / 10 + n / 30).is_multiple_of(10);
        let nr_accesses = if is_hot { 16 + noise % 5 } else { noise % 13 / 12 };
        let age = &mut ages[r as usize];
        *age = if n.is_multiple_of(30) { 0 } else { *age + 1 };
        Region {
            start: border(r),
            end: border(r + 1),
            nr_accesses: nr_accesses as u32,
            age: Some(*age),
            unknown: false,
        }
    };
    Record::Snapshot(Snapshot {
        start_ns: n * AGGR_NS,
        time_ns: (n + 1) * AGGR_NS,
        aggr_ns: AGGR_NS,
        max_nr_accesses: 20,
        targets: vec![Target {
            id: 0,
            pid: Some(1),
            scanned: Some(false),
            averaged: 4096,
            tables: None,
            regions: (0..REGIONS).map(region).collect(),
        }],
    })
}

/// The finisher of SplitMix64.
fn pseudo_random(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
