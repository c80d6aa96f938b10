//! Running configurations: printed lines, truth records, errors. No test depends on the speed of the machine:
//! a phase that is too short for a pass over its region reports fewer pages, never more.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::atomic::Ordering;

use thermo_units::{AddrRange, Nanos};
use thermo_workload::{Config, HintMethod, Mode, Options, RunError, Truth, TruthWriter, run, run_to};

struct RunResult {
    output: String,
    truths: Vec<Truth>,
    complete: bool,
    nr_accesses: u64,
}

fn run_text(text: &str, options: &Options) -> Result<RunResult, RunError> {
    let (mut out, mut truths) = (Vec::new(), Vec::new());
    let config = Config::parse(text).unwrap();
    let summary = run_to(&config, options, &mut out, &mut |truth| truths.push(truth))?;
    let output = String::from_utf8(out).unwrap();
    Ok(RunResult {
        output,
        truths,
        complete: summary.complete,
        nr_accesses: summary.nr_accesses,
    })
}

fn options() -> Options {
    Options {
        truth_span: Some(Nanos::millis(5)),
        ..Options::default()
    }
}

/// The regions of the ready line, in its order.
fn regions(output: &str) -> Vec<AddrRange> {
    let ready = output.lines().next().unwrap();
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let words = ready.split(' ').filter_map(|word| word.split_once('-'));
    words
        .map(|(start, end)| AddrRange::new(hex(start), hex(end)))
        .collect()
}

#[test]
fn ready_line_lists_pid_and_regions() {
    let ran = run_text("a, 8192\nb, 4096\n\np\n0\n", &options()).unwrap();
    assert!(
        ran.output
            .starts_with(&format!("ready pid={} regions a 0x", std::process::id())),
        "{}",
        ran.output
    );
    let regions = regions(&ran.output);
    assert_eq!(
        regions.iter().map(|range| range.len().0).collect::<Vec<_>>(),
        [8192, 4096]
    );
    assert!(ran.complete);
}

#[test]
fn truth_spans_are_contiguous_and_follow_phases() {
    let ran = run_text(
        "a, 1M\nb, 1M\n\nfirst\n30\na, 0, 4096, 1\n\nsecond\n30\nb, 1, 1, 1, ro\n",
        &options(),
    )
    .unwrap();
    let regions = regions(&ran.output);
    assert!(
        ran.truths
            .windows(2)
            .all(|pair| pair[0].end == pair[1].start && pair[0].start < pair[0].end)
    );
    let all: Vec<AddrRange> = ran.truths.iter().flat_map(|truth| truth.ranges.clone()).collect();
    assert!(
        regions
            .iter()
            .all(|region| all.iter().any(|range| range.overlaps(region)))
    );
    for truth in &ran.truths {
        assert!(
            truth.ranges.windows(2).all(|pair| pair[0].end < pair[1].start),
            "{:?}",
            truth.ranges
        );
        for range in &truth.ranges {
            let inside = regions
                .iter()
                .filter_map(|region| region.intersection(range))
                .map(|part| part.len().0);
            assert_eq!(
                inside.sum::<u64>(),
                range.len().0,
                "{range} is outside of all regions"
            );
        }
    }
    // After the first access to b, a is not accessed any more.
    let first_of_b = ran
        .truths
        .iter()
        .position(|truth| truth.ranges.iter().any(|r| r.overlaps(&regions[1])))
        .unwrap();
    let after = &ran.truths[first_of_b + 1..];
    assert!(
        after
            .iter()
            .flat_map(|truth| &truth.ranges)
            .all(|range| !range.overlaps(&regions[0]))
    );
}

#[test]
fn large_stride_reports_only_accessed_pages() {
    let ran = run_text("a, 64K\n\np\n20\na, 0, 16384, 1, rw\n", &options()).unwrap();
    let start = regions(&ran.output)[0].start.0;
    let hit = [0, 16384, 32768, 49152].map(|offset| AddrRange::new(start + offset, start + offset + 4096));
    let whole = ran.truths.iter().find(|truth| !truth.ranges.is_empty()).unwrap();
    assert_eq!(whole.ranges, hit);
}

