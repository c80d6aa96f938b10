//! The command: exit codes and sentences.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::Path;
use std::process::Command;

const FILE: &str = "date=2026-11-02/cluster=a/n.1.v1.parquet";

/// Runs the command in `dir`. Returns its exit code and what it said.
fn run(dir: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_thermo-upload"))
        .args(arguments)
        .current_dir(dir)
        .env_remove("AWS_ENDPOINT_URL")
        .envs([
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_REGION", "us-east-1"),
        ])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said.trim_end().to_owned())
}

fn with_file() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("spool").join(FILE);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "rows").unwrap();
    fs::create_dir(dir.path().join("store")).unwrap();
    dir
}

#[test]
fn once_moves_all_files() {
    let dir = with_file();
    let arguments = ["--from", "spool", "--to", "store", "--once"];
    assert_eq!(run(dir.path(), &arguments), (Some(0), String::new()));
    assert_eq!(
        fs::read_to_string(dir.path().join("store").join(FILE)).unwrap(),
        "rows"
    );
    assert_eq!(fs::read_dir(dir.path().join("spool")).unwrap().count(), 0);
}

#[test]
fn files_wait_for_a_store_that_is_away() {
    let dir = with_file();
    // Nobody listens at this port of the loopback interface.
    let (code, said) = run(
        dir.path(),
        &[
            "--from",
            "spool",
            "--to",
            "s3://memory/fleet",
            "--endpoint",
            "http://127.0.0.1:1",
            "--allow-http",
            "--once",
        ],
    );
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.starts_with("thermo-upload: s3://memory/fleet cannot be written: "),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(dir.path().join("spool").join(FILE).exists());
}

#[test]
fn mistakes_have_a_way_out_and_move_nothing() {
    let dir = with_file();
    for (arguments, expected) in [
        (
            &["--from", "nowhere", "--to", "store"][..],
            "cannot read nowhere: give the agent's export folder with --from",
        ),
        (
            &["--from", "spool", "--to", "missing"],
            "cannot read missing: create the folder, or correct --to",
        ),
        (
            &["--from", "spool", "--to", "ftp://x/y"],
            "ftp:// is not known: write s3://BUCKET/PREFIX",
        ),
        (
            &[
                "--from",
                "spool",
                "--to",
                "s3://memory",
                "--endpoint",
                "http://127.0.0.1:1",
            ],
            "the endpoint has no TLS",
        ),
        (
            &["--from", "spool", "--to", "store", "--every", "0s"],
            "--every 0s would never rest",
        ),
        (&["--from", "spool"], "--to <STORE>"),
    ] {
        let (code, said) = run(dir.path(), arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert!(dir.path().join("spool").join(FILE).exists());
    }
}
