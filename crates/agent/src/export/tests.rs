#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use thermo_engine::ops::Applied;
use thermo_fleet::Finished;
use thermo_units::{Bytes, Nanos};

use super::*;

/// 2026-11-02 12:00 UTC.
const NOON_MS: u64 = 1_793_620_800_000;
const MINUTE_MS: u64 = 60_000;

struct Setup {
    state: tempfile::TempDir,
    config: ExportConfig,
}

impl Setup {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let config = ExportConfig {
            every: Nanos::secs(300),
            window: Nanos::secs(3600),
            folder: state.path().join("export"),
            max_size: None,
            cluster: "eu".to_owned(),
            node: "n1".to_owned(),
            link: "http://n1:9402".to_owned(),
        };
        Self { state, config }
    }

    fn exporter(&self, now_ms: u64) -> Exporter {
        let (exporter, warning) = Exporter::new(self.config.clone(), self.state.path(), now_ms);
        assert_eq!(warning, None);
        exporter
    }

    /// The finished files: name, and the minute after noon at which each row ends.
    fn files(&self) -> Vec<(String, Vec<i64>)> {
        let folder = &self.config.folder;
        let content = |file: Finished| {
            let (_, rows) = thermo_fleet::read(fs::read(folder.join(&file.name)).unwrap()).unwrap();
            let minute =
                |row: &Row| (row.time_ms.cast_signed() - NOON_MS.cast_signed()) / MINUTE_MS.cast_signed();
            (file.name, rows.iter().map(minute).collect())
        };
        let mut files = thermo_fleet::finished(folder).unwrap();
        files.retain(|file| file.node == self.config.node);
        files.into_iter().map(content).collect()
    }
}

fn row(bytes: u64) -> Row {
    Row {
        resident_bytes: bytes,
        ..Row::default()
    }
}

/// The name of the file of the window that begins `minutes` after noon.
fn name(minutes: u64) -> String {
    let seconds = NOON_MS / 1000 + minutes * 60;
    format!("date=2026-11-02/cluster=eu/n1.{seconds}.v1.parquet")
}

#[test]
fn group_of_the_agent_may_take_finished_files_and_no_others() {
    let setup = Setup::new();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let mut exporter = setup.exporter(NOON_MS + MINUTE_MS);
    exporter.create_folder().unwrap();
    exporter.add(NOON_MS + 60 * MINUTE_MS, vec![row(60)]).unwrap();
    exporter.add(NOON_MS + 65 * MINUTE_MS, vec![row(65)]).unwrap();
    let file = setup.config.folder.join(name(0));
    assert_eq!(mode(&file), 0o640);
    let folders: Vec<u32> = file.ancestors().skip(1).take(3).map(mode).collect();
    assert_eq!(folders, [0o770; 3], "whoever removes a file writes to its folder");
    assert_eq!(mode(&setup.state.path().join(WINDOW_FOLDER)), 0o700);
    assert_eq!(
        mode(&setup.state.path().join(WINDOW_FOLDER).join(name(60))),
        0o600
    );
}

#[test]
fn rows_of_a_window_are_in_one_file() {
    let setup = Setup::new();
    let mut exporter = setup.exporter(NOON_MS + MINUTE_MS);
    for minute in [5, 10, 55] {
        assert!(exporter.is_due(NOON_MS + minute * MINUTE_MS));
        exporter
            .add(NOON_MS + minute * MINUTE_MS + 700, vec![row(minute)])
            .unwrap();
        assert_eq!(setup.files(), []);
    }
    // The interval that ends with the window belongs to it.
    exporter.add(NOON_MS + 60 * MINUTE_MS, vec![row(60)]).unwrap();
    assert_eq!(setup.files(), [(name(0), vec![5, 10, 55, 60])]);
    assert_eq!(exporter.status().unwrap().files, 1);
    let (facts, rows) = thermo_fleet::read(fs::read(setup.config.folder.join(name(0))).unwrap()).unwrap();
    assert_eq!(
        (facts.node.as_str(), facts.link.as_str()),
        ("n1", "http://n1:9402")
    );
    assert_eq!(facts.written_ms, NOON_MS + 60 * MINUTE_MS);
    let intervals: Vec<u64> = rows.iter().map(|row| row.interval_ms).collect();
    assert_eq!(
        intervals,
        [
            4 * MINUTE_MS + 700,
            5 * MINUTE_MS,
            45 * MINUTE_MS,
            5 * MINUTE_MS - 700
        ]
    );
}

