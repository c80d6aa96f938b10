//! `thermo fs`: the debugfs layout, and the modules as directories, with real processes.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use common::{Guard, lab_workload, run, spawn_command_quiet, stderr, thermo, wait_until};
use thermo_kernel::zram::ZramSwap;
use thermo_units::Bytes;

const MIB: u64 = 1 << 20;
const HOT: u64 = 16 * MIB;
const COLD: u64 = 64 * MIB;

fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        println!("SKIP: mounting control files needs root and /dev/fuse");
    }
    can
}

/// Whether single pages of processes can be monitored; prints SKIP otherwise.
fn has_page_tracker(folder: &Path) -> bool {
    let doctor = run(folder, &["fs", "--tracker", "pte", "--", "true"]);
    if !doctor.status.success() {
        println!("SKIP: the tracker pte cannot be used: {}", stderr(&doctor).trim());
    }
    doctor.status.success()
}

/// Sets up swap for the duration of the test: other swap may be removed meanwhile. `None` if that is not
/// possible.
fn swap() -> Option<ZramSwap> {
    let made = ZramSwap::create(Path::new("/"), Bytes::mib(512));
    if let Err(why) = &made {
        println!("SKIP: anonymous memory cannot be paged out without swap, and none can be set up: {why}");
    }
    made.ok()
}

/// A process that accesses [`HOT`] bytes all the time, and accessed up to [`COLD`] bytes more at its start.
struct Target {
    guard: Guard,
    truth: PathBuf,
    /// Resident cold bytes: as many as it had time to access.
    cold: u64,
}

impl Target {
    fn new(folder: &Path, name: &str) -> Self {
        let (config, truth) = (folder.join(format!("{name}.cfg")), folder.join(name));
        let text = format!(
            "hot, {HOT}\ncold, {COLD}\n\nall\n1000\nhot, 0, 4096, 1, wo\ncold, 0, 4096, 1, wo\n\n\
             hot only\n900000\nhot, 0, 4096, 1, wo\n"
        );
        fs::write(&config, text).unwrap();
        let arguments = [
            "--quiet",
            "--truth",
            truth.to_str().unwrap(),
            config.to_str().unwrap(),
        ];
        let mut target = Self {
            guard: spawn_command_quiet(lab_workload(folder, &arguments)),
            truth,
            cold: 0,
        };
        let is_hot_only = || {
            let ranges = target.hot();
            ranges.iter().map(|(start, end)| end - start).sum::<u64>() == HOT
        };
        assert!(wait_until(is_hot_only), "the second phase did not start");
        target.cold = target.resident().saturating_sub(HOT);
        assert!(
            target.cold > 8 * MIB,
            "only {} cold bytes are resident",
            target.cold
        );
        target
    }

    fn pid(&self) -> u32 {
        self.guard.0.id()
    }

    /// The ranges that it accesses in its current phase.
    fn hot(&self) -> Vec<(u64, u64)> {
        let truth = fs::read_to_string(&self.truth).unwrap_or_default();
        let last = truth.lines().last().unwrap_or_default();
        let phase: serde_json::Value = serde_json::from_str(last).unwrap_or_default();
        serde_json::from_value(phase["ranges"].clone()).unwrap_or_default()
    }

    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        line.unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse::<u64>()
            .unwrap()
            * 1024
    }
}

/// The regions (start, end, accesses) of the last complete aggregation in a record.
fn last_aggregation(record: &Path) -> Vec<(u64, u64, u64)> {
    let text = fs::read_to_string(record).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().skip(1).collect();
    let time = |line: &str| line.split_ascii_whitespace().nth(3).map(str::to_owned);
    let Some(last) = lines.first().and_then(|line| time(line)) else {
        return Vec::new();
    };
    // The last aggregation may be incomplete.
    let before = lines
        .iter()
        .find_map(|line| time(line).filter(|time| *time != last));
    let of_one = lines.iter().filter(|line| time(line) == before);
    let region = |line: &&str| {
        let mut words = line.split_ascii_whitespace().skip(7);
        let (start, end) = words.next()?.trim_end_matches(':').split_once('-')?;
        Some((
            start.parse().ok()?,
            end.parse().ok()?,
            words.next()?.parse().ok()?,
        ))
    };
    of_one.filter_map(region).collect()
}

