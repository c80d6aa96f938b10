//! Others that take accessed marks off are told of: in the report and at once.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::path::Path;

use common::{Guard, has_snapshots, json, quiet, run, start_workload, stderr, wait_until, workload};

/// Watches `pid` until it is stopped.
fn watch(here: &Path, pid: &str, file: &str) -> Guard {
    quiet(here, &["record", "--sample", "5ms", "--pid", pid, "-o", file])
}

/// Whether the recording says that the thermo with this number watches the same.
fn tells_of(here: &Path, file: &str, other: u32) -> bool {
    let output = run(here, &["report", "info", file, "--json"]);
    let info = serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap_or_default();
    let said = format!("another thermo (pid {other}) watches our target");
    let is_it = |note: &serde_json::Value| {
        note["kind"] == "warning" && note["text"].as_str().is_some_and(|text| text.starts_with(&said))
    };
    info["notes"]
        .as_array()
        .is_some_and(|notes| notes.iter().any(is_it))
}

#[test]
fn one_that_watches_the_same_process_is_warned_of_and_one_that_was_killed_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let doctor = run(here, &["doctor", "--json"]);
    let doctor: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    if !["pte", "smaps"].contains(&doctor["default_tracker"].as_str().unwrap_or("none")) {
        eprintln!("SKIP: no tracker of our own can be used on this machine");
        return;
    }
    let cfg = workload(here, 600_000).unwrap();
    let target = start_workload(here, &cfg);
    let pid = target.0.id().to_string();
    let first = watch(here, &pid, "first.arrow");
    assert!(wait_until(|| has_snapshots(here, "first.arrow")));
    let second = watch(here, &pid, "second.arrow");
    assert!(wait_until(|| tells_of(here, "second.arrow", first.0.id())));
    let text = run(here, &["report", "info", "second.arrow"]);
    assert!(
        String::from_utf8_lossy(&text.stdout).contains("warning: another thermo"),
        "{}",
        stderr(&text)
    );

    let was = first.0.id();
    // As kill -9 does.
    drop((first, second));
    let third = watch(here, &pid, "third.arrow");
    assert!(wait_until(|| has_snapshots(here, "third.arrow")));
    assert!(!tells_of(here, "third.arrow", was));
    drop(third);
    assert!(json(here, &["report", "info", "third.arrow", "--json"])["tracker"].is_string());
}
