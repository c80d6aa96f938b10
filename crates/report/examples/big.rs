//! Measures time and memory of reports of one minute with 1000 regions: 600 snapshots, generated while they
//! are read.
//!
//! `cargo run --release -p thermo-report --example big`

use std::convert::Infallible;
use std::time::Instant;

use thermo_recording::model::{Mapping, Mappings, Metadata, Record, Region, Snapshot, Target};
use thermo_report::heatmap::HeatmapAccumulator;
use thermo_report::regions::{Format, RegionsWriter, Snapshots};
use thermo_report::wss::WssAccumulator;
use thermo_report::{Accumulator, accumulate};

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7f00_0000_0000;

fn main() -> Result<(), std::io::Error> {
    timed("reading alone", || {
        records()
            .filter(|record| matches!(record, Record::Snapshot(_)))
            .count()
    });
    timed("heatmap, as SVG", || {
        report(HeatmapAccumulator::default()).svg().len()
    });
    timed("heatmap, as HTML", || {
        report(HeatmapAccumulator::default()).html().len()
    });
    timed("wss", || report(WssAccumulator::default()).windows.len());
    let began = Instant::now();
    let mut regions = RegionsWriter::new(
        &Metadata::default(),
        std::io::sink(),
        Snapshots::All,
        Format::Json,
    );
    for record in records() {
        regions.add(&record)?;
    }
    regions.finish()?;
    println!("{:>20}: {:?}", "regions, as JSON", began.elapsed());
    let status = std::fs::read_to_string("/proc/self/status")?;
    println!(
        "{}",
        status
            .lines()
            .find(|line| line.starts_with("VmHWM"))
            .unwrap_or_default()
    );
    Ok(())
}

fn timed(name: &str, work: impl FnOnce() -> usize) {
    let began = Instant::now();
    let size = work();
    println!("{name:>20}: {:?} ({size})", began.elapsed());
}

fn report<A: Accumulator>(accumulator: A) -> A::Report {
    let Ok(report) = accumulate(accumulator, records().map(Ok::<_, Infallible>));
    report
}

fn mappings() -> Record {
    let mapping = |n: u64| Mapping {
        start: BASE + n * 24 * MIB,
        end: BASE + (n * 24 + 20) * MIB,
        name: String::new(),
    };
    Record::Mappings(Mappings {
        time_ns: 0,
        target: 0,
        mappings: (0..200).map(mapping).collect(),
    })
}

fn records() -> impl Iterator<Item = Record> {
    std::iter::once(mappings()).chain((0..600).map(snapshot))
}

fn snapshot(n: u64) -> Record {
    let region = |r: u64| {
        let (start, end) = (BASE + r * 4 * MIB + n % 7 * 4096, BASE + (r + 1) * 4 * MIB);
        let nr_accesses = if (r + n).is_multiple_of(10) { 15 } else { 0 };
        Region {
            start,
            end,
            nr_accesses,
            age: Some(3),
            unknown: false,
        }
    };
    let target = Target {
        id: 0,
        pid: Some(1),
        scanned: Some(false),
        averaged: 0,
        tables: None,
        regions: (0..1000).map(region).collect(),
    };
    let (start_ns, time_ns) = (n * 100_000_000, (n + 1) * 100_000_000);
    Record::Snapshot(Snapshot {
        start_ns,
        time_ns,
        aggr_ns: 100_000_000,
        max_nr_accesses: 20,
        targets: vec![target],
    })
}