fn overlap(regions: &[(u64, u64)], others: &[(u64, u64)]) -> u64 {
    let common = |a: &(u64, u64), b: &(u64, u64)| a.1.min(b.1).saturating_sub(a.0.max(b.0));
    let pairs = regions
        .iter()
        .flat_map(|a| others.iter().map(move |b| common(a, b)));
    pairs.sum()
}

#[test]
fn debugfs_layout_finds_hot_memory() {
    let folder = tempfile::tempdir().unwrap();
    if !can_mount() || !has_page_tracker(folder.path()) {
        return;
    }
    let target = Target::new(folder.path(), "target");
    let (record, stop) = (folder.path().join("record"), folder.path().join("stop"));
    let script = format!(
        "set -e; test ! -e /sys/kernel/mm/damon; cd /sys/kernel/debug/damon; echo {pid} >target_ids
         perf record -a -o {record} -e damon:damon_aggregated & perf=$!
         echo on >monitor_on; test $(pgrep kdamond | wc -l) = 1
         while ! [ -e {stop} ]; do sleep 0.05; done
         kill -INT $perf; wait $perf || true; echo off >monitor_on; cat kdamond_pid",
        pid = target.pid(),
        record = record.display(),
        stop = stop.display()
    );
    let mut command = thermo(
        folder.path(),
        &["fs", "--layout", "debugfs", "--", "sh", "-c", &script],
    );
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut guard = Guard(command.spawn().unwrap());
    let mut latest = Vec::new();
    let found = wait_until(|| {
        latest = last_aggregation(&record);
        let accessed = latest.iter().filter(|(_, _, nr_accesses)| *nr_accesses > 0);
        let accessed: Vec<(u64, u64)> = accessed.map(|(start, end, _)| (*start, *end)).collect();
        let all: u64 = accessed.iter().map(|(start, end)| end - start).sum();
        overlap(&accessed, &target.hot()) > HOT * 3 / 4 && all < HOT * 2
    });
    fs::write(&stop, "").unwrap();
    assert!(found, "{:?} is hot, and the record has {latest:?}", target.hot());
    let mut output_text = String::new();
    std::io::Read::read_to_string(guard.0.stdout.as_mut().unwrap(), &mut output_text).unwrap();
    assert!(guard.0.wait().unwrap().success(), "{output_text}");
    assert!(output_text.ends_with("none\n"), "{output_text}");
}

/// A service that is ended by SIGTERM at the end of the test, so that it unmounts.
struct Service(std::process::Child);

impl Drop for Service {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        // Fails if the service has ended.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        drop(self.0.wait());
    }
}

