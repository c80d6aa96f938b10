//! `thermo lru-sort` on a real process: its statistics, and changes of its parameters while it runs.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Instant;

use common::{Guard, PATIENCE, json, run, start_workload, thermo, wait_until, workload};
use rustix::process::{Pid, Signal, kill_process};

/// A workload that runs for minutes; `None` if no tracker can be used.
fn target(folder: &Path) -> Option<Guard> {
    if !run(folder, &["doctor", "--json"]).status.success() {
        eprintln!("SKIP: no tracker can be used on this machine");
        return None;
    }
    let cfg = workload(folder, 300_000).unwrap();
    Some(start_workload(folder, &cfg))
}

/// Watermarks that allow any amount of free memory, and no quota.
const ALWAYS: [&str; 4] = [
    "--wmarks-high=1000",
    "--wmarks-mid=1000",
    "--wmarks-low=0",
    "--quota-ms=0",
];

#[test]
fn statistics_have_the_names_of_the_module() {
    let folder = tempfile::tempdir().unwrap();
    let Some(target) = target(folder.path()) else {
        return;
    };
    let pid = target.0.id().to_string();
    let own = [
        "lru-sort",
        "--json",
        "--pid",
        &pid,
        "--cold-min-age=300ms",
        "--duration=3s",
    ];
    let begin = Instant::now();
    loop {
        let stats = json(folder.path(), &[&own[..], &ALWAYS].concat());
        assert_eq!(stats["schema"], 1);
        for heat in ["hot", "cold"] {
            for name in [
                format!("nr_lru_sort_tried_{heat}_regions"),
                format!("bytes_lru_sort_tried_{heat}_regions"),
                format!("nr_lru_sorted_{heat}_regions"),
                format!("bytes_lru_sorted_{heat}_regions"),
                format!("nr_{heat}_quota_exceeds"),
            ] {
                assert!(stats[&name].is_u64(), "{name}: {stats}");
            }
        }
        // Most of its address space is never accessed.
        if stats["bytes_lru_sort_tried_cold_regions"].as_u64() > Some(0) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "nothing was found cold: {stats}");
    }
}

#[test]
fn hangup_reloads_parameters_and_refuses_bad_file() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let Some(target) = target(dir) else { return };
    let file = dir.join("p.toml");
    fs::write(&file, "cold_min_age = \"1h\"\n").unwrap();
    let (pid, log) = (target.0.id().to_string(), dir.join("log"));
    let mut command = thermo(dir, &["lru-sort", "--json", "--params", "p.toml", "--pid", &pid]);
    let command = command
        .args(ALWAYS)
        .stdout(Stdio::piped())
        .stderr(fs::File::create(&log).unwrap());
    let mut sorter = Guard(command.spawn().unwrap());
    assert!(
        wait_until(|| has_kdamond(sorter.0.id())),
        "monitoring never started: {}",
        fs::read_to_string(&log).unwrap()
    );

    let mut expect_after_hangup = |text: &str, expected: &str| {
        fs::write(&file, text).unwrap();
        signal(&sorter.0, Signal::HUP);
        let messages = || fs::read_to_string(&log).unwrap();
        assert!(
            wait_until(|| messages().contains(expected)),
            "{expected:?} was not printed: {}",
            messages()
        );
        assert!(sorter.0.try_wait().unwrap().is_none(), "it ended: {}", messages());
    };
    expect_after_hangup(
        "cold_min_age = \"1h\"\nquota_ms = 7\n",
        "read again: the new values are in effect",
    );
    expect_after_hangup(
        "quota_ms = 7\ncold_min_age = \"1h\"\n",
        "read again: nothing changed",
    );
    expect_after_hangup(
        "quota_ms = \"much\"\n",
        "stay unchanged: p.toml:1:12: quota_ms: \"much\" is not a valid value",
    );
    expect_after_hangup(
        "wmarks_low = 1001\n",
        "stay unchanged: the watermarks are out of order",
    );

    signal(&sorter.0, Signal::INT);
    let mut stats = String::new();
    sorter
        .0
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut stats)
        .unwrap();
    assert_eq!(sorter.0.wait().unwrap().code(), Some(130));
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(
        stats["bytes_lru_sorted_cold_regions"], 0,
        "nothing is an hour old"
    );
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Whether monitoring has started. The process handles signals by then.
fn has_kdamond(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    let mut names = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.any(|name| name.starts_with("kdamond."))
}
