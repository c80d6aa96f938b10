//! The history: thinning, segments, crashes, pruning, and reading it as one stream.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use thermo_engine::access_tables::{AccessTables, NR_AGES};
use thermo_engine::budget::Method;
use thermo_engine::ops::TargetId;
use thermo_engine::{Event, Sink};
use thermo_recording::history::*;
use thermo_recording::model::*;
use thermo_units::{Bytes, Nanos};

/// Wall-clock time minus monotonic time: 2026, at a whole hour.
const OFFSET: u64 = 1_790_000_000_000_000_000 / 3_600_000_000_000 * 3_600_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn clocks(second: u64) -> Clocks {
    Clocks {
        monotonic: Nanos::secs(second),
        unix: Nanos(OFFSET + second * SECOND),
    }
}

fn metadata() -> Metadata {
    Metadata {
        writer: "thermo".to_owned(),
        ..Metadata::default()
    }
}

fn writer(dir: &Path, policy: &str, limits: WriteLimits) -> SegmentWriter {
    SegmentWriter::new(dir, policy, limits, clocks(0), metadata).unwrap()
}

/// A target whose memory of `mib` MiB is idle for 10 s, and which accessed one byte again.
fn target(id: u32, mib: u64, reaccessed: u64) -> Target {
    let mut tables = AccessTables::new(Method::Scan);
    (tables.nr_passes, tables.pass) = (3, Nanos::secs(1));
    tables.idle[0][4] = Bytes::mib(mib);
    tables.reaccessed[4] = Bytes(reaccessed);
    let region = Region {
        start: 0x1000,
        end: 0x1000 + (mib << 20),
        age: Some(10),
        ..Region::default()
    };
    Target {
        id,
        pid: Some(1000 + id),
        scanned: Some(true),
        tables: Some(Box::new(tables)),
        regions: vec![region],
        ..Target::default()
    }
}

/// The snapshot of the second that ends at `second`.
fn snapshot(second: u64, targets: Vec<Target>) -> Record {
    Record::Snapshot(Snapshot {
        start_ns: (second - 1) * SECOND,
        time_ns: second * SECOND,
        aggr_ns: SECOND,
        max_nr_accesses: 20,
        targets,
    })
}

/// One target for `seconds`, with one byte accessed again in each.
fn run(writer: &mut SegmentWriter, seconds: std::ops::Range<u64>, id: u32) {
    for second in seconds {
        writer.record(&snapshot(second, vec![target(id, 100, 1)]));
        writer.tick(clocks(second));
    }
}

fn read(dir: &Path, query: &Query) -> (Vec<Record>, Records) {
    let mut records = History::open(dir).unwrap().records(query).unwrap();
    let all = records.by_ref().collect();
    (all, records)
}

fn snapshots(records: &[Record]) -> Vec<&Snapshot> {
    let mut found = Vec::new();
    for record in records {
        if let Record::Snapshot(snapshot) = record {
            found.push(snapshot);
        }
    }
    found
}

/// Bytes accessed again in all snapshots, by target.
fn reaccessed(records: &[Record]) -> BTreeMap<u32, u64> {
    let mut sums = BTreeMap::new();
    for target in snapshots(records).iter().flat_map(|snapshot| &snapshot.targets) {
        let tables = target.tables.as_ref().unwrap();
        *sums.entry(target.id).or_default() += tables.reaccessed.iter().map(|bytes| bytes.0).sum::<u64>();
    }
    sums
}