#[test]
fn rows_survive_a_crash() {
    let setup = Setup::new();
    let mut exporter = setup.exporter(NOON_MS);
    exporter.add(NOON_MS + 5 * MINUTE_MS, vec![row(1)]).unwrap();
    drop(exporter);
    // Within the window: it goes on. After an upgrade, the facts are those of the new program.
    let mut exporter = setup.exporter(NOON_MS + 7 * MINUTE_MS);
    exporter.add(NOON_MS + 10 * MINUTE_MS, vec![row(2)]).unwrap();
    drop(exporter);
    // After the window: its file is finished.
    let mut exporter = setup.exporter(NOON_MS + 90 * MINUTE_MS);
    exporter.add(NOON_MS + 95 * MINUTE_MS, vec![row(3)]).unwrap();
    assert_eq!(setup.files(), [(name(0), vec![5, 10])]);
    exporter.add(NOON_MS + 120 * MINUTE_MS, vec![row(4)]).unwrap();
    assert_eq!(setup.files(), [(name(0), vec![5, 10]), (name(60), vec![95, 120])]);
}

#[test]
fn stop_ends_the_interval() {
    let setup = Setup::new();
    let mut exporter = setup.exporter(NOON_MS);
    exporter.add(NOON_MS + 2 * MINUTE_MS, vec![row(1)]).unwrap();
    // Too short for a row.
    exporter.add(NOON_MS + 2 * MINUTE_MS + 500, vec![row(2)]).unwrap();
    exporter.add(NOON_MS + 60 * MINUTE_MS, vec![]).unwrap();
    assert_eq!(setup.files(), [(name(0), vec![2])]);
}

#[test]
fn clock_that_steps_back_ends_the_interval() {
    let setup = Setup::new();
    let mut exporter = setup.exporter(NOON_MS + 130 * MINUTE_MS);
    assert!(!exporter.is_due(NOON_MS + 131 * MINUTE_MS));
    assert!(exporter.is_due(NOON_MS + 10 * MINUTE_MS));
    exporter.add(NOON_MS + 10 * MINUTE_MS, vec![row(1)]).unwrap();
    exporter.add(NOON_MS + 15 * MINUTE_MS, vec![row(2)]).unwrap();
    exporter.add(NOON_MS + 60 * MINUTE_MS, vec![]).unwrap();
    assert_eq!(
        setup.files(),
        [(name(0), vec![15])],
        "the length of the first is not known"
    );
}

#[test]
fn oldest_files_are_dropped() {
    let mut setup = Setup::new();
    let mut exporter = setup.exporter(NOON_MS);
    exporter.add(NOON_MS + 60 * MINUTE_MS, vec![row(1)]).unwrap();
    let size = exporter.status().unwrap().bytes;
    drop(exporter);
    // Two files fit.
    setup.config.max_size = Some(Bytes(2 * size + size / 2));
    let other = setup
        .config
        .folder
        .join("date=2026-11-01/cluster=eu/other.1.v1.parquet");
    fs::create_dir_all(other.parent().unwrap()).unwrap();
    fs::write(&other, vec![0; 1 << 20]).unwrap();
    let mut exporter = setup.exporter(NOON_MS + 60 * MINUTE_MS);
    for hour in 2..5 {
        exporter
            .add(NOON_MS + hour * 60 * MINUTE_MS, vec![row(hour)])
            .unwrap();
    }
    assert_eq!(setup.files(), [(name(120), vec![180]), (name(180), vec![240])]);
    assert_eq!(exporter.status().unwrap().dropped_files, 2);
    assert!(other.exists(), "files of other machines are not ours");
}

