//! A recording reads back as it was written.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod sample;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use thermo_engine::access_tables::NR_AGES;
use thermo_engine::budget::Method;
use thermo_recording::model::*;
use thermo_recording::{Writer, open, read_all};
use thermo_units::{Bytes, Nanos};

/// Control characters are escaped when a recording is read.
const PRINTABLE: &str = "\\PC*";

fn old(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.old", path.display()))
}

#[test]
fn recording_reads_back_every_kind_of_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    sample::write(&path, &sample::records(), 2);
    let (metadata, records, truncated) = read_all(&path).unwrap();
    assert_eq!(metadata, sample::metadata());
    assert_eq!(records, sample::records());
    assert_eq!(truncated, None);
}

/// Mappings of one target whose names have `bytes` each.
fn long_mappings(target: u32, count: u64, bytes: usize) -> Record {
    let mapping = |nth: u64| Mapping {
        start: nth << 13,
        end: (nth << 13) + 4096,
        name: format!("{nth:0bytes$}"),
    };
    Record::Mappings(Mappings {
        time_ns: u64::from(target),
        target,
        mappings: (1..=count).map(mapping).collect(),
    })
}

#[test]
fn large_records_do_not_share_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    // Together larger than a reader accepts.
    let records: Vec<Record> = (0..3).map(|target| long_mappings(target, 1500, 32_000)).collect();
    sample::write(&path, &records, records.len());
    assert_eq!(read_all(&path).unwrap().1, records);
}

#[test]
fn only_the_record_that_is_too_large_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    let small = |target| long_mappings(target, 2, 10);
    sample::write(&path, &[small(0), long_mappings(1, 36_000, 3800), small(2)], 3);
    let records = read_all(&path).unwrap().1;
    let Record::Note(note) = &records[1] else {
        panic!("no note: {} records", records.len())
    };
    assert_eq!((note.kind.as_str(), note.time_ns), ("warning", 1));
    assert!(
        note.text
            .starts_with("the list of 36000 mappings of target 1 is left out"),
        "{}",
        note.text
    );
    assert_eq!([&records[0], &records[2]], [&small(0), &small(2)]);
}

#[test]
fn control_characters_of_names_and_texts_are_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    let hostile = || "/tmp/\x1b]0;owned\x07\nx".to_owned();
    let mapping = Mapping {
        start: 0,
        end: 4096,
        name: hostile(),
    };
    let records = [
        Record::Mappings(Mappings {
            time_ns: 1,
            target: 0,
            mappings: vec![mapping],
        }),
        Record::Note(Note {
            time_ns: 1,
            kind: "warning".to_owned(),
            text: hostile(),
        }),
    ];
    let mut metadata = sample::metadata();
    metadata.targets = hostile();
    let mut writer = Writer::create(&path, &metadata).unwrap();
    records.iter().for_each(|record| writer.append(record).unwrap());
    writer.finish().unwrap();
    let (metadata, records, _) = read_all(&path).unwrap();
    let escaped = "/tmp/\\x1b]0;owned\\x07\nx";
    assert_eq!(metadata.targets, escaped);
    let [Record::Mappings(mappings), Record::Note(note)] = records.as_slice() else {
        panic!("{records:?}")
    };
    assert_eq!(note.text, escaped);
    assert_eq!(mappings.mappings[0].name, escaped.replace('\n', "\\n"));
}

#[test]
fn recording_without_records_reads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    sample::write(&path, &[], 1);
    assert_eq!(read_all(&path).unwrap(), (sample::metadata(), Vec::new(), None));
}

#[test]
fn writer_renames_existing_file_and_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    fs::write(&path, "existing").unwrap();
    sample::write(&path, &[], 1);
    assert_eq!(fs::read_to_string(old(&path)).unwrap(), "existing");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn flushed_records_read_before_writer_finishes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    let mut writer = Writer::create(&path, &sample::metadata()).unwrap();
    let records = sample::records();
    records.iter().for_each(|record| writer.append(record).unwrap());
    assert!(!writer.flush_due(1_249_999_999) && writer.flush_due(1_250_000_000));
    assert_eq!(read_all(&path).unwrap().1, []);
    writer.flush().unwrap();
    assert!(!writer.flush_due(u64::MAX));
    let (_, read, truncated) = read_all(&path).unwrap();
    assert_eq!(read, records);
    let truncated = truncated.unwrap();
    assert_eq!(
        (truncated.whole_bytes, truncated.lost_bytes),
        (writer.written().bytes, 0)
    );
    assert_eq!(writer.written().records, records.len() as u64);
}