#[test]
fn segments_follow_each_other_and_read_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let limits = WriteLimits {
        segment_age: Nanos::secs(60),
        ..WriteLimits::default()
    };
    let mut writer = writer(dir.path(), "web", limits);
    writer.name(Nanos::secs(1), TargetId(7), Some(1007), "nginx.service");
    let mappings = Mappings {
        time_ns: SECOND,
        target: 7,
        mappings: vec![Mapping {
            start: 0x1000,
            end: 0x9000,
            name: "[heap]".to_owned(),
        }],
    };
    writer.record(&Record::Mappings(mappings));
    run(&mut writer, 1..301, 7);
    assert_eq!(writer.finish(), Vec::<String>::new());
    let found = segments(dir.path()).unwrap();
    assert!((4..=6).contains(&found.len()), "{found:?}");
    for segment in &found {
        let (_, records, truncated) = thermo_recording::read_all(&segment.path).unwrap();
        assert!(truncated.is_none());
        let has = |kind: fn(&Record) -> bool| records.iter().any(kind);
        assert!(
            has(|r| matches!(r, Record::Mappings(_))),
            "each segment can be read alone"
        );
        assert!(has(
            |r| matches!(r, Record::Note(note) if note.kind == "target_name" && note.text == "7 1007 nginx.service")
        ));
        assert!(has(
            |r| matches!(r, Record::Snapshot(s) if !s.targets[0].regions.is_empty())
        ));
    }
    let (records, read) = read(dir.path(), &Query::default());
    assert_eq!(reaccessed(&records), BTreeMap::from([(0, 300)]));
    assert_eq!(read.warnings(), Vec::<String>::new());
    assert_eq!(read.target(0).unwrap().name, "nginx.service");
    let times: Vec<u64> = snapshots(&records)
        .iter()
        .map(|s| (s.time_ns - OFFSET) / SECOND)
        .collect();
    assert_eq!(
        times,
        (1..=30).map(|n| n * 10).collect::<Vec<_>>(),
        "one in ten seconds"
    );
    let continuous = snapshots(&records)
        .windows(2)
        .all(|pair| pair[0].time_ns == pair[1].start_ns);
    assert!(continuous, "a snapshot covers the time of the dropped ones");
}

#[test]
fn part_of_a_history_is_read_with_the_state_at_its_begin() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path(), "web", WriteLimits::default());
    writer.name(Nanos::secs(1), TargetId(0), Some(1000), "a");
    writer.record(&Record::Mappings(Mappings {
        time_ns: SECOND,
        target: 0,
        mappings: Vec::new(),
    }));
    for second in 1..200 {
        let mut applied = SchemeApplied {
            time_ns: second * SECOND,
            nr_tried: second,
            sz_applied: second * 4096,
            ..SchemeApplied::default()
        };
        applied.skipped = vec![("young".to_owned(), 1)];
        writer.record(&Record::Scheme(applied));
        run(&mut writer, second..second + 1, 0);
    }
    writer.finish();
    let query = Query {
        from: Some(Nanos(OFFSET + 100 * SECOND)),
        to: Some(Nanos(OFFSET + 150 * SECOND)),
        ..Query::default()
    };
    let (records, _) = read(dir.path(), &query);
    assert_eq!(reaccessed(&records)[&0], 50);
    assert!(matches!(&records[0], Record::Note(note) if note.kind == "target_name"));
    assert!(matches!(&records[1], Record::Mappings(_)));
    let schemes: Vec<&SchemeApplied> = records
        .iter()
        .filter_map(|r| if let Record::Scheme(s) = r { Some(s) } else { None })
        .collect();
    let last = schemes.last().unwrap();
    assert_eq!(
        (last.nr_tried, last.sz_applied),
        (50, 50 * 4096),
        "totals of the part"
    );
    let skipped: u64 = schemes
        .iter()
        .flat_map(|s| &s.skipped)
        .map(|(_, bytes)| bytes)
        .sum();
    assert_eq!(skipped, 50);
}

#[test]
fn totals_of_schemes_go_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    for start in [0, 100] {
        let mut writer = writer(dir.path(), "web", WriteLimits::default());
        writer.tick(clocks(start));
        for second in start + 1..start + 51 {
            writer.record(&Record::Scheme(SchemeApplied {
                time_ns: second * SECOND,
                nr_tried: second - start,
                ..SchemeApplied::default()
            }));
            run(&mut writer, second..second + 1, 0);
        }
        writer.finish();
    }
    let (records, _) = read(dir.path(), &Query::default());
    let tried = records.iter().filter_map(|r| {
        if let Record::Scheme(s) = r {
            Some(s.nr_tried)
        } else {
            None
        }
    });
    assert_eq!(tried.max(), Some(100));
}

