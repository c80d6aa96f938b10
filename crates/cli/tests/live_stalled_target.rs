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

/// The exit status of a command that ended because of a signal: the signal itself did not end it.
const INTERRUPTED: i32 = 130;

/// A command that runs until it is asked to end, with its messages in the file `log`.
struct Running {
    process: Guard,
    name: String,
    log: std::path::PathBuf,
}

impl Running {
    fn start(dir: &Path, arguments: &[&str]) -> Self {
        Self::start_command(dir, thermo(dir, arguments), arguments[0])
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
    assert!(recorded, "{}", record.log());
    let (status, log) = record.end();
    assert!(status.code().is_some(), "{status}: {log}");
    assert!(says_that_it_does_not_answer(&log, stuck), "{log}");
    let report = run(dir, &["report", "info", "two"]);
    let info = String::from_utf8_lossy(&report.stdout);
    assert!(
        info.contains("unknown") && says_that_it_does_not_answer(&info, stuck),
        "{info}"
    );
    let one = Running::start(dir, &["record", "-o", "one", "--pid", &pids[0]]);
    assert!(
        wait_until(|| says_that_it_does_not_answer(&one.log(), stuck)),
        "{}",
        one.log()
    );
    let (status, log) = one.end();
    assert!(status.code().is_some(), "{status}: {log}");
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

fn agent_config(dir: &Path, marks: [&str; 2]) -> String {
    let policy = |name: &str, condition: &str| {
        format!("[[policy]]\nname = \"{name}\"\nmatch = {{ {condition} }}\ntarget_name = \"{name}\"\n")
    };
    format!(
        "state_dir = \"{0}/state\"\n[http]\nsocket = \"{0}/a.sock\"\n{1}{2}",
        dir.display(),
        policy("stuck", &format!("command = \"{}\"", marks[0])),
        policy("other", &format!("env = \"THERMO_TEST={}\"", marks[1])),
    )
}

#[test]
fn agent_serves_others_and_answers() {
    let Some(mut mount) = DeadMount::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_tracker(dir) {
        return;
    }
    // The kernel cuts names of programs at 15 bytes.
    let (held, hidden) = (
        format!("h{}", std::process::id()),
        format!("e{}", std::process::id()),
    );
    let stuck = mount.lock_holder(&held);
    mount.without_environment(&hidden);
    let mut other = common::lab_workload(dir, &["-q", workload(dir, 300_000).unwrap().to_str().unwrap()]);
    other.env("THERMO_TEST", "other-".to_owned() + &held);
    let _other = common::spawn_command_quiet(other);
    fs::write(
        dir.join("agent.toml"),
        agent_config(dir, [&held, &format!("other-{held}")]),
    )
    .unwrap();
    let agent = Running::start(dir, &["agent", "--config", "agent.toml"]);
    let status = || {
        let output = run(dir, &["agent", "status", "--agent", "a.sock", "--json"]);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap_or_default()
    };
    let target = |status: &serde_json::Value, name: &str| {
        let targets = status["targets"].as_array().cloned().unwrap_or_default();
        targets
            .into_iter()
            .find(|target| target["name"] == name)
            .unwrap_or_default()
    };
    let has_pass = || target(&status(), "other")["working_set_bytes"].as_u64() > Some(0);
    assert!(wait_until(has_pass), "{}{}", status(), agent.log());
    let is_shown = || target(&status(), "stuck").is_object();
    assert!(wait_until(is_shown), "{}{}", status(), agent.log());
    let why = || String::from_utf8(run(dir, &["agent", "why", "--agent", "a.sock"]).stdout).unwrap();
    assert!(
        wait_until(|| says_that_it_does_not_answer(&why(), stuck)),
        "{}",
        why()
    );
    top_shows_and_ends(dir, &held);
    let pause = run(dir, &["agent", "pause", "other", "--agent", "a.sock"]);
    assert!(pause.status.success(), "{}", stderr(&pause));
    let (status, log) = agent.end();
    assert_eq!(status.code(), Some(INTERRUPTED), "{log}");
}

/// `thermo top` shows the stalled target and ends on SIGTERM. It runs in a terminal, which `script` provides.
fn top_shows_and_ends(dir: &Path, held: &str) {
    let top = format!(
        "stty rows 40 cols 120; exec {} top --agent a.sock",
        env!("CARGO_BIN_EXE_thermo")
    );
    let mut command = Command::new("script");
    command
        .args(["--quiet", "--flush", "--command", &top, "screen"])
        .current_dir(dir)
        .env("TERM", "xterm");
    if Command::new("script").arg("--version").output().is_err() {
        return eprintln!("SKIP: thermo top needs a terminal, and `script` is not installed");
    }
    let mut terminal = Running::start_command(dir, command, "top");
    let screen = || String::from_utf8_lossy(&fs::read(dir.join("screen")).unwrap_or_default()).into_owned();
    let shows = wait_until(|| screen().contains("stuck"));
    assert!(shows, "{held}: {}{}", screen(), terminal.log());
    let id = terminal.process.0.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    let pid = rustix::process::Pid::from_raw(children.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    terminal.wait();
}

#[test]
fn reclaim_and_lifecycle_end_beside_a_stalled_process() {
    let Some(mut mount) = DeadMount::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_tracker(dir) {
        return;
    }
    let pid = mount.lock_holder("held");
    let apps = format!("poll = \"100ms\"\n[[app]]\nname = \"a\"\npid = {pid}\n");
    fs::write(dir.join("apps.toml"), apps).unwrap();
    let reclaim = Running::start(dir, &["reclaim", "--pid", &pid.to_string()]);
    let says = || says_that_it_does_not_answer(&reclaim.log(), pid);
    assert!(wait_until(says), "{}", reclaim.log());
    let (status, log) = reclaim.end();
    assert!(status.code().is_some(), "{status}: {log}");
    let daemon = Running::start(dir, &["lifecycle", "run", "apps.toml", "--socket", "s"]);
    assert!(
        wait_until(|| daemon.log().contains("listening")),
        "{}",
        daemon.log()
    );
    let set = run(
        dir,
        &["lifecycle", "set", "a", "cached", "--socket", "s", "--json"],
    );
    assert!(set.status.success(), "{}", stderr(&set));
    let why = || {
        let why = run(dir, &["lifecycle", "why", "a", "--socket", "s", "--json"]);
        String::from_utf8_lossy(&why.stdout).into_owned() + &stderr(&why)
    };
    let named = wait_until(|| says_that_it_does_not_answer(&why(), pid));
    assert!(named, "{}{}", why(), daemon.log());
    let (status, log) = daemon.end();
    assert_eq!(status.code(), Some(INTERRUPTED), "{log}");
}

#[test]
fn control_files_serve_others() {
    let Some(mut mount) = DeadMount::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    if !has_tracker(dir) {
        return;
    }
    let pid = mount.lock_holder("held");
    let script = format!(
        "cd /sys/kernel/mm/damon/admin/kdamonds; echo 1 >nr_kdamonds; echo 1 >0/contexts/nr_contexts
         echo 1 >0/contexts/0/targets/nr_targets; echo {pid} >0/contexts/0/targets/0/pid_target
         echo on >0/state; cat 0/state >{0}/state; echo off >0/state; cat 0/state >>{0}/state
         touch {0}/ready; exec sleep 600",
        dir.display()
    );
    let fs = Running::start(dir, &["fs", "--", "sh", "-c", &script]);
    assert!(
        wait_until(|| dir.join("ready").exists()),
        "`thermo fs` hangs: {}",
        fs.log()
    );
    assert_eq!(fs::read_to_string(dir.join("state")).unwrap(), "on\noff\n");
    fs.end();
}
