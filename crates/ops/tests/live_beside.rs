//! Others that take accessed marks off and keep nothing show in marks that nobody of us touches.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::path::Path;

use common::look::{library, probe, sweep};
use common::{Target, repeat_until_good, tracker};
use thermo_core::{AddrRange, Bytes, TargetId};
use thermo_ops::{Processes, PteTracker, Tracker as _};
use thermo_sys::clear_refs::{self, Marks};

#[test]
fn child() {
    common::live_as_child();
}

/// What a tracker has to tell after it looked twice, with somebody's `deed` between.
fn told(
    tracker: &mut PteTracker,
    processes: &Processes,
    range: AddrRange,
    deed: impl FnOnce(),
) -> Vec<String> {
    sweep(tracker, processes, range);
    deed();
    tracker.news(processes)
}

#[test]
fn who_writes_to_clear_refs_is_noticed_and_nobody_is_made_up() {
    let Some(first) = tracker() else { return };
    let mut trackers = Some(first);
    if library(&Target::start(1 << 20)).is_none() {
        return;
    }
    repeat_until_good(|| {
        // Marks that were taken once do not all come back, so every attempt is another target's.
        let target = Target::start(1 << 20);
        let (processes, libc) = (target.processes(), library(&target).unwrap());
        let mut quiet = trackers.take().or_else(tracker).unwrap();
        let told_of_nobody = told(&mut quiet, &processes, libc, || ());
        let told_of_us = told(&mut quiet, &processes, libc, || {
            clear_refs::clear(Path::new("/"), target.pid(), Marks::All).unwrap();
        });
        match (told_of_nobody.as_slice(), told_of_us.as_slice()) {
            ([], [said]) if said.contains(&format!("process {}", target.pid())) => Ok(()),
            other => Err(format!("{other:?}; the library has {}", Bytes(libc.len().0))),
        }
    });
}

#[test]
fn who_takes_marks_of_memory_that_nobody_shares_is_noticed_too() {
    let Some(mut tracker) = tracker() else { return };
    repeat_until_good(|| {
        // One in 256 pages witnesses, and eight are the least that tell.
        let mut target = Target::start(16 << 20);
        let (processes, range) = (target.processes(), target.range);
        let mut told_between = |tracker: &mut PteTracker, deed: &dyn Fn(&mut PteTracker)| {
            let before = tracker.news(&processes);
            target.touch(target.range);
            tracker.prepare_round(&processes, true);
            sweep(tracker, &processes, target.range);
            deed(tracker);
            tracker.prepare_round(&processes, true);
            sweep(tracker, &processes, target.range);
            [before, tracker.news(&processes)].concat()
        };
        let clear = || clear_refs::clear(Path::new("/"), processes[&TargetId(0)].pid, Marks::All).unwrap();
        let nobody = told_between(&mut tracker, &|_| ());
        // What samples take off themselves is nobody else's work.
        let ourselves = told_between(&mut tracker, &|tracker| {
            tracker.prepare(&processes, &[probe(range.start)]);
            clear();
        });
        let somebody = told_between(&mut tracker, &|_| clear());
        // It is told once.
        tracker = common::tracker().unwrap();
        match (nobody.as_slice(), ourselves.as_slice(), somebody.as_slice()) {
            ([], [], [said]) if said.contains("takes accessed marks off") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}
