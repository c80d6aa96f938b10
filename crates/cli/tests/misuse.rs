//! What a user can get wrong: each is one sentence, exit 2, and nothing is lost.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::fs;
use std::process::Stdio;

use common::{json, run, stderr, thermo};

/// Runs it, and checks for exit 2, one sentence that says `says`, and nothing on standard output.
fn refused(folder: &std::path::Path, arguments: &[&str], says: &str) {
    let output = run(folder, arguments);
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
    assert!(told.contains(says), "{arguments:?} said {told:?}, not {says:?}");
    assert_eq!(told.trim_end().lines().count(), 1, "{told}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed something");
    assert!(!told.contains("panicked"), "{told}");
}

#[test]
fn contradictory_settings_are_refused_and_no_file_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("thermo.arrow"), "precious").unwrap();
    let pid = std::process::id().to_string();
    let with = |more: &[&'static str]| -> Vec<String> {
        ["record", "--pid", &pid]
            .into_iter()
            .chain(more.iter().copied())
            .map(str::to_owned)
            .collect()
    };
    for (more, says) in [
        (["--sample", "1s"], "longer than the aggregation interval"),
        (["--min-regions", "2"], "--min-regions must be 3 or more"),
        (["--max-regions", "5"], "above the most (5)"),
        (["--tracker", "magic"], "magic is not a tracker"),
        (["--cpu", "0"], "leaves no time to look"),
        (["--cpu", "9999999%"], "is more than there is"),
        (["--cpu", "much"], "is not a share of a CPU"),
        (["--intervals-autotune", "--cpu=1%"], "chosen for --cpu"),
        (["--intervals-autotune", "--sample=1ms"], "does not lie between"),
        (["--shared", "--sample=5ms"], "--shared scans every page"),
        (["--snapshot=1ms", "--cpu=1%"], "--snapshot 1.00 ms is too short"),
        (["--method=scan", "--sample=5ms"], "--method scan has no --sample"),
    ] {
        let arguments = with(&more);
        refused(
            here,
            &arguments.iter().map(String::as_str).collect::<Vec<_>>(),
            says,
        );
    }
    assert_eq!(fs::read_to_string(here.join("thermo.arrow")).unwrap(), "precious");
    assert!(!here.join("thermo.arrow.old").exists());
}

#[test]
fn targets_that_are_none_are_refused() {
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
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        0,
        "a file was left behind"
    );
}

#[test]
fn the_whole_machine_is_not_named_by_an_empty_group() {
    let folder = tempfile::tempdir().unwrap();
    for group in ["", "/", "//"] {
        let output = run(
            folder.path(),
            &["reclaim", "--cgroup", group, "--dry-run", "--duration", "1s"],
        );
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{group:?}: {told}");
        // A machine without control groups says that instead.
        assert!(
            told.contains("is the whole machine") || told.contains("control group"),
            "{told}"
        );
    }
}

#[test]
fn limits_that_cannot_be_kept_are_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let pid = std::process::id().to_string();
    for (scheme, says) in [
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
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(says), "{told}");
    }
}

#[test]
fn a_command_that_is_not_there_ends_with_127_and_touches_no_file() {
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
fn recordings_that_are_none_are_named() {
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
        "cut was cut off before its first record: nothing can be read",
    );
    assert!(!folder.path().join("out").exists() && !folder.path().join("out.part").exists());
}

/// What damo writes: one target of one region.
const DAMO: &str = r#"[{"target_id": 0, "kdamond_idx": 0, "context_idx": 0, "intervals": {"sample_us": 5000, "aggr_us": 100000, "ops_update_us": 1000000}, "scheme_idx": null,
    "snapshots": [{"start_time": 0, "end_time": 100000000, "regions": [
        {"start": 4096, "end": 8192, "nr_accesses": {"samples": 1, "percent": 5}, "age": {"usec": 0, "aggr_intervals": 0}}]}]}]"#;

#[test]
fn a_full_standard_output_is_named_and_one_that_was_closed_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.json"), DAMO).unwrap();
    for kind in ["info", "summary", "regions", "heatmap", "wss"] {
        let to = |out: Stdio| {
            let mut command = thermo(folder.path(), &["report", kind, "r.json"]);
            command.stdout(out).stderr(Stdio::piped()).output().unwrap()
        };
        let full = to(fs::File::create("/dev/full").unwrap().into());
        let told = stderr(&full);
        assert_eq!(full.status.code(), Some(2), "{kind}: {told}");
        assert!(
            told.contains("cannot write to standard output: No space"),
            "{kind}: {told}"
        );
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = to(writer.into());
        assert_eq!(closed.status.code(), Some(0), "{kind}");
        assert_eq!(stderr(&closed), "", "{kind}");
    }
}

