//! Misuse of the command: each gives one sentence and exit code 2, and no file is lost.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::fs;
use std::process::Stdio;

use common::{json, run, stderr, thermo};
use thermo_recording::Writer;
use thermo_recording::model::{Metadata, Settings};

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
        "--cgroup PATH, --system, or a command",
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
fn unreadable_goals_and_filters_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let pid = std::process::id().to_string();
    for (scheme, expected) in [
        (
            "[[scheme]]\naction = \"stat\"\n[scheme.quota]\nsz = \"1M\"\nreset_interval = \"1s\"\ngoals = [{ metric = \"node_memcg_used_bp\", nid = 0, path = \"/not/there\", target_value = 1 }]\n",
            "its goal cannot be read",
        ),
        (
            "[[scheme]]\naction = \"stat\"\n[[scheme.filters]]\ntype = \"memcg\"\nmatching = true\nallow = true\nmemcg_path = \"/not/there\"\n",
            "its filter names no group",
        ),
    ] {
        fs::write(folder.path().join("s.toml"), scheme).unwrap();
        let arguments = [
            "schemes",
            "apply",
            "s.toml",
            "--pid",
            &pid,
            "--tracker",
            "smaps",
            "--duration",
            "1s",
        ];
        let output = run(folder.path(), &arguments);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(expected), "{message}");
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
fn files_that_are_no_recordings_are_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("empty"), "").unwrap();
    fs::write(folder.path().join("text"), "hello, this is no recording at all\n").unwrap();
    for kind in [
        "regions",
        "heatmap",
        "wss",
        "idle",
        "reaccess",
        "schemes",
        "footprint",
        "info",
    ] {
        refused(folder.path(), &["report", kind, "missing"], "missing");
        refused(folder.path(), &["report", kind, "empty"], "is empty");
        refused(folder.path(), &["report", kind, "text"], "is not a recording");
    }
    refused(
        folder.path(),
        &["export", "text", "-f", "csv", "-o", "out"],
        "is not a recording",
    );
    fs::write(folder.path().join("cut"), b"\xff\xff\xff\xff\x10").unwrap();
    refused(
        folder.path(),
        &["report", "info", "cut"],
        "cut is truncated before its first record",
    );
    assert!(!folder.path().join("out").exists() && !folder.path().join("out.part").exists());
}

/// A record of damo: one target with one region.
const DAMO: &str = r#"[{"target_id": 0, "kdamond_idx": 0, "context_idx": 0, "intervals": {"sample_us": 5000, "aggr_us": 100000, "ops_update_us": 1000000}, "scheme_idx": null,
    "snapshots": [{"start_time": 0, "end_time": 100000000, "regions": [
        {"start": 4096, "end": 8192, "nr_accesses": {"samples": 1, "percent": 5}, "age": {"usec": 0, "aggr_intervals": 0}}]}]}]"#;

#[test]
fn full_stdout_is_an_error_and_closed_is_none() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.json"), DAMO).unwrap();
    for kind in ["info", "summary", "regions", "heatmap", "wss"] {
        let to = |out: Stdio| {
            let mut command = thermo(folder.path(), &["report", kind, "r.json"]);
            command.stdout(out).stderr(Stdio::piped()).output().unwrap()
        };
        let full = to(fs::File::create("/dev/full").unwrap().into());
        let message = stderr(&full);
        assert_eq!(full.status.code(), Some(2), "{kind}: {message}");
        assert!(
            message.contains("cannot write to standard output: No space"),
            "{kind}: {message}"
        );
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = to(writer.into());
        assert_eq!(closed.status.code(), Some(0), "{kind}");
        assert_eq!(stderr(&closed), "", "{kind}");
    }
}

#[test]
fn reports_without_data_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.json"), DAMO).unwrap();
    let check = |args: &[&str], code: i32, expected: &str| {
        let output = run(folder.path(), &[&["report"], args].concat());
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert!(message.contains(expected), "{message}");
        assert!(output.stdout.is_empty());
    };
    check(
        &["wss", "r.json", "--window", "3s"],
        2,
        "there is no window of 3.00 s: give one of 1 s, 2 s, 5 s, 10 s",
    );
    check(
        &["wss", "r.json", "--window", "1m"],
        1,
        "r.json: the recording has no working set for a window of 1 min: only 0 s were monitored",
    );
    check(&["reaccess", "r.json"], 1, "The recording has no access tables");
    refused(
        folder.path(),
        &["export", "r.json", "-f", "damo-json", "--table", "ages"],
        "damo's JSON holds regions only",
    );
}

#[test]
fn info_and_summary_print_csv() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.json"), DAMO).unwrap();
    for (kind, schema, has) in [
        ("info", "\nschema,1\n", "\nsettings.aggr_ns,"),
        ("summary", "\nschema,2\n", "\nsizes.cold.bytes,"),
    ] {
        let output = run(folder.path(), &["report", kind, "r.json", "--csv"]);
        let message = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && message.starts_with("key,value\n"),
            "{kind}: {message}"
        );
        assert!(
            message.contains(schema) && message.contains(has),
            "{kind}: {message}"
        );
    }
}

#[test]
fn wrong_parameters_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let pid = std::process::id().to_string();
    for (flags, why) in [
        (
            ["--wmarks-high", "100"],
            "(wmarks_high 100, wmarks_mid 400, wmarks_low 200)",
        ),
        (
            ["--wmarks-high", "1200"],
            "wmarks_high is 1200: the maximum is 1000",
        ),
        (["--wmarks-interval", "0"], "wmarks_interval is 0"),
        (
            ["--quota-reset-interval-ms", "0"],
            "quota_ms is 10 but quota_reset_interval_ms is 0",
        ),
    ] {
        let arguments = [&["reclaim", "--pid", &pid][..], &flags].concat();
        refused(folder.path(), &arguments, why);
    }
    let help = String::from_utf8(run(folder.path(), &["run", "--help"]).stdout).unwrap();
    assert!(help.contains("--no-children"), "{help}");
    assert!(!help.contains("--pid") && !help.contains("--cgroup"), "{help}");
}

