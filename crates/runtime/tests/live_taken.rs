//! Accessed marks that somebody else took off and noted in the folio. Who does that here is the machine's own in-kernel
//! DAMON, if it runs one; it is only waited for.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::look::{probe, scan};
use common::{Target, repeat_until_good, tracker};
use thermo_backends::{PteTracker, Tracker as _};
use thermo_engine::TargetId;
use thermo_engine::ops::{Probe, Seen};
use thermo_engine::scan::{PageSeen, ScanChunk};
use thermo_kernel::damon;
use thermo_pagetable::{Entry, Folios};
use thermo_targets::Processes;
use thermo_units::Addr;

const BYTES: u64 = 64 << 20;
/// How many pages must have lost their mark, and how long that is waited for.
const ENOUGH: usize = 16;
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn child() {
    common::live_as_child();
}

/// The tracker, where the marks that others take can be seen and somebody takes them.
fn seeing_tracker() -> Option<PteTracker> {
    let tracker = tracker()?;
    if let Err(why) = tracker.sees_young() {
        eprintln!("SKIP: {why}");
        return None;
    }
    if !damon::runs(Path::new("/")) {
        eprintln!("SKIP: no in-kernel DAMON runs on this machine, and a test must not start one");
        return None;
    }
    Some(tracker)
}

/// Touches all pages and waits until the marks of some were taken off; returns those.
fn taken_from(tracker: &mut PteTracker, target: &mut Target) -> Vec<Addr> {
    let pages: Vec<Addr> = target.pages().collect();
    target.touch(target.range);
    let deadline = Instant::now() + PATIENCE;
    let mut entries = Vec::new();
    loop {
        tracker
            .tables()
            .entries(target.pid(), &pages, Folios::OfUnmarked, &mut entries)
            .unwrap();
        let is_taken = |entry: &Entry| matches!(entry, Entry::Leaf(leaf) if leaf.young && !leaf.accessed);
        let taken = pages.iter().zip(&entries).filter(|(_, entry)| is_taken(entry));
        let taken: Vec<Addr> = taken.map(|(page, _)| *page).collect();
        if taken.len() >= ENOUGH || Instant::now() > deadline {
            return taken;
        }
        sleep(Duration::from_millis(50));
    }
}

/// Looks at `pages`, with something done between taking their marks off and looking again; how many are seen as touched,
/// and how many as idle. The others are unknown: pages that wait to be put on a list cannot be cleared.
fn look(
    tracker: &mut PteTracker,
    processes: &Processes,
    pages: &[Addr],
    between: impl FnOnce(&mut PteTracker),
) -> (usize, usize) {
    let mut probes: Vec<Probe> = pages.iter().copied().map(probe).collect();
    tracker.prepare(processes, &probes);
    between(tracker);
    tracker.check(processes, &mut probes);
    let count = |seen| probes.iter().filter(|probe| probe.seen == seen).count();
    (count(Seen::Accessed), count(Seen::Idle))
}

#[test]
fn probes_see_marks_that_were_taken_and_take_those_of_folios_off() {
    let Some(mut tracker) = seeing_tracker() else {
        return;
    };
    let mut target = Target::start(BYTES);
    let processes = target.processes();
    let pages: Vec<Addr> = target.pages().collect();
    let mut taken = 0;
    let (touched, idle) = look(&mut tracker, &processes, &pages, |tracker| {
        taken = taken_from(tracker, &mut target).len();
    });
    if taken < ENOUGH {
        return eprintln!("SKIP: in-kernel DAMON took {taken} marks within {PATIENCE:?}, too few to tell");
    }
    assert!(
        touched > pages.len() / 2 && idle < ENOUGH / 2,
        "all {} pages were touched, of which {taken} lost their mark: {idle} look idle, {touched} touched",
        pages.len()
    );
    // Prepared anew, and not touched since: neither the marks nor what was noted of them is left.
    repeat_until_good(|| match look(&mut tracker, &processes, &pages, |_| ()) {
        (0, _) => Ok(()),
        (left, _) => Err(format!("{left} pages count as touched that nobody touched")),
    });
}

/// A round of sweeps, all of it.
fn round(tracker: &mut PteTracker, processes: &Processes, target: &Target) -> ScanChunk {
    tracker.begin_pass(&processes[&TargetId(0)]);
    scan(tracker, processes, target.range)
}

#[test]
fn sweeps_see_marks_that_were_taken_and_take_those_of_folios_off() {
    let Some(mut tracker) = seeing_tracker() else {
        return;
    };
    let mut target = Target::start(BYTES);
    let processes = target.processes();
    let pages: Vec<Addr> = target.pages().collect();
    // Before the first sweep, what folios say may be years old.
    let old = taken_from(&mut tracker, &mut target);
    let first = round(&mut tracker, &processes, &target);
    let counted = old
        .iter()
        .filter(|page| first.get(**page) == PageSeen::Accessed)
        .count();
    assert_eq!(counted, 0, "of {} pages", old.len());
    let taken = taken_from(&mut tracker, &mut target);
    if taken.len() < ENOUGH {
        return eprintln!(
            "SKIP: in-kernel DAMON took {} marks within {PATIENCE:?}, too few to tell",
            taken.len()
        );
    }
    let seen = round(&mut tracker, &processes, &target);
    let count = |seen: &ScanChunk, what| pages.iter().filter(|page| seen.get(**page) == what).count();
    let (touched, idle) = (count(&seen, PageSeen::Accessed), count(&seen, PageSeen::Idle));
    assert!(
        touched > pages.len() / 2 && idle < ENOUGH / 2,
        "all {} pages were touched, of which {} lost their mark: {idle} look idle, {touched} touched",
        pages.len(),
        taken.len()
    );
    repeat_until_good(|| {
        let after = round(&mut tracker, &processes, &target);
        match count(&after, PageSeen::Accessed) {
            0 => Ok(()),
            left => Err(format!("{left} pages count as touched that nobody touched")),
        }
    });
}
