//! Hints to real processes: each range has its own result, and limits hold over all of them.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;

use common::{Target, repeat_until_good, swap, swapped};
use thermo_actions::hint::{Hint, Hinter, Kind, Limits, SkipReason};
use thermo_actions::{Actor, PageoutLimits};
use thermo_engine::ops::Skip;
use thermo_engine::{Action, TargetId};
use thermo_kernel::process_madvise::{Advice, process_madvise};
use thermo_targets::{Process, Processes};
use thermo_units::{AddrRange, Bytes, Nanos, PAGE_SIZE};

#[test]
fn child() {
    common::live_as_child();
}

fn hinter(limits: Limits) -> Hinter {
    Hinter::new(Actor::new(PageoutLimits::default(), false), limits)
}

fn hint(range: AddrRange, action: Action) -> Hint {
    let target = TargetId(0);
    Hint {
        target,
        range,
        action,
    }
}

/// Three targets, or none where other processes cannot be advised.
fn targets(bytes: u64) -> Option<(Vec<Target>, Processes)> {
    let targets: Vec<Target> = (0..3).map(|_| Target::start(bytes)).collect();
    let mut processes = Processes::new();
    for (target, id) in targets.iter().zip(0..) {
        processes.insert(TargetId(id), Process::open(TargetId(id), target.pid()).unwrap());
    }
    let first = &processes[&TargetId(0)];
    if let Err(why) = process_madvise(first.pidfd.as_fd(), &[targets[0].range], Advice::Cold) {
        eprintln!("SKIP: other processes' memory cannot be advised here: {why}");
        return None;
    }
    Some((targets, processes))
}

#[test]
fn of_ten_thousand_ranges_each_has_its_own_result() {
    let Some((mut targets, processes)) = targets(16 << 20) else {
        return;
    };
    let actions = [Action::Cold, Action::LruPrio, Action::LruDeprio, Action::Willneed];
    let mut hints = Vec::new();
    for (target, id) in targets.iter().zip(0..) {
        for (addr, action) in target.pages().zip(actions.into_iter().cycle()) {
            hints.push(Hint {
                target: TargetId(id),
                range: AddrRange {
                    start: addr,
                    end: addr + Bytes(PAGE_SIZE),
                },
                action,
            });
            // Between those that are there: pages where nothing can be mapped.
            if addr.0 % (256 * PAGE_SIZE) == 0 {
                let range = AddrRange::new(PAGE_SIZE, 2 * PAGE_SIZE);
                hints.push(Hint {
                    target: TargetId(id),
                    range,
                    action,
                });
            }
        }
    }
    assert!(hints.len() > 10_000);
    targets[2].kill();
    let given = hinter(Limits::default()).give(&processes, &hints);
    assert_eq!(given.len(), hints.len());
    let (mut valid, mut done) = (0, 0);
    for (hint, hinted) in hints.iter().zip(&given) {
        let left: Bytes = hinted.left.iter().map(|(_, bytes)| *bytes).sum();
        assert_eq!(hinted.advised + left, hint.range.len(), "{hint:?}: {hinted:?}");
        if hint.target == TargetId(2) {
            assert_eq!(hinted.left[0].0, SkipReason::Skip(Skip::TargetGone), "{hinted:?}");
            assert!(hinted.error.as_ref().unwrap().contains("has ended"));
        } else if hint.range.start.0 == PAGE_SIZE {
            assert_eq!(hinted.advised, Bytes::ZERO, "{hint:?}: {hinted:?}");
        } else {
            valid += 1;
            done += usize::from(hinted.advised == Bytes(PAGE_SIZE));
        }
    }
    // The kernel may have taken some away meanwhile.
    assert!(done > valid * 9 / 10, "{done} of {valid}");
}

#[test]
fn limits_hold_over_all_ranges() {
    let Some((targets, processes)) = targets(8 << 20) else {
        return;
    };
    let range = targets[0].range;
    let hints = [hint(range, Action::LruDeprio), hint(range, Action::LruPrio)];
    let limited = |limits| {
        let given = hinter(limits).give(&processes, &hints);
        let advised: Bytes = given.iter().map(|hinted| hinted.advised).sum();
        (advised, given)
    };
    let all = Limits::default();
    let max_bytes = Some(Bytes::mib(9));
    let (advised, given) = limited(Limits { max_bytes, ..all });
    assert!(Bytes::mib(4) <= advised && advised <= Bytes::mib(9), "{given:?}");
    assert!(
        given[1].left.iter().any(|(why, _)| *why == SkipReason::ByteLimit),
        "{given:?}"
    );
    for (limits, why) in [
        (
            Limits {
                max_time: Some(Nanos::ZERO),
                ..all
            },
            SkipReason::Deadline,
        ),
        (
            Limits {
                max_cpu: Some(Nanos::ZERO),
                ..all
            },
            SkipReason::CpuLimit,
        ),
    ] {
        let (advised, given) = limited(limits);
        assert_eq!(advised, Bytes::ZERO);
        assert_eq!(given[0].left, [(why, range.len())]);
    }
    let actor = Actor::new(PageoutLimits::default(), false);
    actor.cancel_flag().store(true, Ordering::Relaxed);
    let given = Hinter::new(actor, all).give(&processes, &hints);
    assert_eq!(given[0].left, [(SkipReason::Skip(Skip::Cancelled), range.len())]);
}