#[test]
fn full_batch_is_written_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    let mut writer = Writer::create(&path, &sample::metadata()).unwrap();
    let regions = (0..1000).map(|n| sample::region(n << 20, 16, 1, 1)).collect();
    let targets = vec![Target {
        id: 0,
        pid: Some(7),
        scanned: Some(true),
        averaged: 0,
        tables: None,
        regions,
    }];
    let big = Record::Snapshot(Snapshot {
        targets,
        ..sample::snapshot(0)
    });
    for _ in 0..20 {
        writer.append(&big).unwrap();
    }
    let written = writer.written().records;
    assert!(
        written > 0 && written < 20,
        "{written} of 20 records were written"
    );
    assert_eq!(writer.finish().unwrap().records, 20);
    assert_eq!(
        open(&path)
            .unwrap()
            .filter(|record| record.as_ref().unwrap() == &big)
            .count(),
        20
    );
}

#[test]
fn recording_of_newer_schema_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    let newer = Metadata {
        schema: SCHEMA + 1,
        ..sample::metadata()
    };
    Writer::create(&path, &newer).unwrap().finish().unwrap();
    let error = open(&path).err().unwrap().to_string();
    assert!(
        error.contains("has schema 3, but this version of thermo reads only schemas up to 2"),
        "{error}"
    );
}

/// `tests/data/schema1.arrow` holds the sample without access tables, written by the last version without
/// them.
#[test]
fn recording_of_schema_1_reads_without_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/schema1.arrow");
    let (metadata, read, truncated) = read_all(&path).unwrap();
    let schema_1 = Metadata {
        schema: 1,
        ..sample::metadata()
    };
    let mut records = sample::records();
    records.retain(|record| !matches!(record, Record::Totals(_)));
    for record in &mut records {
        if let Record::Snapshot(snapshot) = record {
            snapshot
                .targets
                .iter_mut()
                .for_each(|target| (target.tables, target.averaged) = (None, 0));
        }
    }
    assert_eq!((metadata, read, truncated), (schema_1, records, None));
}

#[test]
fn empty_tables_differ_from_no_tables() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    let mut snapshot = sample::snapshot(0);
    snapshot.targets[0].tables = Some(Box::new(AccessTables::new(Method::Sampling)));
    let records = vec![Record::Snapshot(snapshot)];
    sample::write(&path, &records, 1);
    assert_eq!(read_all(&path).unwrap().1, records);
}

#[test]
fn tables_beyond_physical_address_space_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    let mut snapshot = sample::snapshot(0);
    let mut tables = sample::tables();
    tables.idle[0] = [Bytes(u64::MAX); NR_AGES];
    snapshot.targets[0].tables = Some(Box::new(tables));
    sample::write(&path, &[Record::Snapshot(snapshot)], 1);
    let error = read_all(&path).err().unwrap().to_string();
    assert!(error.contains("access tables of a target sum to"), "{error}");
}

#[test]
fn schema_documents_kinds_and_age_edges() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    sample::write(&path, &sample::records(), 1);
    let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
    assert!(text.contains("thermo.age_edges_s") && text.contains("[0,1,2,5,10,30,60,120,300,600,"));
    assert!(text.contains("10 access tables of the target: name=method"));
}

fn tables() -> impl Strategy<Value = Option<Box<AccessTables>>> {
    let cells = vec(0..1_u64 << 40, NR_AGES * 3 + 3);
    let times = any::<[u64; 3]>();
    let tables = (any::<bool>(), cells, times).prop_map(|(is_scan, cells, [pass, nr_passes, as_of])| {
        let cell = |nth: usize| Bytes(cells[nth]);
        let method = if is_scan { Method::Scan } else { Method::Sampling };
        let mut tables = AccessTables::new(method);
        tables.idle[1] = std::array::from_fn(cell);
        tables.idle[4] = std::array::from_fn(|age| cell(NR_AGES + age));
        tables.reaccessed = std::array::from_fn(|age| cell(2 * NR_AGES + age));
        // Recorded tables have the age of all memory that was seen idle.
        tables.unknown[..3]
            .iter_mut()
            .zip(3 * NR_AGES..)
            .for_each(|(bytes, nth)| *bytes = cell(nth));
        (tables.pass, tables.nr_passes, tables.as_of) = (Nanos(pass), nr_passes, Nanos(as_of));
        Box::new(tables)
    });
    proptest::option::of(tables)
}

