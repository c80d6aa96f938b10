//! The privileges of each long-running command once it is set up, as SECURITY.md lists them.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;
mod daemon;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Guard, has_tracker, run, spawn_command_quiet, spawn_quiet, stderr, wait_until};
use daemon::Daemon;

const NAMES: [&str; 12] = [
    "CAP_BPF",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_IPC_LOCK",
    "CAP_KILL",
    "CAP_PERFMON",
    "CAP_SYS_ADMIN",
    "CAP_SYS_NICE",
    "CAP_SYS_PTRACE",
    "CAP_SYS_RAWIO",
    "CAP_SYSLOG",
];
const NUMBERS: [u8; 12] = [39, 1, 2, 3, 14, 5, 38, 21, 23, 19, 17, 34];

/// The privileges of a thread.
#[derive(Debug, Clone, PartialEq)]
struct Privileges {
    uid: u32,
    /// Inheritable, permitted, effective, bounding and ambient set.
    capabilities: [u64; 5],
    no_new_privs: bool,
    filters_calls: bool,
}

fn privileges(status: &Path) -> Option<Privileges> {
    let text = fs::read_to_string(status).ok()?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.split_whitespace().next().unwrap())
    };
    let set = |name| u64::from_str_radix(field(name).unwrap(), 16).unwrap();
    Some(Privileges {
        uid: field("Uid:")?.parse().ok()?,
        capabilities: ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"].map(set),
        no_new_privs: field("NoNewPrivs:")? == "1",
        filters_calls: field("Seccomp:")? == "2",
    })
}

fn of_threads(pid: u32) -> Vec<Privileges> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks
        .flatten()
        .filter_map(|task| privileges(&task.path().join("status")))
        .collect()
}

fn own() -> Privileges {
    privileges(Path::new("/proc/self/status")).unwrap()
}

/// Whether this process has all capabilities of the table; prints SKIP otherwise.
fn is_root() -> bool {
    let all = own().uid == 0 && own().capabilities[2] & (1 << 8) != 0;
    if !all {
        eprintln!("SKIP: only root with CAP_SETPCAP has capabilities to drop");
    }
    all
}

/// The capabilities in the row of SECURITY.md that begins with `command`, as far as this process has them.
fn documented(command: &str) -> u64 {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../SECURITY.md");
    let text = fs::read_to_string(path).unwrap();
    let row = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("| {command} |")))
        .unwrap_or_else(|| panic!("SECURITY.md has no row {command:?}"));
    let kept = NAMES
        .iter()
        .zip(NUMBERS)
        .filter(|(name, _)| row.contains(&format!("`{name}`")));
    kept.fold(0, |set, (_, number)| set | 1 << number) & own().capabilities[1]
}

/// Waits until the process has dropped its privileges and has `nr_threads`, and checks all threads.
fn check(pid: u32, nr_threads: usize, kept: u64, filters_calls: bool) {
    let is_ready = || {
        let threads = of_threads(pid);
        threads.len() >= nr_threads && threads.iter().all(|thread| thread.no_new_privs)
    };
    assert!(wait_until(is_ready), "{:x?}", of_threads(pid));
    for thread in of_threads(pid) {
        assert_eq!(
            thread.capabilities,
            [0, kept, kept, kept, 0],
            "{kept:x}: {thread:x?}"
        );
        assert_eq!(thread.filters_calls, filters_calls, "{thread:x?}");
    }
}

fn child_of(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Waits until the command that `pid` started runs the program `name`.
fn started(pid: u32, name: &str) -> u32 {
    let runs = || {
        let comm = |child| fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
        child_of(pid).is_some_and(|child| comm(child).trim() == name)
    };
    assert!(wait_until(runs), "{name} does not run");
    child_of(pid).unwrap()
}

const SESSION: &str = "`thermo record`, `run`, `schemes apply`, `reclaim`, `lru-sort`";
const WITH_SCHEMES: &str = "… with schemes";
const WITH_CLEAR_REFS: &str =
    "… with tracker `smaps`, with `--shared`, or with the actions `hugepage` or `nohugepage`";
const WITH_COMMAND: &str = "… with CMD";

#[test]
fn sessions_keep_only_documented_capabilities() {
    let folder = tempfile::tempdir().unwrap();
    if !is_root() || !has_tracker(folder.path()) {
        return;
    }
    let target = sleeper();
    let pid = target.0.id().to_string();
    let stat = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemes/stat.damos");
    let stat = stat.to_str().unwrap();
    for (arguments, rows) in [
        (&["record", "--pid", &pid][..], &[SESSION][..]),
        (
            &["record", "--tracker", "smaps", "--pid", &pid],
            &[SESSION, WITH_CLEAR_REFS],
        ),
        (&["reclaim", "--pid", &pid], &[SESSION, WITH_SCHEMES]),
        (&["lru-sort", "--pid", &pid], &[SESSION, WITH_SCHEMES]),
        (
            &["schemes", "apply", stat, "--pid", &pid],
            &[SESSION, WITH_SCHEMES],
        ),
    ] {
        let command = spawn_quiet(folder.path(), arguments);
        let kept = rows.iter().fold(0, |set, row| set | documented(row));
        check(command.0.id(), 2, kept, false);
    }
}

#[test]
fn command_of_a_session_has_the_privileges_of_the_caller() {
    let folder = tempfile::tempdir().unwrap();
    if !is_root() || !has_tracker(folder.path()) {
        return;
    }
    let session = spawn_quiet(folder.path(), &["record", "--", "sleep", "600"]);
    let sleep = KillOnDrop(started(session.0.id(), "sleep"));
    check(
        session.0.id(),
        2,
        documented(SESSION) | documented(WITH_COMMAND),
        false,
    );
    assert_eq!(of_threads(sleep.0), [own()]);
}

#[test]
fn command_of_another_user_is_recorded_without_privileges() {
    let folder = tempfile::tempdir().unwrap();
    if !is_root() || !has_tracker(folder.path()) {
        return;
    }
    let script = "id -un; echo $HOME; grep -c 'Cap[IPE].*0000000000000000' /proc/self/status; sleep 3";
    let arguments = [
        "record",
        "--duration",
        "1m",
        "--user",
        "nobody",
        "--",
        "sh",
        "-c",
        script,
    ];
    let output = run(folder.path(), &arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[2]), ("nobody", "3"), "{text}");
    assert!(common::snapshots(folder.path(), "thermo.arrow") > 0);
    // Signals reach it, although it is another user's.
    let session = spawn_quiet(folder.path(), &["run", "--user", "nobody", "--", "sleep", "600"]);
    let sleep = started(session.0.id(), "sleep");
    assert_ne!(of_threads(sleep)[0].uid, 0);
    check(
        session.0.id(),
        2,
        documented(SESSION) | documented(WITH_COMMAND),
        false,
    );
    assert!(signal("TERM", session.0.id()));
    assert!(wait_until(|| !Path::new(&format!("/proc/{sleep}")).exists()));
}

