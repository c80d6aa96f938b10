//! The contents of heatmaps.

use thermo_recording::model::{Record, Region, Snapshot, Target};
use thermo_report::heatmap::HeatmapAccumulator;
use thermo_units::Nanos;

use super::{recording, report, snapshot, with_tables};

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
fn page_without_data_says_why() {
    let map = report(HeatmapAccumulator::default(), vec![]);
    assert!(map.html().contains(&thermo_report::no_data(0)));
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
