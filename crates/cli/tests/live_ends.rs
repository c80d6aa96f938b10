//! How sessions end: Ctrl-C once and twice, a full disk, a command that goes to the background.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{
    Guard, has_snapshots, has_tracker, run, snapshots, start_workload, stderr, thermo, wait_until, workload,
};
use rustix::process::{Pid, Signal, kill_process};
use thermo_kernel::cgroup::TemporaryGroup;

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// A workload that runs until it is killed.
fn endless(dir: &Path) -> Guard {
    let cfg = workload(dir, 3_600_000).unwrap();
    start_workload(dir, &cfg)
}

/// Starts `thermo record` of the process, with short intervals, so that much is written.
fn start_recording(dir: &Path, target: &Guard, file: &str) -> Guard {
    let pid = target.0.id().to_string();
    let arguments = [
        "record", "--pid", &pid, "-o", file, "--sample", "5ms", "--aggr", "10ms",
    ];
    let mut command = thermo(dir, &arguments);
    Guard(command.stderr(Stdio::piped()).spawn().unwrap())
}

fn wait_with_stderr(mut child: Guard) -> (Option<i32>, String) {
    let status = child.0.wait().unwrap();
    let mut text = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (status.code(), text)
}

#[test]
fn ctrl_c_leaves_complete_recording() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_tracker(dir) {
        return;
    }
    let mut target = endless(dir);
    let record = start_recording(dir, &target, "r.arrow");
    assert!(
        wait_until(|| has_snapshots(dir, "r.arrow")),
        "nothing was recorded"
    );
    send(&record.0, Signal::INT);
    let (code, text) = wait_with_stderr(record);
    assert_eq!(code, Some(130), "{text}");
    assert!(text.contains("the recording is r.arrow ("), "{text}");
    assert!(
        text.contains(" % of the memory was unknown at the end)"),
        "{text}"
    );
    let info = run(dir, &["report", "info", "r.arrow"]);
    assert!(
        info.status.success() && stderr(&info).is_empty(),
        "{}",
        stderr(&info)
    );
    assert!(
        target.0.try_wait().unwrap().is_none(),
        "the target ended with the recorder"
    );
}

#[test]
fn second_ctrl_c_does_not_wait_for_command() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_tracker(dir) {
        return;
    }
    // Ignores SIGINT, and then creates a file with its process ID.
    let script = "trap '' INT; echo $$ > pid; while :; do sleep 0.1; done";
    let mut command = thermo(dir, &["record", "-o", "r.arrow", "--", "sh", "-c", script]);
    let mut record = Guard(command.stderr(Stdio::piped()).spawn().unwrap());
    let command_pid = || {
        fs::read_to_string(dir.join("pid"))
            .ok()?
            .trim()
            .parse::<i32>()
            .ok()
    };
    assert!(
        wait_until(|| has_snapshots(dir, "r.arrow") && command_pid().is_some()),
        "nothing was recorded"
    );
    let command = Pid::from_raw(command_pid().unwrap()).unwrap();
    send(&record.0, Signal::INT);
    // The recording is closed, and thermo waits for the command.
    let closed = || stderr(&run(dir, &["report", "info", "r.arrow"])).is_empty();
    let in_order = wait_until(closed);
    // Two signals within 50 ms count as one, so the second one is repeated.
    let ended = wait_until(|| {
        send(&record.0, Signal::INT);
        record.0.try_wait().unwrap().is_some()
    });
    // The command holds standard error open, which is read next.
    let killed = kill_process(command, Signal::KILL);
    let (code, text) = wait_with_stderr(record);
    assert!(ended, "it kept waiting: {text}");
    assert!(in_order, "the recording was not closed: {text}");
    assert_eq!(code, Some(130), "{text}");
    assert!(killed.is_ok(), "the command ended before it was killed");
}

/// A small file system, unmounted at the end of the test.
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
fn full_disk_leaves_readable_recording() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_tracker(dir) {
        return;
    }
    let small = dir.join("small");
    fs::create_dir(&small).unwrap();
    let Some(_disk) = SmallDisk::on(&small, "size=64k") else {
        return;
    };
    let mut target = endless(dir);
    let (code, text) = wait_with_stderr(start_recording(dir, &target, "small/r.arrow"));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("No space left"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    assert!(
        target.0.try_wait().unwrap().is_none(),
        "the target ended with the recorder"
    );
    let regions = run(dir, &["report", "regions", "small/r.arrow", "--last"]);
    assert_eq!(regions.status.code(), Some(1), "{}", stderr(&regions));
    assert!(stderr(&regions).contains("is truncated"), "{}", stderr(&regions));
    assert!(!regions.stdout.is_empty());
}

/// Starts `thermo record` of a command that leaves a background process, which runs until the file `on` is
/// removed and exits with 3. The first process waits for the file `go` if `waits`, and exits with 5.
fn record_background_command(dir: &Path, waits: bool) -> Guard {
    fs::write(dir.join("on"), "").unwrap();
    let wait = if waits {
        "while [ ! -e go ]; do sleep 0.1; done; "
    } else {
        ""
    };
    let daemon = format!("(while [ -e on ]; do sleep 0.1; done; exit 3) & {wait}exit 5");
    let arguments = [
        "record", "-o", "r.arrow", "--sample", "5ms", "--", "sh", "-c", &daemon,
    ];
    let mut command = thermo(dir, &arguments);
    Guard(command.stderr(Stdio::piped()).spawn().unwrap())
}

