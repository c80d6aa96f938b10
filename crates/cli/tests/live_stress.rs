//! Targets that are hard to monitor: thousands of mappings, many threads, many short-lived children, a
//! process that ends at once, a sparse mapping of 20 GiB. None may end the monitor, and hot memory is found.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use common::{Guard, json, lab_workload, run, stderr, thermo, wait_until};

const PAGE: usize = 4096;
/// Environment variable that makes this test binary the program of many threads.
const BE_THREADS: &str = "THERMO_TEST_BE_THREADS";

/// The program of many threads. Does nothing as a test.
#[test]
fn child() {
    if std::env::var_os(BE_THREADS).is_none() {
        return;
    }
    let memory: &'static [AtomicU8] = (0..16 << 20).map(|_| AtomicU8::new(1)).collect::<Vec<_>>().leak();
    for _ in 0..100 {
        thread::spawn(|| {
            loop {
                let pages = memory.iter().step_by(PAGE);
                pages.for_each(|page| page.store(2, Ordering::Relaxed));
                // With a hundred threads the memory is accessed often enough.
                thread::sleep(Duration::from_millis(10));
            }
        });
    }
    let start = memory.as_ptr() as usize;
    println!("\nready hot {start:#x}-{:#x}", start + memory.len());
    // Runs until the parent closes the pipe.
    for _ in std::io::stdin().lines() {}
    std::process::exit(0);
}

