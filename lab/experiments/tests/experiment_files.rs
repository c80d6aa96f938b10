//! Experiment files: parsing, positions and messages of errors, and the shipped files.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::Path;

use thermo_experiments::Experiment;
use thermo_units::{Bytes, Nanos};

const WHOLE: &str = r#"
name = "tiny"
repeats = 3
zram = "1G"
sample = "100ms"

[[configuration]]
name = "orig"

[[configuration]]
name = "reclaim"
attach = ["reclaim", "--pid", "{pid}"]

[[workload]]
name = "a/b"
needs = [{ program = "redis-server", package = "redis-server" }]
command = ["redis-server", "--port", "{port}"]
ready = { tcp = "{port}" }
load = ["true"]
check = "TEST PASSED"
latency = { p99_ms = 'p99_ms=([0-9.]+)' }
limit = "2G"
timeout = "2m"
"#;

#[test]
fn parser_reads_all_fields() {
    let experiment = Experiment::parse(WHOLE, Path::new("/there")).unwrap();
    assert_eq!(
        (experiment.seed, experiment.repeats, experiment.orig()),
        (1, 3, "orig")
    );
    assert_eq!(
        (experiment.zram, experiment.sample),
        (Some(Bytes::gib(1)), Nanos::millis(100))
    );
    let workload = &experiment.workloads[0];
    assert_eq!(
        (workload.limit, workload.timeout),
        (Some(Bytes::gib(2)), Nanos::secs(120))
    );
    assert_eq!(workload.needs[0].package, "redis-server");
    assert!(workload.check.as_ref().unwrap().is_match("x\nTEST PASSED\n"));
}

#[test]
fn errors_have_position_and_advice() {
    for (from, to, position, message) in [
        ("repeats = 3", "repeats = 0", "3:11", "0 repeats"),
        (
            "name = \"orig\"",
            "name = \"orig\"\nrepeats = 0",
            "9:11",
            "remove the configuration",
        ),
        ("repeats = 3", "repeats = \"x\"", "3:11", "invalid type"),
        ("repeats = 3", "repeats = 3\nrepaets = 3", "4:1", "unknown field"),
        ("zram = \"1G\"", "zram = \"1Q\"", "4:8", "not a unit"),
        (
            "sample = \"100ms\"",
            "sample = \"1ms\"",
            "5:10",
            "sample interval below",
        ),
        (
            "\"orig\"\n",
            "\"orig\"\nattach = [\"x\"]\n",
            "7:1",
            "must not have attach",
        ),
        ("name = \"reclaim\"", "name = \"orig\"", "10:1", "used twice"),
        ("a/b", "../b", "14:1", "is not a valid name"),
        ("{pid}", "{pdi}", "10:1", "unknown placeholder {pdi}"),
        ("'p99_ms=([0-9.]+)'", "'p99_ms='", "21:22", "no (group)"),
        ("TEST PASSED", "TEST (", "20:9", "not a regular expression"),
        (
            "command = [\"redis-server\", \"--port\", \"{port}\"]",
            "command = []",
            "14:1",
            "empty command",
        ),
        ("tcp = \"{port}\"", "udp = \"{port}\"", "18:11", "unknown variant"),
        ("name = \"tiny\"\n", "", "1:1", "missing field"),
    ] {
        let text = WHOLE.replacen(from, to, 1);
        assert_ne!(text, WHOLE, "{from}");
        let error = Experiment::parse(&text, Path::new(".")).unwrap_err();
        assert!(error.message.contains(message), "{message}: {error}");
        assert_eq!(format!("{}:{}", error.line, error.column), position, "{error}");
    }
}

/// An experiment with memory pressure and `against`.
const WITH_PRESSURE: &str = r#"
name = "pressure"
repeats = 1

[[configuration]]
name = "orig"

[[configuration]]
name = "mprs"
pressure = [{ limit = "200%", span = "10s" }, { limit = "75%", span = "1s" }]

[[configuration]]
name = "plrus"
against = "mprs"
pressure = [{ limit = "75%", span = "1s" }]

[[workload]]
name = "w"
command = ["true"]
"#;

#[test]
fn pressure_steps_are_parsed_and_validated() {
    let experiment = Experiment::parse(WITH_PRESSURE, Path::new(".")).unwrap();
    assert!(experiment.has_pressure());
    let [orig, mprs, plrus] = experiment.configurations.as_slice() else {
        panic!("{:?}", experiment.configurations)
    };
    assert!(orig.pressure.is_empty() && orig.against.is_none());
    let steps: Vec<_> = mprs
        .pressure
        .iter()
        .map(|step| (step.percent, step.span))
        .collect();
    assert_eq!(steps, [(200, Nanos::secs(10)), (75, Nanos::secs(1))]);
    assert_eq!(plrus.against.as_deref(), Some("mprs"));
    for (from, to, position, message) in [
        ("\"200%\"", "\"200M\"", "10:23", "is not a valid limit"),
        ("\"200%\"", "\"0%\"", "10:23", "is not a valid limit"),
        ("\"1s\"", "\"1ms\"", "10:71", "ends before"),
        (
            "against = \"mprs\"",
            "against = \"none\"",
            "14:11",
            "is no other configuration",
        ),
        (
            "against = \"mprs\"",
            "against = \"plrus\"",
            "14:11",
            "is no other configuration",
        ),
        (
            "\"orig\"",
            "\"orig\"\nagainst = \"mprs\"",
            "5:1",
            "must not have attach, pressure or against",
        ),
    ] {
        let text = WITH_PRESSURE.replacen(from, to, 1);
        assert_ne!(text, WITH_PRESSURE, "{from}");
        let error = Experiment::parse(&text, Path::new(".")).unwrap_err();
        assert!(error.message.contains(message), "{message}: {error}");
        assert_eq!(format!("{}:{}", error.line, error.column), position, "{error}");
    }
}

#[test]
fn unreadable_file_is_named() {
    let message = Experiment::read(Path::new("no/such.toml"))
        .unwrap_err()
        .to_string();
    assert!(message.starts_with("cannot read no/such.toml: "), "{message}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "name = 1\n").unwrap();
    let message = Experiment::read(file.path()).unwrap_err().to_string();
    assert!(message.contains(":1:8: "), "{message}");
}

#[test]
fn shipped_experiments_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/experiments");
    let mut found = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        if path.ends_with("lifecycle.toml") {
            assert!(
                thermo_experiments::lifecycle::Plan::read(&path)
                    .unwrap()
                    .apps
                    .len()
                    >= 8
            );
            continue;
        }
        if path.ends_with("forecast.toml") {
            let plan = thermo_experiments::forecast::Plan::read(&path).unwrap();
            assert!(plan.workloads.len() >= 12);
            continue;
        }
        let experiment = Experiment::read(&path).unwrap();
        for workload in &experiment.workloads {
            let words = workload
                .command
                .iter()
                .chain(&workload.fill)
                .chain(&workload.load);
            for script in words.filter_map(|word| word.strip_prefix("{here}/")) {
                assert!(
                    experiment.here.join(script).exists(),
                    "{}: {script} does not exist",
                    workload.name
                );
            }
            assert!(workload.about.len() > 10, "{} has no description", workload.name);
        }
        found += 1;
    }
    assert!(found > 0);
}