fn regions() -> impl Strategy<Value = Vec<Region>> {
    // Regions are ascending and disjoint: each has a gap before it and a length.
    let region = (
        0..u64::MAX / 16,
        1..u64::MAX / 16,
        any::<u32>(),
        any::<Option<u32>>(),
        any::<bool>(),
    );
    vec(region, 0..5).prop_map(|all| {
        let mut free_from = 0;
        let region = |(gap, len, nr_accesses, age, unknown)| {
            let start = free_from + gap;
            free_from = start + len;
            Region {
                start,
                end: free_from,
                nr_accesses,
                age,
                unknown,
            }
        };
        all.into_iter().map(region).collect()
    })
}

fn snapshots() -> impl Strategy<Value = Record> {
    let target = (
        any::<u32>(),
        any::<Option<u32>>(),
        any::<Option<bool>>(),
        any::<u64>(),
        tables(),
        regions(),
    );
    let target = target.prop_map(|(id, pid, scanned, averaged, tables, regions)| Target {
        id,
        pid,
        // Stored together with the method.
        averaged: if scanned.is_some() { averaged } else { 0 },
        scanned,
        tables,
        regions,
    });
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>());
    let snapshot = (numbers, vec(target, 0..4));
    snapshot.prop_map(|((start_ns, time_ns, aggr_ns, max_nr_accesses), targets)| {
        Record::Snapshot(Snapshot {
            start_ns,
            time_ns,
            aggr_ns,
            max_nr_accesses,
            targets,
        })
    })
}

fn others() -> impl Strategy<Value = Record> {
    let mapping = (any::<u64>(), any::<u64>(), PRINTABLE);
    let mapping = mapping.prop_map(|(start, end, name)| Mapping { start, end, name });
    prop_oneof![
        (any::<u64>(), any::<u32>(), vec(mapping, 0..4)).prop_map(|(time_ns, target, mappings)| {
            Record::Mappings(Mappings {
                time_ns,
                target,
                mappings,
            })
        }),
        any::<[u64; 4]>()
            .prop_map(|[time_ns, vsz, rss, swap]| Footprint {
                time_ns,
                target: 3,
                vsz,
                rss,
                swap
            })
            .prop_map(Record::Footprint),
        any::<[u64; 4]>()
            .prop_map(|[time_ns, cpu_ns, monitoring_cpu_ns, rss]| Cost {
                time_ns,
                cpu_ns,
                monitoring_cpu_ns,
                rss
            })
            .prop_map(Record::Cost),
        (
            any::<[u64; 3]>(),
            any::<u32>(),
            PRINTABLE,
            vec((PRINTABLE, any::<u64>()), 0..4)
        )
            .prop_map(|([time_ns, sz_tried, sz_changed], index, action, skipped)| {
                let rest = SchemeApplied::default();
                Record::Scheme(SchemeApplied {
                    time_ns,
                    index,
                    action,
                    sz_tried,
                    sz_changed,
                    skipped,
                    ..rest
                })
            }),
        (any::<u64>(), PRINTABLE, PRINTABLE).prop_map(|(time_ns, kind, text)| Record::Note(Note {
            time_ns,
            kind,
            text
        })),
        (any::<u64>(), PRINTABLE, vec((PRINTABLE, any::<u64>()), 0..4))
            .prop_map(|(time_ns, scope, rows)| { Record::Totals(Totals { time_ns, scope, rows }) }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(2026),
        ..ProptestConfig::default()
    })]

    #[test]
    fn recording_reads_back_any_records(records in vec(prop_oneof![snapshots(), others()], 0..12), batch in 1..5_usize) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.arrow");
        sample::write(&path, &records, batch);
        prop_assert_eq!(read_all(&path).unwrap(), (sample::metadata(), records, None));
    }
}
