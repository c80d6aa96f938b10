//! Recordings that are damaged or of another program, and reports without data.

use std::fs;
use std::process::Stdio;

use thermo_recording::Writer;
use thermo_recording::model::{Metadata, Settings};

use super::common::{run, stderr, thermo};
use super::refused;

#[test]
fn files_that_are_no_recordings_are_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("empty"), "").unwrap();
    fs::write(folder.path().join("text"), "hello, this is no recording at all\n").unwrap();
    for kind in [
        "regions",
        "heatmap",
        "wss",
        "idle",
        "reaccess",
        "schemes",
        "footprint",
        "info",
    ] {
        refused(folder.path(), &["report", kind, "missing"], "missing");
        refused(folder.path(), &["report", kind, "empty"], "is empty");
        refused(folder.path(), &["report", kind, "text"], "is not a recording");
    }
    refused(
        folder.path(),
        &["export", "text", "-f", "csv", "-o", "out"],
        "is not a recording",
    );
    fs::write(folder.path().join("cut"), b"\xff\xff\xff\xff\x10").unwrap();
    refused(
        folder.path(),
        &["report", "info", "cut"],
        "cut is truncated before its first record",
    );
    assert!(!folder.path().join("out").exists() && !folder.path().join("out.part").exists());
}

/// A record of damo: one target with one region.
const DAMO: &str = r#"[{"target_id": 0, "kdamond_idx": 0, "context_idx": 0, "intervals": {"sample_us": 5000, "aggr_us": 100000, "ops_update_us": 1000000}, "scheme_idx": null,
    "snapshots": [{"start_time": 0, "end_time": 100000000, "regions": [
        {"start": 4096, "end": 8192, "nr_accesses": {"samples": 1, "percent": 5}, "age": {"usec": 0, "aggr_intervals": 0}}]}]}]"#;

#[test]
fn full_stdout_is_an_error_and_closed_is_none() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.json"), DAMO).unwrap();
    for kind in ["info", "summary", "regions", "heatmap", "wss"] {
        let to = |out: Stdio| {
            let mut command = thermo(folder.path(), &["report", kind, "r.json"]);
            command.stdout(out).stderr(Stdio::piped()).output().unwrap()
        };
        let full = to(fs::File::create("/dev/full").unwrap().into());
        let message = stderr(&full);
        assert_eq!(full.status.code(), Some(2), "{kind}: {message}");
        assert!(
            message.contains("cannot write to standard output: No space"),
            "{kind}: {message}"
        );
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = to(writer.into());
        assert_eq!(closed.status.code(), Some(0), "{kind}");
        assert_eq!(stderr(&closed), "", "{kind}");
    }
}

#[test]
fn reports_without_data_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.json"), DAMO).unwrap();
    let check = |args: &[&str], code: i32, expected: &str| {
        let output = run(folder.path(), &[&["report"], args].concat());
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert!(message.contains(expected), "{message}");
        assert!(output.stdout.is_empty());
    };
    check(
        &["wss", "r.json", "--window", "3s"],
        2,
        "there is no window of 3.00 s: give one of 1 s, 2 s, 5 s, 10 s",
    );
    check(
        &["wss", "r.json", "--window", "1m"],
        1,
        "r.json: the recording has no working set for a window of 1 min: only 0 s were monitored",
    );
    check(&["reaccess", "r.json"], 1, "The recording has no access tables");
    refused(
        folder.path(),
        &["export", "r.json", "-f", "damo-json", "--table", "ages"],
        "damo's JSON holds regions only",
    );
}

#[test]
fn info_and_summary_print_csv() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.json"), DAMO).unwrap();
    for (kind, schema, has) in [
        ("info", "\nschema,1\n", "\nsettings.aggr_ns,"),
        ("summary", "\nschema,2\n", "\nsizes.cold.bytes,"),
    ] {
        let output = run(folder.path(), &["report", kind, "r.json", "--csv"]);
        let message = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && message.starts_with("key,value\n"),
            "{kind}: {message}"
        );
        assert!(
            message.contains(schema) && message.contains(has),
            "{kind}: {message}"
        );
    }
}