#[test]
fn unreadable_window_is_told() {
    let setup = Setup::new();
    let torn = setup.state.path().join(WINDOW_FOLDER).join(name(0));
    fs::create_dir_all(torn.parent().unwrap()).unwrap();
    fs::write(torn, "torn").unwrap();
    let (mut exporter, warning) = Exporter::new(setup.config.clone(), setup.state.path(), NOON_MS);
    assert!(warning.unwrap().ends_with("a new window begins"));
    exporter.add(NOON_MS + 60 * MINUTE_MS, vec![row(1)]).unwrap();
    assert_eq!(setup.files(), [(name(0), vec![60])]);
}

#[test]
fn rows_wait_for_a_folder_that_cannot_be_written() {
    let setup = Setup::new();
    fs::write(&setup.config.folder, "not a folder").unwrap();
    let mut exporter = setup.exporter(NOON_MS);
    assert!(exporter.add(NOON_MS + 60 * MINUTE_MS, vec![row(1)]).is_err());
    assert!(exporter.add(NOON_MS + 65 * MINUTE_MS, vec![row(2)]).is_err());
    drop(exporter);
    let mut exporter = setup.exporter(NOON_MS + 65 * MINUTE_MS);
    assert!(exporter.add(NOON_MS + 120 * MINUTE_MS, vec![row(3)]).is_err());
    fs::remove_file(&setup.config.folder).unwrap();
    exporter.add(NOON_MS + 125 * MINUTE_MS, vec![row(4)]).unwrap();
    assert_eq!(setup.files(), [(name(0), vec![60]), (name(60), vec![65, 120])]);
    exporter.add(NOON_MS + 180 * MINUTE_MS, vec![]).unwrap();
    assert_eq!(setup.files().last(), Some(&(name(120), vec![125])));
}

#[test]
fn files_that_wait_for_the_folder_are_bounded() {
    let mut setup = Setup::new();
    setup.config.max_size = Some(Bytes::kib(20));
    fs::write(&setup.config.folder, "not a folder").unwrap();
    let mut exporter = setup.exporter(NOON_MS);
    for hour in 1..=10 {
        assert!(
            exporter
                .add(NOON_MS + hour * 60 * MINUTE_MS, vec![row(hour)])
                .is_err()
        );
    }
    fs::remove_file(&setup.config.folder).unwrap();
    exporter.add(NOON_MS + 605 * MINUTE_MS, vec![]).unwrap();
    let (kept, dropped) = (setup.files(), exporter.status().unwrap().dropped_files);
    assert_eq!(kept.last(), Some(&(name(540), vec![600])), "the newest is kept");
    assert!(dropped > 0);
    assert_eq!(kept.len() as u64 + dropped, 10);
}

#[test]
fn sums_are_those_since_the_last_take() {
    let mut sums = Sums::default();
    let applied = Applied {
        changed: Some(Bytes::mib(2)),
        ..Applied::default()
    };
    let target = |policy: &str| Row {
        policy: policy.to_owned(),
        target: "t".to_owned(),
        ..Row::default()
    };
    let ages = |bytes: u64| [Bytes(bytes); NR_AGES];
    sums.add_applied("p", "t", "pageout", &applied);
    sums.add_applied("p", "t", "hugepage", &applied);
    sums.add_applied("p", "ended", "pageout", &applied);
    sums.add_cpu("p", "t", (Nanos::millis(2), Nanos::millis(1)));
    let mut rows = vec![target("p"), target("q")];
    assert_eq!(sums.take(&mut rows, &[ages(5), ages(7)]), 1000);
    let figures = |row: &Row| {
        (
            row.target.clone(),
            row.paged_out_bytes,
            row.reaccess_bytes[0],
            row.watching_cpu_us,
        )
    };
    assert_eq!(
        rows.iter().map(figures).collect::<Vec<_>>(),
        [
            ("t".to_owned(), 2 << 20, 5, 2000),
            ("t".to_owned(), 0, 7, 0),
            ("ended".to_owned(), 2 << 20, 0, 0)
        ]
    );
    // The second policy began anew.
    let mut rows = vec![target("p"), target("q")];
    sums.take(&mut rows, &[ages(6), ages(3)]);
    assert_eq!(
        rows.iter().map(figures).collect::<Vec<_>>(),
        [("t".to_owned(), 0, 1, 0), ("t".to_owned(), 0, 3, 0)]
    );
}
