//! Misuse of the command: each gives one sentence and exit code 2, and no file is lost.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

#[path = "../common/mod.rs"]
mod common;
mod recordings;
mod schemes;

use std::fs;

use common::{run, stderr};

/// Checks that the command exits with 2, prints one sentence with `expected`, and has no standard output.
fn refused(folder: &std::path::Path, arguments: &[&str], expected: &str) {
    let output = run(folder, arguments);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(
        message.contains(expected),
        "{arguments:?} printed {message:?}, not {expected:?}"
    );
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed something");
    assert!(!message.contains("panicked"), "{message}");
}

#[test]
fn contradictory_settings_touch_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    fs::write(dir.join("thermo.arrow"), "precious").unwrap();
    let pid = std::process::id().to_string();
    let with = |more: &[&'static str]| -> Vec<String> {
        ["record", "--pid", &pid]
            .into_iter()
            .chain(more.iter().copied())
            .map(str::to_owned)
            .collect()
    };
    for (more, expected) in [
        (["--sample", "1s"], "longer than the aggregation interval"),
        (["--min-regions", "2"], "--min-regions must be 3 or more"),
        (["--max-regions", "5"], "above the maximum (5)"),
        (["--tracker", "magic"], "magic is not a tracker"),
        (["--cpu", "0"], "too little for an access check"),
        (["--cpu", "9999999%"], "is more than this machine has"),
        (["--cpu", "much"], "is not a share of a CPU"),
        (["--intervals-autotune", "--cpu=1%"], "chosen for --cpu"),
        (["--intervals-autotune", "--sample=1ms"], "does not lie between"),
        (["--shared", "--sample=5ms"], "--shared scans every page"),
        (["--snapshot=1ms", "--cpu=1%"], "--snapshot 1.00 ms is too short"),
        (["--method=scan", "--sample=5ms"], "--method scan has no --sample"),
    ] {
        let arguments = with(&more);
        refused(
            dir,
            &arguments.iter().map(String::as_str).collect::<Vec<_>>(),
            expected,
        );
    }
    assert_eq!(fs::read_to_string(dir.join("thermo.arrow")).unwrap(), "precious");
    assert!(!dir.join("thermo.arrow.old").exists());
}

#[test]
fn wrong_targets_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    refused(folder.path(), &["record"], "no target is named");
    refused(
        folder.path(),
        &["reclaim"],
        "--cgroup PATH, --unit UNIT, --system, or a command",
    );
    refused(folder.path(), &["run"], "no command is given");
    refused(
        folder.path(),
        &["record", "--pid", "4194304"],
        "no process 4194304",
    );
    refused(folder.path(), &["record", "--pid", "1"], "process 1");
    refused(folder.path(), &["record", "--pid", "77", "--", "true"], "both");
    for named in [["--pid", "1"], ["--cgroup", "/a"]] {
        let arguments = [&["record", "--system"][..], &named].concat();
        refused(folder.path(), &arguments, "--system names every process already");
    }
    refused(
        folder.path(),
        &["record", "--children", "--no-children", "--", "true"],
        "--children and --no-children contradict each other",
    );
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        0,
        "a file was left behind"
    );
}

#[test]
fn root_group_does_not_mean_the_whole_machine() {
    let folder = tempfile::tempdir().unwrap();
    for group in ["", "/", "//"] {
        let output = run(
            folder.path(),
            &["reclaim", "--cgroup", group, "--dry-run", "--duration", "1s"],
        );
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{group:?}: {message}");
        // Machines without control groups have another message.
        assert!(
            message.contains("is the whole machine") || message.contains("control group"),
            "{message}"
        );
    }
}

#[test]
fn missing_command_gives_127_and_touches_no_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("thermo.arrow"), "precious").unwrap();
    for verb in ["run", "record"] {
        let output = run(folder.path(), &[verb, "--", "no-such-command-here"]);
        assert_eq!(output.status.code(), Some(127));
        assert!(stderr(&output).contains("command not found: no-such-command-here"));
    }
    assert_eq!(
        fs::read_to_string(folder.path().join("thermo.arrow")).unwrap(),
        "precious"
    );
}

#[test]
fn wrong_hints_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let pid = std::process::id().to_string();
    refused(dir, &["hint", "cold"], "no target is named");
    refused(
        dir,
        &["hint", "cold", "--name", "no-such-program"],
        "no process is named no-such-program",
    );
    refused(dir, &["hint", "cold", "--pid", "4194304"], "no process 4194304");
    refused(dir, &["hint", "cold", "--pid", "1"], "process 1");
    refused(dir, &["hint", "migrate_hot", "--pid", &pid], "migrate_hot");
    for wrong in [
        &["hint", "melt", "--pid", &pid][..],
        &["hint", "cold", "--pid", &pid, "--range", "2000-1000"][..],
        &["hint", "cold", "--pid", &pid, "--anon", "--file"][..],
    ] {
        let output = run(dir, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(output.stdout.is_empty());
    }
}

