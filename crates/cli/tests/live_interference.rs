//! Interference: another monitor that clears accessed bits is named in a warning and in the report.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::path::Path;

use common::{Guard, has_snapshots, run, spawn_quiet, start_workload, stderr, wait_until, workload};

/// Records `pid` until stopped.
fn record(dir: &Path, pid: &str, file: &str) -> Guard {
    spawn_quiet(dir, &["record", "--sample", "5ms", "--pid", pid, "-o", file])
}

/// Whether the recording has a warning that the thermo with process ID `other` monitors the same target.
fn warns_of(dir: &Path, file: &str, other: u32) -> bool {
    let output = run(dir, &["report", "info", file, "--json"]);
    let info = serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap_or_default();
    let expected = format!("another thermo (pid {other}) also monitors our target");
    let is_warning = |note: &serde_json::Value| {
        note["kind"] == "warning"
            && note["text"]
                .as_str()
                .is_some_and(|text| text.starts_with(&expected))
    };
    info["notes"]
        .as_array()
        .is_some_and(|notes| notes.iter().any(is_warning))
}

#[test]
fn second_monitor_is_warned_of_until_it_dies() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let doctor = run(dir, &["doctor", "--json"]);
    let doctor: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    if !["pte", "smaps"].contains(&doctor["default_tracker"].as_str().unwrap_or("none")) {
        eprintln!("SKIP: neither pte nor smaps can be used on this machine");
        return;
    }
    let cfg = workload(dir, 600_000).unwrap();
    let target = start_workload(dir, &cfg);
    let pid = target.0.id().to_string();
    let first = record(dir, &pid, "first.arrow");
    assert!(wait_until(|| has_snapshots(dir, "first.arrow")));
    let second = record(dir, &pid, "second.arrow");
    assert!(wait_until(|| warns_of(dir, "second.arrow", first.0.id())));
    let text = run(dir, &["report", "info", "second.arrow"]);
    assert!(
        String::from_utf8_lossy(&text.stdout).contains("warning: another thermo"),
        "{}",
        stderr(&text)
    );

    let dead = first.0.id();
    // Kills both (SIGKILL).
    drop((first, second));
    let third = record(dir, &pid, "third.arrow");
    assert!(wait_until(|| has_snapshots(dir, "third.arrow")));
    assert!(!warns_of(dir, "third.arrow", dead));
    drop(third);
    // The recording of a killed thermo is truncated but readable.
    let info = run(dir, &["report", "info", "third.arrow", "--json"]);
    assert_eq!(info.status.code(), Some(1), "{}", stderr(&info));
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    assert!(info["tracker"].is_string());
}