#[test]
fn kinds_dry_runs_and_the_impossible_leave_memory_alone() {
    let Some((targets, processes)) = targets(8 << 20) else {
        return;
    };
    let range = targets[0].range;
    let mut files = hinter(Limits::default()).only(Kind::File);
    let given = files.give(&processes, &[hint(range, Action::Cold)]);
    assert_eq!(given[0].advised, Bytes::ZERO, "it is anonymous: {given:?}");
    let mut dry = Hinter::new(Actor::new(PageoutLimits::default(), true), Limits::default());
    let given = dry.give(&processes, &[hint(range, Action::Pageout)]);
    assert_eq!(given[0].left, [(SkipReason::Skip(Skip::DryRun), range.len())]);
    let given = hinter(Limits::default()).give(&processes, &[hint(range, Action::MigrateHot)]);
    assert_eq!(given[0].left, [(SkipReason::Unsupported, range.len())]);
    assert!(given[0].error.is_some());
}

#[test]
fn what_is_paged_out_is_seen_to_be_out_and_nothing_else_is() {
    let Some(_swap) = swap() else { return };
    let Some((targets, processes)) = targets(16 << 20) else {
        return;
    };
    let (pid, range) = (targets[0].pid(), targets[0].range);
    let out = AddrRange {
        end: range.start + Bytes::mib(8),
        ..range
    };
    let kept = AddrRange {
        start: out.end,
        ..range
    };
    let limits = PageoutLimits {
        swap_floor: thermo_units::Permille(0),
        ..PageoutLimits::default()
    };
    let kept_before = swapped(pid, kept);
    repeat_until_good(|| {
        let actor = Actor::new(limits, false);
        let given = Hinter::new(actor, Limits::default()).give(&processes, &[hint(out, Action::Pageout)]);
        let gone = swapped(pid, out);
        if gone >= Bytes::mib(6) && given[0].error.is_none() {
            Ok(())
        } else {
            Err(format!("{gone} are out: {given:?}"))
        }
    });
    // The machine may be short of memory: then others take pages, but not most.
    assert!(swapped(pid, kept) <= kept_before + Bytes::mib(4));
}

#[test]
fn neighbours_are_paged_out_together_and_each_is_told_of() {
    let Some(_swap) = swap() else { return };
    let Some((mut targets, processes)) = targets(16 << 20) else {
        return;
    };
    let (pid, range) = (targets[0].pid(), targets[0].range);
    let piece = Bytes::kib(64);
    let pieces: Vec<AddrRange> = (range.start.0..range.end.0)
        .step_by(piece.0 as usize)
        .map(|start| AddrRange::new(start, start + piece.0))
        .collect();
    // Every fourth is not meant.
    let hints: Vec<_> = pieces
        .iter()
        .enumerate()
        .filter(|(nth, _)| nth % 4 != 3)
        .map(|(_, piece)| hint(*piece, Action::Pageout))
        .collect();
    let limits = PageoutLimits {
        swap_floor: thermo_units::Permille(0),
        ..PageoutLimits::default()
    };
    repeat_until_good(|| {
        targets[0].touch(range);
        let actor = Actor::new(limits, false);
        let given = Hinter::new(actor, Limits::default()).give(&processes, &hints);
        let mut right = 0;
        for (hint, hinted) in hints.iter().zip(&given) {
            let left: Bytes = hinted.left.iter().map(|(_, bytes)| *bytes).sum();
            assert_eq!(hinted.advised + left, piece, "{hint:?}: {hinted:?}");
            let is_out = swapped(pid, hint.range) == piece;
            right += usize::from(is_out && hinted.changed == Some(piece));
        }
        let kept = pieces.iter().skip(3).step_by(4);
        let kept_out: Bytes = kept.map(|piece| swapped(pid, *piece)).sum();
        // The machine may be short of memory: then others take pages, too.
        if right * 10 >= hints.len() * 9 && kept_out <= Bytes::mib(1) {
            Ok(())
        } else {
            Err(format!(
                "{right} of {} are right, {kept_out} of the others are out",
                hints.len()
            ))
        }
    });
    // They end before their swap is taken away.
    drop(targets);
}