#[test]
fn segment_truncated_anywhere_is_readable_up_to_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut killed = writer(dir.path(), "web", WriteLimits::default());
    killed.name(Nanos::secs(1), TargetId(0), Some(1000), "a");
    run(&mut killed, 1..200, 0);
    let path = killed.path().unwrap().to_owned();
    drop(killed);
    let whole = fs::read(&path).unwrap();
    let mut after = writer(dir.path(), "web", WriteLimits::default());
    after.tick(clocks(300));
    after.name(Nanos::secs(301), TargetId(0), Some(1000), "a");
    run(&mut after, 301..400, 0);
    after.finish();
    let mut last = 0;
    for length in (0..=whole.len()).step_by(whole.len() / 60) {
        fs::write(&path, &whole[..length]).unwrap();
        let (records, _) = read(dir.path(), &Query::default());
        let sum = reaccessed(&records)[&0];
        assert!(sum >= 99 && sum >= last, "{length} bytes: {sum} after {last}");
        last = sum;
    }
    assert!(
        last >= 99 + 140,
        "{last}: at most the last batch and the last slot are lost"
    );
}

#[test]
fn unreadable_segment_is_skipped_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path(), "web", WriteLimits::default());
    run(&mut writer, 1..50, 0);
    writer.finish();
    let folder = folder(dir.path()).join("web");
    fs::write(folder.join("1000.arrow"), "no recording").unwrap();
    fs::write(folder.join("1001.arrow"), "").unwrap();
    fs::write(folder.join("notes.txt"), "not ours").unwrap();
    let (records, read) = read(dir.path(), &Query::default());
    assert_eq!(reaccessed(&records)[&0], 49);
    assert_eq!(read.warnings().len(), 2, "{:?}", read.warnings());
    let pruned = prune(
        dir.path(),
        &Retention {
            max_age: Nanos::MAX,
            ..Retention::default()
        },
        Nanos(OFFSET),
    )
    .unwrap();
    assert_eq!(pruned.removed, 1, "only the empty one");
    assert!(folder.join("1000.arrow").exists() && folder.join("notes.txt").exists());
}

#[test]
fn step_of_the_wall_clock_prunes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path(), "web", WriteLimits::default());
    run(&mut writer, 1..50, 0);
    writer.finish();
    let retention = Retention {
        max_age: Nanos::secs(1000),
        ..Retention::default()
    };
    // The clock is a year ahead at the start, or from the second 60 on.
    let ahead = |second| Clocks {
        unix: clocks(second).unix.saturating_add(Nanos::secs(365 * 86_400)),
        ..clocks(second)
    };
    for begin in [ahead(50), clocks(50)] {
        let clock = RetentionClock::begin(dir.path(), begin).unwrap();
        assert_eq!(
            prune(dir.path(), &retention, clock.now(ahead(60)))
                .unwrap()
                .removed,
            0
        );
        // A clock that is behind makes nothing older.
        assert!(
            clock.now(Clocks {
                unix: Nanos::secs(1),
                ..clocks(60)
            }) <= Nanos::secs(1)
        );
    }
    let clock = RetentionClock::begin(dir.path(), clocks(50)).unwrap();
    let pruned = prune(dir.path(), &retention, clock.now(ahead(1100))).unwrap();
    assert_eq!(pruned.removed, 1, "by the time that has passed");
    let empty = RetentionClock::begin(dir.path(), clocks(50)).unwrap();
    assert_eq!(empty.now(clocks(60)), clocks(60).unix);
}