#[test]
fn zero_probability_and_idle_phase_access_nothing() {
    let ran = run_text(
        "a, 4096\nb, 4096\n\np\n20\na, 0, 64, 1\nb, 0, 64, 0\n",
        &options(),
    )
    .unwrap();
    let b = regions(&ran.output)[1];
    assert!(
        ran.truths
            .iter()
            .flat_map(|truth| &truth.ranges)
            .all(|range| !range.overlaps(&b))
    );
    let idle = run_text("a, 4096\n\np\n20\n", &options()).unwrap();
    assert!(idle.nr_accesses == 0 && idle.truths.iter().all(|truth| truth.ranges.is_empty()));
}

#[test]
fn dry_run_accesses_nothing_and_stop_ends_run() {
    let text = "a, 4096\n\np\n3600000\na, 0, 64, 1\n";
    let dry = run_text(
        text,
        &Options {
            dry_run: true,
            ..options()
        },
    )
    .unwrap();
    assert!(dry.nr_accesses == 0 && dry.complete && dry.output.starts_with("ready "));
    let stopped = options();
    stopped.stop.store(true, Ordering::Relaxed);
    assert!(!run_text(text, &stopped).unwrap().complete);
}

#[test]
fn repeat_runs_every_phase_again() {
    let log = Options {
        repeat: 3,
        log_interval: Some(Nanos(1)),
        default_mode: Mode::Read,
        ..Options::default()
    };
    let ran = run_text("a, 4096\n\none\n5\na, 0, 64, 1\n\ntwo\n5\na, 1, 1, 1\n", &log).unwrap();
    let mut phases: Vec<&str> = ran
        .output
        .lines()
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    phases.dedup();
    assert_eq!(phases, ["one", "two", "one", "two", "one", "two"]);
    assert!(ran.truths.is_empty(), "no truth span was set");
}

#[test]
fn run_with_hints_and_huge_pages_completes() {
    let text = "a, 4M\nb, 4096\n\np\n5\na, 0, 4096, 1\n";
    let with_hints = Options {
        hint: HintMethod::Madvise,
        ..options()
    };
    assert!(run_text(text, &with_hints).unwrap().complete);
    if std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        assert!(
            run_text(
                text,
                &Options {
                    huge_pages: true,
                    ..options()
                }
            )
            .unwrap()
            .complete
        );
    }
}

#[test]
fn initial_data_is_read_and_missing_file_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data");
    std::fs::write(&file, vec![7u8; 10_000]).unwrap();
    let text = |path: &std::path::Path| format!("a, 4096, {}\n\np\n1\na, 0, 64, 1, ro\n", path.display());
    // No more than the region holds is read: the device never ends.
    for file in [file.as_path(), std::path::Path::new("/dev/zero")] {
        assert!(run_text(&text(file), &options()).unwrap().complete);
    }
    let error = run_text(&text(&folder.path().join("absent")), &options())
        .err()
        .unwrap();
    assert!(
        matches!(&error, RunError::Init { name, .. } if name == "a"),
        "{error}"
    );
    assert!(error.to_string().contains("absent"), "{error}");
}

#[test]
fn truth_file_has_one_line_for_each_span() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("truth.jsonl");
    let writer = TruthWriter::create(&path).unwrap();
    let config = Config::parse("a, 64K\n\np\n20\na, 0, 64, 1\n").unwrap();
    let mut reported = Vec::new();
    let quiet = Options {
        quiet: true,
        ..options()
    };
    run(&config, &quiet, &mut |truth| {
        reported.push(truth.clone());
        writer.write(truth);
    })
    .unwrap();
    writer.finish().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let read: Vec<Truth> = text.lines().map(|line| Truth::parse(line).unwrap()).collect();
    assert_eq!(read, reported);
    assert!(Truth::parse("{}").is_err() && Truth::parse("").is_err());
    for line in text.lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(value["start_ns"].as_u64() < value["end_ns"].as_u64());
        assert_eq!(value["pid"], std::process::id());
        assert!(
            value["ranges"]
                .as_array()
                .unwrap()
                .iter()
                .all(|range| range[0].as_u64() < range[1].as_u64())
        );
    }
}
