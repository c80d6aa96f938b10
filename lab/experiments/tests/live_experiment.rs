//! Runs tiny experiments: cgroups, stored runs, failures, interruption and resumption.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thermo_experiments::cgroup::{Cgroup, Hierarchies};
use thermo_experiments::{Experiment, Options, Progress, Results, run};

/// The workload counts. Under `attached` it first waits for the file that the attached program creates.
const TINY: &str = r#"
name = "tiny"
repeats = 2
sample = "20ms"
warm = "64M"

[[configuration]]
name = "orig"

[[configuration]]
name = "attached"
attach = ["--pid", "{pid}", "{dir}"]
env = { WAIT = "yes" }

[[workload]]
name = "count"
set_up = "echo 3000 > how-far"
command = ["sh", "-c", '''
while [ "$WAIT" = yes ] && [ ! -e "attached.$$" ]; do :; done
read -r far < how-far; i=0; while [ $i -lt $far ]; do i=$((i+1)); done
echo "TEST PASSED p99_ms=1.25"
''']
check = "TEST PASSED"
latency = { p99_ms = 'p99_ms=([0-9.]+)' }
"#;

/// A stand-in for `thermo`: creates a file when it has started, and exits with 130 on SIGINT like `thermo`.
const ATTACHED: &str = "#!/bin/sh
trap 'kill $!; exit 130' INT
tail -f /dev/null &
touch \"$3/attached.$2\"
wait
";

fn can_measure(test: &str) -> bool {
    let created = Hierarchies::detect().and_then(|hierarchies| {
        Cgroup::create(
            &hierarchies,
            &format!("thermo-eval-{}-can-{test}", std::process::id()),
        )
    });
    if let Err(error) = &created {
        eprintln!("SKIP: {error}");
    }
    created.is_ok()
}

fn options(folder: &Path) -> Options {
    let thermo = folder.join("thermo");
    fs::write(&thermo, ATTACHED).unwrap();
    fs::set_permissions(&thermo, fs::Permissions::from_mode(0o755)).unwrap();
    Options {
        results_dir: folder.join("results"),
        repeats: None,
        only_workloads: Vec::new(),
        only_configurations: Vec::new(),
        lab: thermo.clone(),
        thermo,
        stop: Arc::new(AtomicBool::new(false)),
    }
}

#[test]
fn experiment_resumes_after_interruption() {
    if !can_measure("tiny") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (experiment, options) = (
        Experiment::parse(TINY, folder.path()).unwrap(),
        options(folder.path()),
    );

    let mut begun = 0;
    let first = run(&experiment, &options, &mut |progress| {
        if matches!(progress, Progress::Begin { .. }) {
            begun += 1;
            options.stop.store(begun == 2, Ordering::Relaxed);
        }
    });
    assert_eq!(first.unwrap().runs.len(), 1, "the second run was aborted");

    options.stop.store(false, Ordering::Relaxed);
    let mut planned = None;
    let results = run(&experiment, &options, &mut |progress| {
        if let Progress::Planned { runs, finished } = progress {
            planned = Some((*runs, *finished));
        }
    })
    .unwrap();
    assert_eq!(planned, Some((3, 1)));
    assert_eq!(results.runs.len(), 4);
    for made in &results.runs {
        assert_eq!(made.failure, None, "{made:?}");
        assert!(
            made.measured["runtime_s"] > 0.0 && made.measured["memory_peak_bytes"] >= 0.0,
            "{made:?}"
        );
        assert_eq!(made.measured["latency.p99_ms"], 1.25);
        assert!(!made.samples.is_empty());
        assert_eq!(
            made.measured.contains_key("thermo_rss_bytes"),
            made.configuration == "attached"
        );
    }

    let loaded = Results::load(&options.results_dir).unwrap();
    assert_eq!(loaded.runs, results.runs);
    let table = loaded.table();
    assert!(
        table.contains("attached (overhead)") && table.contains("runtime_stdev"),
        "{table}"
    );
    assert!(
        !options.results_dir.join("work").exists(),
        "the work folder is removed"
    );
}

/// The limits are too high to cause reclaim. The workload waits until it has read both from its cgroup.
const PRESSED: &str = r#"
name = "pressed"
repeats = 1
sample = "10ms"

[[configuration]]
name = "orig"

[[configuration]]
name = "pressed"
env = { WAIT = "yes" }
pressure = [{ limit = "1000%", span = "20ms" }, { limit = "500%", span = "20ms" }]

