//! The actor on real processes.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::sync::atomic::Ordering;

use common::look::{probe, scan};
use common::{Target, repeat_until_good, swap, swapped, tracker};
use thermo_actions::{Actor, PageoutLimits};
use thermo_backends::{PteTracker, Tracker as _};
use thermo_engine::TargetId;
use thermo_engine::action::Action;
use thermo_engine::ops::{Applied, OpsError, Probe, Request, Skip, TargetRange};
use thermo_engine::scheme::{OpsFilter, OpsFilterKind};
use thermo_targets::Processes;
use thermo_units::{AddrRange, Bytes, Permille};

#[test]
fn child() {
    common::live_as_child();
}

fn actor() -> Actor {
    Actor::new(
        PageoutLimits {
            swap_floor: Permille(0),
            ..PageoutLimits::default()
        },
        false,
    )
}

fn run(range: AddrRange) -> TargetRange {
    TargetRange {
        target: TargetId(0),
        range,
    }
}

/// Does it to one range, without filters.
fn apply(actor: &mut Actor, processes: &Processes, action: Action, range: AddrRange) -> Applied {
    let request = Request {
        action,
        runs: &[run(range)],
        filters: &[],
    };
    actor.apply(processes, &request, None).unwrap().runs.remove(0)
}

fn skipped(applied: &Applied, why: Skip) -> Bytes {
    applied
        .skipped
        .iter()
        .find(|(reason, _)| *reason == why)
        .map_or(Bytes::ZERO, |(_, bytes)| *bytes)
}

/// True where we may advise other processes.
fn may_advise(target: &Target) -> bool {
    let cold = apply(&mut actor(), &target.processes(), Action::Cold, target.range);
    let may = cold.applied > Bytes::ZERO;
    if !may {
        eprintln!("SKIP: other processes' memory cannot be advised here: {cold:?}");
    }
    may
}

#[test]
fn cold_memory_is_paged_out_and_what_was_touched_since_a_look_stays() {
    let Some(mut tracker) = tracker() else { return };
    let Some(_swap) = swap() else { return };
    let mut target = Target::start(32 << 20);
    if !may_advise(&target) {
        return;
    }
    let processes = target.processes();
    let start = target.range.start;
    let mib = |from, to| AddrRange {
        start: start + Bytes::mib(from),
        end: start + Bytes::mib(to),
    };
    let (looked_at, all, pid) = (mib(0, 8), mib(0, 16), target.pid());
    let probes: Vec<Probe> = target.pages().take(2048).map(probe).collect();
    repeat_until_good(|| {
        let mut actor = actor();
        // All of it is there, and no more than looked at is touched after the look.
        target.touch(all);
        tracker.prepare(&processes, &probes);
        target.touch(looked_at);
        let request = Request {
            action: Action::Pageout,
            runs: &[run(all)],
            filters: &[],
        };
        let outcome = actor.apply(&processes, &request, Some(&mut tracker)).unwrap();
        let applied = &outcome.runs[0];
        let left = applied.changed.unwrap();
        let young = skipped(applied, Skip::Young);
        let out = swapped(pid, mib(8, 16));
        // Others may page out, or take marks off, now and then.
        let good = left >= Bytes::mib(7) && out >= Bytes::mib(7) && young >= Bytes::mib(7);
        if good && left <= Bytes::mib(9) && swapped(pid, looked_at) <= Bytes::mib(1) {
            return Ok(());
        }
        Err(format!("{applied:?}, {out} of 8 MiB are swapped out"))
    });
    // It ends before its swap is taken away.
    drop(target);
}

#[test]
fn what_was_touched_since_a_sweep_stays() {
    let Some(mut tracker) = tracker() else { return };
    let Some(_swap) = swap() else { return };
    let mut target = Target::start(32 << 20);
    if !may_advise(&target) {
        return;
    }
    let processes = target.processes();
    let start = target.range.start;
    let part = |from, to| AddrRange {
        start: start + Bytes::mib(from),
        end: start + Bytes::mib(to),
    };
    let (all, busy, pid) = (part(0, 16), part(4, 8), target.pid());
    repeat_until_good(|| {
        target.touch(all);
        scan(&mut tracker, &processes, all);
        target.touch(busy);
        let request = Request {
            action: Action::Pageout,
            runs: &[run(all)],
            filters: &[],
        };
        let outcome = actor().apply(&processes, &request, Some(&mut tracker)).unwrap();
        let (applied, left) = (&outcome.runs[0], swapped(pid, busy));
        let out = swapped(pid, part(0, 4)) + swapped(pid, part(8, 16));
        if left == Bytes::ZERO && out >= Bytes::mib(11) {
            return Ok(());
        }
        Err(format!(
            "{applied:?}: {out} of 12 MiB are out, and {left} of what was touched"
        ))
    });
    drop(target);
}

