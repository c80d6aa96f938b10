//! `thermo lru-sort` on a real process: what it tells, and how its parameters change while it runs.
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

/// A workload that goes on for minutes; none where no tracker can be used.
fn target(folder: &Path) -> Option<Guard> {
    if !run(folder, &["doctor", "--json"]).status.success() {
        eprintln!("SKIP: no tracker can be used on this machine");
        return None;
    }
    let cfg = workload(folder, 300_000).unwrap();
    Some(start_workload(folder, &cfg))
}

/// Marks that any amount of free memory lies between.
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
        let told = json(folder.path(), &[&own[..], &ALWAYS].concat());
        assert_eq!(told["schema"], 1);
        for heat in ["hot", "cold"] {
            for name in [
                format!("nr_lru_sort_tried_{heat}_regions"),
                format!("bytes_lru_sort_tried_{heat}_regions"),
                format!("nr_lru_sorted_{heat}_regions"),
                format!("bytes_lru_sorted_{heat}_regions"),
                format!("nr_{heat}_quota_exceeds"),
            ] {
                assert!(told[&name].is_u64(), "{name}: {told}");
            }
        }
        // Most of its address space is never touched.
        if told["bytes_lru_sort_tried_cold_regions"].as_u64() > Some(0) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "nothing was found cold: {told}");
    }
}

#[test]
fn a_hangup_takes_the_parameters_over_and_a_bad_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let Some(target) = target(here) else { return };
    let file = here.join("p.toml");
    fs::write(&file, "cold_min_age = \"1h\"\n").unwrap();
    let (pid, log) = (target.0.id().to_string(), here.join("log"));
    let mut command = thermo(here, &["lru-sort", "--json", "--params", "p.toml", "--pid", &pid]);
    let command = command
        .args(ALWAYS)
        .stdout(Stdio::piped())
        .stderr(fs::File::create(&log).unwrap());
    let mut sorter = Guard(command.spawn().unwrap());
    assert!(
        wait_until(|| has_kdamond(sorter.0.id())),
        "it never began: {}",
        fs::read_to_string(&log).unwrap()
    );

    let mut told_after_hangup = |text: &str, says: &str| {
        fs::write(&file, text).unwrap();
        signal(&sorter.0, Signal::HUP);
        let told = || fs::read_to_string(&log).unwrap();
        assert!(
            wait_until(|| told().contains(says)),
            "{says:?} was not told: {}",
            told()
        );
        assert!(sorter.0.try_wait().unwrap().is_none(), "it ended: {}", told());
    };
    told_after_hangup(
        "cold_min_age = \"1h\"\nquota_ms = 7\n",
        "anew and hold from now on",
    );
    told_after_hangup(
        "quota_ms = 7\ncold_min_age = \"1h\"\n",
        "anew and are as they were",
    );
    told_after_hangup(
        "quota_ms = \"much\"\n",
        "stay as they were: p.toml:1:12: quota_ms: \"much\" is not a value",
    );
    told_after_hangup(
        "wmarks_low = 1001\n",
        "stay as they were: the watermarks are out of order",
    );

    signal(&sorter.0, Signal::INT);
    let mut told = String::new();
    sorter.0.stdout.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(sorter.0.wait().unwrap().code(), Some(130));
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["bytes_lru_sorted_cold_regions"], 0, "nothing is an hour old");
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Whether it has begun: by then it listens to signals.
fn has_kdamond(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    let mut names = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.any(|name| name.starts_with("kdamond."))
}
