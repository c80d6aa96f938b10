//! `thermo doctor --leftovers` lists settings that a killed instance or script left changed.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Guard, run};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

/// The leftovers of process `pid`, as the command prints them.
fn leftovers_of(dir: &Path, pid: u32) -> Vec<Value> {
    let output = run(dir, &["doctor", "--leftovers", "--json"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = printed["leftovers"].as_array().unwrap();
    let of_pid = all.iter().filter(|note| note["pid"] == pid).cloned().collect();
    assert_eq!(
        output.status.code(),
        Some(i32::from(!all.is_empty())),
        "{printed}"
    );
    of_pid
}

/// A file that is removed at the end of the test.
struct TempFile(PathBuf);

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn swap_of_killed_script_is_listed() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: only root can set up swap on zram");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // A file in the place of the device: the command reads only the note.
    let device = dir.path().join("zram4093");
    fs::write(&device, "").unwrap();
    let script = "set -euo pipefail; . \"$0\"; zram=$1; note_zram; kill -KILL $$";
    let zram_sh = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/zram.sh");
    let mut killed = Command::new("bash")
        .args(["-c", script])
        .args([&zram_sh, &device])
        .spawn()
        .unwrap();
    let pid = killed.id();
    let _note = TempFile(format!("/run/thermocline/zram-swap-{pid}-script").into());
    assert_eq!(killed.wait().unwrap().code(), None, "it was killed");
    let leftovers = leftovers_of(dir.path(), pid);
    assert_eq!(leftovers.len(), 1, "{leftovers:?}");
    assert_eq!(leftovers[0]["kind"], "zram-swap");
    let device = device.display();
    let expected = format!(
        "swap on {device}: `swapoff {device}; echo 4093 > /sys/class/zram-control/hot_remove` removes it"
    );
    assert_eq!(leftovers[0]["left"], serde_json::json!([expected]));
    fs::remove_file(dir.path().join("zram4093")).unwrap();
    assert!(leftovers_of(dir.path(), pid).is_empty(), "the device is gone");
}

/// The name of a process that sets the title of a terminal, and clears the screen.
const HOSTILE_NAME: &str = "\u{1b}]0;x\u{7}\u{1b}[2J";

/// Checks that the command printed nothing that a terminal acts on.
fn assert_escaped(dir: &Path, arguments: &[&str]) {
    let output = run(dir, arguments);
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    let is_raw = |c: char| c.is_control() && c != '\n';
    assert!(!printed.contains(is_raw), "{arguments:?}: {printed:?}");
}

#[test]
fn names_of_processes_are_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join(HOSTILE_NAME);
    fs::copy("/bin/sleep", &program).unwrap();
    let sleeper = Guard(Command::new(&program).arg("600").spawn().unwrap());
    let pid = sleeper.0.id().to_string();
    let record = ["record", "--pid", &pid, "--duration", "1s", "-o", "r.arrow"];
    assert_escaped(dir.path(), &record);
    for report in ["summary", "regions", "info", "heatmap", "wss", "idle"] {
        assert_escaped(dir.path(), &["report", report, "r.arrow"]);
    }
    assert_escaped(dir.path(), &["hint", "cold", "--pid", &pid]);
    assert_escaped(dir.path(), &["doctor"]);
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: only root writes notes to /run");
        return;
    }
    // A note of a program that found the name, and was killed.
    let text = format!("thermo-leftovers 1 {HOSTILE_NAME} 4194305 1\n- - of {HOSTILE_NAME}\n");
    fs::create_dir_all("/run/thermocline").unwrap();
    let note = TempFile("/run/thermocline/test-4194305-0".into());
    fs::write(&note.0, text).unwrap();
    let listed = run(dir.path(), &["doctor", "--leftovers"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("  of \\x1b]0;x\\x07\\x1b[2J\n"), "{listed}");
    assert_escaped(dir.path(), &["doctor", "--leftovers"]);
}

/// Starts `script` in bash, after it has read scripts/leftovers.sh, with `file` as `$1`.
fn start_script(script: &str, file: &Path) -> Guard {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/leftovers.sh");
    let script = format!("set -euo pipefail; . \"$0\"; {script}");
    let mut command = Command::new("bash");
    command.args(["-c", &script]).arg(&source).arg(file);
    Guard(
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    )
}

#[test]
fn killed_installation_allows_services_again() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: only root writes notes to /run");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy-rc.d");
    let mut script = start_script("forbid_services \"$1\"; echo forbidden; read -r", &policy);
    let pid = script.0.id();
    let note = TempFile(format!("/run/thermocline/policy-rc.d-{pid}-script").into());
    let mut line = String::new();
    BufReader::new(script.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "forbidden\n");
    let ask = || Command::new(&policy).status().unwrap().code();
    assert_eq!(ask(), Some(101));
    script.0.kill().unwrap();
    script.0.wait().unwrap();
    let leftovers = leftovers_of(folder.path(), pid);
    assert_eq!(leftovers[0]["kind"], "policy-rc.d", "{leftovers:?}");
    // The file that is left allows services, and is gone after it was asked.
    assert_eq!(ask(), Some(0));
    assert!(!policy.exists() && !note.0.exists());
}

#[test]
fn second_run_of_a_checkout_is_refused() {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let lock = fs::File::open(&checkout).unwrap();
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        eprintln!("SKIP: scripts/run.sh runs in this checkout");
        return;
    }
    let output = Command::new("bash")
        .arg(checkout.join("scripts/run.sh"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("another run of this checkout is in progress"),
        "{text}"
    );
}
