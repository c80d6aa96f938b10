//! A sample recording with every kind of record.
#![allow(dead_code, reason = "each test file uses a part of this module")]

use std::path::Path;

use thermo_engine::budget::Method;
use thermo_recording::Writer;
use thermo_recording::model::*;
use thermo_units::{Bytes, Nanos};

pub fn metadata() -> Metadata {
    Metadata {
        schema: SCHEMA,
        writer: "thermo 0.1.0".to_owned(),
        kernel: "6.1.0".to_owned(),
        arch: "x86_64".to_owned(),
        tracker: "sim".to_owned(),
        tracker_reason: "a test".to_owned(),
        seed: Some(42),
        wall_clock_offset_ns: Some(1_700_000_000_000_000_000),
        start_ns: 1_000,
        targets: "pid 7".to_owned(),
        settings: Settings {
            sample_ns: Some(5_000_000),
            aggr_ns: Some(100_000_000),
            update_ns: Some(1_000_000_000),
            min_nr_regions: Some(10),
            max_nr_regions: Some(1000),
            cpu_budget_percent: Some(1.5),
        },
        schemes: vec!["page out what is cold".to_owned()],
        imported: false,
    }
}

pub fn region(start: u64, pages: u64, nr_accesses: u32, age: u32) -> Region {
    Region {
        start,
        end: start + pages * 4096,
        nr_accesses,
        age: Some(age),
        unknown: false,
    }
}

/// Access tables of two kinds of pages, with entries in every table.
pub fn tables() -> AccessTables {
    let mut tables = AccessTables {
        pass: Nanos::millis(130),
        nr_passes: 7,
        as_of: Nanos::millis(60),
        ..AccessTables::new(Method::Scan)
    };
    tables.idle[0][0] = Bytes::kib(8);
    tables.idle[0][14] = Bytes::kib(4);
    tables.idle[3][2] = Bytes::mib(2);
    tables.unknown[1] = Bytes::kib(12);
    tables.reaccessed[4] = Bytes::kib(16);
    tables
}

/// The `n`th snapshot of two targets. The second one has no regions.
pub fn snapshot(n: u64) -> Snapshot {
    let regions = vec![region(0x1000, 4, 20, 3), region(0x7fff_0000_0000, 9, 0, 250)];
    Snapshot {
        start_ns: n * 100_000_000,
        time_ns: (n + 1) * 100_000_000,
        aggr_ns: 100_000_000,
        max_nr_accesses: 20,
        targets: vec![
            Target {
                id: 0,
                pid: Some(7),
                scanned: Some(false),
                averaged: 4096,
                tables: Some(Box::new(tables())),
                regions,
            },
            Target {
                id: 1,
                pid: None,
                scanned: Some(false),
                averaged: 4096,
                tables: None,
                regions: Vec::new(),
            },
        ],
    }
}

pub fn records() -> Vec<Record> {
    let time_ns = 250_000_000;
    vec![
        Record::Note(Note {
            time_ns,
            kind: "target_appeared".into(),
            text: "it is thére, \"quoted\"\n".into(),
        }),
        Record::Mappings(Mappings {
            time_ns,
            target: 0,
            mappings: vec![
                Mapping {
                    start: 0x1000,
                    end: 0x5000,
                    name: "[heap]".into(),
                },
                Mapping {
                    start: 0x5000,
                    end: 0x9000,
                    name: String::new(),
                },
            ],
        }),
        Record::Snapshot(snapshot(0)),
        Record::Footprint(Footprint {
            time_ns,
            target: 0,
            vsz: 9 << 30,
            rss: 5 << 20,
            swap: 1,
        }),
        Record::Cost(Cost {
            time_ns,
            cpu_ns: 12,
            monitoring_cpu_ns: 11,
            rss: 4 << 20,
        }),
        Record::Scheme(SchemeApplied {
            time_ns,
            index: 1,
            action: "pageout".into(),
            nr_tried: 1,
            sz_tried: 2,
            nr_applied: 3,
            sz_applied: 4,
            sz_ops_filter_passed: 5,
            sz_changed: 6,
            qt_exceeds: 7,
            effective_sz: 8,
            skipped: vec![("young".into(), 4096), ("shared".into(), u64::MAX)],
        }),
        Record::Totals(Totals {
            time_ns,
            scope: "machine".into(),
            rows: vec![("free".into(), 5 << 30), ("mapped, monitored".into(), 3 << 30)],
        }),
        Record::Snapshot(snapshot(1)),
    ]
}

/// Writes `records` to `path` in batches of `batch` records, with the end-of-stream marker.
pub fn write(path: &Path, records: &[Record], batch: usize) {
    let mut writer = Writer::create(path, &metadata()).unwrap();
    for part in records.chunks(batch.max(1)) {
        part.iter().for_each(|record| writer.append(record).unwrap());
        writer.flush().unwrap();
    }
    writer.finish().unwrap();
}