#[test]
fn wrong_user_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["record", "--user", "no-such-user", "--", "touch", "started"][..],
        &["run", "--user", "no-such-user", "--", "touch", "started"],
        &[
            "lifecycle",
            "run",
            "none.toml",
            "--socket",
            "s",
            "--user",
            "no-such-user",
        ],
    ] {
        let output = run(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("no user \"no-such-user\""),
            "{}",
            stderr(&output)
        );
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let output = run(folder.path(), &["record", "--pid", "1", "--user", "nobody"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn hint_keeps_only_documented_capabilities() {
    let folder = tempfile::tempdir().unwrap();
    if !is_root() || !has_tracker(folder.path()) {
        return;
    }
    let target = sleeper();
    let pid = target.0.id().to_string();
    let hint = spawn_quiet(
        folder.path(),
        &["hint", "cold", "--pid", &pid, "--idle-for", "10m"],
    );
    check(hint.0.id(), 2, documented("`thermo hint`"), false);
}

#[test]
fn control_files_keep_only_documented_capabilities() {
    let folder = tempfile::tempdir().unwrap();
    if !is_root() || !Path::new("/dev/fuse").exists() {
        return eprintln!("SKIP: control files need root and /dev/fuse");
    }
    let kept = documented("`thermo fs`");
    let mut service = spawn_quiet(folder.path(), &["fs", "--mount", "."]);
    check(service.0.id(), 2, kept, false);
    assert!(signal("TERM", service.0.id()));
    service.0.wait().unwrap();

    let service = spawn_quiet(folder.path(), &["fs", "--", "sleep", "600"]);
    let sleep = started(service.0.id(), "sleep");
    check(service.0.id(), 2, kept, false);
    assert_eq!(of_threads(sleep), [own()]);
}

#[test]
fn lifecycle_daemon_keeps_only_documented_privileges() {
    if !is_root() {
        return;
    }
    let kept = documented("`thermo lifecycle run`");
    let target = sleeper();
    let config = daemon::app("a", target.0.id(), "");
    let daemon = Daemon::start(&config, &[]);
    check(daemon.process.0.id(), 4, kept, true);
    let daemon = Daemon::start(&config, &["--unconfined"]);
    assert!(
        of_threads(daemon.process.0.id())
            .iter()
            .all(|thread| *thread == own())
    );
}

#[test]
fn lifecycle_daemon_of_another_user_reclaims_from_processes_of_root() {
    if !is_root() {
        return;
    }
    let Some(_swap) = daemon::swap() else { return };
    let folder = tempfile::tempdir().unwrap();
    let target = daemon::target(folder.path());
    let config = daemon::app("a", target.0.id(), "");
    let daemon = Daemon::start(&config, &["--user", "nobody"]);
    let threads = of_threads(daemon.process.0.id());
    assert!(
        threads
            .iter()
            .all(|thread| thread.uid != 0 && thread.filters_calls),
        "{threads:x?}"
    );
    check(
        daemon.process.0.id(),
        4,
        documented("`thermo lifecycle run`"),
        true,
    );
    daemon.ask(&["set", "a", "cached"]);
    let reclaim = daemon.wait_for_finished("a", "reclaim");
    assert_eq!(reclaim["cost"]["end"], "done", "{reclaim}");
    assert!(reclaim["cost"]["freed_kb"].as_u64().unwrap() > 0, "{reclaim}");
    // The configuration can be read again.
    assert!(signal("HUP", daemon.process.0.id()));
    assert!(
        wait_until(|| daemon.log().contains("read again")),
        "{}",
        daemon.log()
    );
}

fn sleeper() -> Guard {
    let mut sleep = Command::new("sleep");
    sleep.arg("600");
    spawn_command_quiet(sleep)
}

/// Whether the signal was sent.
fn signal(name: &str, pid: u32) -> bool {
    let mut kill = Command::new("kill");
    kill.args([&format!("-{name}"), &pid.to_string()])
        .status()
        .unwrap()
        .success()
}

/// The command of a session that is killed itself keeps running.
struct KillOnDrop(u32);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        signal("KILL", self.0);
    }
}