#[test]
fn oldest_segments_of_all_policies_are_pruned_first() {
    let dir = tempfile::tempdir().unwrap();
    let limits = WriteLimits {
        segment_age: Nanos::secs(100),
        ..WriteLimits::default()
    };
    let mut writers = [writer(dir.path(), "a", limits), writer(dir.path(), "b", limits)];
    for second in 1..1050 {
        for writer in &mut writers {
            run(writer, second..second + 1, 0);
        }
    }
    let all = segments(dir.path()).unwrap();
    let total: u64 = all.iter().map(|segment| segment.bytes).sum();
    let half = Retention {
        max_bytes: Bytes(total / 2),
        ..Retention::default()
    };
    let pruned = prune(dir.path(), &half, clocks(1050).unix).unwrap();
    assert!(pruned.kept_bytes <= total / 2 && pruned.kept_bytes + pruned.removed_bytes == total);
    let left = segments(dir.path()).unwrap();
    assert_eq!(left, all[all.len() - left.len()..], "the newest remain");
    let old = Retention {
        max_age: Nanos::secs(150),
        ..Retention::default()
    };
    prune(dir.path(), &old, clocks(1050).unix).unwrap();
    let left = segments(dir.path()).unwrap();
    assert!(
        left.len() < 8 && left.iter().all(|s| s.start > Nanos(OFFSET + 750 * SECOND)),
        "{left:?}"
    );
    let nothing = Retention {
        max_age: Nanos::ZERO,
        max_bytes: Bytes::ZERO,
    };
    prune(dir.path(), &nothing, clocks(100_000).unix).unwrap();
    let written: Vec<_> = writers.iter().map(|w| w.path().unwrap().to_owned()).collect();
    let left = segments(dir.path())
        .unwrap()
        .into_iter()
        .map(|segment| segment.path);
    assert_eq!(left.filter(|path| !written.contains(path)).count(), 0);
    assert!(
        written.iter().all(|path| path.exists()),
        "those being written stay"
    );
}

#[test]
fn step_of_the_wall_clock_begins_a_segment() {
    for step in [-3_600, -5, 5, 100_000] {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = writer(dir.path(), "web", WriteLimits::default());
        writer.name(Nanos::secs(1), TargetId(0), Some(1000), "a");
        for second in 1..400 {
            writer.record(&snapshot(second, vec![target(0, 100, 1)]));
            let mut now = clocks(second);
            if second > 200 {
                now.unix.0 = now.unix.0.saturating_add_signed(step * 1_000_000_000);
            }
            writer.tick(now);
        }
        writer.finish();
        assert_eq!(segments(dir.path()).unwrap().len(), 2, "step of {step} s");
        let (records, _) = read(dir.path(), &Query::default());
        let times: Vec<u64> = snapshots(&records).iter().map(|s| s.time_ns).collect();
        assert!(times.is_sorted(), "step of {step} s: {times:?}");
        let sum = reaccessed(&records)[&0];
        assert!(sum > 350, "step of {step} s: {sum}");
    }
}

#[test]
fn targets_keep_their_ids_and_are_found_by_name() {
    let dir = tempfile::tempdir().unwrap();
    for (policy, name) in [("a", "redis"), ("b", "redis"), ("b", "nginx")] {
        let mut writer = writer(dir.path(), policy, WriteLimits::default());
        let id = u32::from(name == "nginx");
        writer.name(Nanos::secs(1), TargetId(id), Some(1000 + id), name);
        run(&mut writer, 1..101, id);
        writer.finish();
    }
    let query = |target: &str| Query {
        target: Some(target.to_owned()),
        ..Query::default()
    };
    let (all, read_all) = read(dir.path(), &Query::default());
    assert_eq!(
        snapshots(&all).len(),
        10,
        "one snapshot in ten seconds for all policies"
    );
    let names: Vec<String> = read_all
        .targets()
        .into_iter()
        .map(|t| format!("{}/{}", t.policy, t.name))
        .collect();
    assert_eq!(names, ["a/redis", "b/nginx", "b/redis"]);
    let (redis, read_redis) = read(dir.path(), &query("redis"));
    let sums = reaccessed(&redis);
    assert!(
        sums.keys()
            .all(|id| read_redis.target(*id).unwrap().name == "redis"),
        "{sums:?}"
    );
    let (none, read_none) = read(dir.path(), &query("mariadb"));
    assert!(none.is_empty() || snapshots(&none).is_empty());
    assert_eq!(read_none.targets().len(), 3, "the names for the message");
}

