//! `thermo nbd` from its start to its orderly end.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use common::{PATIENCE, run, stderr, thermo, wait_until};

#[test]
fn it_serves_until_it_is_asked_to_end_and_then_tells_what_it_did() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("disk.img"), vec![0; 65536]).unwrap();
    let arguments = [
        "nbd",
        "--unix",
        "socket",
        "--export",
        "disk=disk.img,ro",
        "--budget",
        "1M",
        "--json",
    ];
    let server = thermo(folder.path(), &arguments)
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
        "nbd",
        "--unix",
        "s",
        "--control",
        "c",
        "--export",
        "m=mem:,size=1M",
        "--budget",
        "2M",
    ];
    let mut server = thermo(here, &arguments).stderr(Stdio::null()).spawn().unwrap();
    assert!(wait_until(|| here.join("c").exists()), "nobody answers");
    let status = common::json(here, &["nbd", "status", "--control", "c", "--json"]);
    assert_eq!(
        (&status["budget_bytes"], &status["schema"]),
        (&(2 << 20).into(), &1.into())
    );
    let set = run(
        here,
        &["nbd", "set", "--control", "c", "max_buffer_pages=7", "budget=3M"],
    );
    assert_eq!(set.status.code(), Some(0), "{}", stderr(&set));
    for (settings, says) in [
        (&["max_buffer_pages=8", "budget=1"][..], "too small"),
        (&["max_buffer_pages=many"], "no number"),
        (&["pages=1"], "cannot be set"),
    ] {
        let output = run(here, &[&["nbd", "set", "--control", "c"][..], settings].concat());
        assert_eq!(output.status.code(), Some(2), "{settings:?}");
        assert!(
            stderr(&output).contains(says),
            "{settings:?}: {}",
            stderr(&output)
        );
    }
    let status = common::json(here, &["nbd", "status", "--control", "c", "--json"]);
    assert_eq!(
        (&status["max_buffer_pages"], &status["budget_bytes"]),
        (&7.into(), &(3 << 20).into())
    );
    let metrics = run(here, &["nbd", "status", "--control", "c", "--metrics"]);
    assert!(String::from_utf8_lossy(&metrics.stdout).contains("thermo_nbd_budget_bytes 3145728"));
    server.kill().unwrap();
    server.wait().unwrap();
    let gone = run(here, &["nbd", "status", "--control", "c"]);
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
        (&["nbd", "--export", "disk=disk.img"][..], "--unix PATH, --tcp"),
        (&["nbd", "--unix", "s", "--export", "disk"], "NAME=PATH"),
        (
            &["nbd", "--unix", "s", "--export", "disk=nowhere.img"],
            "nowhere.img",
        ),
        (
            &[
                "nbd",
                "--unix",
                "s",
                "--export",
                "disk=disk.img",
                "--budget",
                "4K",
            ],
            "Raise the budget",
        ),
        (
            &["nbd", "-s", "--export", "disk=disk.img"],
            "standard input is no socket",
        ),
        (
            &["nbd", "--unix", "s", "--export", "disk=disk.img,size=2"],
            "holds 1 B, 2 B are to be served",
        ),
        (
            &[
                "nbd",
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
            &["nbd", "--unix", "no/such/folder/s", "--export", "disk=disk.img"],
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
        let arguments = ["nbd", "--vhost-user", given, "--export", "disk=mem:,size=1M"];
        let output = run(here, &arguments);
        assert_eq!(output.status.code(), Some(2), "{given}");
        assert!(stderr(&output).contains(says), "{given}: {}", stderr(&output));
        assert!(!here.join("s").exists(), "{given}");
    }
}
