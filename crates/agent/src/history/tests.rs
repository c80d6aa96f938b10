#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use thermo_engine::access_tables::AccessTables;
use thermo_engine::budget::Method;
use thermo_engine::ops::TargetId;
use thermo_recording::history::{Clocks, SegmentWriter, WriteLimits};
use thermo_recording::model::{Footprint, Mapping, Mappings, Metadata, Record, Region, Snapshot, Target};
use thermo_units::Bytes;

use super::*;

const START_S: u64 = 1_790_000_000;
const MIB: u64 = 1 << 20;

/// A target whose first half is hot, for `seconds`; it grows by 1 MiB a minute.
fn history(state_dir: &Path, seconds: u64) {
    let clocks = |second: u64| Clocks {
        monotonic: Nanos::secs(second),
        unix: Nanos::secs(START_S + second),
    };
    let limits = WriteLimits::default();
    let mut writer = SegmentWriter::new(state_dir, "web", limits, clocks(0), Metadata::default).unwrap();
    writer.name(Nanos::secs(1), TargetId(3), Some(42), "redis");
    let mapping = Mapping {
        start: 0,
        end: 100 * MIB,
        name: "[heap]".to_owned(),
    };
    writer.record(&Record::Mappings(Mappings {
        time_ns: 1,
        target: 3,
        mappings: vec![mapping],
    }));
    for second in 1..=seconds {
        let mut tables = AccessTables::new(Method::Scan);
        (tables.pass, tables.nr_passes) = (Nanos::secs(1), second);
        tables.idle[0][0] = Bytes::mib(50 + second / 60);
        tables.idle[0][8] = Bytes::mib(50);
        let region = |start, nr_accesses| Region {
            start,
            end: start + 50 * MIB,
            nr_accesses,
            ..Region::default()
        };
        let target = Target {
            id: 3,
            pid: Some(42),
            scanned: Some(true),
            tables: Some(Box::new(tables)),
            regions: vec![region(0, 20), region(50 * MIB, 0)],
            ..Target::default()
        };
        writer.record(&Record::Footprint(Footprint {
            time_ns: second * 1_000_000_000,
            target: 3,
            swap: second * 4096,
            ..Footprint::default()
        }));
        writer.record(&Record::Snapshot(Snapshot {
            start_ns: (second - 1) * 1_000_000_000,
            time_ns: second * 1_000_000_000,
            aggr_ns: 1_000_000_000,
            max_nr_accesses: 20,
            targets: vec![target],
        }));
        writer.tick(clocks(second));
    }
    assert!(writer.finish().is_empty());
}

fn period(from_s: u64, to_s: u64) -> Period {
    Period {
        target: "redis".to_owned(),
        from_ms: Some((START_S + from_s) * 1000),
        to_ms: Some((START_S + to_s) * 1000),
        columns: 10,
        rows: 20,
        ..Period::default()
    }
}

#[test]
fn series_has_the_last_snapshot_of_each_column() {
    let dir = tempfile::tempdir().unwrap();
    history(dir.path(), 1200);
    let series = Past::new(dir.path()).series(&period(100, 700), 0).unwrap();
    assert_eq!(series.points.len(), 10);
    let last = series.points.last().unwrap();
    assert_eq!(last.time_ms, (START_S + 700) * 1000);
    assert_eq!((last.resident_bytes, last.swap_bytes), (111 * MIB, 700 * 4096));
    assert_eq!(last.ages.iter().map(|age| age.bytes).sum::<u64>(), 111 * MIB);
    let old = last.ages.iter().find(|age| age.min_s == 300).unwrap();
    assert_eq!((old.max_s, old.bytes), (Some(600), 50 * MIB));
    assert_eq!(last.ages.last().unwrap().max_s, None);
    let now = (START_S + 1200) * 1000;
    let open = Period {
        from_ms: None,
        to_ms: None,
        ..period(0, 0)
    };
    assert_eq!(
        Past::new(dir.path())
            .series(&open, now)
            .unwrap()
            .points
            .last()
            .unwrap()
            .time_ms,
        now
    );
}

#[test]
fn heatmap_has_every_column_although_regions_are_rare() {
    let dir = tempfile::tempdir().unwrap();
    history(dir.path(), 1200);
    let map = Past::new(dir.path()).heatmap(&period(0, 1190), 0).unwrap();
    assert_eq!(map.times_ms.len(), 10);
    assert!(
        map.times_ms.is_sorted() && map.times_ms[0] >= START_S * 1000,
        "{:?}",
        map.times_ms
    );
    assert!((2..=20).contains(&map.rows.len()), "{}", map.rows.len());
    for row in &map.rows {
        let start = u64::from_str_radix(row.start.trim_start_matches("0x"), 16).unwrap();
        let expected = if start < 50 * MIB { 100 } else { 0 };
        assert_eq!((row.pid, row.name.as_str()), (42, "[heap]"));
        assert_eq!(row.heat.len(), 10);
        assert!(row.heat.iter().all(|heat| *heat == expected), "{row:?}");
    }
}

#[test]
fn advice_is_that_of_the_report() {
    let dir = tempfile::tempdir().unwrap();
    history(dir.path(), 1200);
    let advice = Past::new(dir.path()).advice(&period(0, 1200), 0).unwrap();
    assert_eq!(advice["watched_s"], 1200.0);
    assert_eq!(advice["resident_bytes"], 120 * MIB);
    assert!(advice["table"].as_array().is_some_and(|table| !table.is_empty()));
}

#[test]
fn questions_that_cannot_be_answered_are_refused_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let past = Past::new(dir.path());
    assert!(matches!(
        past.series(&period(0, 10), 0),
        Err(Refusal::Unavailable(_))
    ));
    history(dir.path(), 100);
    assert!(matches!(
        past.series(&period(10, 10), 0),
        Err(Refusal::Invalid(_))
    ));
    let unknown = Period {
        target: "mariadb".to_owned(),
        ..period(0, 100)
    };
    let refused = past.heatmap(&unknown, 0).unwrap_err();
    assert!(
        matches!(&refused, Refusal::NotFound(text) if text.ends_with("there are redis")),
        "{refused}"
    );
}