#[test]
fn directory_that_cannot_be_written_is_one_warning_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let blocked = folder(dir.path());
    fs::write(&blocked, "a file in the way").unwrap();
    let mut writer = writer(dir.path(), "web", WriteLimits::default());
    run(&mut writer, 1..150, 0);
    let warnings = writer.take_warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].starts_with("the history of policy web cannot be written in "),
        "{warnings:?}"
    );
    fs::remove_file(&blocked).unwrap();
    run(&mut writer, 150..300, 0);
    assert_eq!(
        writer.take_warnings(),
        ["the history of policy web is written again"]
    );
    writer.finish();
    let (records, _) = read(dir.path(), &Query::default());
    assert!(reaccessed(&records)[&0] > 50);
}

#[test]
fn policy_names_that_leave_the_folder_are_refused() {
    for name in ["", ".", "..", "a/b", "../x", ".hidden", "a\0b", "ä"] {
        assert!(!is_policy_name(name), "{name:?}");
        let refused = SegmentWriter::new(
            Path::new("/nonexistent"),
            name,
            WriteLimits::default(),
            clocks(0),
            metadata,
        );
        assert!(matches!(refused, Err(HistoryError::PolicyName(_))));
    }
    assert!(is_policy_name("web-servers_2.slice"));
    let missing = History::open(Path::new("/nonexistent")).map(drop).unwrap_err();
    assert!(
        missing
            .to_string()
            .starts_with("there is no history in /nonexistent")
    );
}

#[test]
fn gone_target_leaves_what_it_accessed_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path(), "web", WriteLimits::default());
    run(&mut writer, 1..23, 0);
    writer.on(&Event::TargetGone {
        now: Nanos::secs(23),
        id: TargetId(0),
        pid: Some(1000),
    });
    run(&mut writer, 24..40, 1);
    writer.finish();
    let (records, _) = read(dir.path(), &Query::default());
    assert_eq!(reaccessed(&records), BTreeMap::from([(0, 22), (1, 16)]));
    let third = snapshots(&records)[2];
    let gone = third.targets.iter().find(|target| target.id == 0).unwrap();
    assert_eq!(
        gone.tables.as_ref().unwrap().resident(),
        Bytes::ZERO,
        "it has no memory any more"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Thinning and rotation drop moments, never what happened between them.
    #[test]
    fn thinning_keeps_totals(
        bytes in proptest::collection::vec((0..5_u32, 0..1_000_u64, 0..NR_AGES), 1..400),
        every in 1..30_u64,
        age in 5..200_u64,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let limits = WriteLimits {
            every: Nanos::secs(every),
            segment_age: Nanos::secs(age),
            ..WriteLimits::default()
        };
        let mut writer = writer(dir.path(), "web", limits);
        let mut truth: BTreeMap<(u32, usize), u64> = BTreeMap::new();
        for id in 0..5 {
            writer.name(Nanos::secs(1), TargetId(id), Some(1000 + id), "all");
        }
        for ((id, bytes, age), second) in bytes.into_iter().zip(1..) {
            let mut target = target(id, 10, 0);
            target.tables.as_mut().unwrap().reaccessed[age] = Bytes(bytes);
            *truth.entry((id, age)).or_default() += bytes;
            writer.record(&snapshot(second, vec![target]));
            writer.tick(clocks(second));
        }
        writer.finish();
        let (records, _) = read(dir.path(), &Query::default());
        let mut found: BTreeMap<(u32, usize), u64> = BTreeMap::new();
        for target in snapshots(&records).iter().flat_map(|snapshot| &snapshot.targets) {
            for (age, bytes) in target.tables.as_ref().unwrap().reaccessed.iter().enumerate() {
                *found.entry((target.pid.unwrap() - 1000, age)).or_default() += bytes.0;
            }
        }
        truth.retain(|_, bytes| *bytes > 0);
        found.retain(|_, bytes| *bytes > 0);
        prop_assert_eq!(found, truth);
    }
}
