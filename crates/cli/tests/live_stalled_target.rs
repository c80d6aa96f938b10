//! Every command on a process that holds the lock of its own address space for ever: the command ends, says
//! why it has no figures, and serves all other processes.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;
mod stalled;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use common::{Guard, has_tracker, run, start_workload, stderr, thermo, wait_until, workload};
use stalled::DeadMount;

/// How long a command may need to end: a hang is found, a slow machine is not.
const HANG: Duration = Duration::from_secs(30);

/// A command that runs until it is asked to end, with its messages in the file `log`.
struct Running {
    process: Guard,
    name: String,
    log: std::path::PathBuf,
}

impl Running {
    fn start(dir: &Path, arguments: &[&str]) -> Self {
        Self::start_command(dir, thermo(dir, arguments), &arguments.join(" "))
    }

    fn start_command(dir: &Path, mut command: Command, name: &str) -> Self {
        let log = dir.join(format!("log-{}", name.replace(['/', ' '], "_")));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap());
        Self {
            process: Guard(command.spawn().unwrap()),
            name: name.to_owned(),
            log,
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Sends SIGTERM, after which the command ends.
    fn end(mut self) -> (ExitStatus, String) {
        let pid = rustix::process::Pid::from_child(&self.process.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        (self.wait(), self.log())
    }

    /// Waits for the end of the command.
    fn wait(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.process.0.try_wait().unwrap() {
                return status;
            }
            assert!(begin.elapsed() < HANG, "`{}` hangs: {}", self.name, self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn says_that_it_does_not_answer(text: &str, pid: u32) -> bool {
    text.contains(&format!("process {pid} is not answering for "))
}

#[test]
fn hint_names_the_stalled_process() {
    let Some(mut mount) = DeadMount::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let pid = mount.lock_holder("hint");
    let mut hint = Running::start(folder.path(), &["hint", "cold", "--pid", &pid.to_string()]);
    let status = hint.wait();
    eprintln!("{}", hint.log());
    assert!(!status.success());
    assert!(says_that_it_does_not_answer(&hint.log(), pid), "{}", hint.log());
}

#[test]
fn record_serves_others_and_names_the_stalled_process() {
    let Some(mut mount) = DeadMount::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_tracker(dir) {
        return;
    }
    let stuck = mount.lock_holder("record");
    let other = start_workload(dir, &workload(dir, 300_000).unwrap());
    let pids = [stuck.to_string(), other.0.id().to_string()];
    let record = Running::start(
        dir,
        &["record", "-o", "two", "--pid", &pids[0], "--pid", &pids[1]],
    );
    let recorded = wait_until(|| common::has_snapshots(dir, "two"));
    eprintln!("{}", record.log());
    assert!(recorded, "{}", record.log());
    let (_, log) = record.end();
    assert!(says_that_it_does_not_answer(&log, stuck), "{log}");
    let report = run(dir, &["report", "info", "two"]);
    eprintln!("{}{}", String::from_utf8_lossy(&report.stdout), stderr(&report));
    let one = Running::start(dir, &["record", "-o", "one", "--pid", &pids[0]]);
    assert!(
        wait_until(|| says_that_it_does_not_answer(&one.log(), stuck)),
        "{}",
        one.log()
    );
    one.end();
}

/// `record --system` in a PID namespace, where it sees the processes of this test alone.
#[test]
fn record_of_a_system_serves_others() {
    let Some(mount) = DeadMount::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_tracker(dir) {
        return;
    }
    let script = format!(
        "{} & {} workload -q {} & {} record -o all --system & record=$!
         until test -e stop; do sleep 0.1; done; kill $record; wait $record; touch ended",
        mount.lock_holder_command(),
        common::lab().display(),
        workload(dir, 300_000).unwrap().display(),
        env!("CARGO_BIN_EXE_thermo"),
    );
    let mut unshare = Command::new("unshare");
    unshare.args([
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        &script,
    ]);
    unshare.current_dir(dir);
    let mut inside = Running::start_command(dir, unshare, "record --system");
    assert!(
        wait_until(|| common::has_snapshots(dir, "all")),
        "{}",
        inside.log()
    );
    let says = || inside.log().contains(" is not answering for ");
    assert!(wait_until(says), "{}", inside.log());
    fs::write(dir.join("stop"), "").unwrap();
    assert!(
        wait_until(|| dir.join("ended").exists()),
        "`record --system` hangs: {}",
        inside.log()
    );
    // The namespace ends with its last process.
    drop(mount);
    inside.wait();
}
