//! Real processes, monitored by the real command.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::fs;
use std::io::{BufRead as _, Read as _};
use std::process::Stdio;

use common::{
    Guard, has_snapshots, has_tracker, json, run, spawn_quiet, start_workload, stderr, thermo, wait_until,
    workload,
};

#[test]
fn doctor_json_has_its_fields() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], 1);
    assert!(report["kernel"].is_string() && report["arch"].is_string());
    for list in ["trackers", "actions"] {
        for entry in report[list].as_array().unwrap() {
            assert!(
                entry["name"].is_string() && entry["available"].is_boolean(),
                "{entry}"
            );
            assert!(!entry["reason"].as_str().unwrap().is_empty(), "{entry}");
        }
    }
    let default = report["default_tracker"].as_str();
    let available = |name: &str| {
        report["trackers"]
            .as_array()
            .unwrap()
            .iter()
            .any(|t| t["name"] == name && t["available"] == true)
    };
    assert_eq!(output.status.code(), Some(i32::from(default.is_none())));
    assert!(default.is_none_or(available));
}

#[test]
fn recording_has_regions_ages_and_cost() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_tracker(dir) {
        return;
    }
    let cfg = workload(dir, 3000).unwrap();
    let lab = common::lab();
    let command = [lab.to_str().unwrap(), "workload", "-q", cfg.to_str().unwrap()];
    // With fixed intervals results come at once; a budget may delay the first scan.
    let record = ["record", "-o", "r.arrow", "--sample", "5ms", "--"];
    let output = run(dir, &[&record, &command[..]].concat());
    assert!(output.status.success(), "{}", stderr(&output));

    let info = json(dir, &["report", "info", "r.arrow", "--json"]);
    assert!(
        info["tracker"].is_string() && info["own_cpu_percent"].is_number(),
        "{info}"
    );
    let regions = json(dir, &["report", "regions", "r.arrow", "--json", "--last"]);
    assert_eq!(regions["schema"], 1);
    let last = &regions["snapshots"][0]["targets"][0];
    assert!(last["pid"].is_u64());
    let region = &last["regions"][0];
    for field in ["start", "end", "nr_accesses", "max_nr_accesses", "age_ns"] {
        assert!(region[field].is_u64(), "{field}: {region}");
    }
    let wss = json(dir, &["report", "wss", "r.arrow", "--json"]);
    assert_eq!(wss["schema"], 2);
    for window in wss["windows"].as_array().unwrap() {
        for percentile in ["min", "p25", "p50", "p75", "max"] {
            assert!(window["bytes"][percentile].is_u64(), "{wss}");
        }
    }
    let idle = json(dir, &["report", "idle", "r.arrow", "--json"]);
    let ages = idle["ages"].as_array().unwrap();
    let known: u64 = ages.iter().filter_map(|age| age["bytes"].as_u64()).sum();
    assert_eq!(
        Some(known + idle["unknown_bytes"].as_u64().unwrap()),
        idle["resident_bytes"].as_u64()
    );
    for kind in ["heatmap", "idle", "footprint", "schemes"] {
        assert!(run(dir, &["report", kind, "r.arrow"]).status.success(), "{kind}");
    }
    let html = run(dir, &["report", "heatmap", "r.arrow", "--html", "h.html"]);
    assert!(html.status.success() && fs::read_to_string(dir.join("h.html")).unwrap().contains("<html"));
}

#[test]
fn command_keeps_its_status_and_old_recording() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_tracker(dir) {
        return;
    }
    fs::write(dir.join("thermo.arrow"), "before").unwrap();
    for verb in ["run", "record"] {
        let output = run(dir, &[verb, "--", "sh", "-c", "exit 7"]);
        assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
        let output = run(dir, &[verb, "--", "sh", "-c", "kill -9 $$"]);
        assert_eq!(output.status.code(), Some(137), "{}", stderr(&output));
    }
    assert!(dir.join("thermo.arrow.old").exists());
}

#[test]
fn killed_recorder_leaves_readable_recording_and_target() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_tracker(dir) {
        return;
    }
    let cfg = workload(dir, 120_000).unwrap();
    let mut target = start_workload(dir, &cfg);
    let pid = target.0.id().to_string();
    let mut recorder = spawn_quiet(dir, &["record", "--pid", &pid, "-o", "r.arrow"]);
    let has_snapshots = || has_snapshots(dir, "r.arrow");
    assert!(wait_until(has_snapshots), "nothing was recorded");
    recorder.0.kill().unwrap();
    recorder.0.wait().unwrap();
    assert!(has_snapshots(), "the recording can no longer be read");
    let info = run(dir, &["report", "info", "r.arrow"]);
    assert_eq!(info.status.code(), Some(1), "{}", stderr(&info));
    assert!(stderr(&info).contains("is truncated"), "{}", stderr(&info));
    assert!(
        target.0.try_wait().unwrap().is_none(),
        "the target died with the recorder"
    );
}

#[test]
fn end_of_target_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_tracker(dir) {
        return;
    }
    let cfg = workload(dir, 120_000).unwrap();
    let mut target = start_workload(dir, &cfg);
    let pid = target.0.id().to_string();
    let mut record = thermo(dir, &["record", "--pid", &pid, "-o", "r.arrow"]);
    let mut record = Guard(record.stderr(Stdio::piped()).spawn().unwrap());
    assert!(
        wait_until(|| has_snapshots(dir, "r.arrow")),
        "nothing was recorded"
    );
    target.0.kill().unwrap();
    target.0.wait().unwrap();
    let status = record.0.wait().unwrap();
    let mut messages = String::new();
    record
        .0
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut messages)
        .unwrap();
    assert_eq!(status.code(), Some(0), "{messages}");
    assert!(messages.contains("every target has ended"), "{messages}");
}

/// Starts `thermo reclaim` for `pid` with `flags`, and returns its first line about the scheme. The command
/// still runs then.
fn first_message(dir: &std::path::Path, pid: &str, flags: &[&str]) -> String {
    let mut command = thermo(dir, &[&["reclaim", "--pid", pid], flags].concat());
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut reclaim = Guard(child.unwrap());
    let lines = std::io::BufReader::new(reclaim.0.stderr.take().unwrap()).lines();
    let line = lines
        .map_while(Result::ok)
        .find(|line| line.starts_with("thermo: pageout "));
    assert!(reclaim.0.try_wait().unwrap().is_none(), "reclaim ended: {line:?}");
    line.unwrap()
}

#[test]
fn reclaim_says_at_once_why_it_rests() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_tracker(dir) {
        return;
    }
    let cfg = workload(dir, 300_000).unwrap();
    let target = start_workload(dir, &cfg);
    let pid = target.0.id().to_string();
    let marks = |high, mid, low| ["--wmarks-high", high, "--wmarks-mid", mid, "--wmarks-low", low];
    let rests = first_message(dir, &pid, &marks("1000", "1000", "1000"));
    assert!(
        rests.contains("pageout rests: ") && rests.contains("less than 100 % (low watermark)"),
        "{rests}"
    );
    let idle_for_an_hour = [&marks("1000", "1000", "0")[..], &["--min-age", "1h", "--dry-run"]].concat();
    let waits = first_message(dir, &pid, &idle_for_an_hour);
    assert!(
        waits.contains("pageout waits: nothing matches yet (memory must be idle for 1 h)"),
        "{waits}"
    );
}
