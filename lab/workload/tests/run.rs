//! Running configurations: what is said, what is told as truth, what is refused. No test here depends on how
//! fast the machine is: a phase that is too short for a pass lists less, never more.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::atomic::Ordering;

use thermo_units::{AddrRange, Nanos};
use thermo_workload::{Config, HintMethod, Mode, Options, RunError, Truth, TruthWriter, run, run_to};

struct Ran {
    said: String,
    truths: Vec<Truth>,
    complete: bool,
    nr_accesses: u64,
}

fn ran(text: &str, options: &Options) -> Result<Ran, RunError> {
    let (mut out, mut truths) = (Vec::new(), Vec::new());
    let config = Config::parse(text).unwrap();
    let summary = run_to(&config, options, &mut out, &mut |truth| truths.push(truth))?;
    let said = String::from_utf8(out).unwrap();
    Ok(Ran {
        said,
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
fn regions(said: &str) -> Vec<AddrRange> {
    let ready = said.lines().next().unwrap();
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let words = ready.split(' ').filter_map(|word| word.split_once('-'));
    words
        .map(|(start, end)| AddrRange::new(hex(start), hex(end)))
        .collect()
}

#[test]
fn the_ready_line_names_the_process_and_its_regions() {
    let ran = ran("a, 8192\nb, 4096\n\np\n0\n", &options()).unwrap();
    assert!(
        ran.said
            .starts_with(&format!("ready pid={} regions a 0x", std::process::id())),
        "{}",
        ran.said
    );
    let regions = regions(&ran.said);
    assert_eq!(
        regions.iter().map(|range| range.len().0).collect::<Vec<_>>(),
        [8192, 4096]
    );
    assert!(ran.complete);
}

#[test]
fn spans_follow_one_another_and_list_only_what_the_phase_touches() {
    let ran = ran(
        "a, 1M\nb, 1M\n\nfirst\n30\na, 0, 4096, 1\n\nsecond\n30\nb, 1, 1, 1, ro\n",
        &options(),
    )
    .unwrap();
    let regions = regions(&ran.said);
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
            assert_eq!(inside.sum::<u64>(), range.len().0, "{range} is not of any region");
        }
    }
    // Once b is touched, a is not any more.
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
fn a_stride_over_a_page_lists_only_the_pages_it_hits() {
    let ran = ran("a, 64K\n\np\n20\na, 0, 16384, 1, rw\n", &options()).unwrap();
    let start = regions(&ran.said)[0].start.0;
    let hit = [0, 16384, 32768, 49152].map(|offset| AddrRange::new(start + offset, start + offset + 4096));
    let whole = ran.truths.iter().find(|truth| !truth.ranges.is_empty()).unwrap();
    assert_eq!(whole.ranges, hit);
}

#[test]
fn probability_0_is_never_drawn_and_an_idle_phase_touches_nothing() {
    let ran = ran(
        "a, 4096\nb, 4096\n\np\n20\na, 0, 64, 1\nb, 0, 64, 0\n",
        &options(),
    )
    .unwrap();
    let b = regions(&ran.said)[1];
    assert!(
        ran.truths
            .iter()
            .flat_map(|truth| &truth.ranges)
            .all(|range| !range.overlaps(&b))
    );
    let idle = self::ran("a, 4096\n\np\n20\n", &options()).unwrap();
    assert!(idle.nr_accesses == 0 && idle.truths.iter().all(|truth| truth.ranges.is_empty()));
}

#[test]
fn a_dry_run_makes_no_access_and_a_stop_ends_it() {
    let text = "a, 4096\n\np\n3600000\na, 0, 64, 1\n";
    let dry = ran(
        text,
        &Options {
            dry_run: true,
            ..options()
        },
    )
    .unwrap();
    assert!(dry.nr_accesses == 0 && dry.complete && dry.said.starts_with("ready "));
    let stopped = options();
    stopped.stop.store(true, Ordering::Relaxed);
    assert!(!ran(text, &stopped).unwrap().complete);
}

#[test]
fn repeats_run_every_phase_again() {
    let log = Options {
        repeat: 3,
        log_interval: Some(Nanos(1)),
        default_mode: Mode::Read,
        ..Options::default()
    };
    let ran = ran("a, 4096\n\none\n5\na, 0, 64, 1\n\ntwo\n5\na, 1, 1, 1\n", &log).unwrap();
    let mut phases: Vec<&str> = ran
        .said
        .lines()
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    phases.dedup();
    assert_eq!(phases, ["one", "two", "one", "two", "one", "two"]);
    assert!(ran.truths.is_empty(), "nobody asked for it");
}

#[test]
fn huge_pages_and_advice_are_asked_for() {
    let text = "a, 4M\nb, 4096\n\np\n5\na, 0, 4096, 1\n";
    let asked = Options {
        hint: HintMethod::Madvise,
        ..options()
    };
    assert!(ran(text, &asked).unwrap().complete);
    if std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        assert!(
            ran(
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
fn initial_data_is_read_and_its_absence_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data");
    std::fs::write(&file, vec![7u8; 10_000]).unwrap();
    let text = |path: &std::path::Path| format!("a, 4096, {}\n\np\n1\na, 0, 64, 1, ro\n", path.display());
    assert!(ran(&text(&file), &options()).unwrap().complete);
    let error = ran(&text(&folder.path().join("absent")), &options())
        .err()
        .unwrap();
    assert!(
        matches!(&error, RunError::Init { name, .. } if name == "a"),
        "{error}"
    );
    assert!(error.to_string().contains("absent"), "{error}");
}

#[test]
fn the_file_of_truth_holds_a_line_a_span() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("truth.jsonl");
    let writer = TruthWriter::create(&path).unwrap();
    let config = Config::parse("a, 64K\n\np\n20\na, 0, 64, 1\n").unwrap();
    let mut told = Vec::new();
    let quiet = Options {
        quiet: true,
        ..options()
    };
    run(&config, &quiet, &mut |truth| {
        told.push(truth.clone());
        writer.write(truth);
    })
    .unwrap();
    writer.finish().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let read: Vec<Truth> = text.lines().map(|line| Truth::parse(line).unwrap()).collect();
    assert_eq!(read, told);
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
