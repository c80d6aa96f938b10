//! `thermo forecast`: its output on a recording whose truth is known, and each wrong input.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::fs;
use std::path::Path;

use common::{json, run, stderr};
use serde_json::Value;
use thermo_engine::access_tables::{AccessTables, age_bucket};
use thermo_engine::budget::Method;
use thermo_recording::Writer;
use thermo_recording::model::{Metadata, Record, Region, SCHEMA, SchemeApplied, Settings, Snapshot, Target};
use thermo_units::{Bytes, Nanos};

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

fn metadata() -> Metadata {
    Metadata {
        schema: SCHEMA,
        writer: "test".to_owned(),
        tracker: "pte".to_owned(),
        seed: Some(1),
        targets: "pid 1".to_owned(),
        settings: Settings {
            sample_ns: Some(SECOND / 70),
            aggr_ns: Some(SECOND),
            update_ns: Some(SECOND),
            min_nr_regions: Some(10),
            max_nr_regions: Some(1000),
            cpu_budget_percent: Some(1.0),
        },
        ..Metadata::default()
    }
}

/// 100 MiB that are idle from the start, and 60 MiB that are accessed every 20 s.
fn snapshot(now: u64) -> Record {
    let mut tables = AccessTables {
        pass: Nanos::millis(200),
        nr_passes: now,
        ..AccessTables::new(Method::Scan)
    };
    tables.idle[0][age_bucket(Nanos::secs(now))] += Bytes::mib(100);
    tables.idle[0][age_bucket(Nanos::secs(now % 20))] += Bytes::mib(60);
    if now.is_multiple_of(20) {
        tables.reaccessed[age_bucket(Nanos::secs(20))] = Bytes::mib(60);
    }
    Record::Snapshot(Snapshot {
        start_ns: (now - 1) * SECOND,
        time_ns: now * SECOND,
        aggr_ns: SECOND,
        max_nr_accesses: 70,
        targets: vec![Target {
            id: 0,
            pid: Some(1),
            scanned: Some(true),
            tables: Some(Box::new(tables)),
            regions: vec![Region {
                start: 0,
                end: 160 * MIB,
                nr_accesses: 1,
                ..Region::default()
            }],
            ..Target::default()
        }],
    })
}

/// Writes `r.arrow` of `seconds`, and two scheme files.
fn prepare(folder: &Path, seconds: u64, more: Option<Record>) {
    let mut writer = Writer::create(&folder.join("r.arrow"), &metadata()).unwrap();
    for record in (1..=seconds).map(snapshot).chain(more) {
        writer.append(&record).unwrap();
    }
    writer.finish().unwrap();
    for (name, text) in [
        ("eager.damos", "4K max 0 0 10s max pageout\n"),
        ("patient.damos", "4K max 0 0 30s max pageout\n"),
        ("wrong.damos", "4K max 0 0 10s max vanish\n"),
    ] {
        fs::write(folder.join(name), text).unwrap();
    }
}

fn mib(value: &Value) -> i64 {
    (value.as_i64().unwrap() + MIB as i64 / 2) / MIB as i64
}

#[test]
fn forecast_json_has_figures_of_each_file() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), 200, None);
    let arguments = [
        "forecast",
        "r.arrow",
        "--schemes",
        "eager.damos",
        "patient.damos",
        "--compressed-size",
        "35%",
        "--json",
    ];
    let forecast = json(folder.path(), &arguments);
    assert_eq!(forecast["schema"], 1);
    let [eager, patient] = [0, 1].map(|nth| &forecast["files"][nth]);
    assert_eq!(
        (&eager["file"], &patient["file"]),
        (&"eager.damos".into(), &"patient.damos".into())
    );
    assert_eq!(mib(&patient["leaves_bytes"]), 100);
    assert_eq!(mib(&patient["net_saved_bytes"]["mid"]), 65);
    assert_eq!(mib(&patient["refault_bytes_per_min"]["high"]), 0);
    // Out for half of the time, and accessed three times a minute.
    assert!((125..=135).contains(&mib(&eager["leaves_bytes"])), "{eager}");
    let refaults = &eager["refault_bytes_per_min"];
    assert!((165..=200).contains(&mib(&refaults["mid"])), "{eager}");
    assert!(
        mib(&refaults["low"]) <= mib(&refaults["mid"]) && mib(&refaults["mid"]) <= mib(&refaults["high"])
    );
    assert_eq!(forecast["censored"].as_array().unwrap().len(), 0);
}

#[test]
fn forecast_text_and_page_show_files_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), 200, None);
    let arguments = [
        "forecast",
        "r.arrow",
        "--schemes",
        "eager.damos",
        "--schemes",
        "patient.damos",
        "--html",
        "f.html",
    ];
    let output = run(folder.path(), &arguments);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    for expected in [
        "eager.damos",
        "patient.damos",
        "refaults per minute",
        "give --compressed-size",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(stderr(&output), "thermo: wrote f.html\n");
    let page = fs::read_to_string(folder.path().join("f.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("patient.damos") && !page.contains("src="));
}

#[test]
fn forecast_of_recording_with_schemes_names_censored_figures() {
    let folder = tempfile::tempdir().unwrap();
    let paged_out = Record::Scheme(SchemeApplied {
        action: "pageout".to_owned(),
        sz_applied: 40 * MIB,
        ..SchemeApplied::default()
    });
    prepare(folder.path(), 100, Some(paged_out));
    let arguments = ["forecast", "r.arrow", "--schemes", "eager.damos"];
    let text = String::from_utf8(run(folder.path(), &arguments).stdout).unwrap();
    let expected = "memory that leaves, net saved and refaults are censored";
    assert!(text.contains(expected) && text.contains("40.0 MiB"), "{text}");
    let forecast = json(folder.path(), &[&arguments[..], &["--json"]].concat());
    assert_eq!(forecast["censored"][0], "leaves_bytes");
}

#[test]
fn wrong_input_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), 30, None);
    fs::write(folder.path().join("text"), "no recording\n").unwrap();
    for (recording, schemes, expected) in [
        ("missing", "eager.damos", "missing"),
        ("text", "eager.damos", "is not a recording"),
        (
            "r.arrow",
            "missing.damos",
            "cannot read the schemes of missing.damos",
        ),
        ("r.arrow", "wrong.damos", "wrong.damos:1:20: "),
        (
            "r.arrow",
            "patient.damos",
            "cannot tell: the recording covers 30.0 s, and scheme 0 waits for an age of 30.0 s: record at least 60.0 s",
        ),
    ] {
        let output = run(
            folder.path(),
            &["forecast", recording, "--schemes", schemes, "--json"],
        );
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(expected), "{message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn recording_too_short_for_one_of_two_files_gives_1() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), 30, None);
    let arguments = [
        "forecast",
        "r.arrow",
        "--schemes",
        "eager.damos",
        "patient.damos",
        "--json",
    ];
    let output = run(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let forecast: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(mib(&forecast["files"][0]["leaves_bytes"]) >= 100);
    assert_eq!(forecast["files"][1]["leaves_bytes"], Value::Null);
    let reason = forecast["files"][1]["cannot_tell"].as_str().unwrap();
    assert!(reason.contains("record at least 60.0 s"), "{reason}");
}