/// Whether single pages can be monitored here; prints SKIP otherwise.
fn has_page_tracker(folder: &Path) -> bool {
    let doctor = run(folder, &["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap_or_default();
    let has_pte = report["default_tracker"] == "pte";
    if !has_pte {
        eprintln!("SKIP: the tracker pte cannot be used on this machine");
    }
    has_pte
}

/// Starts a target and waits until it prints the addresses of its region `hot`; `None` if it failed to start.
fn start(mut command: Command) -> Option<(Guard, [u64; 2])> {
    let mut target = Guard(
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let output = BufReader::new(target.0.stdout.take().unwrap());
    let ready = output
        .lines()
        .map_while(Result::ok)
        .find(|line| line.starts_with("ready"))?;
    let range = ready.split(" hot ").nth(1)?.split(' ').next()?;
    let (start, end) = range.split_once('-')?;
    let number = |hex: &str| u64::from_str_radix(hex.trim_start_matches("0x"), 16).ok();
    Some((target, [number(start)?, number(end)?]))
}

/// A workload with this configuration.
fn workload(folder: &Path, config: &str, flags: &[&str]) -> Command {
    fs::write(folder.join("w.cfg"), config).unwrap();
    lab_workload(folder, &[&["w.cfg"], flags].concat())
}

/// Records until most of `hot` is hot in one aggregation.
fn assert_found(folder: &Path, target: &Guard, hot: [u64; 2], flags: &[&str]) {
    let pid = target.0.id().to_string();
    let record = ["record", "--pid", &pid, "-o", "r.arrow"];
    let mut recorder = thermo(folder, &[&record, flags].concat());
    let mut recorder = Guard(recorder.stderr(Stdio::null()).spawn().unwrap());
    let found = wait_until(|| hot_bytes(folder, hot) * 4 >= (hot[1] - hot[0]) * 3);
    let ended = recorder.0.try_wait().unwrap();
    assert!(ended.is_none(), "the recorder ended: {ended:?}");
    assert!(
        found,
        "of {hot:x?} only {} bytes are hot in the last snapshot",
        hot_bytes(folder, hot)
    );
}

/// Bytes of `hot` that at least a fifth of the access checks in the last aggregation found accessed.
fn hot_bytes(folder: &Path, hot: [u64; 2]) -> u64 {
    let output = run(folder, &["report", "regions", "r.arrow", "--json", "--last"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let regions = report["snapshots"][0]["targets"][0]["regions"].as_array();
    let number = |region: &serde_json::Value, field: &str| region[field].as_u64().unwrap_or(0);
    let overlap = |region: &serde_json::Value| {
        let (start, end) = (
            number(region, "start").max(hot[0]),
            number(region, "end").min(hot[1]),
        );
        end.saturating_sub(start)
    };
    regions
        .into_iter()
        .flatten()
        .filter(|region| number(region, "nr_accesses") * 5 >= number(region, "max_nr_accesses").max(1))
        .map(overlap)
        .sum()
}

#[test]
fn hot_part_of_sparse_mapping_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_page_tracker(dir) {
        return;
    }
    let config = "vast, 21474836480\nhot, 33554432\n\nall\n600000\nhot, 0, 4096, 1\n";
    let Some((target, hot)) = start(workload(dir, config, &[])) else {
        eprintln!("SKIP: 20 GiB of address space cannot be mapped on this machine");
        return;
    };
    // A first pass over 20 GiB takes three quarters of a minute of a debug build at the default budget.
    assert_found(dir, &target, hot, &["--cpu", "10%"]);
}

#[test]
fn thousands_of_mappings_are_monitored() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_page_tracker(dir) {
        return;
    }
    // The kernel merges adjacent mappings unless every second one is locked.
    let mut config = String::new();
    (0..5000).for_each(|n| writeln!(config, "r{n}, 8192").unwrap());
    writeln!(config, "hot, 16777216\n\nall\n600000\nhot, 0, 4096, 10000").unwrap();
    (0..5000)
        .step_by(2)
        .for_each(|n| writeln!(config, "r{n}, 0, 4096, 1").unwrap());
    let Some((target, _)) = start(workload(dir, &config, &["--hint", "mlock"])) else {
        eprintln!("SKIP: the workload cannot lock its memory on this machine");
        return;
    };
    let maps = format!("/proc/{}/maps", target.0.id());
    let nr_mappings = || fs::read_to_string(&maps).unwrap_or_default().lines().count();
    if !wait_until(|| nr_mappings() > 4000) {
        eprintln!("SKIP: the workload has only {} mappings", nr_mappings());
        return;
    }
    // Accesses to locked memory are unknown, so nothing is found. The test checks that monitoring goes on.
    let pid = target.0.id().to_string();
    // With fixed intervals results come at once; the default budget may delay the first scan.
    let record = [
        "record",
        "--pid",
        &pid,
        "-o",
        "r.arrow",
        "--duration",
        "2s",
        "--sample",
        "5ms",
    ];
    for flags in [&[][..], &["--vma"]] {
        let output = run(dir, &[&record, flags].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let info = json(dir, &["report", "info", "r.arrow", "--json"]);
        assert!(info["snapshots"].as_u64().unwrap() > 0, "{info}");
    }
}

#[test]
fn program_of_many_threads_is_monitored() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_page_tracker(dir) {
        return;
    }
    let mut threads = Command::new(std::env::current_exe().unwrap());
    threads
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(BE_THREADS, "1");
    let (target, hot) = start(threads).unwrap();
    assert_found(dir, &target, hot, &[]);
}

#[test]
fn many_short_lived_children_are_monitored() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_page_tracker(dir) {
        return;
    }
    let script = "i=0; while [ $i -lt 200 ]; do sleep 0.5 & i=$((i + 1)); done; wait; sleep 1; exit 3";
    // Fixed intervals, as above: the script ends after two seconds.
    let record = ["record", "-o", "r.arrow", "--sample", "5ms"];
    let output = run(dir, &[&record[..], &["--", "sh", "-c", script]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let info = json(dir, &["report", "info", "r.arrow", "--json"]);
    assert!(info["snapshots"].as_u64().unwrap() > 0, "{info}");
}

#[test]
fn targets_that_end_at_once_are_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_page_tracker(dir) {
        return;
    }
    for _ in 0..10 {
        let output = run(dir, &["record", "-o", "r.arrow", "--", "true"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        json(dir, &["report", "info", "r.arrow", "--json"]);
    }
}
