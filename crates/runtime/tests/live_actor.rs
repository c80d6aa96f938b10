//! The actor on real processes.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::path::Path;
use std::sync::atomic::Ordering;

use common::access::{probe, scan};
use common::{Target, retry, swap, swapped, tracker};
use thermo_actions::{Actor, HeldProcesses, MigrationMeter, PageoutLimits};
use thermo_backends::{PteTracker, Tracker as _};
use thermo_engine::TargetId;
use thermo_engine::action::Action;
use thermo_engine::ops::{Applied, OpsError, Probe, Request, Skip, TargetRange};
use thermo_engine::scheme::{Destination, OpsFilter, OpsFilterKind};
use thermo_kernel::node::{self, NodeSet};
use thermo_kernel::pagemap::Pagemap;
use thermo_targets::Processes;
use thermo_units::{AddrRange, Bytes, Nanos, Permille};

#[test]
fn child() {
    common::run_if_child();
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

fn on_target(range: AddrRange) -> TargetRange {
    TargetRange {
        target: TargetId(0),
        range,
    }
}

/// Applies `action` to one range without filters.
fn apply(actor: &mut Actor, processes: &Processes, action: Action, range: AddrRange) -> Applied {
    let request = Request {
        action,
        ranges: &[on_target(range)],
        filters: &[],
        destinations: &[],
    };
    actor.apply(processes, &request, None).unwrap().results.remove(0)
}

fn skipped(applied: &Applied, why: Skip) -> Bytes {
    applied
        .skipped
        .iter()
        .find(|(reason, _)| *reason == why)
        .map_or(Bytes::ZERO, |(_, bytes)| *bytes)
}

/// True if other processes can be advised.
fn can_advise(target: &Target) -> bool {
    let cold = apply(&mut actor(), &target.processes(), Action::Cold, target.range);
    let is_applied = cold.applied > Bytes::ZERO;
    if !is_applied {
        eprintln!("SKIP: memory of other processes cannot be advised here: {cold:?}");
    }
    is_applied
}

#[test]
fn pageout_skips_pages_accessed_since_prepare() {
    let Some(mut tracker) = tracker() else { return };
    let Some(_swap) = swap() else { return };
    let mut target = Target::start(32 << 20);
    if !can_advise(&target) {
        return;
    }
    let processes = target.processes();
    let start = target.range.start;
    let mib = |from, to| AddrRange {
        start: start + Bytes::mib(from),
        end: start + Bytes::mib(to),
    };
    let (young_range, all, pid) = (mib(0, 8), mib(0, 16), target.pid());
    let probes: Vec<Probe> = target.pages().take(2048).map(probe).collect();
    retry(|| {
        let mut actor = actor();
        // All pages are resident; after prepare, only `young_range` is accessed.
        target.touch(all);
        tracker.prepare(&processes, &probes);
        target.touch(young_range);
        let request = Request {
            action: Action::Pageout,
            ranges: &[on_target(all)],
            filters: &[],
            destinations: &[],
        };
        let outcome = actor.apply(&processes, &request, Some(&mut tracker)).unwrap();
        let applied = &outcome.results[0];
        let changed = applied.changed.unwrap();
        let young = skipped(applied, Skip::Young);
        let out = swapped(pid, mib(8, 16));
        // Other programs may page out memory or clear accessed bits, too.
        let is_good = changed >= Bytes::mib(7) && out >= Bytes::mib(7) && young >= Bytes::mib(7);
        if is_good && changed <= Bytes::mib(9) && swapped(pid, young_range) <= Bytes::mib(1) {
            return Ok(());
        }
        Err(format!("{applied:?}, {out} of 8 MiB are swapped out"))
    });
    // The target ends before its swap device is removed.
    drop(target);
}

#[test]
fn pageout_skips_pages_accessed_since_scan() {
    let Some(mut tracker) = tracker() else { return };
    let Some(_swap) = swap() else { return };
    let mut target = Target::start(32 << 20);
    if !can_advise(&target) {
        return;
    }
    let processes = target.processes();
    let start = target.range.start;
    let part = |from, to| AddrRange {
        start: start + Bytes::mib(from),
        end: start + Bytes::mib(to),
    };
    let (all, busy, pid) = (part(0, 16), part(4, 8), target.pid());
    retry(|| {
        target.touch(all);
        scan(&mut tracker, &processes, all);
        target.touch(busy);
        let request = Request {
            action: Action::Pageout,
            ranges: &[on_target(all)],
            filters: &[],
            destinations: &[],
        };
        let outcome = actor().apply(&processes, &request, Some(&mut tracker)).unwrap();
        let (applied, busy_out) = (&outcome.results[0], swapped(pid, busy));
        let out = swapped(pid, part(0, 4)) + swapped(pid, part(8, 16));
        if busy_out == Bytes::ZERO && out >= Bytes::mib(11) {
            return Ok(());
        }
        Err(format!(
            "{applied:?}: {out} of 12 MiB are swapped out, and {busy_out} of the accessed memory"
        ))
    });
    drop(target);
}

#[test]
fn pageout_stops_at_the_swap_floor() {
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
    // Other programs may have reclaimed some pages before.
    let kept = skipped(&applied, Skip::SwapFloor) + skipped(&applied, Skip::NotPresent);
    assert_eq!((kept, applied.applied), (Bytes::mib(4), Bytes::ZERO));
}

#[test]
fn dry_run_changes_nothing() {
    let target = Target::start(4 << 20);
    if !can_advise(&target) {
        return;
    }
    let mut actor = Actor::new(PageoutLimits::default(), true);
    for action in [Action::Pageout, Action::Cold, Action::LruPrio, Action::Collapse] {
        let applied = apply(&mut actor, &target.processes(), action, target.range);
        // Without swap, nothing would be paged out.
        let decided = skipped(&applied, Skip::DryRun) + skipped(&applied, Skip::SwapFloor);
        assert_eq!(decided, Bytes::mib(4), "{action}: {applied:?}");
        assert_eq!(
            (applied.applied, applied.changed, applied.passed_filters),
            (Bytes::ZERO, None, Bytes::mib(4))
        );
    }
    let pagemap = Pagemap::open(Path::new("/"), target.pid()).unwrap();
    let mut pages = Vec::new();
    pagemap.read(target.range, &mut pages).unwrap();
    assert!(pages.iter().all(|page| page.is_present()));
}

#[test]
fn holes_and_ended_targets_are_skipped() {
    let target = Target::start(4 << 20);
    if !can_advise(&target) {
        return;
    }
    let mut ended = Target::start(1 << 20);
    let mut processes = target.processes();
    let process = thermo_targets::Process::open(TargetId(1), ended.pid()).unwrap();
    processes.insert(TargetId(1), process);
    ended.kill();
    // A hole below the lowest mapping, a target that has ended, and a live target.
    let hole = AddrRange::new(0x1000, 0x9000);
    let runs = [
        on_target(hole),
        TargetRange {
            target: TargetId(1),
            range: ended.range,
        },
        on_target(target.range),
    ];
    for action in [Action::Cold, Action::Willneed, Action::LruPrio] {
        let request = Request {
            action,
            ranges: &runs,
            filters: &[],
            destinations: &[],
        };
        let outcome = actor().apply(&processes, &request, None).unwrap();
        assert_eq!(
            outcome.results[0].skipped,
            [(Skip::NotPresent, hole.len())],
            "{action}"
        );
        assert_eq!(
            outcome.results[1].skipped,
            [(Skip::TargetGone, ended.range.len())],
            "{action}"
        );
        assert!(
            outcome.results[2].applied + skipped(&outcome.results[2], Skip::Resident) > Bytes::ZERO,
            "{action}: {:?}",
            outcome.results[2]
        );
    }
}

#[test]
fn request_with_many_ranges_has_separate_results() {
    let mut tracker = PteTracker::new().ok();
    let mut target = Target::start(16 << 20);
    if !can_advise(&target) {
        return;
    }
    let processes = target.processes();
    let range_len = Bytes::kib(256);
    let hole = AddrRange::new(0x1000, 0x9000);
    let (start, all) = (target.range.start, target.range);
    // The kernel refuses one range in the middle of the request. The other ranges must still be advised.
    let starts = (0..40).map(|n| start.0 + n * range_len.0);
    let mut runs: Vec<TargetRange> = starts
        .map(|start| on_target(AddrRange::new(start, start + range_len.0)))
        .collect();
    runs.insert(20, on_target(hole));
    let request = Request {
        action: Action::Cold,
        ranges: &runs,
        filters: &[],
        destinations: &[],
    };
    for with_tables in [true, false] {
        retry(|| {
            // Makes pages resident again that other programs reclaimed.
            target.touch(all);
            let inspector = tracker
                .as_mut()
                .filter(|_| with_tables)
                .map(|tracker| tracker as _);
            let outcome = actor().apply(&processes, &request, inspector).unwrap();
            for (target_range, applied) in runs.iter().zip(&outcome.results) {
                let is_good = if target_range.range == hole {
                    applied.skipped == [(Skip::NotPresent, hole.len())]
                } else {
                    applied.applied == range_len && applied.skipped.is_empty()
                };
                if !is_good {
                    return Err(format!("{target_range:?}: {applied:?}"));
                }
            }
            Ok(())
        });
    }
}

#[test]
fn range_with_a_hole_is_advised_around_it() {
    let target = Target::start(4 << 20);
    if !can_advise(&target) {
        return;
    }
    // 8 GiB below the memory to its end: mostly a hole.
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
fn cancelled_actor_skips_everything() {
    let target = Target::start(4 << 20);
    let mut actor = actor();
    actor.cancel_flag().store(true, Ordering::Relaxed);
    let applied = apply(&mut actor, &target.processes(), Action::Cold, target.range);
    assert_eq!(applied.skipped, [(Skip::Cancelled, Bytes::mib(4))]);
}

#[test]
fn memory_of_a_held_process_is_skipped() {
    let target = Target::start(4 << 20);
    let held = HeldProcesses::default();
    let mut actor = actor().with_held_processes(held.clone());
    let mut skips = |pids: &[u32]| {
        held.set(pids.iter().copied().collect());
        let applied = apply(&mut actor, &target.processes(), Action::Cold, target.range);
        skipped(&applied, Skip::Cancelled)
    };
    let pid = target.pid();
    assert_eq!(skips(&[pid]), Bytes::mib(4));
    assert_eq!(skips(&[pid + 1]), Bytes::ZERO, "another process is held");
}

#[test]
fn migration_needs_a_node_that_the_machine_has() {
    let target = Target::start(1 << 20);
    for action in [Action::MigrateHot, Action::MigrateCold] {
        let error = |destinations: &[Destination]| {
            let request = Request {
                action,
                ranges: &[on_target(target.range)],
                filters: &[],
                destinations,
            };
            let error = actor().apply(&target.processes(), &request, None).unwrap_err();
            assert!(
                matches!(error, OpsError::Unsupported { .. }),
                "{action}: {error:?}"
            );
            error.to_string()
        };
        assert!(error(&[]).contains("target_nid"), "{}", error(&[]));
        let nowhere = error(&[Destination::only(1023)]);
        assert!(nowhere.contains("no node 1023"), "{nowhere}");
    }
}

#[test]
fn memory_moves_between_nodes_and_cools_down() {
    let target = Target::start(4 << 20);
    let nodes = node::members(Path::new("/"), NodeSet::HasMemory).unwrap_or_default();
    let meter = MigrationMeter::default();
    let mut actor = actor().with_migration(Nanos::secs(3600), meter.clone());
    let processes = target.processes();
    let process = processes.values().next().unwrap();
    let mut migrate = |nid| {
        let to = [Destination::only(nid)];
        let pending = actor.pending_migration(process, &to, target.range);
        let request = Request {
            action: Action::MigrateHot,
            ranges: &[on_target(target.range)],
            filters: &[],
            destinations: &to,
        };
        let mut outcome = actor.apply(&processes, &request, None).unwrap();
        (
            pending.iter().map(AddrRange::len).sum::<Bytes>(),
            outcome.results.remove(0),
        )
    };
    let on_first = {
        let (pending, applied) = migrate(nodes[0]);
        assert_eq!(applied.changed, Some(pending), "{applied:?}");
        let there = pending + skipped(&applied, Skip::OnNode) + skipped(&applied, Skip::Shared);
        assert_eq!(
            there + skipped(&applied, Skip::NotPresent),
            target.range.len(),
            "{applied:?}"
        );
        pending
    };
    let Some(second) = nodes.get(1) else {
        eprintln!("SKIP: moving memory needs two memory nodes");
        return;
    };
    let (pending, applied) = migrate(*second);
    assert_eq!(applied.changed, Some(pending));
    assert!(pending + on_first >= Bytes::mib(4), "{pending}: {applied:?}");
    let (pending, applied) = migrate(nodes[0]);
    assert_eq!((pending, applied.changed), (Bytes::ZERO, Some(Bytes::ZERO)));
    assert!(skipped(&applied, Skip::CoolDown) > Bytes::ZERO, "{applied:?}");
    assert_eq!(meter.total().back, Bytes::ZERO);
}

#[test]
fn collapse_skips_units_that_are_not_whole() {
    let Some(mut tracker) = tracker() else { return };
    let mut target = Target::start(8 << 20);
    let wide = AddrRange {
        start: target.range.start + Bytes::kib(4),
        end: target.range.end,
    };
    let request = Request {
        action: Action::Collapse,
        ranges: &[on_target(wide)],
        filters: &[],
        destinations: &[],
    };
    // The child disables huge pages until this command.
    target.collapse();
    let outcome = actor()
        .apply(&target.processes(), &request, Some(&mut tracker))
        .unwrap();
    let applied = &outcome.results[0];
    if applied.applied == Bytes::ZERO {
        eprintln!("SKIP: huge pages are not available here: {applied:?}");
        return;
    }
    assert!(applied.changed.is_some());
    // The first unit is not complete.
    assert_eq!(skipped(applied, Skip::Unadvisable), Bytes(Bytes::mib(2).0 - 4096));
}

#[test]
fn filters_exclude_pages() {
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
            ranges: &[on_target(target.range)],
            filters: &[filter],
            destinations: &[],
        };
        let outcome = actor()
            .apply(&target.processes(), &request, Some(&mut tracker))
            .unwrap();
        outcome.results[0].passed_filters
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
    // Pages that other programs reclaimed do not pass.
    retry(|| match passed(filter(OpsFilterKind::Anon, true, true)) {
        Bytes(0) => Err("no anonymous page is resident".into()),
        _ => Ok(()),
    });
}
