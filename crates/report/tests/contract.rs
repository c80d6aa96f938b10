//! The JSON that scripts rely on, and the contents of heatmaps.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::convert::Infallible;

use serde_json::{Value, json};
use thermo_engine::budget::Method;
use thermo_recording::model::{AccessTables, Footprint, Note, Record, Region, Snapshot, Target};
use thermo_report::heatmap::HeatmapAccumulator;
use thermo_report::idle::IdleAccumulator;
use thermo_report::info::InfoAccumulator;
use thermo_report::reaccess::ReaccessAccumulator;
use thermo_report::regions::{Format, RegionsWriter, Snapshots};
use thermo_report::schemes::SchemesAccumulator;
use thermo_report::summary::SummaryAccumulator;
use thermo_report::wss::WssAccumulator;
use thermo_report::{Accumulator, accumulate};
use thermo_units::{Bytes, Nanos};

mod recording;

fn report<A: Accumulator>(accumulator: A, records: Vec<Record>) -> A::Report {
    let Ok(report) = accumulate(accumulator, records.into_iter().map(Ok::<_, Infallible>));
    report
}

fn regions(snapshots: Snapshots, records: &[Record]) -> Value {
    let mut writer = RegionsWriter::new(Vec::new(), snapshots, Format::Json);
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
        age: 3,
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
fn wss_sums_ages_below_each_window() {
    let cells = |n| [(0, 100 * n, 0), (1, 10, 0), (3, 1, 0), (9, 5000, 0)];
    let at = |n| with_tables(n, Nanos::millis(130), &cells(n));
    let wss = report(WssAccumulator::default(), (1..=8).map(at).collect());
    assert_eq!(wss.csv().lines().count(), 4);
    let wss = serde_json::to_value(wss).unwrap();
    assert_eq!(wss["schema"], 2);
    let bytes = |window: usize| wss["windows"][window]["bytes"].clone();
    assert_eq!(
        bytes(0),
        json!({"min": 200, "p25": 300, "p50": 500, "p75": 700, "max": 800}),
        "the first snapshot does not count: no page can be idle for 1 s"
    );
    assert_eq!((&bytes(1)["min"], &bytes(1)["max"]), (&json!(310), &json!(810)));
    assert_eq!(bytes(2)["min"], 610);
    assert_eq!(wss["windows"][2]["window_s"], 5);
    assert_eq!(wss["windows"][2]["snapshots"], 3);
    assert_eq!(
        wss["missing"][0],
        json!({"seconds": 10, "why": "only 7.00 s were monitored"})
    );
    assert_eq!(
        (&wss["unknown_bytes"], &wss["method"]),
        (&json!(1000), &json!("scan"))
    );
    assert_eq!(wss["resident_bytes"]["max"], 100 * 8 + 10 + 1 + 5000 + 1000);
    assert_eq!(wss["basis"]["snapshots"], 8);
}

#[test]
fn wss_omits_windows_shorter_than_pass() {
    let at = |n| with_tables(n, Nanos::millis(1100 + 200 * (n % 5)), &[(0, 100, 0), (1, 10, 0)]);
    let wss = report(WssAccumulator::default(), (1..=8).map(at).collect());
    let windows: Vec<u64> = wss.windows.iter().map(|window| window.window_s).collect();
    assert_eq!(windows, [2, 5]);
    assert_eq!(wss.missing[0].why, "the shortest scan pass took 1.10 s");
    assert_eq!(
        wss.only(1).unwrap_err(),
        "the recording has no working set for a window of 1 s: the shortest scan pass took 1.10 s"
    );
    let without_pass = report(
        WssAccumulator::default(),
        (1..=8).map(|n| with_tables(n, Nanos::ZERO, &[])).collect(),
    );
    assert!(without_pass.windows.is_empty());
    assert_eq!(without_pass.missing[0].why, "no scan pass was complete");
    assert_eq!(without_pass.basis.snapshots_before_first_pass, 8);
}

#[test]
fn idle_json_matches_docs() {
    let at = |n| with_tables(n, Nanos::millis(130), &[(0, 4096, 0), (1, 100, 0), (7, 8192, 0)]);
    let mut records = vec![at(1), at(9)];
    records.push(Record::Footprint(Footprint {
        swap: 77,
        ..Footprint::default()
    }));
    records.push(at(10));
    let idle = report(IdleAccumulator::default(), records);
    assert_eq!(
        idle.csv().lines().nth(8),
        Some("120,300,,8192,8192"),
        "{}",
        idle.csv()
    );
    let idle = serde_json::to_value(idle).unwrap();
    let ages = idle["ages"].as_array().unwrap();
    assert_eq!(ages.len(), 15);
    assert_eq!(ages[0], json!({"min_s": 0, "max_s": 1, "bytes": 4096}));
    assert_eq!(ages[14], json!({"min_s": 86_400, "max_s": null, "bytes": 0}));
    let sum: u64 = ages.iter().map(|age| age["bytes"].as_u64().unwrap()).sum();
    assert_eq!(idle["resident_bytes"], sum + 1000);
    assert_eq!(
        (
            &idle["schema"],
            &idle["method"],
            &idle["pass_s"],
            &idle["nr_passes"]
        ),
        (&json!(2), &json!("scan"), &json!(0.13), &json!(1))
    );
    assert_eq!(
        (&idle["time_ns"], &idle["as_of_ns"]),
        (&json!(10_000_000_000_u64), &json!(9_870_000_000_u64))
    );
    assert_eq!(
        (&idle["unknown_bytes"], &idle["swapped_bytes"]),
        (&json!(1000), &json!(77))
    );
    assert_eq!(
        idle["unknown"],
        json!([{"reason": "not_scanned", "bytes": 0}, {"reason": "first_scan", "bytes": 1000},
            {"reason": "uncleared", "bytes": 0}])
    );
    assert_eq!(idle["kinds"][0]["kind"], "anon");
    assert_eq!(idle["kinds"][1]["bytes"], 8292);
    assert_eq!(idle["targets"], json!([]), "empty for a single target");
}

#[test]
fn idle_sums_targets() {
    let records = recording::records_with_tables(151);
    let idle = serde_json::to_value(report(IdleAccumulator::default(), records[..].to_vec())).unwrap();
    assert_eq!(idle["targets"], json!([]), "the child has ended");
    let two: Vec<Record> = records.into_iter().take(120).collect();
    let idle = serde_json::to_value(report(IdleAccumulator::default(), two)).unwrap();
    let targets = idle["targets"].as_array().unwrap();
    assert_eq!((targets.len(), &targets[1]["pid"]), (2, &json!(4243)));
    for target in targets {
        let ages = target["ages"].as_array().unwrap().iter();
        let sum: u64 = ages.map(|bytes| bytes.as_u64().unwrap()).sum();
        assert_eq!(
            target["resident_bytes"],
            sum + target["unknown_bytes"].as_u64().unwrap()
        );
    }
    let resident = targets
        .iter()
        .map(|target| target["resident_bytes"].as_u64().unwrap());
    assert_eq!(idle["resident_bytes"], resident.sum::<u64>());
}

#[test]
fn reaccess_json_matches_docs() {
    let at = |n| with_tables(n, Nanos::millis(130), &[(0, 9000, 50), (1, 0, 10), (4, 0, 2)]);
    let reaccess = report(ReaccessAccumulator::default(), (1..=12).map(at).collect());
    assert_eq!(reaccess.unavailable_reason(), None);
    assert!(
        reaccess.csv().contains("\n1,144,720,0.072000\n"),
        "{}",
        reaccess.csv()
    );
    let reaccess = serde_json::to_value(reaccess).unwrap();
    assert_eq!(reaccess["schema"], 2);
    assert_eq!(reaccess["monitored_s"], 12.0);
    assert_eq!(reaccess["resident_bytes"], 10_000);
    let ages = reaccess["ages"].as_array().unwrap();
    assert_eq!(ages.len(), 4, "1, 2, 5 and 10 s");
    assert_eq!(
        ages[0],
        json!({"min_s": 1, "bytes": 144, "bytes_per_min": 720.0, "share_of_resident_per_min": 0.072})
    );
    assert_eq!(ages[3]["bytes_per_min"], 120.0);
    assert_eq!(
        reaccess["missing"][0],
        json!({"seconds": 30, "why": "only 12.0 s were monitored"})
    );
    let regions_only = report(ReaccessAccumulator::default(), recording::records(10));
    assert!(
        regions_only
            .unavailable_reason()
            .unwrap()
            .contains("no access tables")
    );
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
fn ages_without_tables_come_from_regions() {
    let records = vec![
        Record::Footprint(Footprint {
            rss: 10_000,
            ..Footprint::default()
        }),
        snapshot(1, &[(0, 4096, 1)]),
        snapshot(9, &[(0, 4096, 1), (4096, 12_288, 0)]),
    ];
    let idle = report(IdleAccumulator::default(), records.clone());
    let ages: Vec<u64> = idle.ages.iter().map(|age| age.bytes).collect();
    assert_eq!(
        ages[..4],
        [4096, 0, 10_000 - 4096, 0],
        "an age of 3 s, limited to resident bytes"
    );
    assert_eq!((idle.method, idle.resident_bytes), ("sampling", 10_000));
    assert_eq!((idle.pass_s, idle.kinds.len()), (Some(1.0), 0));
    let wss = report(WssAccumulator::default(), records);
    assert_eq!((wss.method, wss.windows[0].bytes.max), ("sampling", 4096));
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
fn summary_sizes_sum_to_resident() {
    for records in [recording::records(50), recording::records_with_tables(50)] {
        let summary = report(SummaryAccumulator::new(&recording::metadata()), records);
        let summary = serde_json::to_value(summary).unwrap();
        let sizes = ["hot", "warm", "cold", "unknown"].map(|heat| summary["sizes"][heat]["bytes"].as_u64());
        assert_eq!(
            summary["resident_bytes"].as_u64(),
            sizes.into_iter().sum::<Option<u64>>()
        );
        assert_eq!(
            (&summary["schema"], &summary["cold_from_s"]),
            (&json!(2), &json!(10))
        );
    }
}

/// Regions before the end of the first pass cover only the memory scanned so far. Other memory is unknown,
/// not absent.
#[test]
fn heatmap_distinguishes_absent_from_unscanned_memory() {
    let with_regions = |n, pass, regions: &[(u64, u64, u32)]| {
        let (Record::Snapshot(mut tables), Record::Snapshot(regions)) =
            (with_tables(n, pass, &[]), snapshot(n, regions))
        else {
            panic!("expected snapshots");
        };
        tables.targets[0].regions = regions.targets[0].regions.clone();
        Record::Snapshot(tables)
    };
    let records = vec![
        with_regions(1, Nanos::ZERO, &[(0, 4096, 20)]),
        with_regions(2, Nanos::secs(2), &[(0, 4096, 20), (4096, 8192, 10)]),
        with_regions(3, Nanos::secs(2), &[(0, 4096, 20)]),
        with_regions(5, Nanos::secs(2), &[(0, 4096, 20), (4096, 8192, 10)]),
    ];
    let map = report(HeatmapAccumulator::default(), records.clone());
    assert_eq!(
        map.targets[0].areas[0].rates,
        [[1000, 1000, 1000, -2, 1000], [-2, 500, -1, -2, 500]],
        "second 1: not scanned yet; second 3: no memory; second 4: no snapshot"
    );
    assert!(map.targets[0].scanned);
    assert_eq!(map.basis.snapshots_before_first_pass, 1);
    let style = thermo_report::Style::default();
    assert!(
        map.text(&style)
            .contains("1 of 4 snapshots precede the end of the first scan pass")
    );
    let apart = [(0, 4096, 20), (1 << 30, (1 << 30) + 4096, 20)];
    let first = report(
        HeatmapAccumulator::default(),
        vec![with_regions(1, Nanos::ZERO, &apart)],
    );
    assert!(first.text(&style).contains("without memory, or not scanned yet"));
}

#[test]
fn heatmap_has_recorded_rates() {
    let records = vec![
        snapshot(1, &[(0, 8192, 20)]),
        snapshot(2, &[(0, 4096, 10), (4096, 8192, 0)]),
    ];
    let map = report(HeatmapAccumulator::default(), records);
    assert_eq!((map.columns, map.column_ns), (2, 1_000_000_000));
    assert_eq!(map.targets[0].areas[0].rates, [[1000, 500], [1000, 0]]);
    assert!(map.csv().ends_with("1000000000,7,4096,8192,0\n"));
}

#[test]
fn heatmap_escapes_hostile_names() {
    let mut records = recording::records(5);
    for record in &mut records {
        if let Record::Mappings(mappings) = record {
            mappings.mappings[0].name = "/tmp/</script><script>alert(1)//\"&{{colours}}".to_owned();
        }
    }
    let map = report(HeatmapAccumulator::default(), records);
    let page = map.html();
    assert!(!page.contains("<script>alert") && page.matches("</script>").count() == 2);
    let svg = map.svg();
    assert!(!svg.contains("<script"));
    assert!(map.png().unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn heatmap_bounds_targets_cells_and_columns() {
    let regions = |from: u64| {
        (0..200).map(move |n| Region {
            start: from + n * (1 << 33),
            end: from + n * (1 << 33) + 8192,
            nr_accesses: 3,
            ..Region::default()
        })
    };
    let target = |id: u32| Target {
        id,
        pid: Some(id),
        scanned: Some(false),
        averaged: 0,
        tables: None,
        regions: regions(u64::from(id) << 20).collect(),
    };
    let snapshot = |n: u64| {
        Record::Snapshot(Snapshot {
            start_ns: n * n * 1000,
            time_ns: (n + 1) * (n + 1) * 1000,
            aggr_ns: 1000,
            max_nr_accesses: 20,
            targets: (0..80).map(target).collect(),
        })
    };
    let map = report(HeatmapAccumulator::default(), (0..60).map(snapshot).collect());
    let cells: usize = map
        .targets
        .iter()
        .flat_map(|target| &target.areas)
        .map(|area| area.rates.len())
        .sum();
    assert!(
        cells <= 2048 && map.columns <= 512,
        "{cells} cells, {} columns",
        map.columns
    );
    assert_eq!((map.targets.len(), map.targets_left_out), (64, 16));
    let text = map.text(&thermo_report::Style::default());
    assert!(
        text.contains("72 more targets") && text.lines().count() < 50,
        "{text}"
    );
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
