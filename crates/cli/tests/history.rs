//! `thermo report --since` and `thermo advise --since` read the agent's history.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::path::Path;
use std::time::SystemTime;

use common::{run, stderr};
use serde_json::Value;
use thermo_engine::access_tables::AccessTables;
use thermo_engine::budget::Method;
use thermo_engine::ops::TargetId;
use thermo_recording::history::{Clocks, SegmentWriter, WriteLimits};
use thermo_recording::model::{Metadata, Record, Region, Snapshot, Target};
use thermo_units::{Bytes, Nanos};

const SECOND: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

/// Two policies with one target each, over the last hour: 100 and 300 MiB, of which half is idle for 10
/// minutes.
fn history(state_dir: &Path) {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let clocks = |second: u64| Clocks {
        monotonic: Nanos::secs(second),
        unix: Nanos::secs(now - 3600 + second),
    };
    for (policy, name, mib) in [("web", "nginx.service", 100), ("db", "mariadb.service", 300)] {
        let limits = WriteLimits {
            segment_age: Nanos::secs(1200),
            ..WriteLimits::default()
        };
        let mut writer = SegmentWriter::new(state_dir, policy, limits, clocks(0), Metadata::default).unwrap();
        writer.name(Nanos(1), TargetId(0), Some(4242), name);
        for second in (5..3600).step_by(5) {
            let mut tables = AccessTables::new(Method::Scan);
            (tables.pass, tables.nr_passes) = (Nanos::secs(1), second);
            tables.idle[0][0] = Bytes::mib(mib / 2);
            tables.idle[0][9] = Bytes::mib(mib / 2);
            tables.reaccessed[5] = Bytes(4096);
            let region = Region {
                start: 0x10_0000,
                end: 0x10_0000 + mib * MIB,
                nr_accesses: 10,
                ..Region::default()
            };
            writer.record(&Record::Snapshot(Snapshot {
                start_ns: (second - 5) * SECOND,
                time_ns: second * SECOND,
                aggr_ns: 5 * SECOND,
                max_nr_accesses: 20,
                targets: vec![Target {
                    id: 0,
                    pid: Some(4242),
                    scanned: Some(true),
                    tables: Some(Box::new(tables)),
                    regions: vec![region],
                    ..Target::default()
                }],
            }));
            writer.tick(clocks(second));
        }
        assert!(writer.finish().is_empty());
    }
}

fn json(dir: &Path, arguments: &[&str]) -> Value {
    let output = run(dir, arguments);
    assert!(
        output.status.code() < Some(2),
        "{arguments:?}: {}",
        stderr(&output)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn reports_and_advice_cover_the_part_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    history(dir.path());
    let of = |kind: &str, more: &[&str]| {
        let mut arguments = vec!["report", kind, "--json", "--state-dir", "."];
        arguments.extend(more);
        json(dir.path(), &arguments)
    };
    let all = of("idle", &["--since", "-2h"]);
    assert_eq!(all["resident_bytes"], 400 * MIB, "the targets of both policies");
    assert_eq!(all["targets"].as_array().unwrap().len(), 2);
    let web = of("idle", &["--since", "-2h", "--target", "nginx.service"]);
    assert_eq!(web["resident_bytes"], 100 * MIB);
    let db = of("idle", &["--since=-2h", "--policy", "db"]);
    assert_eq!(db["resident_bytes"], 300 * MIB);
    let reaccess = of("reaccess", &["--since", "-2h", "--target", "nginx.service"]);
    let row = &reaccess["ages"][0];
    assert_eq!(row["bytes"], 719 * 4096, "one page in five seconds");
    let half = of(
        "reaccess",
        &["--since", "-30m", "--until", "-10m", "--policy", "web"],
    );
    let seconds = half["monitored_s"].as_f64().unwrap();
    assert!((1190.0..1215.0).contains(&seconds), "{seconds}");
    let info = of("info", &["--since", "-2h", "--policy", "web"]);
    assert_eq!(info["targets"], "policy web");
    for kind in ["summary", "regions", "heatmap", "wss", "schemes", "footprint"] {
        let output = run(
            dir.path(),
            &["report", kind, "--since", "-2h", "--state-dir", "."],
        );
        assert_eq!(output.status.code(), Some(0), "{kind}: {}", stderr(&output));
        assert!(!output.stdout.is_empty(), "{kind}");
    }
    let advice = json(
        dir.path(),
        &[
            "advise",
            "--json",
            "--since",
            "-1d",
            "--target",
            "mariadb.service",
            "--state-dir",
            ".",
        ],
    );
    assert_eq!(advice["resident_bytes"], 300 * MIB);
    assert!(advice["watched_s"].as_f64().unwrap() > 3500.0);
}

#[test]
fn questions_without_an_answer_are_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    history(dir.path());
    for (arguments, expected) in [
        (
            vec!["--since", "-2h", "--state-dir", "/nonexistent"],
            "there is no history in /nonexistent",
        ),
        (vec!["--since", "-2h", "--until", "-3h"], "give a time before it"),
        (
            vec!["--since", "-2h", "--target", "redis"],
            "it has mariadb.service (policy db), nginx.service (policy web)",
        ),
        (
            vec!["--since", "-2h", "--policy", "mail"],
            "the history has no policy \"mail\": it has db, web",
        ),
        (
            vec!["--since", "2020-01-01 10:00", "--until", "2020-01-02"],
            "the history has no snapshot from 2020-01-01",
        ),
    ] {
        for verb in [&["report", "idle"][..], &["advise"][..]] {
            let mut all = [verb, &arguments[..]].concat();
            if !all.contains(&"--state-dir") {
                all.extend(["--state-dir", "."]);
            }
            let output = run(dir.path(), &all);
            let message = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{all:?}: {message}");
            assert!(message.contains(expected), "{all:?}: {message}");
            assert_eq!(message.trim_end().lines().count(), 1, "{message}");
        }
    }
    let clash = run(dir.path(), &["report", "idle", "x.arrow", "--since", "-2h"]);
    assert_eq!(clash.status.code(), Some(2));
    let alone = run(dir.path(), &["report", "idle", "--target", "x"]);
    assert!(stderr(&alone).contains("--since"), "{}", stderr(&alone));
    let mistake = run(dir.path(), &["report", "idle", "--since", "yesterday"]);
    assert!(
        stderr(&mistake).contains("\"yesterday\" is no time: give -2h"),
        "{}",
        stderr(&mistake)
    );
}