[[workload]]
name = "buffer"
command = ["sh", "-c", """
limit() { cat {cgroup}/memory.limit_in_bytes 2>/dev/null || cat {cgroup}/memory.max; }
seen() { l=$(limit); [ "$l" != max ] && [ "$l" -ge "$1" ] && [ "$l" -lt "$2" ]; }
dd if=/dev/zero of=/dev/null bs=32M count=50 2>/dev/null
if [ -n "$WAIT" ]; then
    until seen 150000000 300000000; do :; done
    until seen 300000000 3000000000; do :; done
fi
echo TEST PASSED
"""]
check = "TEST PASSED"
timeout = "100s"
"#;

#[test]
fn pressure_limits_are_percentages_of_peak() {
    if !can_measure("pressed") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let experiment = Experiment::parse(PRESSED, folder.path()).unwrap();
    let results = run(&experiment, &options(folder.path()), &mut |_| {}).unwrap();
    let order: Vec<&str> = results
        .runs
        .iter()
        .map(|run| run.configuration.as_str())
        .collect();
    assert_eq!(order, ["orig", "pressed"], "the peak is measured first");
    for made in &results.runs {
        assert_eq!(made.failure, None, "{made:?}");
    }
    assert!(results.peak("buffer").unwrap() >= 32 << 20);
}

#[test]
fn pressure_without_peak_is_a_failure() {
    if !can_measure("no-peak") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let experiment = Experiment::parse(&PRESSED.replace("echo TEST", "echo NO"), folder.path()).unwrap();
    let results = run(&experiment, &options(folder.path()), &mut |_| {}).unwrap();
    let message = results.failures()[1].failure.clone().unwrap();
    assert!(
        message.contains("its peak without pressure is unknown"),
        "{message}"
    );
}

#[test]
fn signal_wrong_result_and_timeout_are_failures() {
    if !can_measure("failures") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
name = "wrong"
repeats = 1
[[configuration]]
name = "orig"
[[configuration]]
name = "leaves"
attach = ["reclaim"]
[[workload]]
name = "crash"
command = ["sh", "-c", "echo TEST PASSED; kill -SEGV $$"]
[[workload]]
name = "lies"
command = ["true"]
check = "TEST PASSED"
[[workload]]
name = "waits"
command = ["sh", "-c", "trap : TERM; tail -f /dev/null & wait"]
ready = { file = "never" }
timeout = "200ms"
[[workload]]
name = "server"
command = ["tail", "-f", "/dev/null"]
load = ["sh", "-c", "exit 3"]
"#;
    let experiment = Experiment::parse(text, folder.path()).unwrap();
    let mut options = options(folder.path());
    options.only_configurations = vec!["orig".into()];
    let results = run(&experiment, &options, &mut |_| {}).unwrap();
    let failure = |workload: &str| {
        let made = results
            .runs
            .iter()
            .find(|made| made.workload == workload)
            .unwrap();
        made.failure.clone().unwrap_or_default()
    };
    assert!(
        failure("crash").contains("killed by signal 11"),
        "{}",
        failure("crash")
    );
    assert!(failure("lies").contains("TEST PASSED"), "{}", failure("lies"));
    assert!(failure("waits").contains("not ready"), "{}", failure("waits"));
    assert!(
        failure("server").contains("load ended with status 3"),
        "{}",
        failure("server")
    );
    assert_eq!(results.failures().len(), 4);
}

#[test]
fn missing_programs_and_unknown_names_fail_early() {
    let folder = tempfile::tempdir().unwrap();
    let need = "command = [\"x\"]\nneeds = [{ program = \"no-such-program\", package = \"its-package\" }]";
    let text = format!(
        "name = \"n\"\nrepeats = 1\n[[configuration]]\nname = \"orig\"\n[[workload]]\nname = \"w\"\n{need}\n"
    );
    let experiment = Experiment::parse(&text, folder.path()).unwrap();
    let mut options = options(folder.path());
    let message = run(&experiment, &options, &mut |_| {}).unwrap_err().to_string();
    assert!(
        message.contains("no-such-program") && message.contains("apt-get install its-package"),
        "{message}"
    );
    options.only_workloads = vec!["v".into()];
    let message = run(&experiment, &options, &mut |_| {}).unwrap_err().to_string();
    assert!(
        message.contains("\"v\"") && message.contains("the experiment has w"),
        "{message}"
    );
    assert!(!options.results_dir.exists());
}
