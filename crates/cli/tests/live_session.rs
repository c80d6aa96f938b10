//! Real processes, watched by the real command.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::fs;
use std::io::Read as _;
use std::process::Stdio;

use common::{
    Guard, can_watch, has_snapshots, json, quiet, run, start_workload, stderr, thermo, wait_until, workload,
};

#[test]
fn doctor_keeps_its_contract() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["doctor", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["schema"], 1);
    assert!(told["kernel"].is_string() && told["arch"].is_string());
    for list in ["trackers", "actions"] {
        for entry in told[list].as_array().unwrap() {
            assert!(
                entry["name"].is_string() && entry["available"].is_boolean(),
                "{entry}"
            );
            assert!(!entry["reason"].as_str().unwrap().is_empty(), "{entry}");
        }
    }
    let default = told["default_tracker"].as_str();
    let available = |name: &str| {
        told["trackers"]
            .as_array()
            .unwrap()
            .iter()
            .any(|t| t["name"] == name && t["available"] == true)
    };
    assert_eq!(output.status.code(), Some(i32::from(default.is_none())));
    assert!(default.is_none_or(available));
}

#[test]
fn a_recording_tells_what_was_watched() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    if !can_watch(here) {
        return;
    }
    let cfg = workload(here, 3000).unwrap();
    let lab = common::lab();
    let command = [lab.to_str().unwrap(), "workload", "-q", cfg.to_str().unwrap()];
    // Intervals by hand: a budget may take its time for the first round.
    let watching = ["record", "-o", "r.arrow", "--sample", "5ms", "--"];
    let output = run(here, &[&watching, &command[..]].concat());
    assert!(output.status.success(), "{}", stderr(&output));

    let info = json(here, &["report", "info", "r.arrow", "--json"]);
    assert!(
        info["tracker"].is_string() && info["own_cpu_percent"].is_number(),
        "{info}"
    );
    let regions = json(here, &["report", "regions", "r.arrow", "--json", "--last"]);
    assert_eq!(regions["schema"], 1);
    let last = &regions["snapshots"][0]["targets"][0];
    assert!(last["pid"].is_u64());
    let region = &last["regions"][0];
    for field in ["start", "end", "nr_accesses", "max_nr_accesses", "age_ns"] {
        assert!(region[field].is_u64(), "{field}: {region}");
    }
    let wss = json(here, &["report", "wss", "r.arrow", "--json"]);
    assert_eq!(wss["schema"], 2);
    for window in wss["windows"].as_array().unwrap() {
        for percentile in ["min", "p25", "p50", "p75", "max"] {
            assert!(window["bytes"][percentile].is_u64(), "{wss}");
        }
    }
    let idle = json(here, &["report", "idle", "r.arrow", "--json"]);
    let ages = idle["ages"].as_array().unwrap();
    let judged: u64 = ages.iter().filter_map(|age| age["bytes"].as_u64()).sum();
    assert_eq!(
        Some(judged + idle["unknown_bytes"].as_u64().unwrap()),
        idle["resident_bytes"].as_u64()
    );
    for kind in ["heatmap", "idle", "footprint", "schemes"] {
        assert!(run(here, &["report", kind, "r.arrow"]).status.success(), "{kind}");
    }
    let html = run(here, &["report", "heatmap", "r.arrow", "--html", "h.html"]);
    assert!(html.status.success() && fs::read_to_string(here.join("h.html")).unwrap().contains("<html"));
}

#[test]
fn a_command_keeps_its_status_and_the_old_recording_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    if !can_watch(here) {
        return;
    }
    fs::write(here.join("thermo.arrow"), "before").unwrap();
    for verb in ["run", "record"] {
        let output = run(here, &[verb, "--", "sh", "-c", "exit 7"]);
        assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
        let output = run(here, &[verb, "--", "sh", "-c", "kill -9 $$"]);
        assert_eq!(output.status.code(), Some(137), "{}", stderr(&output));
    }
    assert!(here.join("thermo.arrow.old").exists());
}

#[test]
fn killed_at_any_moment_it_leaves_what_is_whole_and_the_target_runs_on() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    if !can_watch(here) {
        return;
    }
    let cfg = workload(here, 120_000).unwrap();
    let mut target = start_workload(here, &cfg);
    let pid = target.0.id().to_string();
    let mut recorder = quiet(here, &["record", "--pid", &pid, "-o", "r.arrow"]);
    let has_snapshots = || has_snapshots(here, "r.arrow");
    assert!(wait_until(has_snapshots), "nothing was recorded");
    recorder.0.kill().unwrap();
    recorder.0.wait().unwrap();
    assert!(has_snapshots(), "what was there can no longer be read");
    assert!(
        target.0.try_wait().unwrap().is_none(),
        "the target died with its watcher"
    );
}

#[test]
fn a_target_that_ends_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    if !can_watch(here) {
        return;
    }
    let cfg = workload(here, 120_000).unwrap();
    let mut target = start_workload(here, &cfg);
    let pid = target.0.id().to_string();
    let mut record = thermo(here, &["record", "--pid", &pid, "-o", "r.arrow"]);
    let mut record = Guard(record.stderr(Stdio::piped()).spawn().unwrap());
    assert!(
        wait_until(|| has_snapshots(here, "r.arrow")),
        "nothing was recorded"
    );
    target.0.kill().unwrap();
    target.0.wait().unwrap();
    let status = record.0.wait().unwrap();
    let mut told = String::new();
    record.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(status.code(), Some(0), "{told}");
    assert!(told.contains("every target has ended"), "{told}");
}
