//! The command `thermo-lab`: its help, and what a user can get wrong.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// What the command under test printed, and how it ended.
fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermo-lab"));
    command.current_dir(folder).args(arguments).output().unwrap()
}

/// Runs it, and checks for exit 2, one sentence that says `says`, and nothing on standard output.
fn refused(folder: &Path, arguments: &[&str], says: &str) {
    let output = run(folder, arguments);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {printed}");
    assert!(
        printed.contains(says),
        "{arguments:?} said {printed:?}, not {says:?}"
    );
    assert_eq!(printed.trim_end().lines().count(), 1, "{printed}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed something");
}

#[test]
fn help_of_the_command_and_of_each_verb_has_two_examples() {
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
    let verbs = listed
        .take_while(|line| !line.is_empty())
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help");
    let verbs: Vec<&str> = verbs.collect();
    assert_eq!(
        verbs,
        [
            "monitor",
            "reclaim",
            "huge-pages",
            "lru-sort",
            "lifecycle",
            "squeeze",
            "workload"
        ]
    );
    for verb in verbs {
        help(&[verb]);
    }
}

#[test]
fn squeeze_that_cannot_be_measured_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (more, says) in [
        (["--through", "/dev/no-such-device"], "modprobe nbd"),
        (["--block", "100M"], "512 B to 32 MiB"),
    ] {
        refused(here, &[&["squeeze"][..], &more].concat(), says);
    }
    assert_eq!(fs::read_dir(here).unwrap().count(), 0);
}

#[test]
fn mistakes_in_a_workload_have_a_place() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("bad.cfg"),
        "a, 4096\n\nphase\nsoon\na, 0, 64, 1\n",
    )
    .unwrap();
    refused(folder.path(), &["workload", "bad.cfg"], "bad.cfg:4:1: ");
    refused(folder.path(), &["workload", "missing.cfg"], "missing.cfg");
}

#[test]
fn experiment_that_is_not_there_is_named_by_its_verb() {
    let folder = tempfile::tempdir().unwrap();
    for verb in ["monitor", "reclaim", "huge-pages", "lru-sort", "lifecycle"] {
        let file = format!("workloads/experiments/{verb}.toml");
        refused(folder.path(), &[verb], &file);
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert!(project.join(&file).exists(), "{file}");
    }
}

#[test]
fn program_that_an_experiment_needs_and_nobody_has_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let alone = here.join("thermo-lab");
    fs::copy(env!("CARGO_BIN_EXE_thermo-lab"), &alone).unwrap();
    let output = Command::new(&alone)
        .current_dir(here)
        .env("PATH", here)
        .args(["squeeze", "--devices", "1"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("thermo-nbd is needed"), "{printed}");
}

#[test]
fn workload_prints_its_configuration_and_runs_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("a.cfg"), "a, 65536\n\nphase\n10\na, 0, 4096, 1\n").unwrap();
    let printed = run(here, &["workload", "a.cfg", "--print-config"]);
    assert!(String::from_utf8_lossy(&printed.stdout).contains("65536"));
    let done = run(here, &["workload", "-q", "a.cfg", "--truth", "truth.jsonl"]);
    assert_eq!(done.status.code(), Some(0));
    assert!(done.stdout.is_empty());
    let truth = fs::read_to_string(here.join("truth.jsonl")).unwrap();
    assert!(truth.contains("\"ranges\""), "{truth}");
}
