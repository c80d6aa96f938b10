//! The modules as directories: their files, and switching them on and off.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};

use common::{ChildProcess, Files, engine, engine_with_log, wait_until};
use thermo_damonfs::Errno;
use thermo_targets::TargetSpec;

const RECLAIM: &str = "damon_reclaim/parameters";
const LRU_SORT: &str = "damon_lru_sort/parameters";
const STAT: &str = "damon_stat/parameters";

fn targets(pids: &[u32]) -> Option<TargetSpec> {
    Some(TargetSpec::for_pids(pids))
}

fn expect(files: &Files, dir: &str, expected: &[(&str, &str)]) {
    let mut names: Vec<String> = {
        let tree = files.0.tree();
        let ino = tree.find(dir).unwrap();
        tree.list(ino).unwrap().map(|(name, _)| name.to_owned()).collect()
    };
    names.sort();
    let mut known: Vec<&str> = expected.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(names, known, "{dir}");
    for (name, shown) in expected {
        assert_eq!(
            files.read(&format!("{dir}/{name}")),
            Ok(format!("{shown}\n")),
            "{dir}/{name}"
        );
    }
}

#[test]
fn modules_have_kernel_files_and_defaults() {
    let files = Files::modules(engine(), targets(&[1]));
    let common = [
        ("enabled", "N"),
        ("commit_inputs", "N"),
        ("quota_ms", "10"),
        ("quota_reset_interval_ms", "1000"),
        ("wmarks_interval", "5000000"),
        ("sample_interval", "5000"),
        ("aggr_interval", "100000"),
        ("min_nr_regions", "10"),
        ("max_nr_regions", "1000"),
        ("monitor_region_start", "0"),
        ("monitor_region_end", "0"),
        ("addr_unit", "1"),
        ("kdamond_pid", "-1"),
    ];
    let reclaim = [
        ("min_age", "120000000"),
        ("quota_sz", "134217728"),
        ("quota_mem_pressure_us", "0"),
        ("quota_autotune_feedback", "0"),
        ("wmarks_high", "500"),
        ("wmarks_mid", "400"),
        ("wmarks_low", "200"),
        ("skip_anon", "N"),
        ("nr_reclaim_tried_regions", "0"),
        ("bytes_reclaim_tried_regions", "0"),
        ("nr_reclaimed_regions", "0"),
        ("bytes_reclaimed_regions", "0"),
        ("nr_quota_exceeds", "0"),
    ];
    let lru_sort = [
        ("hot_thres_access_freq", "500"),
        ("cold_min_age", "120000000"),
        ("wmarks_high", "200"),
        ("wmarks_mid", "150"),
        ("wmarks_low", "50"),
        ("nr_lru_sort_tried_hot_regions", "0"),
        ("bytes_lru_sort_tried_hot_regions", "0"),
        ("nr_lru_sorted_hot_regions", "0"),
        ("bytes_lru_sorted_hot_regions", "0"),
        ("nr_hot_quota_exceeds", "0"),
        ("nr_lru_sort_tried_cold_regions", "0"),
        ("bytes_lru_sort_tried_cold_regions", "0"),
        ("nr_lru_sorted_cold_regions", "0"),
        ("bytes_lru_sorted_cold_regions", "0"),
        ("nr_cold_quota_exceeds", "0"),
    ];
    let zeros = ["0"; 101].join(",");
    expect(&files, RECLAIM, &[&common[..], &reclaim].concat());
    expect(&files, LRU_SORT, &[&common[..], &lru_sort].concat());
    expect(
        &files,
        STAT,
        &[
            ("enabled", "N"),
            ("estimated_memory_bandwidth", "0"),
            ("memory_idle_ms_percentiles", &zeros),
            ("aggr_interval_us", "0"),
        ],
    );
}

#[test]
fn modules_reject_invalid_values() {
    let files = Files::modules(engine(), targets(&[1]));
    for (name, text, errno) in [
        ("enabled", "maybe", Errno::INVAL),
        ("commit_inputs", "2", Errno::INVAL),
        ("skip_anon", "", Errno::INVAL),
        ("min_age", "-1", Errno::INVAL),
        ("min_age", "2s", Errno::INVAL),
        ("quota_ms", "18446744073709551616", Errno::RANGE),
        ("nr_quota_exceeds", "0", Errno::ACCESS),
        ("kdamond_pid", "1", Errno::ACCESS),
    ] {
        let text = format!("{text}\n");
        assert_eq!(
            files.write(&format!("{RECLAIM}/{name}"), &text),
            Err(errno),
            "{text:?} to {name}"
        );
    }
    assert_eq!(
        files.write(&format!("{RECLAIM}/commit_inputs"), "Y"),
        Ok(1),
        "ignored while the module is off"
    );
    assert_eq!(
        files.read(&format!("{RECLAIM}/commit_inputs")),
        Ok("N\n".to_owned())
    );
}

