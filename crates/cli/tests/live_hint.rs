//! `thermo hint` on a real process.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::path::Path;
use std::time::Instant;

use common::{Guard, PATIENCE, run, start_workload, stderr, workload};
use serde_json::Value;

/// A workload that runs for minutes.
fn target(folder: &Path) -> (Guard, String) {
    let cfg = workload(folder, 300_000).unwrap();
    let child = start_workload(folder, &cfg);
    let pid = child.0.id().to_string();
    (child, pid)
}

/// The JSON of a hint. Its exit code tells whether anything was done.
fn hinted(dir: &Path, arguments: &[&str]) -> Value {
    let output = run(dir, arguments);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let reasons = result["skipped"].as_array().into_iter().flatten();
    let files = result["files"].as_array().into_iter().flatten();
    let reasons = reasons.chain(files.flat_map(|file| file["skipped"].as_array().unwrap()));
    let mut reasons = reasons.map(|one| one["reason"].as_str().unwrap());
    let is_done = result["bytes_advised"].as_u64() > Some(0)
        || reasons.any(|reason| ["dry_run", "resident"].contains(&reason));
    assert_eq!(output.status.code(), Some(i32::from(!is_done)), "{result}");
    result
}

fn check_fields(result: &Value, dry_run: bool, action: &str) {
    assert_eq!(
        (&result["schema"], &result["dry_run"]),
        (&1.into(), &dry_run.into()),
        "{result}"
    );
    assert_eq!(result["action"], action);
    assert!(result["bytes_advised"].is_u64(), "{result}");
    assert!(result["bytes_changed"].is_u64() || result["bytes_changed"].is_null());
    for skipped in result["skipped"].as_array().unwrap() {
        assert!(
            skipped["reason"].is_string() && skipped["bytes"].is_u64(),
            "{skipped}"
        );
    }
    for range in result["ranges"].as_array().unwrap() {
        assert!(range["pid"].is_u64() && range["advised"].is_u64(), "{range}");
        assert!(range["start"].as_u64() < range["end"].as_u64());
        assert_eq!(range["action"], action);
        assert!(range["error"].is_null() || range["error"].is_string());
    }
}

#[test]
fn hint_json_has_its_fields() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let (_target, pid) = target(dir);
    let dry = hinted(dir, &["hint", "cold", "--pid", &pid, "--dry-run", "--json"]);
    check_fields(&dry, true, "cold");
    assert_eq!(dry["bytes_advised"], 0);
    let begin = Instant::now();
    // The workload may only just have started.
    loop {
        let result = hinted(dir, &["hint", "cold", "--pid", &pid, "--anon", "--json"]);
        check_fields(&result, false, "cold");
        let refused = result["ranges"].as_array().unwrap();
        if refused
            .iter()
            .any(|range| range["error"].as_str().is_some_and(|why| why.contains("refused")))
        {
            eprintln!("SKIP: memory of other processes cannot be advised on this machine: {result}");
            return;
        }
        if result["bytes_advised"].as_u64() >= Some(1 << 20) {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{result}");
    }
    let some = hinted(
        dir,
        &["hint", "cold", "--pid", &pid, "--max-bytes", "64K", "--json"],
    );
    assert!(some["bytes_advised"].as_u64() <= Some(64 << 10), "{some}");
    let none = hinted(
        dir,
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
    let text = run(dir, &["hint", "stat", "--pid", &pid, "--range", "1000-2000"]);
    assert!(text.status.success(), "{}", stderr(&text));
}

#[test]
fn idle_for_selects_idle_memory() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !run(dir, &["doctor", "--json"]).status.success() {
        eprintln!("SKIP: no tracker can be used on this machine");
        return;
    }
    let (_target, pid) = target(dir);
    let begin = Instant::now();
    loop {
        let result = hinted(
            dir,
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
        check_fields(&result, true, "cold");
        // The cold part of its memory is not accessed for minutes.
        if !result["ranges"].as_array().unwrap().is_empty() {
            return;
        }
        assert!(
            begin.elapsed() < PATIENCE,
            "nothing was idle for a second: {result}"
        );
    }
}

#[test]
fn missing_unit_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["hint", "stat", "--unit", "thermo-no-such-unit"]);
    assert_eq!(output.status.code(), Some(2));
    let result = stderr(&output);
    assert!(
        result.contains("unit thermo-no-such-unit.service does not exist") && result.contains("--cgroup"),
        "{result}"
    );
    let both = run(folder.path(), &["hint", "stat", "--unit", "a", "--cgroup", "/b"]);
    assert_eq!(
        both.status.code(),
        Some(2),
        "--unit and --cgroup exclude each other"
    );
}

#[test]
fn skip_young_skips_accessed_pages() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let (_target, pid) = target(dir);
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
        let output = run(dir, &arguments);
        if output.status.code() == Some(2) {
            assert!(stderr(&output).contains("page tables"), "{}", stderr(&output));
            eprintln!("SKIP: {}", stderr(&output).trim());
            return;
        }
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        check_fields(&result, true, "cold");
        // A third of its memory is accessed all the time.
        let skipped = result["skipped"].as_array().unwrap();
        let filtered = skipped.iter().find(|one| one["reason"] == "filtered");
        if filtered.is_some_and(|one| one["bytes"].as_u64() >= Some(4 << 20)) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{result}");
    }
}

#[test]
fn page_cache_of_files_is_sorted() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    std::fs::write(dir.join("data"), vec![7; 64 << 12]).unwrap();
    for action in ["lru_prio", "lru_deprio"] {
        let result = hinted(dir, &["hint", action, "--page-cache", "data", "--json"]);
        assert_eq!(
            (&result["schema"], &result["action"]),
            (&1.into(), &action.into()),
            "{result}"
        );
        let file = &result["files"][0];
        assert!(file["error"].is_null() && file["path"] == "data", "{result}");
        assert!(file["advised"].as_u64() <= file["resident"].as_u64(), "{result}");
    }
    let refused = |arguments: &[&str]| {
        let out = run(dir, arguments);
        assert_eq!(out.status.code(), Some(2), "{arguments:?}");
        stderr(&out)
    };
    let result = refused(&["hint", "pageout", "--page-cache", "data"]);
    assert!(result.contains("use lru_prio, lru_deprio or stat"), "{result}");
    assert!(refused(&["hint", "lru_prio", "--page-cache", "."]).contains("not a regular file"));
    assert!(
        refused(&["hint", "lru_prio", "--page-cache", "none"]).contains("cannot read the page cache of none")
    );
    refused(&["hint", "lru_prio", "--page-cache", "data", "--pid", "1"]);
    // An error with one file does not stop the others.
    let out = run(
        dir,
        &["hint", "stat", "--page-cache", "none", "--page-cache", "data"],
    );
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
}