#[test]
fn moved_verbs_name_their_program() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, program) in [
        (&["nbd"][..], "use `thermo-nbd`"),
        (&["nbd", "--help"], "use `thermo-nbd`"),
        (&["nbd", "--unix", "s", "--export", "a=b"], "use `thermo-nbd`"),
        (&["nbd", "status", "--control", "c"], "use `thermo-nbd`"),
        (&["eval", "reclaim", "--repeats", "3"], "use `thermo-lab`"),
        (&["workload", "-q", "a.cfg"], "use `thermo-lab workload`"),
    ] {
        refused(folder.path(), arguments, program);
    }
}

#[test]
fn scheme_errors_have_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| fs::write(folder.path().join("s.damos"), text).unwrap();
    for (text, expected) in [
        (
            "4K max 0 0 5s max pageout\n4K max 0 0 5s max vanish\n",
            "s.damos:2:19: ",
        ),
        ("4K max 0 0 5 max pageout\n", "s.damos:1:12: "),
        ("4K max 0 0 5 weeks pageout\n", "s.damos:1:"),
        ("", "s.damos:1:1: "),
    ] {
        write(text);
        refused(folder.path(), &["schemes", "check", "s.damos"], expected);
        refused(
            folder.path(),
            &["record", "--schemes", "s.damos", "--", "true"],
            expected,
        );
    }
}

#[test]
fn schemes_check_prints_the_pattern() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("s.damos"), "100M null 0 5% 2m null pageout\n").unwrap();
    let message = json(folder.path(), &["schemes", "check", "s.damos", "--json"]);
    assert_eq!(message["schema"], 1);
    let scheme = &message["schemes"][0];
    assert_eq!(scheme["action"], "pageout");
    assert_eq!(scheme["access_pattern"]["sz_bytes"]["min"], 100 << 20);
    assert_eq!(scheme["access_pattern"]["nr_accesses_permil"]["max"], 50);
    assert_eq!(scheme["access_pattern"]["age_us"]["min"], 120_000_000);
    assert!(scheme["text"].as_str().unwrap().contains("100 MiB"), "{scheme}");
}

#[test]
fn wrong_lru_sort_parameters_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let pid = std::process::id().to_string();
    refused(dir, &["lru-sort"], "no target is named");
    for (flags, expected) in [
        (
            &["--hot-thres-access-freq", "1001"][..],
            "hot_thres_access_freq is 1001",
        ),
        (&["--wmarks-mid", "201"][..], "out of order"),
        (&["--wmarks-interval", "0"][..], "wmarks_interval is 0"),
        (
            &[
                "--monitor-region-start",
                "0x2000",
                "--monitor-region-end",
                "0x1000",
            ][..],
            "the end must be above the start",
        ),
        (
            &["--quota-reset-interval-ms", "0"][..],
            "quota_reset_interval_ms is 0",
        ),
        (
            &["--sample-interval", "1s"][..],
            "longer than the aggregation interval",
        ),
        (&["--params", "missing.toml"][..], "missing.toml"),
    ] {
        refused(dir, &[&["lru-sort", "--pid", &pid], flags].concat(), expected);
    }
    for (text, expected) in [
        (
            "quota_ms = 10\nhot_thres = 5\n",
            "p.toml:2:13: hot_thres: \"hot_thres\" is not a parameter",
        ),
        ("cold_min_age = \"soon\"\n", "p.toml:1:16: cold_min_age: "),
        ("wmarks_low = 160\n", "out of order"),
        ("quota_ms 10\n", "p.toml:1:"),
    ] {
        fs::write(dir.join("p.toml"), text).unwrap();
        refused(dir, &["lru-sort", "--pid", &pid, "--params", "p.toml"], expected);
    }
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

/// Metadata of an empty recording.
fn metadata() -> Metadata {
    Metadata {
        schema: thermo_recording::model::SCHEMA,
        writer: "test".to_owned(),
        kernel: String::new(),
        arch: String::new(),
        tracker: "pte".to_owned(),
        tracker_reason: String::new(),
        seed: 1,
        wall_clock_offset_ns: 0,
        start_ns: 0,
        targets: "pid 1".to_owned(),
        settings: Settings {
            sample_ns: 5_000_000,
            aggr_ns: 100_000_000,
            update_ns: 1_000_000_000,
            min_nr_regions: 10,
            max_nr_regions: 1000,
            cpu_budget_percent: None,
        },
        schemes: Vec::new(),
    }
}

#[test]
fn truncated_recording_gives_report_and_1() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.arrow");
    let reports = |code: i32, expected: &str| {
        for kind in ["info", "summary", "regions", "footprint"] {
            let output = run(folder.path(), &["report", kind, "r.arrow"]);
            let message = stderr(&output);
            assert_eq!(output.status.code(), Some(code), "{kind}: {message}");
            assert!(message.contains(expected), "{kind}: {message}");
            assert!(!output.stdout.is_empty(), "{kind} printed nothing");
        }
    };
    let writer = Writer::create(&path, &metadata()).unwrap();
    reports(0, "r.arrow is still being written: the report covers its first");
    drop(writer);
    reports(1, "r.arrow is truncated: the report covers its first");
    Writer::create(&path, &metadata()).unwrap().finish().unwrap();
    reports(0, "");
    assert_eq!(stderr(&run(folder.path(), &["report", "info", "r.arrow"])), "");
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
