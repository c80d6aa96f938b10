//! `thermo pagein` brings back what was paged out of a real process.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::path::Path;

use common::{Guard, json, run, start_workload, stderr, wait_until, workload};
use serde_json::Value;
use thermo_kernel::status;
use thermo_kernel::zram::ZramSwap;
use thermo_units::Bytes;

/// Swap that is removed at the end; prints the reason if there is none.
fn zram() -> Option<ZramSwap> {
    ZramSwap::create(Path::new("/"), Bytes::mib(256))
        .inspect_err(|why| eprintln!("SKIP: no zram device can be created: {why}"))
        .ok()
}

fn in_swap(pid: u32) -> Bytes {
    status::read(Path::new("/"), pid).unwrap().vm_swap
}

/// A workload of 48 MiB that accesses 16 MiB of it, and of which most is in swap. Prints the reason if it
/// cannot be paged out.
fn paged_out(dir: &Path) -> Option<Guard> {
    let cfg = workload(dir, 300_000).unwrap();
    let target = start_workload(dir, &cfg);
    let pid = target.0.id();
    let is_resident = || status::read(Path::new("/"), pid).unwrap().rss_anon >= Bytes::mib(44);
    assert!(wait_until(is_resident));
    let mut result = Value::Null;
    let goes = wait_until(|| {
        let hint = ["hint", "pageout", "--pid", &pid.to_string(), "--anon", "--json"];
        // Exit code 1: nothing was advised this time.
        result = serde_json::from_slice(&run(dir, &hint).stdout).unwrap();
        let is_refused = |one: &Value| one["reason"] == "not_permitted";
        result["skipped"].as_array().unwrap().iter().any(is_refused) || in_swap(pid) >= Bytes::mib(24)
    });
    assert!(goes, "{result}");
    if in_swap(pid) < Bytes::mib(24) {
        eprintln!("SKIP: memory of other processes cannot be advised here: {result}");
        return None;
    }
    Some(target)
}

#[test]
fn pagein_maps_swapped_memory_again() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let Some(zram) = zram() else { return };
    let Some(target) = paged_out(dir) else { return };
    let (pid, name) = (target.0.id(), target.0.id().to_string());
    // The floor is above all memory: nothing may come.
    let stays = run(dir, &["pagein", "--pid", &name, "--keep-available", "100%"]);
    let text = String::from_utf8_lossy(&stays.stdout).into_owned();
    assert_eq!(stays.status.code(), Some(1), "{text}{}", stderr(&stays));
    assert!(
        text.starts_with("brought back 0 B of ") && text.contains("must stay so (--keep-available)"),
        "{text}"
    );
    let hint = json(dir, &["hint", "willneed", "--pid", &name, "--anon", "--json"]);
    let advised = hint["bytes_advised"].as_u64().unwrap();
    // The whole mappings have 48 MiB and more, of which 16 MiB are always accessed.
    assert!((20 << 20..=40 << 20).contains(&advised), "{hint}");

    let before = in_swap(pid);
    let result = json(dir, &["pagein", "--pid", &name, "--json"]);
    assert_eq!(result["schema"], 1, "{result}");
    let (in_swap_then, back) = (&result["bytes_in_swap"], &result["bytes_brought_back"]);
    assert_eq!(back, in_swap_then, "{result}");
    assert!(
        back.as_u64().unwrap() + (4 << 20) >= before.0,
        "{result}, {before} before"
    );
    assert!(
        in_swap(pid) <= Bytes::mib(2),
        "{} are still in swap",
        in_swap(pid)
    );
    assert_eq!(result["processes"][0]["pid"], pid);
    let again = run(dir, &["pagein", "--pid", &name]);
    let text = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(
        text.starts_with("nothing of the process is in swap") || text.starts_with("brought back"),
        "{text}"
    );
    // The target ends before its swap device is removed.
    drop(target);
    zram.remove().unwrap();
}

#[test]
fn pagein_names_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str]| {
        let output = run(folder.path(), &[&["pagein"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        stderr(&output)
    };
    assert!(refused(&[]).contains("no target is named"));
    assert!(refused(&["--", "true"]).contains("has nothing in swap"));
    assert!(refused(&["--pid", "4194304"]).contains("4194304"));
    assert!(refused(&["--pid", "1", "--keep-available", "x"]).contains("--keep-available"));
    assert!(refused(&["--unit", "thermo-no-such-unit"]).contains("thermo-no-such-unit"));
}
