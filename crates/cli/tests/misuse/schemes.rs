//! Scheme files, and parameters of the presets.

use std::fs;

use super::common::{json, run, stderr};
use super::refused;

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
        (
            "[[scheme]]\naction = \"stat\"\n[scheme.quota]\nsz = \"1M\"\nreset_interval = \"1s\"\ngoals = [{ metric = \"node_eligible_mem_bp\", nid = 1023, target_value = 1 }]\n",
            "its goal cannot be read: a goal for memory on node 1023",
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
        (
            ["--auto", "--method=sampling"],
            "an automatic age needs scans of every page",
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
