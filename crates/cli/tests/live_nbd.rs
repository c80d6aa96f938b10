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
fn what_cannot_be_served_is_said_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("disk.img"), "x").unwrap();
    for (arguments, says) in [
        (&["nbd", "--export", "disk=disk.img"][..], "--unix PATH or --tcp"),
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
