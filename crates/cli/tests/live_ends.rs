//! How sessions end: Ctrl-C once and twice, a full disk, a command that sends itself to the background.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{
    Guard, can_watch, has_snapshots, run, snapshots, start_workload, stderr, thermo, wait_until, workload,
};
use rustix::process::{Pid, Signal, kill_process};

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// A workload that goes on until it is killed.
fn endless(here: &Path) -> Guard {
    let cfg = workload(here, 3_600_000).unwrap();
    start_workload(here, &cfg)
}

/// `thermo record` of the process; looks often, so that much is written.
fn recording_of(here: &Path, target: &Guard, file: &str) -> Guard {
    let pid = target.0.id().to_string();
    let arguments = [
        "record", "--pid", &pid, "-o", file, "--sample", "5ms", "--aggr", "10ms",
    ];
    let mut command = thermo(here, &arguments);
    Guard(command.stderr(Stdio::piped()).spawn().unwrap())
}

fn said(mut child: Guard) -> (Option<i32>, String) {
    let status = child.0.wait().unwrap();
    let mut text = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (status.code(), text)
}

#[test]
fn one_ctrl_c_ends_in_order_and_leaves_a_whole_recording() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    if !can_watch(here) {
        return;
    }
    let mut target = endless(here);
    let record = recording_of(here, &target, "r.arrow");
    assert!(
        wait_until(|| has_snapshots(here, "r.arrow")),
        "nothing was recorded"
    );
    send(&record.0, Signal::INT);
    let (code, text) = said(record);
    assert_eq!(code, Some(130), "{text}");
    assert!(text.contains("the recording is r.arrow ("), "{text}");
    assert!(text.contains(" % of the memory is unknown)"), "{text}");
    let info = run(here, &["report", "info", "r.arrow"]);
    assert!(
        info.status.success() && stderr(&info).is_empty(),
        "{}",
        stderr(&info)
    );
    assert!(
        target.0.try_wait().unwrap().is_none(),
        "the target ended with its watcher"
    );
}

#[test]
fn ctrl_c_reaches_the_command_and_a_second_one_does_not_wait_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    if !can_watch(here) {
        return;
    }
    // Deaf to the first signal, and known by a file once it is.
    let deaf = "trap '' INT; echo $$ > deaf; while :; do sleep 0.1; done";
    let mut command = thermo(here, &["record", "-o", "r.arrow", "--", "sh", "-c", deaf]);
    let mut record = Guard(command.stderr(Stdio::piped()).spawn().unwrap());
    let pid_of_deaf = || {
        fs::read_to_string(here.join("deaf"))
            .ok()?
            .trim()
            .parse::<i32>()
            .ok()
    };
    assert!(
        wait_until(|| has_snapshots(here, "r.arrow") && pid_of_deaf().is_some()),
        "nothing was recorded"
    );
    let pid = pid_of_deaf().unwrap();
    let deaf = Pid::from_raw(pid).unwrap();
    send(&record.0, Signal::INT);
    // The recording is closed, the command waited for.
    let closed = || stderr(&run(here, &["report", "info", "r.arrow"])).is_empty();
    let in_order = wait_until(closed);
    // Two within a twentieth of a second count as one, so that it is pressed again where the first two were.
    let ended = wait_until(|| {
        send(&record.0, Signal::INT);
        record.0.try_wait().unwrap().is_some()
    });
    // It holds the other end of what is read next.
    let killed = kill_process(deaf, Signal::KILL);
    let (code, text) = said(record);
    assert!(ended, "it waited on: {text}");
    assert!(in_order, "the recording was not closed: {text}");
    assert_eq!(code, Some(130), "{text}");
    assert!(killed.is_ok(), "the command was gone before it was killed");
}

/// A small file system of its own, gone with the test.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn on(folder: &'a Path, size: &str) -> Option<Self> {
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", size, "tmpfs"])
            .arg(folder)
            .output();
        match output {
            Ok(output) if output.status.success() => Some(Self(folder)),
            Ok(output) => {
                eprintln!("SKIP: no file system can be mounted: {}", stderr(&output).trim());
                None
            }
            Err(error) => {
                eprintln!("SKIP: no file system can be mounted: mount: {error}");
                None
            }
        }
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_ends_a_recording_that_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    if !can_watch(here) {
        return;
    }
    let small = here.join("small");
    fs::create_dir(&small).unwrap();
    let Some(_disk) = SmallDisk::on(&small, "size=64k") else {
        return;
    };
    let mut target = endless(here);
    let (code, text) = said(recording_of(here, &target, "small/r.arrow"));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("No space left"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    assert!(
        target.0.try_wait().unwrap().is_none(),
        "the target ended with its watcher"
    );
    let regions = run(here, &["report", "regions", "small/r.arrow", "--last"]);
    assert!(regions.status.success(), "{}", stderr(&regions));
}

/// `thermo record` of a command that leaves something in the background, which runs until the file `on` is gone and ends
/// with 3. Its first process waits for the file `go`, if it `waits`, and ends with 5.
fn recording_of_background(here: &Path, waits: bool) -> Guard {
    fs::write(here.join("on"), "").unwrap();
    let wait = if waits {
        "while [ ! -e go ]; do sleep 0.1; done; "
    } else {
        ""
    };
    let daemon = format!("(while [ -e on ]; do sleep 0.1; done; exit 3) & {wait}exit 5");
    let arguments = [
        "record", "-o", "r.arrow", "--sample", "5ms", "--", "sh", "-c", &daemon,
    ];
    let mut command = thermo(here, &arguments);
    Guard(command.stderr(Stdio::piped()).spawn().unwrap())
}

/// Ends what is in the background: its recording has `watched` it until then, and ends with the first process's code.
fn ends_with_background(here: &Path, record: Guard, watched: bool) {
    fs::remove_file(here.join("on")).unwrap();
    let (code, text) = said(record);
    assert!(
        watched,
        "what the command left in the background was not watched: {text}"
    );
    assert_eq!(code, Some(5), "{text}");
}

#[test]
fn a_command_in_the_background_is_watched_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    if !can_watch(here) {
        return;
    }
    // The first process ends once it was seen.
    let record = recording_of_background(here, true);
    let first = wait_until(|| has_snapshots(here, "r.arrow"));
    let before = snapshots(here, "r.arrow");
    fs::write(here.join("go"), "").unwrap();
    let watched = first && wait_until(|| snapshots(here, "r.arrow") >= before + 50);
    ends_with_background(here, record, watched);
}

#[test]
fn a_command_whose_first_process_ends_at_once_is_watched_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    if !can_watch(here) {
        return;
    }
    let mut record = recording_of_background(here, false);
    let mut ended_early = false;
    wait_until(|| {
        ended_early = record.0.try_wait().unwrap().is_some();
        ended_early || has_snapshots(here, "r.arrow")
    });
    let watched = has_snapshots(here, "r.arrow") && !ended_early;
    ends_with_background(here, record, watched);
}

#[test]
fn paging_out_without_swap_is_told_before_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    if !can_watch(here) {
        return;
    }
    if fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() > 1) {
        eprintln!("SKIP: this machine has swap");
        return;
    }
    let mut target = endless(here);
    let pid = target.0.id().to_string();
    let output = run(here, &["reclaim", "--pid", &pid, "--duration", "1s", "--dry-run"]);
    let text = stderr(&output);
    if output.status.code() == Some(2) {
        assert!(text.contains("pageout cannot be done here"), "{text}");
        eprintln!("SKIP: pageout cannot be done here");
        return;
    }
    assert!(text.contains("there is no swap"), "{text}");
    assert!(target.0.try_wait().unwrap().is_none());
}
