//! The recorder turns events of a context into records.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod sample;

use std::path::Path;

use thermo_engine::budget::Method;
use thermo_engine::ops::{Skip, TargetId};
use thermo_engine::scheme::SchemeStats;
use thermo_engine::sink::TargetRegions;
use thermo_engine::{Attrs, Event, Region, Sink};
use thermo_recording::model::{Cost, Record};
use thermo_recording::{Recorder, Writer, read_all};
use thermo_units::{AddrRange, Bytes, Nanos};

fn recorder(path: &Path) -> Recorder {
    Recorder::new(
        Writer::create(path, &sample::metadata()).unwrap(),
        vec!["pageout".to_owned()],
    )
}

fn aggregated(recorder: &mut Recorder) {
    let mut region = Region::new(AddrRange::new(0x1000, 0x3000));
    (region.nr_accesses, region.age) = (5, 9);
    let regions = [region];
    let tables = sample::tables();
    let targets = [TargetRegions {
        id: TargetId(4),
        pid: Some(7),
        method: Method::Sampling,
        regions: &regions,
        tables: Some(&tables),
        averaged: Bytes::ZERO,
    }];
    let (start, end) = (Nanos::ZERO, Nanos::millis(100));
    recorder.on(&Event::Aggregated {
        start,
        end,
        attrs: &Attrs::default(),
        targets: &targets,
    });
}

fn scheme_applied(recorder: &mut Recorder) {
    let stats = SchemeStats {
        nr_tried: 2,
        sz_tried: Bytes::kib(8),
        ..SchemeStats::default()
    };
    let skipped = [(Skip::Young, Bytes::kib(4))];
    let now = Nanos::millis(100);
    recorder.on(&Event::SchemeApplied {
        now,
        scheme: 0,
        tried: &[],
        skipped: &skipped,
        by_target: &[],
        stats: &stats,
    });
}

#[test]
fn recorder_records_every_event() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    let mut recorder = recorder(&path);
    let (now, id, pid) = (Nanos::millis(1), TargetId(4), Some(7));
    let ranges = [AddrRange::new(0, 0x2000)];
    recorder.on(&Event::TargetAppeared {
        now,
        id,
        pid,
        ranges: &ranges,
    });
    aggregated(&mut recorder);
    scheme_applied(&mut recorder);
    recorder.on(&Event::SchemeActive {
        now,
        scheme: 0,
        active: false,
        metric: 12,
    });
    recorder.on(&Event::Warning { now, text: "beware" });
    recorder.on(&Event::TargetGone { now, id, pid });
    recorder.cost(Cost {
        time_ns: 1,
        ..Cost::default()
    });
    recorder.note(now, "plan", "sample rarely");
    assert!(recorder.error().is_none());
    assert_eq!(recorder.finish().unwrap().records, 8);

    let records = read_all(&path).unwrap().1;
    let Record::Snapshot(snapshot) = &records[1] else {
        panic!("{:?}", records[1])
    };
    assert_eq!((snapshot.time_ns, snapshot.max_nr_accesses), (100_000_000, 20));
    assert_eq!((snapshot.targets[0].id, snapshot.targets[0].pid), (4, Some(7)));
    assert_eq!(snapshot.targets[0].scanned, Some(false));
    assert_eq!(snapshot.targets[0].tables.as_deref(), Some(&sample::tables()));
    assert_eq!(snapshot.targets[0].regions, [sample::region(0x1000, 2, 5, 9)]);
    let Record::Scheme(applied) = &records[2] else {
        panic!("{:?}", records[2])
    };
    assert_eq!((applied.action.as_str(), applied.sz_tried), ("pageout", 8192));
    assert_eq!(applied.skipped, [("young".to_owned(), 4096)]);
    let note = |at: usize| match &records[at] {
        Record::Note(note) => (note.kind.as_str(), note.text.as_str()),
        other => panic!("{other:?}"),
    };
    let appeared_text = "target 4 (pid 7) appeared: 8.00 KiB of address space in 1 ranges are monitored";
    assert_eq!(note(0), ("target_appeared", appeared_text));
    let inactive = "scheme 0 (pageout) became inactive: its watermark metric is 12";
    assert_eq!(note(3), ("scheme_active", inactive));
    assert_eq!(note(4), ("warning", "beware"));
    assert_eq!(note(5), ("target_gone", "target 4 (pid 7) is gone"));
    assert_eq!(note(7), ("plan", "sample rarely"));
}

#[test]
fn sampling_event_writes_batch_after_one_second() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    let mut recorder = recorder(&path);
    recorder.note(Nanos::secs(5), "plan", "wait");
    recorder.on(&Event::Sampled {
        now: Nanos(5_999_999_999),
    });
    assert_eq!(recorder.written().records, 0);
    recorder.on(&Event::Sampled { now: Nanos::secs(6) });
    assert_eq!(recorder.written().records, 1);
}
