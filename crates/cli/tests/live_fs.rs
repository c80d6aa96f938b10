//! `thermo fs`: a command in mounts of its own, a service, and what is left of either when it is killed.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const THERMO: &str = env!("CARGO_BIN_EXE_thermo");
const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";

fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        println!("SKIP: mounting control files takes root and /dev/fuse");
    }
    can
}

fn inside(script: &str) -> Output {
    let mut command = Command::new(THERMO);
    let command = command
        .args(["fs", "--", "sh", "-c", script])
        .stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "waited in vain until {what}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// What could have changed outside. Others mount things, too, elsewhere.
fn outside() -> (Vec<String>, Vec<String>) {
    let mut names: Vec<String> = fs::read_dir("/sys/kernel/mm")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts = mounts.lines().filter(|line| line.contains(" /sys/kernel/mm"));
    (mounts.map(str::to_owned).collect(), names)
}

/// Ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_command_sees_our_files_and_nothing_changes_outside() {
    if !can_mount() {
        return;
    }
    let before = outside();
    let script = format!(
        "cd {KDAMONDS} && echo 1 >nr_kdamonds && cat nr_kdamonds 0/state && test -d /sys/kernel/mm/transparent_hugepage \
         && ls -A $HOME && perf --version && exit 7"
    );
    let output = inside(&script);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let told = text(&output.stdout);
    assert!(told.starts_with("1\noff\nperf version"), "{told}");
    assert_eq!(outside(), before);
}

#[test]
fn its_whole_life_is_recorded_by_what_stands_in_for_perf() {
    if !can_mount() {
        return;
    }
    let script = format!(
        "set -e; cd {KDAMONDS}; echo 1 >nr_kdamonds; echo 1 >0/contexts/nr_contexts; cd 0/contexts/0
         sleep 600 & target=$!; trap 'kill $target' EXIT
         echo 1 >targets/nr_targets; echo $target >targets/0/pid_target
         perf record -a -o $HOME/out -e damon:damon_aggregated & perf=$!
         echo on >../../state
         while ! [ -s $HOME/out ]; do sleep 0.05; done
         kill -INT $perf; wait $perf || true
         perf script --force -i $HOME/out; echo off >../../state"
    );
    let output = inside(&script);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told = text(&output.stdout);
    let line = told.lines().next().unwrap_or_default();
    assert!(line.starts_with("kdamond.0 "), "{line}");
    assert!(
        line.contains(": damon:damon_aggregated: target_id=0 nr_regions="),
        "{line}"
    );
}

#[test]
fn killed_it_leaves_nothing_and_its_command_ends() {
    if !can_mount() {
        return;
    }
    let before = outside();
    let dir = tempfile::tempdir().unwrap();
    let (pid, done) = (dir.path().join("pid"), dir.path().join("done"));
    let script = format!(
        "trap 'echo hung up >{done}; exit' HUP; echo $$ >{pid}.new; mv {pid}.new {pid}; while :; do sleep 0.05; done",
        done = done.display(),
        pid = pid.display()
    );
    let mut command = Command::new(THERMO);
    let command = command
        .args(["fs", "--", "sh", "-c", &script])
        .stdin(Stdio::null());
    let mut thermo = Running(command.spawn().unwrap());
    wait_until("the command runs", || pid.exists());
    thermo.0.kill().unwrap();
    thermo.0.wait().unwrap();
    wait_until("the command is told", || done.exists());
    let pid = fs::read_to_string(&pid).unwrap();
    wait_until("it has ended", || {
        !Path::new(&format!("/proc/{}", pid.trim())).exists()
    });
    assert_eq!(outside(), before);
}

#[test]
fn a_service_is_mounted_until_it_is_interrupted_and_again_after_it_was_killed() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = Command::new(THERMO);
        let command = command.args(["fs", "--mount"]).arg(dir.path());
        let running = Running(
            command
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        );
        // Of what was there before, names may still be remembered.
        wait_until("it is mounted", || {
            fs::read(dir.path().join("admin/kdamonds/nr_kdamonds")).is_ok()
        });
        running
    };
    let mut killed = start();
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    let mut interrupted = start();
    let held = fs::File::open(dir.path().join("admin/kdamonds/nr_kdamonds")).unwrap();
    let pid = rustix::process::Pid::from_child(&interrupted.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(interrupted.0.wait().unwrap().code(), Some(130));
    drop(held);
    assert!(!dir.path().join("admin").exists());
}

#[test]
fn what_cannot_be_is_said_in_one_sentence() {
    let refused = |arguments: &[&str]| {
        let mut command = Command::new(THERMO);
        let output = command
            .arg("fs")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let (code, told) = refused(&[]);
    assert_eq!(code, Some(2));
    assert!(told.contains("give a command, as in"), "{told}");
    if !can_mount() {
        return;
    }
    let (code, told) = refused(&["--", "no-such-program"]);
    assert_eq!(code, Some(127), "{told}");
    let (code, told) = refused(&["--tracker", "crystal-ball", "--", "true"]);
    assert_eq!(code, Some(2));
    assert!(told.contains("crystal-ball is not a tracker"), "{told}");
    let (code, told) = refused(&["--mount", "/no/such/folder"]);
    assert_eq!(code, Some(2));
    assert!(told.contains("make the folder first"), "{told}");
    let (code, told) = refused(&["--mount", "/proc/self/status"]);
    assert_eq!(code, Some(2));
    assert!(told.contains("is not a folder"), "{told}");
    if Path::new("/sys/kernel/mm/damon").exists() {
        let (code, told) = refused(&["--mount", "/sys/kernel/mm/damon"]);
        assert_eq!(code, Some(2));
        assert!(told.contains("belongs to the kernel's own DAMON"), "{told}");
    }
}
