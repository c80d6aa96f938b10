//! The command `thermo-lab`: help texts and error messages.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the command under test and returns its output and exit status.
fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermo-lab"));
    command.current_dir(folder).args(arguments).output().unwrap()
}

/// Runs the command and expects exit code 2, one line on standard error that contains `message`, and no
/// output.
fn assert_fails(folder: &Path, arguments: &[&str], message: &str) {
    let output = run(folder, arguments);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {printed}");
    assert!(
        printed.contains(message),
        "{arguments:?} printed {printed:?}, not {message:?}"
    );
    assert_eq!(printed.trim_end().lines().count(), 1, "{printed}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed something");
}

#[test]
fn help_has_two_examples_for_each_subcommand() {
    let help = |arguments: &[&str]| {
        let output = run(Path::new("/"), &[arguments, &["--help"]].concat());
        let help = String::from_utf8(output.stdout).unwrap();
        let examples = help.split("Examples:").nth(1).unwrap_or("").to_owned();
        assert!(
            examples.matches("\n  thermo-lab ").count() >= 2,
            "{arguments:?}: {help}"
        );
        help
    };
    let all = help(&[]);
    let listed = all.lines().skip_while(|line| *line != "Commands:").skip(1);
    let subcommands = listed
        .take_while(|line| !line.is_empty())
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help");
    let subcommands: Vec<&str> = subcommands.collect();
    assert_eq!(
        subcommands,
        [
            "monitor",
            "reclaim",
            "huge-pages",
            "lru-sort",
            "lifecycle",
            "forecast",
            "fleet",
            "squeeze",
            "nodes",
            "workload"
        ]
    );
    for subcommand in subcommands {
        help(&[subcommand]);
    }
}

#[test]
fn squeeze_rejects_bad_options_before_any_run() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    for (options, message) in [
        (["--nbd-device", "/dev/no-such-device"], "modprobe nbd"),
        (["--block", "100M"], "512 B to 32 MiB"),
    ] {
        assert_fails(dir, &[&["squeeze"][..], &options].concat(), message);
    }
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
}

#[test]
fn workload_errors_name_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("bad.cfg"),
        "a, 4096\n\nphase\nsoon\na, 0, 64, 1\n",
    )
    .unwrap();
    assert_fails(folder.path(), &["workload", "bad.cfg"], "bad.cfg:4:1: ");
    assert_fails(folder.path(), &["workload", "missing.cfg"], "missing.cfg");
}

#[test]
fn fleet_rejects_bad_input_before_it_writes() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
    write("file", "");
    write("half.json", "{\"classes\": [{\"class\": \"leak\"");
    write(
        "unknown.json",
        r#"{"classes": [{"class": "webshop", "advice": {"min_age_s": 60}}]}"#,
    );
    write(
        "age.json",
        r#"{"classes": [{"class": "leak", "advice": {"min_age_s": -5}}]}"#,
    );
    write(
        "twice.json",
        r#"{"classes": [{"class": "leak"}, {"class": "leak", "advice": null}]}"#,
    );
    write(
        "anchor.json",
        r#"{"schema": 1, "class": "leak", "source": "", "bands": []}"#,
    );
    write("webshop.arrow", "");
    write("leak.arrow", "no recording");
    for (options, message) in [
        (
            &["--hosts", "0"][..],
            "a fleet of 0 hosts for 1 hours is empty: give at least 1 of each",
        ),
        (&["--hours", "0"], "a fleet of 1 hosts for 0 hours is empty"),
        (&["--out", "/proc/fleet"], "/proc/fleet: "),
        (&["--out", "."], "has files already: choose another --out"),
        (
            &["--interval", "7m"],
            "does not divide an hour: give --interval 5m",
        ),
        (
            &["--window", "7m"],
            "does not hold whole intervals of 300 s: give --window 1h",
        ),
        (&["--start", "Monday"], "no time such as 2026-11-02T00:00:00Z"),
        (&["--start", "2026-11-02T00:00:01Z"], "give --start a whole hour"),
        (&["--ages", "missing.json"], "missing.json: No such file"),
        (&["--ages", "half.json"], "half.json: no report of a fleet (EOF"),
        (
            &["--ages", "unknown.json"],
            "no job class is called \"webshop\"; there are batch-phases, ",
        ),
        (
            &["--ages", "age.json"],
            "the age -5 of leak is impossible: give seconds",
        ),
        (&["--ages", "twice.json"], "the class leak is there twice"),
        (
            &["--anchor", "anchor.json"],
            "the shares of the bands add up to 0, not to 1",
        ),
        (&["--anchor", "webshop.arrow"], "name a recording after its class"),
        (&["--anchor", "leak.arrow"], "leak.arrow: "),
    ] {
        let mut arguments = vec!["fleet"];
        for (name, value) in [("--hosts", "1"), ("--hours", "1"), ("--out", "new")] {
            if options[0] != name {
                arguments.extend([name, value]);
            }
        }
        arguments.extend(options);
        assert_fails(dir, &arguments, message);
    }
    let files = fs::read_dir(dir.join("new")).map(Iterator::count).unwrap_or(0);
    assert_eq!(files, 0, "something was written");
}

#[test]
fn fleet_writes_files_and_prints_the_truth() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let arguments = [
        "fleet", "--hosts", "2", "--hours", "1", "--seed", "5", "--out", "new", "--json",
    ];
    let output = run(dir, &arguments);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let written = fs::read_to_string(dir.join("new/truth.json")).unwrap();
    assert_eq!(
        printed,
        serde_json::from_str::<serde_json::Value>(&written).unwrap()
    );
    assert_eq!((&printed["schema"], &printed["hosts"]), (&1.into(), &2.into()));
    assert_eq!(printed["classes"].as_array().unwrap().len(), 12);
    assert!(dir.join("new/date=2026-11-02").is_dir());
}

#[test]
fn subcommand_names_its_missing_default_file() {
    let folder = tempfile::tempdir().unwrap();
    for subcommand in [
        "monitor",
        "reclaim",
        "huge-pages",
        "lru-sort",
        "lifecycle",
        "forecast",
    ] {
        let file = format!("workloads/experiments/{subcommand}.toml");
        assert_fails(folder.path(), &[subcommand], &file);
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert!(project.join(&file).exists(), "{file}");
    }
}

#[test]
fn experiment_names_missing_program() {
    // A link, not a copy: a child that another test forks meanwhile would hold the copy open for writing
    // (ETXTBSY).
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = folder.path();
    let program = dir.join("thermo-lab");
    fs::hard_link(env!("CARGO_BIN_EXE_thermo-lab"), &program).unwrap();
    let output = Command::new(&program)
        .current_dir(dir)
        .env("PATH", dir)
        .args(["squeeze", "--devices", "1"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("thermo-nbd is needed"), "{printed}");
}

#[test]
fn workload_prints_config_and_writes_truth() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    fs::write(dir.join("a.cfg"), "a, 65536\n\nphase\n10\na, 0, 4096, 1\n").unwrap();
    let printed = run(dir, &["workload", "a.cfg", "--print-config"]);
    assert!(String::from_utf8_lossy(&printed.stdout).contains("65536"));
    let done = run(dir, &["workload", "-q", "a.cfg", "--truth", "truth.jsonl"]);
    assert_eq!(done.status.code(), Some(0));
    assert!(done.stdout.is_empty());
    let truth = fs::read_to_string(dir.join("truth.jsonl")).unwrap();
    assert!(truth.contains("\"ranges\""), "{truth}");
}
