//! Accessed bits that another program cleared, which sets the young flag of the folio. The other program is
//! the in-kernel DAMON of the machine, if it runs; the test only waits for it.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::access::{probe, scan};
use common::{Target, retry, tracker};
use thermo_backends::{PteTracker, Tracker as _};
use thermo_engine::TargetId;
use thermo_engine::ops::{CheckResult, Probe};
use thermo_engine::scan::{ScanChunk, ScanResult};
use thermo_kernel::damon;
use thermo_pagetable::{Entry, Folios};
use thermo_targets::Processes;
use thermo_units::Addr;

const BYTES: u64 = 64 << 20;
/// Minimum number of pages whose accessed bit was cleared, and maximum time to wait for them.
const MIN_CLEARED: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(10);

#[test]
fn child() {
    common::run_if_child();
}

/// The tracker, if it can read young flags and in-kernel DAMON runs.
fn young_tracker() -> Option<PteTracker> {
    let tracker = tracker()?;
    if let Err(why) = tracker.young_support() {
        eprintln!("SKIP: {why}");
        return None;
    }
    if !damon::is_running(Path::new("/")) {
        eprintln!("SKIP: in-kernel DAMON does not run on this machine, and a test must not start it");
        return None;
    }
    Some(tracker)
}

/// Accesses all pages and waits until DAMON has cleared some accessed bits. Returns the cleared pages.
fn wait_for_cleared(tracker: &mut PteTracker, target: &mut Target) -> Vec<Addr> {
    let pages: Vec<Addr> = target.pages().collect();
    target.touch(target.range);
    let deadline = Instant::now() + TIMEOUT;
    let mut entries = Vec::new();
    loop {
        tracker
            .tables()
            .entries(target.pid(), &pages, Folios::NotAccessed, &mut entries)
            .unwrap();
        let is_cleared = |entry: &Entry| matches!(entry, Entry::Leaf(leaf) if leaf.young && !leaf.accessed);
        let cleared = pages.iter().zip(&entries).filter(|(_, entry)| is_cleared(entry));
        let cleared: Vec<Addr> = cleared.map(|(page, _)| *page).collect();
        if cleared.len() >= MIN_CLEARED || Instant::now() > deadline {
            return cleared;
        }
        sleep(Duration::from_millis(50));
    }
}

/// Checks accesses to `pages`, with `between` run between prepare and check. Returns the numbers of accessed
/// and of idle pages. The others are unknown: pages that wait for an LRU list cannot be cleared.
fn check_pages(
    tracker: &mut PteTracker,
    processes: &Processes,
    pages: &[Addr],
    between: impl FnOnce(&mut PteTracker),
) -> (usize, usize) {
    let mut probes: Vec<Probe> = pages.iter().copied().map(probe).collect();
    tracker.prepare(processes, &probes);
    between(tracker);
    tracker.check(processes, &mut probes);
    let count = |seen| probes.iter().filter(|probe| probe.result == seen).count();
    (count(CheckResult::Accessed), count(CheckResult::Idle))
}

#[test]
fn probes_read_and_clear_young_flags() {
    let Some(mut tracker) = young_tracker() else {
        return;
    };
    let mut target = Target::start(BYTES);
    let processes = target.processes();
    let pages: Vec<Addr> = target.pages().collect();
    let mut cleared = 0;
    let (accessed, idle) = check_pages(&mut tracker, &processes, &pages, |tracker| {
        cleared = wait_for_cleared(tracker, &mut target).len();
    });
    if cleared < MIN_CLEARED {
        return eprintln!("SKIP: in-kernel DAMON cleared only {cleared} accessed bits within {TIMEOUT:?}");
    }
    assert!(
        accessed > pages.len() / 2 && idle < MIN_CLEARED / 2,
        "all {} pages were accessed, and {cleared} bits cleared: {idle} pages idle, {accessed} accessed",
        pages.len()
    );
    // After another prepare without accesses, neither accessed bits nor young flags are set.
    retry(|| match check_pages(&mut tracker, &processes, &pages, |_| ()) {
        (0, _) => Ok(()),
        (count, _) => Err(format!("{count} pages are reported as accessed, but were not")),
    });
}

/// One complete scan pass.
fn pass(tracker: &mut PteTracker, processes: &Processes, target: &Target) -> ScanChunk {
    tracker.begin_pass(&processes[&TargetId(0)]);
    scan(tracker, processes, target.range)
}

#[test]
fn scans_read_and_clear_young_flags() {
    let Some(mut tracker) = young_tracker() else {
        return;
    };
    let mut target = Target::start(BYTES);
    let processes = target.processes();
    let pages: Vec<Addr> = target.pages().collect();
    // Before the first scan, young flags may be years old.
    let old = wait_for_cleared(&mut tracker, &mut target);
    let first = pass(&mut tracker, &processes, &target);
    let counted = old
        .iter()
        .filter(|page| first.get(**page) == ScanResult::Accessed)
        .count();
    assert_eq!(counted, 0, "of {} pages", old.len());
    let cleared = wait_for_cleared(&mut tracker, &mut target);
    if cleared.len() < MIN_CLEARED {
        return eprintln!(
            "SKIP: in-kernel DAMON cleared only {} accessed bits within {TIMEOUT:?}",
            cleared.len()
        );
    }
    let seen = pass(&mut tracker, &processes, &target);
    let count = |seen: &ScanChunk, what| pages.iter().filter(|page| seen.get(**page) == what).count();
    let (accessed, idle) = (count(&seen, ScanResult::Accessed), count(&seen, ScanResult::Idle));
    assert!(
        accessed > pages.len() / 2 && idle < MIN_CLEARED / 2,
        "all {} pages were accessed, and {} bits cleared: {idle} pages idle, {accessed} accessed",
        pages.len(),
        cleared.len()
    );
    retry(|| {
        let after = pass(&mut tracker, &processes, &target);
        match count(&after, ScanResult::Accessed) {
            0 => Ok(()),
            count => Err(format!("{count} pages are reported as accessed, but were not")),
        }
    });
}