#[test]
fn below_the_swap_floor_no_anonymous_memory_is_paged_out() {
    let target = Target::start(4 << 20);
    let limits = PageoutLimits {
        swap_floor: Permille(1001),
        ..PageoutLimits::default()
    };
    let applied = apply(
        &mut Actor::new(limits, false),
        &target.processes(),
        Action::Pageout,
        target.range,
    );
    // What others reclaimed before is not there.
    let kept = skipped(&applied, Skip::SwapFloor) + skipped(&applied, Skip::NotPresent);
    assert_eq!((kept, applied.applied), (Bytes::mib(4), Bytes::ZERO));
}

#[test]
fn a_dry_run_decides_and_does_nothing() {
    let target = Target::start(4 << 20);
    let mut actor = Actor::new(PageoutLimits::default(), true);
    for action in [Action::Pageout, Action::Cold, Action::LruPrio, Action::Collapse] {
        let applied = apply(&mut actor, &target.processes(), action, target.range);
        assert_eq!(applied.skipped, [(Skip::DryRun, Bytes::mib(4))], "{action}");
        assert_eq!(
            (applied.applied, applied.passed_filters),
            (Bytes::ZERO, Bytes::mib(4))
        );
    }
}

#[test]
fn holes_and_the_dead_are_counted_and_the_rest_goes_on() {
    let target = Target::start(4 << 20);
    if !may_advise(&target) {
        return;
    }
    let mut gone = Target::start(1 << 20);
    let mut processes = target.processes();
    let dead = thermo_targets::Process::open(TargetId(1), gone.pid()).unwrap();
    processes.insert(TargetId(1), dead);
    gone.kill();
    // Below what may be mapped, far around the memory, and in the memory.
    let hole = AddrRange::new(0x1000, 0x9000);
    let runs = [
        run(hole),
        TargetRange {
            target: TargetId(1),
            range: gone.range,
        },
        run(target.range),
    ];
    for action in [Action::Cold, Action::Willneed, Action::LruPrio] {
        let request = Request {
            action,
            runs: &runs,
            filters: &[],
        };
        let outcome = actor().apply(&processes, &request, None).unwrap();
        assert_eq!(
            outcome.runs[0].skipped,
            [(Skip::NotPresent, hole.len())],
            "{action}"
        );
        assert_eq!(
            outcome.runs[1].skipped,
            [(Skip::TargetGone, gone.range.len())],
            "{action}"
        );
        assert!(
            outcome.runs[2].applied > Bytes::ZERO,
            "{action}: {:?}",
            outcome.runs[2]
        );
    }
}

#[test]
fn many_runs_at_once_are_told_apart() {
    let mut tracker = PteTracker::new().ok();
    let mut target = Target::start(16 << 20);
    if !may_advise(&target) {
        return;
    }
    let processes = target.processes();
    let piece = Bytes::kib(256);
    let hole = AddrRange::new(0x1000, 0x9000);
    let (start, all) = (target.range.start, target.range);
    // In the middle of the request is one the kernel refuses; the rest must not suffer.
    let pieces = (0..40).map(|n| run(AddrRange::new(start.0 + n * piece.0, start.0 + (n + 1) * piece.0)));
    let mut runs: Vec<TargetRange> = pieces.collect();
    runs.insert(20, run(hole));
    let request = Request {
        action: Action::Cold,
        runs: &runs,
        filters: &[],
    };
    for with_tables in [true, false] {
        repeat_until_good(|| {
            // What others reclaimed is there again.
            target.touch(all);
            let tables = tracker.as_mut().filter(|_| with_tables).map(|tables| tables as _);
            let outcome = actor().apply(&processes, &request, tables).unwrap();
            for (run, applied) in runs.iter().zip(&outcome.runs) {
                let good = if run.range == hole {
                    applied.skipped == [(Skip::NotPresent, hole.len())]
                } else {
                    applied.applied == piece && applied.skipped.is_empty()
                };
                if !good {
                    return Err(format!("{run:?}: {applied:?}"));
                }
            }
            Ok(())
        });
    }
}