#[test]
fn modules_without_targets_stay_off_with_message() {
    static NR_MESSAGES: AtomicUsize = AtomicUsize::new(0);
    let engine = engine_with_log(|message| {
        assert!(message.contains("--modules-on"), "{message}");
        NR_MESSAGES.fetch_add(1, Ordering::Relaxed);
    });
    let files = Files::modules(engine, None);
    for dir in [RECLAIM, LRU_SORT, STAT] {
        let enabled = format!("{dir}/enabled");
        assert_eq!(files.write(&enabled, "Y"), Err(Errno::PERM));
        assert_eq!(files.read(&enabled), Ok("N\n".to_owned()));
        assert_eq!(files.write(&enabled, "N"), Ok(1), "the module is off");
    }
    assert_eq!(NR_MESSAGES.load(Ordering::Relaxed), 3);
}

#[test]
fn contradicting_parameters_start_and_stop_nothing() {
    let target = ChildProcess::sleeping();
    let files = Files::modules(engine(), targets(&[target.pid()]));
    for (dir, name, invalid, valid) in [
        (RECLAIM, "sample_interval", "200000", "5000"),
        (RECLAIM, "min_nr_regions", "2", "10"),
        (RECLAIM, "wmarks_low", "600", "200"),
        (RECLAIM, "monitor_region_start", "4096", "0"),
        (LRU_SORT, "hot_thres_access_freq", "1001", "500"),
        (LRU_SORT, "quota_reset_interval_ms", "0", "1000"),
        (LRU_SORT, "wmarks_high", "4294967296", "200"),
    ] {
        let (enabled, parameter) = (format!("{dir}/enabled"), format!("{dir}/{name}"));
        files.set(&parameter, invalid);
        assert_eq!(files.write(&enabled, "Y"), Err(Errno::INVAL), "{name}");
        assert_eq!(files.read(&enabled), Ok("N\n".to_owned()), "{name}");
        files.set(&parameter, valid);
        files.set(&enabled, "Y");
        files.set(&parameter, invalid);
        let commit = format!("{dir}/commit_inputs");
        assert_eq!(files.write(&commit, "Y"), Err(Errno::INVAL), "{name}");
        assert_eq!(files.read(&enabled), Ok("Y\n".to_owned()), "{name}");
        files.set(&parameter, valid);
        files.set(&commit, "Y");
        files.set(&enabled, "N");
    }
}

#[test]
fn module_runs_alone() {
    let (engine, mut target) = (engine(), ChildProcess::sleeping());
    let files = Files::modules(std::sync::Arc::clone(&engine), targets(&[target.pid()]));
    let sysfs = Files::staged_with(engine, target.pid());
    files.set(&format!("{RECLAIM}/enabled"), "Y");
    files.set(&format!("{RECLAIM}/enabled"), "Y");
    let tid = files.number(&format!("{RECLAIM}/kdamond_pid"));
    let comm = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).unwrap();
    assert_eq!(comm.trim(), "kdamond.0");
    assert_eq!(files.write(&format!("{STAT}/enabled"), "Y"), Err(Errno::BUSY));
    assert_eq!(sysfs.command("on"), Err(Errno::BUSY));
    files.set(&format!("{RECLAIM}/enabled"), "N");
    assert_eq!(
        files.read(&format!("{RECLAIM}/kdamond_pid")),
        Ok("-1\n".to_owned())
    );
    sysfs.command("on").unwrap();
    assert_eq!(files.write(&format!("{LRU_SORT}/enabled"), "Y"), Err(Errno::BUSY));
    sysfs.command("off").unwrap();
    files.set(&format!("{LRU_SORT}/enabled"), "Y");
    target.kill();
    wait_until("the module stops because its only target is gone", || {
        files.read(&format!("{LRU_SORT}/enabled")).unwrap() == "N\n"
    });
    assert_eq!(
        files.write(&format!("{LRU_SORT}/enabled"), "Y"),
        Err(Errno::INVAL),
        "the target is gone"
    );
}

#[test]
fn idle_percentiles_survive_the_end() {
    let target = ChildProcess::sleeping();
    let files = Files::modules(engine(), targets(&[target.pid()]));
    files.set(&format!("{STAT}/enabled"), "Y");
    let percentiles = || -> Vec<i64> {
        let text = files.read(&format!("{STAT}/memory_idle_ms_percentiles")).unwrap();
        text.trim()
            .split(',')
            .map(|number| number.parse().unwrap())
            .collect()
    };
    wait_until("something is idle", || percentiles()[100] > 0);
    assert!(files.number(&format!("{STAT}/aggr_interval_us")) >= 100_000);
    files.set(&format!("{STAT}/enabled"), "N");
    let last = percentiles();
    assert_eq!(last.len(), 101);
    assert!(last.is_sorted() && last[100] > 0, "{last:?}");
}