/// Ends the background process. The recording must have monitored it until then (`monitored`), and must exit
/// with the code of the first process.
fn end_background_process(dir: &Path, record: Guard, monitored: bool) {
    fs::remove_file(dir.join("on")).unwrap();
    let (code, text) = wait_with_stderr(record);
    assert!(monitored, "the background process was not monitored: {text}");
    assert_eq!(code, Some(5), "{text}");
}

#[test]
fn background_process_is_monitored_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_tracker(dir) {
        return;
    }
    // The first process ends after it was monitored for some snapshots.
    let record = record_background_command(dir, true);
    let first = wait_until(|| has_snapshots(dir, "r.arrow"));
    let before = snapshots(dir, "r.arrow");
    fs::write(dir.join("go"), "").unwrap();
    let monitored = first && wait_until(|| snapshots(dir, "r.arrow") >= before + 50);
    end_background_process(dir, record, monitored);
}

#[test]
fn background_process_is_monitored_without_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_tracker(dir) {
        return;
    }
    let mut record = record_background_command(dir, false);
    let mut ended_early = false;
    wait_until(|| {
        ended_early = record.0.try_wait().unwrap().is_some();
        ended_early || has_snapshots(dir, "r.arrow")
    });
    let monitored = has_snapshots(dir, "r.arrow") && !ended_early;
    end_background_process(dir, record, monitored);
}

#[test]
fn pageout_without_swap_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_tracker(dir) {
        return;
    }
    if fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() > 1) {
        eprintln!("SKIP: this machine has swap");
        return;
    }
    let mut target = endless(dir);
    let pid = target.0.id().to_string();
    let output = run(dir, &["reclaim", "--pid", &pid, "--duration", "1s", "--dry-run"]);
    let text = stderr(&output);
    if output.status.code() == Some(2) {
        assert!(text.contains("pageout cannot be done here"), "{text}");
        eprintln!("SKIP: pageout cannot be done on this machine");
        return;
    }
    assert!(text.contains("there is no swap"), "{text}");
    assert!(target.0.try_wait().unwrap().is_none());
}

/// `thermo reclaim --dry-run` of a control group, with its messages in the file `messages`.
struct GroupReclaim<'a> {
    dir: &'a Path,
    name: String,
    child: Guard,
}

impl<'a> GroupReclaim<'a> {
    /// `None`, after a SKIP, where no group can be created. The group has one process.
    fn start(dir: &'a Path, name: &str, flags: &[&str]) -> Option<(Self, TemporaryGroup, Guard)> {
        let name = format!("thermo-test-{name}-{}", std::process::id());
        let (group, target) = match TemporaryGroup::create(Path::new("/"), "memory", &name) {
            Ok(group) => (group, endless(dir)),
            Err(error) => {
                eprintln!("SKIP: no control group can be created: {error}");
                return None;
            }
        };
        group.group().add(target.0.id()).unwrap();
        let path = format!("/{name}");
        let arguments = [&["reclaim", "--dry-run", "--cgroup", &path], flags].concat();
        let messages = fs::File::create(dir.join("messages")).unwrap();
        let mut command = thermo(dir, &arguments);
        let child = Guard(command.stdout(Stdio::null()).stderr(messages).spawn().unwrap());
        let mut reclaim = Self { dir, name, child };
        if !wait_until(|| reclaim.ended() || reclaim.monitors()) || reclaim.ended() {
            let text = reclaim.messages();
            assert!(text.contains("cannot be done here"), "{text}");
            eprintln!("SKIP: pageout cannot be done on this machine");
            return None;
        }
        Some((reclaim, group, target))
    }

    /// Whether the thread that monitors was started.
    fn monitors(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.0.id()));
        let mut names = tasks
            .into_iter()
            .flatten()
            .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.any(|name| name.starts_with("kdamond"))
    }

    fn messages(&self) -> String {
        fs::read_to_string(self.dir.join("messages")).unwrap()
    }

    fn ended(&mut self) -> bool {
        self.child.0.try_wait().unwrap().is_some()
    }

    /// Waits for a message, or for the end.
    fn says(&mut self, text: &str) -> bool {
        wait_until(|| self.ended() || self.messages().contains(text)) && self.messages().contains(text)
    }
}

#[test]
fn reclaim_waits_for_removed_control_group() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let Some((mut reclaim, group, _target)) = GroupReclaim::start(dir, "waits", &[]) else {
        return;
    };
    // The target moves to the parent group.
    group.remove().unwrap();
    assert!(reclaim.says("was removed: waiting"), "{}", reclaim.messages());
    let group = TemporaryGroup::create(Path::new("/"), "memory", &reclaim.name).unwrap();
    assert!(reclaim.says("exists again"), "{}", reclaim.messages());
    send(&reclaim.child.0, Signal::INT);
    assert_eq!(reclaim.child.0.wait().unwrap().code(), Some(130));
    group.remove().unwrap();
}

#[test]
fn reclaim_once_ends_with_its_control_group() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let Some((mut reclaim, group, target)) = GroupReclaim::start(dir, "once", &["--once"]) else {
        return;
    };
    drop(target);
    group.remove().unwrap();
    let status = reclaim.child.0.wait().unwrap();
    let text = reclaim.messages();
    assert!(
        status.success() && text.contains("every target has ended"),
        "{text}"
    );
}
