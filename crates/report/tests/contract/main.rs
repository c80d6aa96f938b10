//! The JSON that scripts rely on, and the contents of heatmaps.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::convert::Infallible;

use serde_json::{Value, json};
use thermo_engine::budget::Method;
use thermo_recording::model::{AccessTables, Metadata, Note, Record, Region, Snapshot, Target};
use thermo_report::heatmap::HeatmapAccumulator;
use thermo_report::idle::IdleAccumulator;
use thermo_report::info::InfoAccumulator;
use thermo_report::regions::{Format, RegionsWriter, Snapshots};
use thermo_report::schemes::SchemesAccumulator;
use thermo_report::wss::WssAccumulator;
use thermo_report::{Accumulator, accumulate};
use thermo_units::{Bytes, Nanos};

mod heatmap;
#[path = "../recording/mod.rs"]
mod recording;
mod tables;

fn report<A: Accumulator>(accumulator: A, records: Vec<Record>) -> A::Report {
    let Ok(report) = accumulate(accumulator, records.into_iter().map(Ok::<_, Infallible>));
    report
}

fn regions(snapshots: Snapshots, records: &[Record]) -> Value {
    let mut writer = RegionsWriter::new(&Metadata::default(), Vec::new(), snapshots, Format::Json);
    for record in records {
        writer.add(record).unwrap();
    }
    serde_json::from_slice(&writer.finish().unwrap()).unwrap()
}

/// A snapshot that ends at `n` seconds, with one region for each (start, end, accesses).
fn snapshot(n: u64, regions: &[(u64, u64, u32)]) -> Record {
    let region = |&(start, end, nr_accesses): &(u64, u64, u32)| Region {
        start,
        end,
        nr_accesses,
        age: Some(3),
        unknown: false,
    };
    Record::Snapshot(Snapshot {
        start_ns: (n - 1) * 1_000_000_000,
        time_ns: n * 1_000_000_000,
        aggr_ns: 1_000_000_000,
        max_nr_accesses: 20,
        targets: vec![Target {
            id: 0,
            pid: Some(7),
            scanned: Some(false),
            averaged: 0,
            tables: None,
            regions: regions.iter().map(region).collect(),
        }],
    })
}

#[test]
fn regions_json_matches_docs() {
    let records = [
        snapshot(1, &[(4096, 8192, 5)]),
        snapshot(2, &[(4096, 12_288, 0)]),
        snapshot(3, &[]),
    ];
    let region = json!({"start": 4096, "end": 12_288, "nr_accesses": 0, "max_nr_accesses": 20, "age_ns": 3_000_000_000_u64});
    let last = json!({"time_ns": 2_000_000_000_u64, "targets": [{"pid": 7, "regions": [region]}]});
    assert_eq!(
        regions(Snapshots::Last, &records),
        json!({"schema": 1, "snapshots": [last]})
    );
    let all = regions(Snapshots::All, &records);
    assert_eq!(
        all["snapshots"].as_array().unwrap().len(),
        2,
        "snapshots without live targets are omitted"
    );
    assert_eq!(
        regions(Snapshots::All, &[]),
        json!({"schema": 1, "snapshots": []})
    );
}

#[test]
fn regions_json_marks_only_unknown_memory() {
    let all = regions(Snapshots::Last, &recording::records(3)).to_string();
    assert_eq!(all.matches("\"unknown\":true").count(), 1);
    assert!(!all.contains("\"unknown\":false"));
}

/// A snapshot that ends at `n` seconds with tables: (bucket, idle bytes, re-accessed bytes), 1000 unknown
/// bytes, and a scan pass of length `pass`.
fn with_tables(n: u64, pass: Nanos, cells: &[(usize, u64, u64)]) -> Record {
    let Record::Snapshot(mut snapshot) = snapshot(n, &[(0, 1 << 20, 1)]) else {
        panic!("expected a snapshot");
    };
    let mut tables = AccessTables {
        pass,
        nr_passes: u64::from(pass > Nanos::ZERO),
        as_of: Nanos(snapshot.time_ns).saturating_sub(pass),
        ..AccessTables::new(Method::Scan)
    };
    tables.unknown[1] = Bytes(1000);
    for &(bucket, idle, reaccessed) in cells {
        tables.idle[bucket % 6][bucket] = Bytes(idle);
        tables.reaccessed[bucket] = Bytes(reaccessed);
    }
    snapshot.targets[0].tables = Some(Box::new(tables));
    Record::Snapshot(snapshot)
}

