//! `thermo hint` on a real process.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::path::Path;
use std::time::Instant;

use common::{Guard, PATIENCE, json, run, start_workload, stderr, workload};
use serde_json::Value;

/// A workload that goes on for minutes.
fn target(folder: &Path) -> (Guard, String) {
    let cfg = workload(folder, 300_000).unwrap();
    let child = start_workload(folder, &cfg);
    let pid = child.0.id().to_string();
    (child, pid)
}

fn has_contract(told: &Value, dry_run: bool, action: &str) {
    assert_eq!(
        (&told["schema"], &told["dry_run"]),
        (&1.into(), &dry_run.into()),
        "{told}"
    );
    assert_eq!(told["action"], action);
    assert!(told["bytes_advised"].is_u64(), "{told}");
    assert!(told["bytes_changed"].is_u64() || told["bytes_changed"].is_null());
    for skipped in told["skipped"].as_array().unwrap() {
        assert!(
            skipped["reason"].is_string() && skipped["bytes"].is_u64(),
            "{skipped}"
        );
    }
    for range in told["ranges"].as_array().unwrap() {
        assert!(range["pid"].is_u64() && range["advised"].is_u64(), "{range}");
        assert!(range["start"].as_u64() < range["end"].as_u64());
        assert_eq!(range["action"], action);
        assert!(range["error"].is_null() || range["error"].is_string());
    }
}

#[test]
fn a_hint_keeps_its_contract() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let (_target, pid) = target(here);
    let dry = json(here, &["hint", "cold", "--pid", &pid, "--dry-run", "--json"]);
    has_contract(&dry, true, "cold");
    assert_eq!(dry["bytes_advised"], 0);
    let begin = Instant::now();
    // It may only just have begun.
    loop {
        let told = json(here, &["hint", "cold", "--pid", &pid, "--anon", "--json"]);
        has_contract(&told, false, "cold");
        let refused = told["ranges"].as_array().unwrap();
        if refused
            .iter()
            .any(|range| range["error"].as_str().is_some_and(|why| why.contains("refused")))
        {
            eprintln!("SKIP: other processes' memory cannot be advised here: {told}");
            return;
        }
        if told["bytes_advised"].as_u64() >= Some(1 << 20) {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{told}");
    }
    let some = json(
        here,
        &["hint", "cold", "--pid", &pid, "--max-bytes", "64K", "--json"],
    );
    assert!(some["bytes_advised"].as_u64() <= Some(64 << 10), "{some}");
    let none = json(
        here,
        &[
            "hint",
            "cold",
            "--pid",
            &pid,
            "--mapping",
            "no-such-name",
            "--json",
        ],
    );
    assert_eq!(none["ranges"], Value::Array(Vec::new()));
    let text = run(here, &["hint", "stat", "--pid", &pid, "--range", "1000-2000"]);
    assert!(text.status.success(), "{}", stderr(&text));
}

#[test]
fn only_what_is_idle_is_meant_when_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    if !run(here, &["doctor", "--json"]).status.success() {
        eprintln!("SKIP: no tracker can be used on this machine");
        return;
    }
    let (_target, pid) = target(here);
    let begin = Instant::now();
    loop {
        let told = json(
            here,
            &[
                "hint",
                "cold",
                "--pid",
                &pid,
                "--idle-for",
                "1s",
                "--dry-run",
                "--json",
            ],
        );
        has_contract(&told, true, "cold");
        // Its cold half of memory is not touched for minutes.
        if !told["ranges"].as_array().unwrap().is_empty() {
            return;
        }
        assert!(
            begin.elapsed() < PATIENCE,
            "nothing was idle for a second: {told}"
        );
    }
}

#[test]
fn a_unit_is_found_by_its_group_or_it_is_told_where_it_was_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["hint", "stat", "--unit", "thermo-no-such-unit"]);
    assert_eq!(output.status.code(), Some(2));
    let told = stderr(&output);
    assert!(
        told.contains("no unit thermo-no-such-unit.service") && told.contains("--cgroup"),
        "{told}"
    );
    let both = run(folder.path(), &["hint", "stat", "--unit", "a", "--cgroup", "/b"]);
    assert_eq!(both.status.code(), Some(2), "a group is named twice");
}

#[test]
fn what_was_just_touched_can_be_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let (_target, pid) = target(here);
    let begin = Instant::now();
    loop {
        let arguments = [
            "hint",
            "cold",
            "--pid",
            &pid,
            "--anon",
            "--skip-young",
            "--dry-run",
            "--json",
        ];
        let output = run(here, &arguments);
        if !output.status.success() {
            assert!(stderr(&output).contains("page tables"), "{}", stderr(&output));
            eprintln!("SKIP: {}", stderr(&output).trim());
            return;
        }
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        has_contract(&told, true, "cold");
        // A third of its memory is touched all the time.
        let skipped = told["skipped"].as_array().unwrap();
        let filtered = skipped.iter().find(|one| one["reason"] == "filtered");
        if filtered.is_some_and(|one| one["bytes"].as_u64() >= Some(4 << 20)) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{told}");
    }
}

#[test]
fn page_cache_is_sorted_by_the_file_it_is_of() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("data"), vec![7; 64 << 12]).unwrap();
    for action in ["lru_prio", "lru_deprio"] {
        let told = json(here, &["hint", action, "--page-cache", "data", "--json"]);
        assert_eq!(
            (&told["schema"], &told["action"]),
            (&1.into(), &action.into()),
            "{told}"
        );
        let file = &told["files"][0];
        assert!(file["error"].is_null() && file["path"] == "data", "{told}");
        assert!(file["advised"].as_u64() <= file["resident"].as_u64(), "{told}");
    }
    let refused = |arguments: &[&str]| {
        let out = run(here, arguments);
        assert_eq!(out.status.code(), Some(2), "{arguments:?}");
        stderr(&out)
    };
    let told = refused(&["hint", "pageout", "--page-cache", "data"]);
    assert!(told.contains("use lru_prio, lru_deprio or stat"), "{told}");
    assert!(refused(&["hint", "lru_prio", "--page-cache", "."]).contains("no regular file"));
    assert!(refused(&["hint", "lru_prio", "--page-cache", "none"]).contains("cannot look at none"));
    refused(&["hint", "lru_prio", "--page-cache", "data", "--pid", "1"]);
    // One of several does not keep the others from being done.
    let out = run(
        here,
        &["hint", "stat", "--page-cache", "none", "--page-cache", "data"],
    );
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
}
