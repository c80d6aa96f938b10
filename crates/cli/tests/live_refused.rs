//! What `thermo` says where the kernel, a user namespace or a system call filter refuses its calls.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{Guard, start_workload, workload};
use serde_json::Value;

const THERMO: &str = env!("CARGO_BIN_EXE_thermo");

fn target(folder: &Path) -> (Guard, String) {
    let child = start_workload(folder, &workload(folder, 300_000).unwrap());
    let pid = child.0.id().to_string();
    (child, pid)
}

/// Refuses a system call to this process as the filter of a container does, and becomes the command. The
/// arguments are the numbers of the call and of the error, and the command.
const FILTER: &str = r#"
import ctypes, os, struct, sys
call, errno = int(sys.argv[1]) % 2**32, int(sys.argv[2])
# Load the number of the call; if it is `call`, return the error; allow all others.
code = [(0x20, 0, 0, 0), (0x15, 0, 1, call), (0x06, 0, 0, 0x50000 | errno), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    sys.exit("no filter: " + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[3], sys.argv[3:])
"#;

/// Runs thermo, to which the kernel refuses `call`.
fn run_without(call: i64, errno: i32, arguments: &[&str]) -> Output {
    let mut command = Command::new("python3");
    command.args(["-c", FILTER, &call.to_string(), &errno.to_string(), THERMO]);
    command.args(arguments).output().unwrap()
}

/// Whether system calls can be filtered; prints the reason if not.
fn can_filter() -> bool {
    let output = Command::new("python3")
        .args(["-c", FILTER, "-1", "1", THERMO, "--version"])
        .output();
    let works = output.as_ref().is_ok_and(|output| output.status.success());
    if !works {
        eprintln!("SKIP: system calls cannot be filtered with python3: {output:?}");
    }
    works
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The entry `name` of the trackers or actions of `doctor --json`.
fn entry(output: &Output, list: &str, name: &str) -> Value {
    let doctor: Value = serde_json::from_slice(&output.stdout).unwrap();
    let entries = doctor[list].as_array().unwrap();
    entries.iter().find(|one| one["name"] == name).unwrap().clone()
}

/// Whether the entry is available without a filter; prints the reason if not.
fn is_available(list: &str, name: &str) -> bool {
    let output = Command::new(THERMO).args(["doctor", "--json"]).output().unwrap();
    let entry = entry(&output, list, name);
    if entry["available"] != true {
        eprintln!("SKIP: {name} is not available: {}", entry["reason"]);
    }
    entry["available"] == true
}

#[test]
fn filtered_advice_is_reported_by_doctor_and_hint() {
    if !is_available("actions", "cold") || !can_filter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_target, pid) = target(folder.path());
    for (errno, name) in [(libc::ENOSYS, "os error 38"), (libc::EPERM, "os error 1")] {
        let doctor = run_without(libc::SYS_process_madvise, errno, &["doctor", "--json"]);
        for (list, what) in [("actions", "cold"), ("actions", "pageout"), ("trackers", "pte")] {
            let entry = entry(&doctor, list, what);
            assert_eq!(entry["available"], false, "{entry}");
            let reason = entry["reason"].as_str().unwrap();
            assert!(
                reason.contains("process_madvise(MADV_") && reason.contains(name),
                "{entry}"
            );
            assert!(reason.contains("system call filter"), "{entry}");
        }
        assert_eq!(entry(&doctor, "actions", "lru_prio")["available"], true);
        for dry_run in [&[][..], &["--dry-run"]] {
            let arguments = [&["hint", "cold", "--pid", &pid][..], dry_run].concat();
            let hint = run_without(libc::SYS_process_madvise, errno, &arguments);
            assert_eq!(hint.status.code(), Some(2), "{}", stderr(&hint));
            assert!(stderr(&hint).contains("system call filter"), "{}", stderr(&hint));
        }
    }
}

#[test]
fn filtered_bpf_does_not_blame_the_verifier() {
    if !is_available("trackers", "pte") || !can_filter() {
        return;
    }
    for (errno, name) in [(libc::ENOSYS, "Function not implemented"), (libc::EPERM, "EPERM")] {
        let doctor = run_without(libc::SYS_bpf, errno, &["doctor", "--json"]);
        let pte = entry(&doctor, "trackers", "pte");
        let reason = pte["reason"].as_str().unwrap();
        assert!(pte["available"] == false && reason.contains(name), "{pte}");
        assert!(
            !reason.contains("verifier") && reason.contains("system call filter"),
            "{pte}"
        );
    }
}

#[test]
fn capabilities_of_a_user_namespace_do_not_count() {
    if !is_available("actions", "cold") {
        return;
    }
    let within = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(["--user", "--map-root-user", THERMO])
            .args(arguments);
        command.output()
    };
    match within(&["--version"]) {
        Ok(output) if output.status.success() => {}
        why => return eprintln!("SKIP: a user namespace cannot be made: {why:?}"),
    }
    let doctor = within(&["doctor", "--json"]).unwrap();
    let cold = entry(&doctor, "actions", "cold");
    assert_eq!(cold["available"], false, "{cold}");
    assert!(
        cold["reason"].as_str().unwrap().contains("user namespace"),
        "{cold}"
    );
    // A process within the same namespace may be read. It ends with its shell.
    let script = "sleep 300 & \"$0\" hint cold --pid $!; code=$?; kill $!; exit $code";
    let hint = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", script, THERMO])
        .output()
        .unwrap();
    assert_eq!(hint.status.code(), Some(2), "{}", stderr(&hint));
    assert!(stderr(&hint).contains("user namespace"), "{}", stderr(&hint));
}