#[test]
fn info_keeps_plans_among_many_notes() {
    let note = |kind: &str, time_ns| {
        Record::Note(Note {
            time_ns,
            kind: kind.to_owned(),
            text: format!("at {time_ns}"),
        })
    };
    let mut records: Vec<Record> = (0..500).map(|nth| note("target_appeared", nth)).collect();
    records.push(note("plan", 500));
    let info = report(InfoAccumulator::new(&recording::metadata()), records);
    let plans = info.notes.iter().filter(|note| note.kind == "plan");
    assert_eq!(plans.map(|plan| plan.time_ns).collect::<Vec<_>>(), [500]);
    assert_eq!(info.notes.len() as u64 + info.more_notes, 501);
    assert!(info.more_notes > 0, "the number of notes is limited");
}

#[test]
fn info_json_matches_docs() {
    let info = report(
        InfoAccumulator::new(&recording::metadata()),
        recording::records(100),
    );
    let info = serde_json::to_value(info).unwrap();
    for key in [
        "settings",
        "host",
        "snapshots",
        "duration_ns",
        "own_cpu_percent",
        "own_rss_bytes",
        "tracker",
    ] {
        assert!(!info[key].is_null(), "{key}");
    }
    assert_eq!(info["snapshots"], 100);
    assert_eq!(info["duration_ns"], 10_000_000_000_u64);
    assert_eq!(info["wall_clock_offset_ns"], 1_700_000_000_000_000_000_u64);
}

#[test]
fn schemes_json_matches_docs() {
    let schemes = report(SchemesAccumulator::default(), recording::records(100));
    let csv = schemes.csv();
    let schemes = serde_json::to_value(schemes).unwrap();
    let scheme = &schemes["schemes"][0];
    for key in [
        "index",
        "nr_tried",
        "sz_tried",
        "nr_applied",
        "sz_applied",
        "qt_exceeds",
        "sz_changed",
    ] {
        assert!(scheme[key].is_u64(), "{key}");
    }
    assert_eq!(
        (&scheme["action"], &scheme["nr_tried"]),
        (&json!("pageout"), &json!(198))
    );
    assert_eq!(csv.lines().count(), 21);
}

#[test]
fn info_has_methods_and_pass_lengths() {
    let info = |records| {
        let info = report(InfoAccumulator::new(&recording::metadata()), records);
        let info = serde_json::to_value(info).unwrap();
        (info["methods"].clone(), info["pass_s"].clone())
    };
    let passes = [(1, 130), (2, 150), (3, 900)].map(|(n, ms)| with_tables(n, Nanos::millis(ms), &[]));
    assert_eq!(
        info(passes.to_vec()),
        (json!(["scan"]), json!({"p50": 0.15, "max": 0.9}))
    );
    assert_eq!(info(recording::records(3)), (json!(["sampling"]), Value::Null));
}

#[test]
fn slow_down_counts_cleared_accessed_bits() {
    // 1000 pages in one second, found accessed in half of the checks. A scan clears one bit for each page,
    // sampling one for each region.
    let slow_down = |scanned: Option<bool>| {
        let Record::Snapshot(mut snapshot) = snapshot(1, &[(0, 1000 << 12, 10)]) else {
            panic!("expected a snapshot");
        };
        snapshot.targets[0].scanned = scanned;
        let metadata = recording::metadata();
        report(InfoAccumulator::new(&metadata), vec![Record::Snapshot(snapshot)])
            .cost
            .slow_down_percent
    };
    assert_eq!(slow_down(Some(true)), Some(0.05));
    assert_eq!(slow_down(Some(false)), Some(0.001));
    assert_eq!(slow_down(None), None, "old recordings without the method");
}

#[test]
fn reports_accept_damaged_recording() {
    let mut records = vec![snapshot(
        5,
        &[(8192, 4096, 30), (u64::MAX - 4095, u64::MAX, 1), (0, 1 << 20, 2)],
    )];
    records.push(snapshot(2, &[(1 << 40, 1, 0)]));
    records.extend(recording::records(2));
    let mapping = |start, end| thermo_recording::model::Mapping {
        start,
        end,
        name: String::new(),
    };
    let mappings = vec![
        mapping(9 << 20, 5 << 20),
        mapping(1 << 12, 8 << 20),
        mapping(0, 4096),
    ];
    let mappings = thermo_recording::model::Mappings {
        time_ns: 0,
        target: 0,
        mappings,
    };
    records.insert(0, Record::Mappings(mappings));
    let map = report(HeatmapAccumulator::default(), records.clone());
    let style = thermo_report::Style {
        width: 1,
        height: 0,
        ascii: false,
        colour: true,
    };
    assert!(!map.text(&style).is_empty() && !map.svg().is_empty());
    assert!(
        !report(WssAccumulator::default(), records.clone())
            .text(&style)
            .is_empty()
    );
    assert!(
        !report(IdleAccumulator::default(), records.clone())
            .text(&style)
            .is_empty()
    );
    regions(Snapshots::All, &records);
}
