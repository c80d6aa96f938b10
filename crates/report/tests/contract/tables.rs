//! The JSON of reports that come from access tables: idle ages, working sets, re-accesses, sizes.

use serde_json::json;
use thermo_recording::model::{Footprint, Record};
use thermo_report::idle::IdleAccumulator;
use thermo_report::reaccess::ReaccessAccumulator;
use thermo_report::summary::SummaryAccumulator;
use thermo_report::wss::WssAccumulator;
use thermo_units::Nanos;

use super::{recording, report, snapshot, with_tables};

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
            {"reason": "uncleared", "bytes": 0}, {"reason": "hugetlb", "bytes": 0}, {"reason": "not_recorded", "bytes": 0}])
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
