//! What is written is what is read.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod sample;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use thermo_record::model::*;
use thermo_record::{Writer, open, read_all};

fn old(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.old", path.display()))
}

#[test]
fn every_kind_of_record_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    sample::write(&path, &sample::records(), 2);
    let (metadata, records, truncated) = read_all(&path).unwrap();
    assert_eq!(metadata, sample::metadata());
    assert_eq!(records, sample::records());
    assert_eq!(truncated, None);
}

#[test]
fn a_recording_without_records_reads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    sample::write(&path, &[], 1);
    assert_eq!(read_all(&path).unwrap(), (sample::metadata(), Vec::new(), None));
}

#[test]
fn an_existing_file_is_kept_as_old_and_ours_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    fs::write(&path, "mine").unwrap();
    sample::write(&path, &[], 1);
    assert_eq!(fs::read_to_string(old(&path)).unwrap(), "mine");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_was_flushed_reads_while_the_writer_lives() {
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
fn many_rows_are_written_before_their_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    let mut writer = Writer::create(&path, &sample::metadata()).unwrap();
    let regions = (0..1000).map(|n| sample::region(n << 20, 16, 1, 1)).collect();
    let targets = vec![Target {
        id: 0,
        pid: Some(7),
        swept: Some(true),
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
fn a_newer_schema_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    let newer = Metadata {
        schema: SCHEMA + 1,
        ..sample::metadata()
    };
    Writer::create(&path, &newer).unwrap().finish().unwrap();
    let error = open(&path).err().unwrap().to_string();
    assert!(
        error.contains("has schema 2, but this program knows only 1 and below"),
        "{error}"
    );
}

fn regions() -> impl Strategy<Value = Vec<Region>> {
    let region = (
        any::<u64>(),
        any::<u64>(),
        any::<u32>(),
        any::<u32>(),
        any::<bool>(),
    );
    vec(region, 0..5).prop_map(|all| {
        let region = |(start, end, nr_accesses, age, unknown)| Region {
            start,
            end,
            nr_accesses,
            age,
            unknown,
        };
        all.into_iter().map(region).collect()
    })
}

fn snapshots() -> impl Strategy<Value = Record> {
    let target = (
        any::<u32>(),
        any::<Option<u32>>(),
        any::<Option<bool>>(),
        regions(),
    );
    let target = target.prop_map(|(id, pid, swept, regions)| Target {
        id,
        pid,
        swept,
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
    let mapping = (any::<u64>(), any::<u64>(), ".*");
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
            .prop_map(|[time_ns, cpu_ns, looking_cpu_ns, rss]| Cost {
                time_ns,
                cpu_ns,
                looking_cpu_ns,
                rss
            })
            .prop_map(Record::Cost),
        (
            any::<[u64; 3]>(),
            any::<u32>(),
            ".*",
            vec((".*", any::<u64>()), 0..4)
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
        (any::<u64>(), ".*", ".*").prop_map(|(time_ns, kind, text)| Record::Note(Note {
            time_ns,
            kind,
            text
        })),
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
    fn any_records_come_back(records in vec(prop_oneof![snapshots(), others()], 0..12), batch in 1..5_usize) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.arrow");
        sample::write(&path, &records, batch);
        prop_assert_eq!(read_all(&path).unwrap(), (sample::metadata(), records, None));
    }
}
