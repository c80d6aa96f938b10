//! A small fleet: files and truth agree, and everything is a function of the options.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use thermo_fleet::{Mode, Row, RowKind};
use thermo_fleet_sim::{Ages, ClassTruth, Error, Options, START_MS, Truth, simulate};
use thermo_units::SharePerMinute;

fn options(hosts: u64) -> Options {
    Options {
        hosts,
        hours: 2,
        seed: 7,
        start_ms: START_MS,
        interval: 300_000,
        window: 3_600_000,
        ages: None,
        max_refaults: SharePerMinute(2000),
        anchors: Vec::new(),
    }
}

fn simulated(options: &Options, folder: &Path) -> Result<Truth, Error> {
    simulate(options, folder, &AtomicBool::new(false), &|_| {})
}

/// All files below `folder` but the truth, by their path in it.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            match path.is_dir() {
                true => folders.push(path),
                false if name == "truth.json" => {}
                false => drop(files.insert(name, fs::read(&path).unwrap())),
            }
        }
    }
    files
}

/// The rows of all files, with the cluster of each.
fn rows(folder: &Path) -> Vec<(String, Row)> {
    let mut all = Vec::new();
    for (name, file) in files(folder) {
        let (facts, rows) = thermo_fleet::read(file).unwrap();
        assert_eq!(thermo_fleet::file_name(&facts).unwrap(), name);
        for row in rows {
            let (begin, end) = (facts.window_start_ms, facts.window_start_ms + facts.window_ms);
            assert!(
                row.time_ms > begin && row.time_ms <= end,
                "{name}: {}",
                row.time_ms
            );
            assert_eq!(row.node, facts.node);
            all.push((facts.cluster.clone(), row));
        }
    }
    all
}

#[test]
fn parquet_sums_equal_the_truth() {
    let folder = tempfile::tempdir().unwrap();
    let truth = simulated(&options(10), folder.path()).unwrap();
    let rows = rows(folder.path());
    assert_eq!((truth.files, truth.rows), (20, rows.len() as u64));
    let mut sums: BTreeMap<&str, ClassTruth> = BTreeMap::new();
    let mut clusters: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (cluster, row) in &rows {
        clusters.entry(cluster).or_default().push(&row.node);
        if row.row == RowKind::Agent {
            continue;
        }
        let idle: u64 = row.idle_bytes.iter().sum();
        assert_eq!(row.resident_bytes, idle + row.unknown_bytes);
        assert!(
            row.idle_bytes
                .iter()
                .zip(&row.idle_file_bytes)
                .all(|(all, file)| file <= all)
        );
        let sum = sums.entry(&row.workload).or_default();
        sum.rows += 1;
        sum.resident_byte_intervals += row.resident_bytes;
        for age in 0..15 {
            sum.idle_byte_intervals[age] += row.idle_bytes[age];
            sum.reaccess_bytes[age] += row.reaccess_bytes[age];
        }
        sum.paged_out_bytes += row.paged_out_bytes;
        sum.back_bytes += row.back_bytes;
        sum.net_saved_byte_intervals += row.net_saved_bytes;
        sum.watching_cpu_us += row.watching_cpu_us;
    }
    for class in &truth.classes {
        let sum = sums.remove(class.class.as_str()).unwrap_or_default();
        let expected = ClassTruth {
            class: class.class.clone(),
            hosts: sum.rows / 24,
            targets: sum.rows / 24,
            true_idle_byte_intervals: class.true_idle_byte_intervals,
            ..sum
        };
        assert_eq!(*class, expected);
    }
    assert!(sums.is_empty(), "unknown classes: {sums:?}");
    for cluster in &truth.clusters {
        let mut nodes = clusters.remove(cluster.cluster.as_str()).unwrap();
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!(nodes.len() as u64, cluster.hosts, "{}", cluster.cluster);
    }
    assert!(clusters.is_empty());
    let written = fs::read_to_string(folder.path().join("truth.json")).unwrap();
    let written: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!(written, serde_json::to_value(&truth).unwrap());
}

#[test]
fn same_seed_gives_the_same_bytes_and_fewer_hosts_are_a_prefix() {
    let folders: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
    let truth = simulated(&options(4), folders[0].path()).unwrap();
    assert_eq!(truth, simulated(&options(4), folders[1].path()).unwrap());
    simulated(&options(8), folders[2].path()).unwrap();
    let other_seed = Options {
        seed: 8,
        ..options(4)
    };
    simulated(&other_seed, folders[3].path()).unwrap();
    let [small, again, large, other] = [0, 1, 2, 3].map(|nth| files(folders[nth].path()));
    assert!(small == again, "two runs differ");
    assert_eq!((small.len(), large.len()), (8, 16));
    assert!(
        small.iter().all(|(name, file)| large.get(name) == Some(file)),
        "not a prefix"
    );
    assert!(small != other, "the seed has no effect");
}