#[test]
fn a_range_with_a_hole_in_it_is_advised_around_it() {
    let target = Target::start(4 << 20);
    if !may_advise(&target) {
        return;
    }
    // From the first page that could be to the end of the memory: mostly hole.
    let start = target.range.start - Bytes::gib(8);
    let applied = apply(
        &mut actor(),
        &target.processes(),
        Action::Cold,
        AddrRange {
            start,
            ..target.range
        },
    );
    assert!(applied.applied > Bytes::ZERO, "{applied:?}");
    assert!(skipped(&applied, Skip::NotPresent) > Bytes::ZERO, "{applied:?}");
}

#[test]
fn a_cancelled_actor_leaves_all_alone() {
    let target = Target::start(4 << 20);
    let mut actor = actor();
    actor.cancel_flag().store(true, Ordering::Relaxed);
    let applied = apply(&mut actor, &target.processes(), Action::Cold, target.range);
    assert_eq!(applied.skipped, [(Skip::Cancelled, Bytes::mib(4))]);
}

#[test]
fn what_cannot_be_done_is_said_before_anything_is_done() {
    let target = Target::start(1 << 20);
    for action in [Action::MigrateHot, Action::MigrateCold] {
        let request = Request {
            action,
            runs: &[run(target.range)],
            filters: &[],
        };
        let error = actor().apply(&target.processes(), &request, None);
        assert!(
            matches!(error, Err(OpsError::Unsupported { .. })),
            "{action}: {error:?}"
        );
    }
}

#[test]
fn memory_becomes_huge_where_enough_of_it_is_there() {
    let Some(mut tracker) = tracker() else { return };
    let mut target = Target::start(8 << 20);
    let wide = AddrRange {
        start: target.range.start + Bytes::kib(4),
        end: target.range.end,
    };
    let request = Request {
        action: Action::Collapse,
        runs: &[run(wide)],
        filters: &[],
    };
    // The child keeps its huge pages off until it is told otherwise.
    target.collapse();
    let outcome = actor()
        .apply(&target.processes(), &request, Some(&mut tracker))
        .unwrap();
    let applied = &outcome.runs[0];
    if applied.applied == Bytes::ZERO {
        eprintln!("SKIP: no huge pages are to be had here: {applied:?}");
        return;
    }
    assert!(applied.changed.is_some());
    // The first unit is not whole.
    assert_eq!(skipped(applied, Skip::Unadvisable), Bytes(Bytes::mib(2).0 - 4096));
}

#[test]
fn filters_keep_pages_out() {
    let Some(mut tracker) = tracker() else { return };
    let target = Target::start(4 << 20);
    let filter = |kind, matching, allow| OpsFilter {
        kind,
        matching,
        allow,
    };
    let mut passed = |filter: OpsFilter| {
        let request = Request {
            action: Action::Stat,
            runs: &[run(target.range)],
            filters: &[filter],
        };
        let outcome = actor()
            .apply(&target.processes(), &request, Some(&mut tracker))
            .unwrap();
        outcome.runs[0].passed_filters
    };
    assert_eq!(passed(filter(OpsFilterKind::Anon, true, false)), Bytes::ZERO);
    assert_eq!(passed(filter(OpsFilterKind::Unmapped, true, true)), Bytes::ZERO);
    let huge = OpsFilterKind::HugepageSize {
        min: Bytes::mib(2),
        max: Bytes::mib(2),
    };
    assert_eq!(
        passed(filter(huge, true, true)),
        Bytes::ZERO,
        "the child has no huge pages"
    );
    // What was reclaimed by others since is not there to pass.
    repeat_until_good(|| match passed(filter(OpsFilterKind::Anon, true, true)) {
        Bytes(0) => Err("no anonymous page is there".into()),
        _ => Ok(()),
    });
}
