//! The command `thermo-nbd`, from its start to its orderly end.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a condition may take on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The command under test, in `folder`.
fn thermo_nbd(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermo-nbd"));
    command.current_dir(folder).args(arguments);
    command
}

/// What it printed, and how it ended.
fn run(folder: &Path, arguments: &[&str]) -> Output {
    thermo_nbd(folder, arguments).output().unwrap()
}

/// Its standard output as JSON.
fn json(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asks `condition` again and again until it holds; false when patience ends.
fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while !condition() {
        if begin.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

#[test]
fn help_of_the_command_and_of_each_verb_has_two_examples() {
    let here = Path::new("/");
    for verb in [&[][..], &["status"], &["set"], &["squeeze"]] {
        let output = run(here, &[verb, &["--help"]].concat());
        let help = String::from_utf8(output.stdout).unwrap();
        let examples = help.split("Examples:").nth(1).unwrap_or("");
        assert!(
            examples.matches("\n  thermo-nbd ").count() >= 2,
            "{verb:?}: {help}"
        );
    }
}

#[test]
fn it_serves_until_it_is_asked_to_end_and_then_tells_what_it_did() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("disk.img"), vec![0; 65536]).unwrap();
    let arguments = [
        "--unix",
        "socket",
        "--export",
        "disk=disk.img,ro",
        "--budget",
        "1M",
        "--json",
    ];
    let server = thermo_nbd(folder.path(), &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let socket = folder.path().join("socket");
    assert!(
        wait_until(|| UnixStream::connect(&socket).is_ok()),
        "nobody listens"
    );
    let mut client = UnixStream::connect(&socket).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut greeting = [0; 16];
    client.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"NBDMAGICIHAVEOPT");

    let pid = server.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    let output = server.wait_with_output().unwrap();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(
        told.contains("pressure: "),
        "which sources are asked, and why: {told}"
    );
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["budget_bytes"], 1 << 20);
    assert!(summary["pools"]["disk"].is_object(), "{summary}");
    assert!(!socket.exists());
}

#[test]
fn a_running_server_is_asked_and_changed_over_its_control_socket() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let arguments = [
        "--unix",
        "s",
        "--control",
        "c",
        "--export",
        "m=mem:,size=1M",
        "--budget",
        "2M",
    ];
    let mut server = thermo_nbd(here, &arguments)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(wait_until(|| here.join("c").exists()), "nobody answers");
    let status = json(here, &["status", "--control", "c", "--json"]);
    assert_eq!(
        (&status["budget_bytes"], &status["schema"]),
        (&(2 << 20).into(), &1.into())
    );
    let set = run(
        here,
        &["set", "--control", "c", "max_buffer_pages=7", "budget=3M"],
    );
    assert_eq!(set.status.code(), Some(0), "{}", stderr(&set));
    for (settings, says) in [
        (&["max_buffer_pages=8", "budget=1"][..], "too small"),
        (&["max_buffer_pages=many"], "no number"),
        (&["pages=1"], "cannot be set"),
    ] {
        let output = run(here, &[&["set", "--control", "c"][..], settings].concat());
        assert_eq!(output.status.code(), Some(2), "{settings:?}");
        assert!(
            stderr(&output).contains(says),
            "{settings:?}: {}",
            stderr(&output)
        );
    }
    let status = json(here, &["status", "--control", "c", "--json"]);
    assert_eq!(
        (&status["max_buffer_pages"], &status["budget_bytes"]),
        (&7.into(), &(3 << 20).into())
    );
    let metrics = run(here, &["status", "--control", "c", "--metrics"]);
    assert!(String::from_utf8_lossy(&metrics.stdout).contains("thermo_nbd_budget_bytes 3145728"));
    server.kill().unwrap();
    server.wait().unwrap();
    let gone = run(here, &["status", "--control", "c"]);
    assert_eq!(gone.status.code(), Some(2));
    assert!(
        stderr(&gone).contains("no server answers at c"),
        "{}",
        stderr(&gone)
    );
}

#[test]
fn what_cannot_be_served_is_said_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("disk.img"), "x").unwrap();
    for (arguments, says) in [
        (&["--export", "disk=disk.img"][..], "--unix PATH, --tcp"),
        (&["--unix", "s", "--export", "disk"], "NAME=PATH"),
        (&["--unix", "s", "--export", "disk=nowhere.img"], "nowhere.img"),
        (
            &["--unix", "s", "--export", "disk=disk.img", "--budget", "4K"],
            "Raise the budget",
        ),
        (
            &["-s", "--export", "disk=disk.img"],
            "standard input is no socket",
        ),
        (
            &["--unix", "s", "--export", "disk=disk.img,size=2"],
            "holds 1 B, 2 B are to be served",
        ),
        (
            &[
                "--unix",
                "s",
                "--export",
                "disk=disk.img",
                "--tls-cert",
                "disk.img",
                "--tls-key",
                "disk.img",
            ],
            "no certificate in PEM form",
        ),
        (
            &["--unix", "no/such/folder/s", "--export", "disk=disk.img"],
            "cannot listen",
        ),
    ] {
        let output = run(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            stderr(&output).contains(says),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn the_disk_of_a_machine_is_named_and_there() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (given, says) in [
        ("s", "\"s\" is not PATH=EXPORT"),
        ("=disk", "\"=disk\" is not PATH=EXPORT"),
        ("s=dsik", "no export is named \"dsik\""),
    ] {
        let arguments = ["--vhost-user", given, "--export", "disk=mem:,size=1M"];
        let output = run(here, &arguments);
        assert_eq!(output.status.code(), Some(2), "{given}");
        assert!(stderr(&output).contains(says), "{given}: {}", stderr(&output));
        assert!(!here.join("s").exists(), "{given}");
    }
}
