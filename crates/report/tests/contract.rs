//! The JSON that scripts rely on, and that pictures are what they say.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::convert::Infallible;

use serde_json::{Value, json};
use thermo_record::model::{Note, Record, Region, Snapshot, Target};
use thermo_report::heatmap::HeatmapAccumulator;
use thermo_report::idle::IdleAccumulator;
use thermo_report::info::InfoAccumulator;
use thermo_report::regions::{Format, RegionsWriter, Which};
use thermo_report::schemes::SchemesAccumulator;
use thermo_report::wss::WssAccumulator;
use thermo_report::{Accumulator, sum_up};

mod recording;

fn report<A: Accumulator>(accumulator: A, records: Vec<Record>) -> A::Report {
    let Ok(report) = sum_up(accumulator, records.into_iter().map(Ok::<_, Infallible>));
    report
}

fn regions(which: Which, records: &[Record]) -> Value {
    let mut writer = RegionsWriter::new(Vec::new(), which, Format::Json);
    for record in records {
        writer.add(record).unwrap();
    }
    serde_json::from_slice(&writer.finish().unwrap()).unwrap()
}

/// A snapshot that ends at `n` seconds, of one region per entry: start, end, accesses.
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
            swept: Some(false),
            tables: None,
            regions: regions.iter().map(region).collect(),
        }],
    })
}

#[test]
fn regions_as_promised() {
    let records = [
        snapshot(1, &[(4096, 8192, 5)]),
        snapshot(2, &[(4096, 12_288, 0)]),
        snapshot(3, &[]),
    ];
    let region = json!({"start": 4096, "end": 12_288, "nr_accesses": 0, "max_nr_accesses": 20, "age_ns": 3_000_000_000_u64});
    let last = json!({"time_ns": 2_000_000_000_u64, "targets": [{"pid": 7, "regions": [region]}]});
    assert_eq!(
        regions(Which::Last, &records),
        json!({"schema": 1, "snapshots": [last]})
    );
    let all = regions(Which::All, &records);
    assert_eq!(
        all["snapshots"].as_array().unwrap().len(),
        2,
        "a snapshot without a living target is none"
    );
    assert_eq!(regions(Which::All, &[]), json!({"schema": 1, "snapshots": []}));
}

#[test]
fn unknown_memory_says_so_and_only_it() {
    let all = regions(Which::Last, &recording::records(3)).to_string();
    assert_eq!(all.matches("\"unknown\":true").count(), 1);
    assert!(!all.contains("\"unknown\":false"));
}

#[test]
fn wss_as_promised() {
    let sizes = [1, 2, 3, 4].map(|n| snapshot(n, &[(0, n * 4096, 1), (1 << 30, 1 << 31, 0)]));
    let wss = serde_json::to_value(report(WssAccumulator::default(), sizes.to_vec())).unwrap();
    assert_eq!(wss["schema"], 1);
    assert_eq!(
        wss["percentiles"],
        json!({"0": 4096, "25": 4096, "50": 8192, "75": 12_288, "100": 16_384})
    );
    assert_eq!(wss["basis"]["snapshots"], 4);
}

#[test]
fn targets_that_appear_by_the_hundred_hide_no_plan() {
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
    assert!(info.more_notes > 0, "they are bounded");
}

#[test]
fn info_as_promised() {
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
fn schemes_as_promised() {
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
fn idle_classes_add_up() {
    let records = vec![
        snapshot(1, &[(0, 4096, 1)]),
        snapshot(9, &[(0, 4096, 1), (4096, 12_288, 0)]),
    ];
    let idle = report(IdleAccumulator::default(), records);
    assert_eq!((idle.accessed_bytes, idle.unknown_bytes), (4096, 0));
    let classes: Vec<_> = idle
        .classes
        .iter()
        .map(|c| (c.min_idle_ns / 1_000_000_000, c.bytes, c.bytes_at_least))
        .collect();
    assert_eq!(classes, [(0, 0, 8192), (1, 8192, 8192), (5, 0, 0)]);
}

#[test]
fn a_heatmap_finds_its_rates_again() {
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
fn hostile_names_stay_text() {
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
fn many_targets_many_mappings_and_long_gaps_stay_small() {
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
        swept: Some(false),
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
fn a_sweep_takes_a_mark_a_page_and_a_sample_one_a_region() {
    // 1,000 pages in a second, touched in half of the looks.
    let of = |how: Option<bool>| {
        let Record::Snapshot(mut snapshot) = snapshot(1, &[(0, 1000 << 12, 10)]) else {
            panic!("it is a snapshot");
        };
        snapshot.targets[0].swept = how;
        let metadata = recording::metadata();
        report(InfoAccumulator::new(&metadata), vec![Record::Snapshot(snapshot)])
            .cost
            .slow_down_percent
    };
    assert_eq!(of(Some(true)), Some(0.05));
    assert_eq!(of(Some(false)), Some(0.001));
    assert_eq!(of(None), None, "recordings made before that was told");
}

#[test]
fn nonsense_from_a_broken_file_is_no_panic() {
    let mut records = vec![snapshot(
        5,
        &[(8192, 4096, 30), (u64::MAX - 4095, u64::MAX, 1), (0, 1 << 20, 2)],
    )];
    records.push(snapshot(2, &[(1 << 40, 1, 0)]));
    records.extend(recording::records(2));
    let mapping = |start, end| thermo_record::model::Mapping {
        start,
        end,
        name: String::new(),
    };
    let mappings = vec![
        mapping(9 << 20, 5 << 20),
        mapping(1 << 12, 8 << 20),
        mapping(0, 4096),
    ];
    let mappings = thermo_record::model::Mappings {
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
    regions(Which::All, &records);
}