#[test]
fn windows_and_reaccesses_that_a_recording_does_not_have_are_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.json"), DAMO).unwrap();
    let ends = |args: &[&str], code: i32, says: &str| {
        let output = run(folder.path(), &[&["report"], args].concat());
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(says), "{told}");
        assert!(output.stdout.is_empty());
    };
    ends(
        &["wss", "r.json", "--window", "3s"],
        2,
        "there is no window of 3.00 s: give one of 1 s, 2 s, 5 s, 10 s",
    );
    ends(
        &["wss", "r.json", "--window", "1m"],
        1,
        "r.json: the recording cannot tell the working set of 1 min: only 0 s were watched",
    );
    ends(&["reaccess", "r.json"], 1, "The recording has no access tables");
    refused(
        folder.path(),
        &["export", "r.json", "-f", "damo-json", "--table", "ages"],
        "damo's JSON holds regions only",
    );
}

#[test]
fn facts_are_printed_as_keys_and_values() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.json"), DAMO).unwrap();
    for (kind, schema, has) in [
        ("info", "\nschema,1\n", "\nsettings.aggr_ns,"),
        ("summary", "\nschema,2\n", "\nsizes.cold.bytes,"),
    ] {
        let output = run(folder.path(), &["report", kind, "r.json", "--csv"]);
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && told.starts_with("key,value\n"),
            "{kind}: {told}"
        );
        assert!(told.contains(schema) && told.contains(has), "{kind}: {told}");
    }
}

#[test]
fn what_reclaim_and_run_cannot_do_is_said_by_the_names_of_their_parameters() {
    let folder = tempfile::tempdir().unwrap();
    let pid = std::process::id().to_string();
    for (flags, why) in [
        (
            ["--wmarks-high", "100"],
            "(wmarks_high 100, wmarks_mid 400, wmarks_low 200)",
        ),
        (
            ["--wmarks-high", "1200"],
            "wmarks_high is 1200, and the most is 1000",
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
fn verbs_that_became_programs_name_the_program() {
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
fn mistakes_in_a_scheme_have_a_place() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| fs::write(folder.path().join("s.damos"), text).unwrap();
    for (text, says) in [
        (
            "4K max 0 0 5s max pageout\n4K max 0 0 5s max vanish\n",
            "s.damos:2:19: ",
        ),
        ("4K max 0 0 5 max pageout\n", "s.damos:1:12: "),
        ("4K max 0 0 5 weeks pageout\n", "s.damos:1:"),
        ("", "s.damos:1:1: "),
    ] {
        write(text);
        refused(folder.path(), &["schemes", "check", "s.damos"], says);
        refused(
            folder.path(),
            &["record", "--schemes", "s.damos", "--", "true"],
            says,
        );
    }
}

#[test]
fn a_scheme_is_explained_by_its_numbers() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("s.damos"), "100M null 0 5% 2m null pageout\n").unwrap();
    let told = json(folder.path(), &["schemes", "check", "s.damos", "--json"]);
    assert_eq!(told["schema"], 1);
    let scheme = &told["schemes"][0];
    assert_eq!(scheme["action"], "pageout");
    assert_eq!(scheme["access_pattern"]["sz_bytes"]["min"], 100 << 20);
    assert_eq!(scheme["access_pattern"]["nr_accesses_permil"]["max"], 50);
    assert_eq!(scheme["access_pattern"]["age_us"]["min"], 120_000_000);
    assert!(scheme["text"].as_str().unwrap().contains("100 MiB"), "{scheme}");
}

#[test]
fn parameters_of_lru_sort_that_cannot_be_meant_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let pid = std::process::id().to_string();
    refused(here, &["lru-sort"], "no target is named");
    for (flags, says) in [
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
            "end must lie behind",
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
        refused(here, &[&["lru-sort", "--pid", &pid], flags].concat(), says);
    }
    for (text, says) in [
        (
            "quota_ms = 10\nhot_thres = 5\n",
            "p.toml:2:13: hot_thres: \"hot_thres\" is not a parameter",
        ),
        ("cold_min_age = \"soon\"\n", "p.toml:1:16: cold_min_age: "),
        ("wmarks_low = 160\n", "out of order"),
        ("quota_ms 10\n", "p.toml:1:"),
    ] {
        fs::write(here.join("p.toml"), text).unwrap();
        refused(here, &["lru-sort", "--pid", &pid, "--params", "p.toml"], says);
    }
}

#[test]
fn hints_that_cannot_be_meant_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let pid = std::process::id().to_string();
    refused(here, &["hint", "cold"], "no target is named");
    refused(
        here,
        &["hint", "cold", "--name", "no-such-program"],
        "no process is named no-such-program",
    );
    refused(here, &["hint", "cold", "--pid", "4194304"], "no process 4194304");
    refused(here, &["hint", "cold", "--pid", "1"], "process 1");
    refused(here, &["hint", "migrate_hot", "--pid", &pid], "migrate_hot");
    for wrong in [
        &["hint", "melt", "--pid", &pid][..],
        &["hint", "cold", "--pid", &pid, "--range", "2000-1000"][..],
        &["hint", "cold", "--pid", &pid, "--anon", "--file"][..],
    ] {
        let output = run(here, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(output.stdout.is_empty());
    }
}
