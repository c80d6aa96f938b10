//! The pte tracker on real processes.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use common::access::{library, probe};
use common::{Target, retry, tracker};
use thermo_backends::Tracker as _;
use thermo_engine::TargetId;
use thermo_engine::ops::{CheckResult, Probe};
use thermo_units::{Addr, AddrRange, Bytes};

#[test]
fn child() {
    common::run_if_child();
}

fn count(probes: &[Probe], seen: CheckResult) -> usize {
    probes.iter().filter(|probe| probe.result == seen).count()
}

#[test]
fn probes_find_accessed_and_idle_pages() {
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
    retry(|| {
        tracker.prepare(&processes, &probes);
        target.touch(hot);
        tracker.check(&processes, &mut probes);
        let accessed = count(&probes[..half], CheckResult::Accessed);
        let idle = count(&probes[half..], CheckResult::Idle);
        if accessed == half && idle * 100 >= half * 99 {
            return Ok(());
        }
        Err(format!(
            "of {half} pages each: {accessed} accessed pages found, {idle} other pages idle"
        ))
    });
}

#[test]
fn probes_do_not_split_huge_pages() {
    let Some(mut tracker) = tracker() else { return };
    let Some(mut target) = Target::start_huge(8 << 20) else {
        return;
    };
    let before = target.huge();
    let processes = target.processes();
    let mut probes: Vec<Probe> = target.pages().step_by(100).map(probe).collect();
    let range = target.range;
    retry(|| {
        tracker.prepare(&processes, &probes);
        tracker.check(&processes, &mut probes);
        let idle = count(&probes, CheckResult::Idle);
        tracker.prepare(&processes, &probes);
        target.touch(range);
        tracker.check(&processes, &mut probes);
        let accessed = count(&probes, CheckResult::Accessed);
        let all = probes.len();
        if idle == all && accessed == all {
            return Ok(());
        }
        Err(format!(
            "of {all} probes, {idle} idle without accesses and {accessed} accessed after accesses"
        ))
    });
    assert!(
        target.huge() >= before,
        "{} of {before} in huge pages",
        target.huge()
    );
}

#[test]
fn shared_pages_are_unknown() {
    let Some(mut tracker) = tracker() else { return };
    let target = Target::start(1 << 20);
    let Some(libc) = library(&target) else { return };
    let pages = (libc.start.0..libc.end.0).step_by(4096);
    let mut probes: Vec<Probe> = pages.map(|addr| probe(Addr(addr))).collect();
    let processes = target.processes();
    // This process maps the same pages. The child sleeps in a read, or will soon.
    retry(|| {
        tracker.prepare(&processes, &probes);
        tracker.check(&processes, &mut probes);
        let (accessed, unknown) = (
            count(&probes, CheckResult::Accessed),
            count(&probes, CheckResult::Unknown),
        );
        if accessed == 0 && unknown > 0 {
            return Ok(());
        }
        Err(format!(
            "{accessed} pages reported as accessed, {unknown} as unknown"
        ))
    });
}

#[test]
fn unmapped_memory_is_idle() {
    let Some(mut tracker) = tracker() else { return };
    let target = Target::start(1 << 20);
    let processes = target.processes();
    let mut probes = [probe(Addr(0x1000))];
    tracker.prepare(&processes, &probes);
    tracker.check(&processes, &mut probes);
    assert_eq!(probes[0].result, CheckResult::Idle);
}

#[test]
fn process_may_end_between_prepare_and_check() {
    let Some(mut tracker) = tracker() else { return };
    let mut target = Target::start(4 << 20);
    let processes = target.processes();
    let mut probes: Vec<Probe> = target.pages().map(probe).collect();
    tracker.prepare(&processes, &probes);
    target.kill();
    tracker.check(&processes, &mut probes);
    assert_eq!(count(&probes, CheckResult::Unknown), probes.len());
    tracker.prepare(&processes, &probes);
    tracker.check(&processes, &mut probes);
    assert_eq!(count(&probes, CheckResult::Unknown), probes.len());
    // A probe of an unknown target is no error either.
    let mut unknown = [Probe {
        target: TargetId(9),
        ..probes[0]
    }];
    tracker.prepare(&processes, &unknown);
    tracker.check(&processes, &mut unknown);
    assert_eq!(unknown[0].result, CheckResult::Unknown);
}
