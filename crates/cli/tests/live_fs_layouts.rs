//! `thermo fs`: the layout in debugfs and the modules as directories, over real processes.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use common::{Guard, lab_workload, quiet_of, run, stderr, thermo, wait_until};
use thermo_kernel::zram::ZramSwap;
use thermo_units::Bytes;

const MIB: u64 = 1 << 20;
const HOT: u64 = 16 * MIB;
const COLD: u64 = 64 * MIB;

fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        println!("SKIP: mounting control files takes root and /dev/fuse");
    }
    can
}

/// Whether pages of single processes can be told apart; says why not otherwise.
fn sees_pages(folder: &Path) -> bool {
    let doctor = run(folder, &["fs", "--tracker", "pte", "--", "true"]);
    if !doctor.status.success() {
        println!("SKIP: the tracker pte cannot be used: {}", stderr(&doctor).trim());
    }
    doctor.status.success()
}

/// Swap that is there for as long as the test, since that of others may go meanwhile; none where there cannot be any.
fn swap() -> Option<ZramSwap> {
    let made = ZramSwap::create(Path::new("/"), Bytes::mib(512));
    if let Err(why) = &made {
        println!("SKIP: what is anonymous cannot be paged out without swap, and none can be made: {why}");
    }
    made.ok()
}

/// A process that keeps touching [`HOT`] bytes, and touched up to [`COLD`] bytes more at its beginning.
struct Target {
    guard: Guard,
    truth: PathBuf,
    /// As many as it had time for.
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
            guard: quiet_of(lab_workload(folder, &arguments)),
            truth,
            cold: 0,
        };
        let is_hot_only = || {
            let ranges = target.hot();
            ranges.iter().map(|(start, end)| end - start).sum::<u64>() == HOT
        };
        assert!(wait_until(is_hot_only), "it never came to its second phase");
        target.cold = target.resident().saturating_sub(HOT);
        assert!(target.cold > 8 * MIB, "it touched {} bytes only", target.cold);
        target
    }

    fn pid(&self) -> u32 {
        self.guard.0.id()
    }

    /// What it touches now.
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

/// The regions of the last whole aggregation that was recorded, and their accesses.
fn last_aggregation(record: &Path) -> Vec<(u64, u64, u64)> {
    let text = fs::read_to_string(record).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().skip(1).collect();
    let time = |line: &str| line.split_ascii_whitespace().nth(3).map(str::to_owned);
    let Some(last) = lines.first().and_then(|line| time(line)) else {
        return Vec::new();
    };
    // The last may still be written.
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
fn what_is_hot_is_seen_through_the_early_layout() {
    let folder = tempfile::tempdir().unwrap();
    if !can_mount() || !sees_pages(folder.path()) {
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
    let seen = wait_until(|| {
        latest = last_aggregation(&record);
        let accessed = latest.iter().filter(|(_, _, nr_accesses)| *nr_accesses > 0);
        let accessed: Vec<(u64, u64)> = accessed.map(|(start, end, _)| (*start, *end)).collect();
        let all: u64 = accessed.iter().map(|(start, end)| end - start).sum();
        overlap(&accessed, &target.hot()) > HOT * 3 / 4 && all < HOT * 2
    });
    fs::write(&stop, "").unwrap();
    assert!(seen, "{:?} is hot, and it saw {latest:?}", target.hot());
    let mut told = String::new();
    std::io::Read::read_to_string(guard.0.stdout.as_mut().unwrap(), &mut told).unwrap();
    assert!(guard.0.wait().unwrap().success(), "{told}");
    assert!(told.ends_with("none\n"), "{told}");
}

/// Unmounts a folder in the end.
struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        // Nothing is mounted where the test ended early.
        drop(
            std::process::Command::new("umount")
                .arg("-l")
                .arg(self.0)
                .stderr(Stdio::null())
                .status(),
        );
    }
}

#[test]
fn old_lines_of_schemes_page_out_what_is_cold() {
    let folder = tempfile::tempdir().unwrap();
    if !can_mount() || !sees_pages(folder.path()) {
        return;
    }
    let Some(_swap) = swap() else { return };
    let dir = folder.path().join("damon");
    fs::create_dir(&dir).unwrap();
    // The service is killed, and cannot unmount what it mounted.
    let _mount = Unmount(&dir);
    let arguments = ["fs", "--layout", "debugfs", "--mount", dir.to_str().unwrap()];
    let _service = Guard(
        thermo(folder.path(), &arguments)
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    assert!(
        wait_until(|| dir.join("monitor_on").exists()),
        "it is not mounted"
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
    // What was idle for three aggregations; the second in windows of 1 GiB: addresses that hold
    // nothing count as well.
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
        let (out, cold) = (applied(name), target.cold);
        assert!(done, "{name}: {out} bytes were paged out, and {cold} are cold");
    }
    write("monitor_on", "off".to_owned());
    let told = applied("schemes");
    assert!(
        told > targets[0].cold / 2,
        "what was done is told afterwards, too: {told}"
    );
}

fn inside(folder: &Path, options: &[&str], script: &str) -> Output {
    let arguments = [&["fs"], options, &["--", "sh", "-c", script]].concat();
    thermo(folder, &arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn damon_reclaim_acts_on_what_was_named() {
    let folder = tempfile::tempdir().unwrap();
    if !can_mount() || !sees_pages(folder.path()) {
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
    let output = inside(
        folder.path(),
        &["--modules-on", &target.pid().to_string()],
        &script,
    );
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}{}", stderr(&output));
    let told: Vec<&str> = told.split_ascii_whitespace().collect();
    assert_eq!(told[..4], ["0", "1", "0", "N"]);
    assert!(
        told[4].parse::<u64>().unwrap() > half,
        "{told:?} of {}",
        target.cold
    );
    assert!(target.resident() < HOT + target.cold, "nothing is out");
}

#[test]
fn modules_act_on_nothing_that_was_not_named() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "cd /sys/module; for name in reclaim lru_sort stat; do
                  echo Y >damon_$name/parameters/enabled || cat damon_$name/parameters/enabled; done";
    let output = inside(folder.path(), &[], script);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "N\nN\nN\n");
    assert!(
        stderr(&output).contains("start `thermo fs` with --modules-on PID"),
        "{}",
        stderr(&output)
    );
    for (options, says) in [
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
        let output = inside(folder.path(), options, "true");
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(stderr(&output).contains(says), "{options:?}: {}", stderr(&output));
    }
}
