//! Hints to real processes: each range has its own result, and limits apply to all ranges together.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::sync::atomic::Ordering;

use common::{Target, retry, swap, swapped};
use thermo_actions::hint::{Hint, Hinter, Limits, PageKind, SkipReason};
use thermo_actions::{Actor, PageoutLimits};
use thermo_engine::ops::Skip;
use thermo_engine::{Action, TargetId};
use thermo_kernel::process_madvise::{Advice, process_madvise};
use thermo_targets::{Process, Processes};
use thermo_units::{AddrRange, Bytes, Nanos, PAGE_SIZE};

#[test]
fn child() {
    common::run_if_child();
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

/// Three targets; `None` if other processes cannot be advised.
fn targets(bytes: u64) -> Option<(Vec<Target>, Processes)> {
    let targets: Vec<Target> = (0..3).map(|_| Target::start(bytes)).collect();
    let mut processes = Processes::new();
    for (target, id) in targets.iter().zip(0..) {
        processes.insert(TargetId(id), Process::open(TargetId(id), target.pid()).unwrap());
    }
    let first = &processes[&TargetId(0)];
    if let Err(why) = process_madvise(&first.pidfd, &[targets[0].range], Advice::Cold) {
        eprintln!("SKIP: memory of other processes cannot be advised here: {why}");
        return None;
    }
    Some((targets, processes))
}

#[test]
fn ten_thousand_ranges_have_separate_results() {
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
            // Also pages at an address where nothing can be mapped.
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
    let results = hinter(Limits::default()).give(&processes, &hints);
    assert_eq!(results.len(), hints.len());
    let (mut valid, mut done) = (0, 0);
    for (hint, result) in hints.iter().zip(&results) {
        let skipped: Bytes = result.skipped.iter().map(|(_, bytes)| *bytes).sum();
        assert_eq!(result.advised + skipped, hint.range.len(), "{hint:?}: {result:?}");
        if hint.target == TargetId(2) {
            assert_eq!(
                result.skipped[0].0,
                SkipReason::Skip(Skip::TargetGone),
                "{result:?}"
            );
            assert!(result.error.as_ref().unwrap().contains("has ended"));
        } else if hint.range.start.0 == PAGE_SIZE {
            assert_eq!(result.advised, Bytes::ZERO, "{hint:?}: {result:?}");
        } else {
            valid += 1;
            let is_resident = result
                .skipped
                .iter()
                .any(|(why, _)| *why == SkipReason::Skip(Skip::Resident));
            done += usize::from(result.advised == Bytes(PAGE_SIZE) || is_resident);
        }
    }
    // The kernel may have reclaimed some pages meanwhile.
    assert!(done > valid * 9 / 10, "{done} of {valid}");
}

#[test]
fn limits_apply_to_all_ranges_together() {
    let Some((targets, processes)) = targets(8 << 20) else {
        return;
    };
    let range = targets[0].range;
    let hints = [hint(range, Action::LruDeprio), hint(range, Action::LruPrio)];
    let limited = |limits| {
        let results = hinter(limits).give(&processes, &hints);
        let advised: Bytes = results.iter().map(|result| result.advised).sum();
        (advised, results)
    };
    let all = Limits::default();
    let max_bytes = Some(Bytes::mib(9));
    let (advised, results) = limited(Limits { max_bytes, ..all });
    assert!(
        Bytes::mib(4) <= advised && advised <= Bytes::mib(9),
        "{results:?}"
    );
    assert!(
        results[1]
            .skipped
            .iter()
            .any(|(why, _)| *why == SkipReason::ByteLimit),
        "{results:?}"
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
        let (advised, results) = limited(limits);
        assert_eq!(advised, Bytes::ZERO);
        assert_eq!(results[0].skipped, [(why, range.len())]);
    }
    let actor = Actor::new(PageoutLimits::default(), false);
    actor.cancel_flag().store(true, Ordering::Relaxed);
    let results = Hinter::new(actor, all).give(&processes, &hints);
    assert_eq!(
        results[0].skipped,
        [(SkipReason::Skip(Skip::Cancelled), range.len())]
    );
}

#[test]
fn kinds_dry_run_and_unsupported_actions_skip_memory() {
    let Some((targets, processes)) = targets(8 << 20) else {
        return;
    };
    let range = targets[0].range;
    let mut files = hinter(Limits::default()).only(PageKind::File);
    let results = files.give(&processes, &[hint(range, Action::Cold)]);
    assert_eq!(
        results[0].advised,
        Bytes::ZERO,
        "the memory is anonymous: {results:?}"
    );
    let mut dry = Hinter::new(Actor::new(PageoutLimits::default(), true), Limits::default());
    let results = dry.give(&processes, &[hint(range, Action::Cold)]);
    assert_eq!(
        results[0].skipped,
        [(SkipReason::Skip(Skip::DryRun), range.len())]
    );
    let results = hinter(Limits::default()).give(&processes, &[hint(range, Action::MigrateHot)]);
    assert_eq!(
        results[0].skipped,
        [(SkipReason::Skip(Skip::Unsupported), range.len())]
    );
    assert!(results[0].error.is_some());
}

#[test]
fn pageout_swaps_out_only_the_hinted_range() {
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
    retry(|| {
        let actor = Actor::new(limits, false);
        let results = Hinter::new(actor, Limits::default()).give(&processes, &[hint(out, Action::Pageout)]);
        let swapped_out = swapped(pid, out);
        if swapped_out >= Bytes::mib(6) && results[0].error.is_none() {
            Ok(())
        } else {
            Err(format!("{swapped_out} are swapped out: {results:?}"))
        }
    });
    // Under memory pressure the kernel reclaims pages, too, but not most of them.
    assert!(swapped(pid, kept) <= kept_before + Bytes::mib(4));
}

#[test]
fn adjacent_ranges_have_separate_results() {
    let Some(_swap) = swap() else { return };
    let Some((mut targets, processes)) = targets(16 << 20) else {
        return;
    };
    let (pid, range) = (targets[0].pid(), targets[0].range);
    let range_len = Bytes::kib(64);
    let ranges: Vec<AddrRange> = (range.start.0..range.end.0)
        .step_by(range_len.0 as usize)
        .map(|start| AddrRange::new(start, start + range_len.0))
        .collect();
    // Every fourth range gets no hint.
    let hints: Vec<_> = ranges
        .iter()
        .enumerate()
        .filter(|(nth, _)| nth % 4 != 3)
        .map(|(_, range)| hint(*range, Action::Pageout))
        .collect();
    let limits = PageoutLimits {
        swap_floor: thermo_units::Permille(0),
        ..PageoutLimits::default()
    };
    retry(|| {
        targets[0].touch(range);
        let actor = Actor::new(limits, false);
        let results = Hinter::new(actor, Limits::default()).give(&processes, &hints);
        let mut correct = 0;
        for (hint, result) in hints.iter().zip(&results) {
            let skipped: Bytes = result.skipped.iter().map(|(_, bytes)| *bytes).sum();
            assert_eq!(result.advised + skipped, range_len, "{hint:?}: {result:?}");
            let is_out = swapped(pid, hint.range) == range_len;
            correct += usize::from(is_out && result.changed == Some(range_len));
        }
        let kept = ranges.iter().skip(3).step_by(4);
        let kept_out: Bytes = kept.map(|range| swapped(pid, *range)).sum();
        // Under memory pressure the kernel reclaims other pages, too.
        if correct * 10 >= hints.len() * 9 && kept_out <= Bytes::mib(1) {
            Ok(())
        } else {
            Err(format!(
                "{correct} of {} results are correct, {kept_out} of the other ranges are swapped out",
                hints.len()
            ))
        }
    });
    // The targets end before their swap device is removed.
    drop(targets);
}