#[test]
fn given_ages_act_on_all_hosts_and_are_judged() {
    let folder = tempfile::tempdir().unwrap();
    let ages = Ages::from([("cache-zipf".to_owned(), 30), ("idle-daemon".to_owned(), 300)]);
    let truth = simulated(
        &Options {
            ages: Some(ages),
            ..options(12)
        },
        folder.path(),
    )
    .unwrap();
    let mut back = 0;
    for (_, row) in rows(folder.path())
        .iter()
        .filter(|(_, row)| row.row == RowKind::Target)
    {
        let expected = match row.workload.as_str() {
            "cache-zipf" => (Mode::Act, Some(30_000)),
            "idle-daemon" => (Mode::Act, Some(300_000)),
            _ => (Mode::Observe, None),
        };
        assert_eq!((row.mode, row.min_age_ms), expected, "{}", row.workload);
        back += row.back_bytes;
    }
    assert!(back > 0);
    let bound = truth.bound.unwrap();
    let class = |name: &str| {
        bound
            .classes
            .iter()
            .find(|class| class.class == name)
            .unwrap()
            .hours
    };
    let hosts = |name: &str| {
        truth
            .classes
            .iter()
            .find(|class| class.class == name)
            .unwrap()
            .hosts
    };
    let (cache, daemon) = (class("cache-zipf"), class("idle-daemon"));
    assert_eq!(
        (cache.host_hours, daemon.host_hours),
        (2 * hosts("cache-zipf"), 2 * hosts("idle-daemon"))
    );
    assert!(
        cache.host_hours > 0 && cache.share() < 0.5,
        "{cache:?}: far too young an age"
    );
    assert!(daemon.host_hours > 0 && daemon.share() > 0.9, "{daemon:?}");
}

#[test]
fn impossible_options_are_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let message = |options: Options| simulated(&options, folder.path()).unwrap_err().to_string();
    assert_eq!(
        message(options(0)),
        "a fleet of 0 hosts for 2 hours is empty: give at least 1 of each"
    );
    let odd = message(Options {
        interval: 420_000,
        ..options(1)
    });
    assert_eq!(
        odd,
        "an interval of 420 s does not divide an hour: give --interval 5m"
    );
    let odd = message(Options {
        window: 400_000,
        ..options(1)
    });
    assert_eq!(
        odd,
        "a window of 400 s does not hold whole intervals of 300 s: give --window 1h"
    );
    let odd = message(Options {
        start_ms: START_MS + 1,
        ..options(1)
    });
    assert!(odd.contains("give --start a whole hour"), "{odd}");
    fs::create_dir(folder.path().join("date=2020-01-01")).unwrap();
    assert!(message(options(1)).ends_with("has files already: choose another --out, or empty it first"));
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = simulated(&options(1), &file.join("below"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("Not a directory"), "{error}");
}

#[test]
fn windows_may_be_longer_than_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        interval: 900_000,
        window: 7_200_000,
        start_ms: START_MS + 3_600_000,
        ..options(1)
    };
    let truth = simulated(&options, folder.path()).unwrap();
    let names: Vec<String> = files(folder.path()).into_keys().collect();
    let seconds = START_MS / 1000;
    let expected = [seconds, seconds + 7200].map(|start| format!("node-00000.{start}.v1.parquet"));
    assert_eq!(names.len(), 2);
    assert!(
        names.iter().zip(&expected).all(|(name, end)| name.ends_with(end)),
        "{names:?}"
    );
    assert_eq!(truth.files, 2);
    rows(folder.path());
}

#[test]
fn file_pages_are_counted_apart() {
    let folder = tempfile::tempdir().unwrap();
    simulated(&options(10), folder.path()).unwrap();
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let rows = rows(folder.path());
    let observed = rows.iter().map(|(_, row)| row);
    for row in observed.filter(|row| row.row == RowKind::Target && row.mode == Mode::Observe) {
        for (file, all) in row.idle_file_bytes.iter().zip(&row.idle_bytes) {
            assert!(file <= all, "{row:?}");
        }
        let sum = sums.entry(row.workload.clone()).or_default();
        sum.0 += row.idle_file_bytes.iter().sum::<u64>();
        sum.1 += row.idle_bytes.iter().sum::<u64>();
    }
    assert!(sums.len() > 5, "{sums:?}");
    let shares: BTreeMap<_, f64> = sums
        .into_iter()
        .map(|(class, (file, all))| (class, file as f64 / all as f64))
        .collect();
    // Files are up to 75 % of a class. Few classes have none that are resident.
    assert!(shares.values().all(|share| *share < 0.85), "{shares:?}");
    assert!(
        shares.values().filter(|share| **share > 0.005).count() > 5,
        "{shares:?}"
    );
}
