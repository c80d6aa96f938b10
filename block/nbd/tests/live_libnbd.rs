//! Interoperability with nbdinfo and nbdcopy of libnbd.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::process::Command;

use thermo_nbd::{Export, Limits, Listen, Server, Sockets};
use thermo_pool::{Pools, Settings};
use thermo_units::Bytes;

fn run(program: &str, args: &[&str]) -> Option<String> {
    match Command::new(program).args(args).output() {
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{program} {args:?}: {stderr}");
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Err(error) => {
            eprintln!("SKIP: cannot run {program} (package libnbd-bin): {error}");
            None
        }
    }
}

#[test]
fn libnbd_lists_export_and_copies_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, source, back) = (
        dir.path().join("disk"),
        dir.path().join("source"),
        dir.path().join("back"),
    );
    let bytes: Vec<u8> = (0..4_u32 << 20)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    std::fs::write(&source, &bytes).unwrap();
    std::fs::write(&disk, vec![0; bytes.len()]).unwrap();
    let pools = Pools::new(Bytes::mib(2), Settings::default());
    let listen = vec![
        Listen::Unix(dir.path().join("socket")),
        Listen::Tcp("127.0.0.1:0".to_owned()),
    ];
    let exports = vec![Export::open("disk", &disk, false).unwrap()];
    let sockets = Sockets::open(listen).unwrap();
    let server = Server::start(exports, sockets, &pools, Limits::default(), None).unwrap();
    let unix = format!("nbd+unix:///disk?socket={}", dir.path().join("socket").display());
    let tcp = format!("nbd://{}/disk", server.addrs()[0]);

    let Some(info) = run("nbdinfo", &[&unix]) else {
        return;
    };
    for line in [
        "export-size: 4194304",
        "can_multi_conn: true",
        "can_flush: true",
        "can_trim: true",
        "can_zero: true",
    ] {
        assert!(info.contains(line), "{line} is not in {info}");
    }
    let list = run(
        "nbdinfo",
        &[
            "--list",
            &format!("nbd+unix:///?socket={}", dir.path().join("socket").display()),
        ],
    );
    assert!(list.unwrap().contains("export=\"disk\""));
    run("nbdcopy", &["--flush", source.to_str().unwrap(), &tcp]);
    assert_eq!(std::fs::read(&disk).unwrap(), bytes);
    run("nbdcopy", &[&unix, back.to_str().unwrap()]);
    assert_eq!(std::fs::read(&back).unwrap(), bytes);
    assert!(pools.usage().peak <= Bytes::mib(2), "{:?}", pools.usage());
}
