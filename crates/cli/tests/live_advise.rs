//! `thermo advise` on a real process and on its recording.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::path::Path;

use common::{Guard, has_tracker, run, start_workload, stderr, workload};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// A workload that runs for minutes, and its process ID; `None` if no tracker can be used.
fn target(dir: &Path) -> Option<(Guard, String)> {
    if !has_tracker(dir) {
        return None;
    }
    let target = start_workload(dir, &workload(dir, 300_000).unwrap());
    let pid = target.0.id().to_string();
    Some((target, pid))
}

/// The row for ages of ten seconds or more.
fn first_row(advice: &Value) -> &Value {
    let row = &advice["table"][0];
    assert_eq!(row["min_age_s"], 10, "{advice}");
    row
}

/// The workload has 16 MiB that it accesses all the time, and 32 MiB that it wrote once. The pages of the
/// latter are filled with one value.
#[test]
fn idle_memory_is_advised_and_the_recording_agrees() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let Some((_target, pid)) = target(dir) else { return };
    let arguments = [
        "advise",
        "--pid",
        &pid,
        "--duration",
        "50s",
        "--cpu",
        "10%",
        "--json",
        "--record",
        "kept.arrow",
        "-o",
        "advised.toml",
        "--html",
        "advice.html",
    ];
    let output = run(dir, &arguments);
    let advice: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    if advice["table"][0]["known"] != true {
        // Without page tables, sampling is too coarse to advise from; the sentence says so.
        assert_eq!(output.status.code(), Some(1));
        let why = advice["advice"]["why"].as_str().unwrap();
        assert!(why.starts_with("Cannot tell: "), "{why}");
        eprintln!("SKIP: {why}");
        return;
    }
    let row = first_row(&advice);
    let leaves = row["leaves_bytes"].as_u64().unwrap();
    assert!((30 * MIB..40 * MIB).contains(&leaves), "{row}");
    assert_eq!(
        (output.status.code(), &advice["advice"]["worth"]),
        (Some(0), &true.into())
    );
    assert_eq!(advice["advice"]["min_age_s"], 10);
    assert_eq!(advice["content_sampled"], true);
    // Same-filled pages take no memory in zram.
    let net = row["net_saved_bytes"]["mid"].as_u64().unwrap();
    assert!(net > leaves * 9 / 10, "{row}");
    let checked = run(dir, &["schemes", "check", "advised.toml"]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    let command = advice["advice"]["command"].as_str().unwrap();
    assert_eq!(command, format!("thermo schemes apply advised.toml --pid {pid}"));
    assert!(
        std::fs::read_to_string(dir.join("advice.html"))
            .unwrap()
            .contains("<svg")
    );

    // All accesses go to 16 MiB, all of them alike, and a little to the program itself.
    let tiers = run(
        dir,
        &["advise", "kept.arrow", "--tiers", "--slow-ns", "180", "--json"],
    );
    assert_eq!(tiers.status.code(), Some(0), "{}", stderr(&tiers));
    let tiers: Value = serde_json::from_slice(&tiers.stdout).unwrap();
    let needed = tiers["all"]["fast"][0]["median_bytes"].as_u64().unwrap();
    assert!((13 * MIB..20 * MIB).contains(&needed), "{tiers}");
    assert_eq!(tiers["targets"][0]["pid"].to_string(), pid);
    // 90 % at 90 ns and 10 % at 180 ns are 99 ns.
    let speed = tiers["speeds"][0]["memory_speed"].as_f64().unwrap();
    assert!((speed - 90.0 / 99.0).abs() < 1e-6, "{tiers}");

    let again = run(dir, &["advise", "kept.arrow", "--json"]);
    let from_recording: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(from_recording["content_sampled"], false);
    let figures = ["leaves_bytes", "refault_bytes_per_min", "share_per_min"];
    for figure in figures {
        assert_eq!(first_row(&from_recording)[figure], row[figure], "{figure}");
    }
}

#[test]
fn too_short_a_time_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let Some((_target, pid)) = target(dir) else { return };
    let output = run(
        dir,
        &["advise", "--pid", &pid, "--duration", "3s", "-o", "advised.toml"],
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    assert!(text.contains("Cannot tell"), "{text}");
    assert!(!dir.join("advised.toml").exists(), "nothing is advised");
}