/// damo's record of a process from a kernel without ages: 24 KiB, of which 8 KiB were accessed.
const DAMO_WITHOUT_AGES: &str = r#"[{"target_id": 0, "intervals": {"sample_us": 5000, "aggr_us": 100000, "ops_update_us": 1000000},
    "snapshots": [{"start_time": 0, "end_time": 100000000, "regions": [
        {"start": 4096, "end": 12288, "nr_accesses": {"samples": 4, "percent": null}, "age": {"usec": null, "aggr_intervals": null}},
        {"start": 12288, "end": 28672, "nr_accesses": {"samples": 0, "percent": null}, "age": {"usec": null, "aggr_intervals": null}}]}]}]"#;

#[test]
fn damo_record_without_ages_is_unknown_in_every_report() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.json"), DAMO_WITHOUT_AGES).unwrap();
    let report = |arguments: &[&str]| {
        let output = run(folder.path(), &[&["report"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let json =
        |kind| serde_json::from_str::<serde_json::Value>(&report(&[kind, "r.json", "--json"])).unwrap();
    let idle = json("idle");
    assert_eq!(
        (&idle["ages"][0]["bytes"], &idle["unknown_bytes"]),
        (&8192.into(), &16384.into())
    );
    let summary = json("summary");
    assert_eq!(summary["sizes"]["hot"]["bytes"], 8192);
    assert_eq!(summary["sizes"]["unknown"]["bytes"], 16384);
    let regions = json("regions");
    assert_eq!(
        regions["snapshots"][0]["targets"][0]["regions"][1]["age_ns"],
        serde_json::Value::Null
    );
    let info = json("info");
    for missing in [
        &info["settings"]["min_nr_regions"],
        &info["seed"],
        &info["wall_clock_offset_ns"],
    ] {
        assert_eq!(*missing, serde_json::Value::Null, "{info}");
    }
    for kind in ["idle", "summary", "wss", "info"] {
        let text = report(&[kind, "r.json"]);
        assert!(
            text.contains("2 of 2 regions of damo have no age"),
            "{kind}: {text}"
        );
    }
    let text = report(&["regions", "r.json"]);
    assert!(
        text.contains("target 0, 2 regions") && !text.contains("physical"),
        "{text}"
    );
    fs::write(folder.path().join("m.svg"), "").unwrap();
    report(&["heatmap", "r.json", "--svg", "m.svg"]);
    let picture = fs::read_to_string(folder.path().join("m.svg")).unwrap();
    assert!(
        picture.contains("target 0") && !picture.contains("physical"),
        "{picture}"
    );
}

/// Metadata of an empty recording.
fn metadata() -> Metadata {
    Metadata {
        schema: thermo_recording::model::SCHEMA,
        writer: "test".to_owned(),
        tracker: "pte".to_owned(),
        seed: Some(1),
        targets: "pid 1".to_owned(),
        settings: Settings {
            sample_ns: Some(5_000_000),
            aggr_ns: Some(100_000_000),
            update_ns: Some(1_000_000_000),
            min_nr_regions: Some(10),
            max_nr_regions: Some(1000),
            cpu_budget_percent: None,
        },
        ..Metadata::default()
    }
}

#[test]
fn truncated_recording_gives_report_and_1() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.arrow");
    let reports = |code: i32, expected: &str| {
        for kind in ["info", "summary", "regions", "footprint"] {
            let output = run(folder.path(), &["report", kind, "r.arrow"]);
            let message = stderr(&output);
            assert_eq!(output.status.code(), Some(code), "{kind}: {message}");
            assert!(message.contains(expected), "{kind}: {message}");
            assert!(!output.stdout.is_empty(), "{kind} printed nothing");
        }
    };
    let writer = Writer::create(&path, &metadata()).unwrap();
    reports(0, "r.arrow is still being written: the report covers its first");
    drop(writer);
    reports(1, "r.arrow is truncated: the report covers its first");
    Writer::create(&path, &metadata()).unwrap().finish().unwrap();
    reports(0, "");
    assert_eq!(stderr(&run(folder.path(), &["report", "info", "r.arrow"])), "");
}
