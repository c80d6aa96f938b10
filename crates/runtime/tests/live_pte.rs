//! The pte tracker on real processes.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use common::look::{library, probe};
use common::{Target, repeat_until_good, tracker};
use thermo_backends::Tracker as _;
use thermo_engine::TargetId;
use thermo_engine::ops::{Probe, Seen};
use thermo_units::{Addr, AddrRange, Bytes};

#[test]
fn child() {
    common::live_as_child();
}

fn count(probes: &[Probe], seen: Seen) -> usize {
    probes.iter().filter(|probe| probe.seen == seen).count()
}

#[test]
fn touched_pages_are_accessed_and_the_others_idle() {
    let Some(mut tracker) = tracker() else { return };
    let mut target = Target::start(64 << 20);
    let processes = target.processes();
    let middle = target.range.start + Bytes::mib(32);
    let hot = AddrRange {
        start: target.range.start,
        end: middle,
    };
    let mut probes: Vec<Probe> = target.pages().map(probe).collect();
    let half = probes.len() / 2;
    repeat_until_good(|| {
        tracker.prepare(&processes, &probes);
        target.touch(hot);
        tracker.check(&processes, &mut probes);
        let touched = count(&probes[..half], Seen::Accessed);
        let idle = count(&probes[half..], Seen::Idle);
        if touched == half && idle * 100 >= half * 99 {
            return Ok(());
        }
        Err(format!(
            "of {half} pages each, {touched} touched ones are accessed, {idle} others idle"
        ))
    });
}

#[test]
fn looking_at_a_huge_page_does_not_split_it() {
    let Some(mut tracker) = tracker() else { return };
    let Some(mut target) = Target::start_huge(8 << 20) else {
        return;
    };
    let before = target.huge();
    let processes = target.processes();
    let mut probes: Vec<Probe> = target.pages().step_by(100).map(probe).collect();
    let range = target.range;
    repeat_until_good(|| {
        tracker.prepare(&processes, &probes);
        tracker.check(&processes, &mut probes);
        let idle = count(&probes, Seen::Idle);
        tracker.prepare(&processes, &probes);
        target.touch(range);
        tracker.check(&processes, &mut probes);
        let touched = count(&probes, Seen::Accessed);
        let all = probes.len();
        if idle == all && touched == all {
            return Ok(());
        }
        Err(format!(
            "of {all} looks, {idle} were idle when nothing was touched and {touched} accessed when all was"
        ))
    });
    assert!(target.huge() >= before, "{} of {before} are left", target.huge());
}

#[test]
fn pages_that_others_map_too_are_unknown() {
    let Some(mut tracker) = tracker() else { return };
    let target = Target::start(1 << 20);
    let Some(libc) = library(&target) else { return };
    let pages = (libc.start.0..libc.end.0).step_by(4096);
    let mut probes: Vec<Probe> = pages.map(|addr| probe(Addr(addr))).collect();
    let processes = target.processes();
    // The child sleeps in a read, or will soon; this process has the same pages mapped.
    repeat_until_good(|| {
        tracker.prepare(&processes, &probes);
        tracker.check(&processes, &mut probes);
        let (accessed, unknown) = (count(&probes, Seen::Accessed), count(&probes, Seen::Unknown));
        if accessed == 0 && unknown > 0 {
            return Ok(());
        }
        Err(format!("{accessed} pages are called accessed, {unknown} unknown"))
    });
}

#[test]
fn memory_that_is_not_there_is_idle() {
    let Some(mut tracker) = tracker() else { return };
    let target = Target::start(1 << 20);
    let processes = target.processes();
    let mut probes = [probe(Addr(0x1000))];
    tracker.prepare(&processes, &probes);
    tracker.check(&processes, &mut probes);
    assert_eq!(probes[0].seen, Seen::Idle);
}

#[test]
fn a_process_that_dies_between_two_looks_is_no_error() {
    let Some(mut tracker) = tracker() else { return };
    let mut target = Target::start(4 << 20);
    let processes = target.processes();
    let mut probes: Vec<Probe> = target.pages().map(probe).collect();
    tracker.prepare(&processes, &probes);
    target.kill();
    tracker.check(&processes, &mut probes);
    assert_eq!(count(&probes, Seen::Unknown), probes.len());
    tracker.prepare(&processes, &probes);
    tracker.check(&processes, &mut probes);
    assert_eq!(count(&probes, Seen::Unknown), probes.len());
    // Nor is a probe of a target that is in no table.
    let mut unknown = [Probe {
        target: TargetId(9),
        ..probes[0]
    }];
    tracker.prepare(&processes, &unknown);
    tracker.check(&processes, &mut unknown);
    assert_eq!(unknown[0].seen, Seen::Unknown);
}