/// On every machine: one has a single node, the other lacks this one.
#[test]
fn tiers_without_two_nodes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let pid = std::process::id().to_string();
    let tier = |flags: &[&'static str]| -> Vec<String> {
        let all = [&["tier", "--pid", &pid], flags].concat();
        all.into_iter().map(str::to_owned).collect()
    };
    for (flags, expected) in [
        (&["--fast", "0", "--slow", "1023"][..], "node"),
        (
            &["--fast", "0", "--slow", "0"],
            "node 0 is both the fast and the slow node",
        ),
        (
            &["--fast", "0", "--slow", "1023", "--fast-used", "0%"],
            "from 1 % to 99 %",
        ),
        (
            &["--fast", "0", "--slow", "1023", "--bandwidth", "1M"],
            "at least 20 MiB/s",
        ),
    ] {
        let args = tier(flags);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        refused(dir, &args, expected);
    }
    refused(
        dir,
        &["tier", "--fast", "0", "--slow", "1023"],
        "no target is named",
    );
    let scheme = "[[scheme]]\naction = \"migrate_cold\"\ntarget_nid = 1023\n";
    std::fs::write(dir.join("far.toml"), scheme).unwrap();
    refused(dir, &["schemes", "apply", "far.toml", "--pid", &pid], "node");
    std::fs::write(
        dir.join("nowhere.toml"),
        "[[scheme]]\naction = \"migrate_cold\"\n",
    )
    .unwrap();
    refused(
        dir,
        &["schemes", "apply", "nowhere.toml", "--pid", &pid],
        "has no node to migrate to",
    );
}

#[test]
fn numbers_that_do_not_parse_name_what_is_expected() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (&["record", "--pid", "abc"][..], "give a process ID like 4242"),
        (&["hint", "cold", "--pid", "abc"], "give a process ID like 4242"),
        (&["record", "--seed", "x"], "give a whole number like 10"),
        (&["record", "--max-regions", "1k"], "give a whole number like 10"),
        (&["reclaim", "--quota-ms", "10ms"], "give a whole number like 10"),
        (
            &["reclaim", "--wmarks-high", "5000000000"],
            "the number is too large",
        ),
        (&["lru-sort", "--monitor-region-start", "abc"], "give an address"),
        (&["tier", "--fast", "0", "--pid", "1"], "--slow"),
        (
            &["tier", "--fast", "0", "--slow", "1", "--bandwidth", "x"],
            "write 200MiB/s",
        ),
        (
            &["advise", "a.arrow", "--tiers", "--slow-ns", "0"],
            "is not a latency",
        ),
        (
            &["reclaim", "--pid", "1", "--auto=0.2%"],
            "\"0.2%\" has no unit: use one of %/min, as in 0.2%/min",
        ),
        (&["reclaim", "--pid", "1", "--auto=0.2%/h"], "is not a unit"),
        (
            &["reclaim", "--pid", "1", "--auto", "--max-refaults", "0.2%/min"],
            "as a bound of the automatic age, write --auto=0.2%/min",
        ),
        (
            &["reclaim", "--pid", "1", "--auto", "--min-age", "5s"],
            "cannot be used with",
        ),
    ] {
        let output = run(folder.path(), arguments);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
        assert!(!message.contains("invalid digit"), "{arguments:?}: {message}");
    }
}

#[test]
fn cgroup_help_covers_both_hierarchies() {
    let folder = tempfile::tempdir().unwrap();
    for verb in ["record", "reclaim", "lru-sort", "hint"] {
        let help = String::from_utf8(run(folder.path(), &[verb, "--help"]).stdout).unwrap();
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for path in [
            "/system.slice/",
            "/sys/fs/cgroup/... (version 2)",
            "/sys/fs/cgroup/memory/... (version 1)",
        ] {
            assert!(words.contains(path), "{verb}: {path}");
        }
    }
}

#[test]
fn message_to_a_full_disk_ends_no_command() {
    let folder = tempfile::tempdir().unwrap();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_thermo"))
        .args(["report", "summary", "no-such-recording"])
        .current_dir(folder.path())
        .stderr(full)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(2), "a panic ends with 101");
}

#[test]
fn advice_needs_targets_or_a_recording_and_a_rate() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    fs::write(dir.join("text"), "hello, this is no recording at all\n").unwrap();
    refused(dir, &["advise"], "no target is named");
    refused(dir, &["advise", "missing"], "missing");
    refused(dir, &["advise", "text"], "is not a recording");
    for (rate, expected) in [
        ("0.2%", "has no unit: use one of %/min, as in 0.2%/min"),
        ("0.2%/h", "is not a unit: use one of %/min"),
        ("much", "is not a number: write it like 0.2%/min"),
    ] {
        let output = run(dir, &["advise", "text", "--max-refaults", rate]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    refused(
        dir,
        &["advise", "--unit", "no-such-unit"],
        "unit no-such-unit.service does not exist",
    );
}

#[test]
fn missing_token_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["agent", "status", "--token-file", "no.token"];
    refused(folder.path(), &arguments, "cannot read the token file no.token");
}
