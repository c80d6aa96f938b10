//! Targets that are hard to watch: thousands of mappings, many threads, a storm of children, one that is gone at
//! once, a vast mapping with little in it. None may end the watcher, and what is hot and can be judged is found.
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
/// Set in the environment of ourselves started as the program of many threads.
const BE_THREADS: &str = "THERMO_TEST_BE_THREADS";

/// The life of the program of many threads. Does nothing in the test itself.
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
                // A hundred of them are seen often enough all the same.
                thread::sleep(Duration::from_millis(10));
            }
        });
    }
    let start = memory.as_ptr() as usize;
    println!("\nready hot {start:#x}-{:#x}", start + memory.len());
    // Until whoever started it ends.
    for _ in std::io::stdin().lines() {}
    std::process::exit(0);
}

/// Whether pages can be told apart here; says why not otherwise.
fn can_watch(folder: &Path) -> bool {
    let doctor = run(folder, &["doctor", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap_or_default();
    let can = told["default_tracker"] == "pte";
    if !can {
        eprintln!("SKIP: the tracker pte cannot be used on this machine");
    }
    can
}

/// Starts a target and waits for it to tell where its region `hot` is; none when it could not be set up.
fn start(mut command: Command) -> Option<(Guard, [u64; 2])> {
    let mut target = Guard(
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let told = BufReader::new(target.0.stdout.take().unwrap());
    let ready = told
        .lines()
        .map_while(Result::ok)
        .find(|line| line.starts_with("ready"))?;
    let range = ready.split(" hot ").nth(1)?.split(' ').next()?;
    let (start, end) = range.split_once('-')?;
    let number = |hex: &str| u64::from_str_radix(hex.trim_start_matches("0x"), 16).ok();
    Some((target, [number(start)?, number(end)?]))
}

/// The workload of this configuration.
fn workload(folder: &Path, config: &str, flags: &[&str]) -> Command {
    fs::write(folder.join("w.cfg"), config).unwrap();
    lab_workload(folder, &[&["w.cfg"], flags].concat())
}

/// Watches until most of `hot` is seen hot in one aggregation.
fn is_found(folder: &Path, target: &Guard, hot: [u64; 2], flags: &[&str]) {
    let pid = target.0.id().to_string();
    let watching = ["record", "--pid", &pid, "-o", "r.arrow"];
    let mut watcher = thermo(folder, &[&watching, flags].concat());
    let mut watcher = Guard(watcher.stderr(Stdio::null()).spawn().unwrap());
    let found = wait_until(|| seen_hot(folder, hot) * 4 >= (hot[1] - hot[0]) * 3);
    let ended = watcher.0.try_wait().unwrap();
    assert!(ended.is_none(), "the watcher ended: {ended:?}");
    assert!(
        found,
        "of {hot:x?} {} bytes are seen hot at last",
        seen_hot(folder, hot)
    );
}

/// Bytes of `hot` that the last aggregation so far saw accessed in a fifth of its looks or more.
fn seen_hot(folder: &Path, hot: [u64; 2]) -> u64 {
    let output = run(folder, &["report", "regions", "r.arrow", "--json", "--last"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let regions = told["snapshots"][0]["targets"][0]["regions"].as_array();
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
fn a_small_part_of_a_vast_mapping_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    if !can_watch(here) {
        return;
    }
    let config = "vast, 21474836480\nhot, 33554432\n\nall\n600000\nhot, 0, 4096, 1\n";
    let Some((target, hot)) = start(workload(here, config, &[])) else {
        eprintln!("SKIP: no 20 GiB of address space are to be had here");
        return;
    };
    is_found(here, &target, hot, &[]);
}

#[test]
fn thousands_of_mappings_are_watched() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    if !can_watch(here) {
        return;
    }
    // Neighbours are one mapping to the kernel unless every second one is locked.
    let mut config = String::new();
    (0..5000).for_each(|n| writeln!(config, "r{n}, 8192").unwrap());
    writeln!(config, "hot, 16777216\n\nall\n600000\nhot, 0, 4096, 10000").unwrap();
    (0..5000)
        .step_by(2)
        .for_each(|n| writeln!(config, "r{n}, 0, 4096, 1").unwrap());
    let Some((target, _)) = start(workload(here, &config, &["--hint", "mlock"])) else {
        eprintln!("SKIP: the workload cannot lock its memory here");
        return;
    };
    let maps = format!("/proc/{}/maps", target.0.id());
    let nr_mappings = || fs::read_to_string(&maps).unwrap_or_default().lines().count();
    if !wait_until(|| nr_mappings() > 4000) {
        eprintln!("SKIP: the workload has {} mappings only", nr_mappings());
        return;
    }
    // What is locked cannot be told hot from cold, so there is nothing to be found; but it is looked at.
    let pid = target.0.id().to_string();
    // Intervals by hand: a budget of a hundredth of a CPU may take longer than this for its first round.
    let watching = [
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
        let output = run(here, &[&watching, flags].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let info = json(here, &["report", "info", "r.arrow", "--json"]);
        assert!(info["snapshots"].as_u64().unwrap() > 0, "{info}");
    }
}

#[test]
fn a_program_of_many_threads_is_watched() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    if !can_watch(here) {
        return;
    }
    let mut threads = Command::new(std::env::current_exe().unwrap());
    threads
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(BE_THREADS, "1");
    let (target, hot) = start(threads).unwrap();
    is_found(here, &target, hot, &[]);
}

#[test]
fn a_storm_of_children_is_outlived() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    if !can_watch(here) {
        return;
    }
    let storm = "i=0; while [ $i -lt 200 ]; do sleep 0.5 & i=$((i + 1)); done; wait; sleep 1; exit 3";
    // Intervals by hand, as above: the storm is over in two seconds.
    let watching = ["record", "-o", "r.arrow", "--sample", "5ms"];
    let output = run(here, &[&watching[..], &["--", "sh", "-c", storm]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let info = json(here, &["report", "info", "r.arrow", "--json"]);
    assert!(info["snapshots"].as_u64().unwrap() > 0, "{info}");
}

#[test]
fn targets_that_are_gone_at_once_are_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    if !can_watch(here) {
        return;
    }
    for _ in 0..10 {
        let output = run(here, &["record", "-o", "r.arrow", "--", "true"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        json(here, &["report", "info", "r.arrow", "--json"]);
    }
}