#[test]
fn debugfs_schemes_page_out_cold_memory() {
    let folder = tempfile::tempdir().unwrap();
    if !can_mount() || !has_page_tracker(folder.path()) {
        return;
    }
    let Some(_swap) = swap() else { return };
    let dir = folder.path().join("damon");
    fs::create_dir(&dir).unwrap();
    let arguments = ["fs", "--layout", "debugfs", "--mount", dir.to_str().unwrap()];
    let _service = Service(
        thermo(folder.path(), &arguments)
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    assert!(
        wait_until(|| dir.join("monitor_on").exists()),
        "the control files are not mounted"
    );
    let write = |name: &str, text: String| fs::write(dir.join(name), text).unwrap();
    let applied = |name: &str| -> u64 {
        let row = fs::read_to_string(dir.join(name)).unwrap();
        row.split_ascii_whitespace().nth(21).unwrap().parse().unwrap()
    };
    let targets = ["old", "new"].map(|name| Target::new(folder.path(), name));
    write("mk_contexts", "new".to_owned());
    write("target_ids", targets[0].pid().to_string());
    write("new/target_ids", targets[1].pid().to_string());
    // Pages out memory that was idle for three aggregations. The second scheme has a quota of 1 GiB a window:
    // addresses without pages count, too.
    let pattern = "4096 18446744073709551615 0 0 3 4294967295 2";
    write("schemes", format!("{pattern}\n"));
    write(
        "new/schemes",
        format!("{pattern} 0 1073741824 200 0 0 1 0 0 0 0 0\n"),
    );
    write("monitor_on", "on".to_owned());
    for (target, name) in targets.iter().zip(["schemes", "new/schemes"]) {
        let half = target.cold / 2;
        let done = wait_until(|| applied(name) > half && target.resident() < HOT + target.cold - half);
        let (paged_out, cold) = (applied(name), target.cold);
        assert!(
            done,
            "{name}: {paged_out} bytes were paged out, and {cold} are cold"
        );
    }
    write("monitor_on", "off".to_owned());
    let still_applied = applied("schemes");
    assert!(
        still_applied > targets[0].cold / 2,
        "the statistics stay after monitoring ended: {still_applied}"
    );
}

fn run_inside(folder: &Path, options: &[&str], script: &str) -> Output {
    let arguments = [&["fs"], options, &["--", "sh", "-c", script]].concat();
    thermo(folder, &arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn damon_reclaim_acts_on_named_process() {
    let folder = tempfile::tempdir().unwrap();
    if !can_mount() || !has_page_tracker(folder.path()) {
        return;
    }
    let Some(_swap) = swap() else { return };
    let target = Target::new(folder.path(), "target");
    let half = target.cold / 2;
    let script = format!(
        "set -e; cd /sys/module/damon_reclaim/parameters; test -d /sys/module/damon_stat; pgrep kdamond | wc -l
         echo 300000 >min_age; echo 0 >quota_ms; echo 0 >quota_sz; echo 1000 >wmarks_high; echo 1000 >wmarks_mid; echo 0 >wmarks_low
         echo Y >enabled; pgrep kdamond | wc -l; tries=0
         until [ $(cat bytes_reclaimed_regions) -gt {half} ] || [ $tries = 600 ]; do tries=$((tries + 1)); sleep 0.1; done
         echo N >enabled; pgrep kdamond | wc -l; cat enabled bytes_reclaimed_regions"
    );
    let output = run_inside(
        folder.path(),
        &["--modules-on", &target.pid().to_string()],
        &script,
    );
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output_text}{}", stderr(&output));
    let output_text: Vec<&str> = output_text.split_ascii_whitespace().collect();
    assert_eq!(output_text[..4], ["0", "1", "0", "N"]);
    assert!(
        output_text[4].parse::<u64>().unwrap() > half,
        "{output_text:?} of {}",
        target.cold
    );
    assert!(target.resident() < HOT + target.cold, "nothing was paged out");
}

#[test]
fn modules_need_named_targets() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "cd /sys/module; for name in reclaim lru_sort stat; do
                  echo Y >damon_$name/parameters/enabled || cat damon_$name/parameters/enabled; done";
    let output = run_inside(folder.path(), &[], script);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "N\nN\nN\n");
    assert!(
        stderr(&output).contains("Start `thermo fs` with --modules-on PID"),
        "{}",
        stderr(&output)
    );
    for (options, expected) in [
        (&["--modules-on", "/no/such/group"][..], "/no/such/group"),
        (&["--modules-on", "4194305"], "there is no process 4194305"),
        (&["--modules-on", "1"], "which is never a target"),
        (
            &["--modules-on", "/a", "--modules-on", "/b"],
            "name one group that holds all",
        ),
        (&["--modules-on", "/a", "--system"], "cannot be used with"),
        (&["--layout", "procfs"], "sysfs, debugfs"),
    ] {
        let output = run_inside(folder.path(), options, "true");
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(
            stderr(&output).contains(expected),
            "{options:?}: {}",
            stderr(&output)
        );
    }
}
