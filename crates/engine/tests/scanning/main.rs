//! Scans and the budget, on a simulated machine.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../common/mod.rs"]
mod common;
mod world;

use std::collections::BTreeMap;

use common::{idle_for, idle_until, pages, run_until};
use thermo_engine::access_tables::{NR_AGES, UnknownReason};
use thermo_engine::budget::{CpuShare, Method, MethodPolicy};
use thermo_engine::scheme::Rate;
use thermo_engine::{AccessTables, Action, Attrs, Context, Event, Region, Scheme, TargetId};
use thermo_sim::{Machine, Place};
use thermo_units::{AddrRange, Bytes, Nanos, PAGE_SIZE};

const ONE_PERCENT: CpuShare = CpuShare(10_000);

/// A machine that can be scanned, at the cost of real ones, ten times as much for a page so that targets can be small:
/// 3 µs a probe, 600 ns a page.
fn machine() -> Machine {
    let mut machine = Machine::new();
    machine.scans = true;
    machine.cost_of_probing = Nanos(3000);
    machine.cost_of_scanning = Nanos(600);
    machine
}

/// Runs for `secs` from 0 and returns the regions of the first target in the last snapshot.
fn watch(
    context: &mut Context,
    machine: &mut Machine,
    secs: u64,
    touch: impl FnMut(&mut Machine, Nanos),
) -> Vec<Region> {
    let mut last = Vec::new();
    let mut sink = |event: &Event<'_>| {
        if let Event::Aggregated { targets, .. } = event {
            last = targets.first().map(|t| t.regions.to_vec()).unwrap_or_default();
        }
    };
    run_until(context, machine, &mut sink, Nanos::secs(secs), touch);
    last
}

/// A process that maps `range` and has touched all of it, and a context that watches it with one percent.
fn at_one_percent(range: AddrRange) -> (Machine, TargetId, Context) {
    let mut machine = machine();
    let id = machine.spawn(&[range]);
    touch_all(&mut machine, id);
    let context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, MethodPolicy::Auto);
    (machine, id, context)
}

fn touch_all(machine: &mut Machine, id: TargetId) {
    machine.touch(id, pages(0, u64::MAX / PAGE_SIZE));
}

#[test]
fn borders_are_exact() {
    let mut machine = machine();
    let id = machine.spawn(&[pages(1000, 5000)]);
    touch_all(&mut machine, id);
    let hot = [pages(1234, 1300), pages(3001, 3002)];
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, MethodPolicy::Auto);
    let regions = watch(&mut context, &mut machine, 30, |machine, _| {
        hot.iter().for_each(|hot| machine.touch(id, *hot));
    });
    let found: Vec<AddrRange> = regions
        .iter()
        .filter(|r| r.nr_accesses > 0)
        .map(|r| r.range)
        .collect();
    assert_eq!(found, hot);
    assert!(
        regions.iter().filter(|r| r.nr_accesses == 0).all(|r| r.age >= 20),
        "{regions:?}"
    );
}

#[test]
fn the_budget_is_kept_on_small_and_large_targets() {
    for nr_pages in [1 << 11, 1 << 15, 1 << 20] {
        let (mut machine, _, mut context) = at_one_percent(pages(0, nr_pages));
        watch(&mut context, &mut machine, 3, |_, _| {});
        let at_start = machine.spent_monitoring;
        watch(&mut context, &mut machine, 240, |_, _| {});
        let steady = machine.spent_monitoring.saturating_sub(at_start);
        let permille = steady.0 * 1000 / Nanos::secs(237).0;
        assert!(
            permille <= 10,
            "{permille} thousandths of a CPU for {nr_pages} pages"
        );
        assert!(at_start <= Nanos::millis(310), "{at_start}");
        assert_eq!(context.plan().unwrap().method, Method::Scan);
    }
}

/// What a snapshot said of one target: when, its tables, and how many regions it had.
type Said = (Nanos, AccessTables, usize);

/// Runs for `secs` and returns what the snapshots said, by target.
fn tables_of(
    context: &mut Context,
    machine: &mut Machine,
    secs: u64,
    touch: impl FnMut(&mut Machine, Nanos),
) -> BTreeMap<TargetId, Vec<Said>> {
    let mut said: BTreeMap<TargetId, Vec<Said>> = BTreeMap::new();
    let mut sink = |event: &Event<'_>| {
        if let Event::Aggregated { targets, end, .. } = event {
            for target in *targets {
                let tables = *target.tables.unwrap();
                said.entry(target.id)
                    .or_default()
                    .push((*end, tables, target.regions.len()));
            }
        }
    };
    run_until(context, machine, &mut sink, Nanos::secs(secs), touch);
    said
}

#[test]
fn snapshots_come_every_second_however_long_a_pass_is() {
    // A pass takes a minute.
    let (mut machine, id, mut context) = at_one_percent(pages(0, 1 << 20));
    machine.knows_resident = true;
    let said = tables_of(&mut context, &mut machine, 150, |machine, _| {
        machine.touch(id, pages(5000, 6000));
    });
    let said = &said[&id];
    assert!(said.len() >= 148, "{}", said.len());
    for pair in said.windows(2) {
        let apart = pair[1].0 - pair[0].0;
        assert!(apart < Nanos::millis(1500), "{apart} at {}", pair[1].0);
    }
    let all = Bytes(PAGE_SIZE << 20);
    let not_scanned = |said: &Said| said.1.unknown[UnknownReason::NotScanned.index()];
    assert!(said.iter().all(|said| said.1.resident() == all));
    assert!(not_scanned(&said[2]) > Bytes(all.0 / 2), "{:?}", said[2].1);
    let first_pass = said.iter().position(|said| said.1.nr_passes == 1).unwrap();
    assert!((20..80).contains(&first_pass), "{first_pass}");
    assert!(
        said[first_pass..]
            .iter()
            .all(|said| not_scanned(said) == Bytes(0))
    );
    let last = said.last().unwrap().1;
    assert_eq!(last.idle[0][0], Bytes(1000 * PAGE_SIZE), "what was accessed");
    assert!(
        last.pass > Nanos::secs(20) && last.pass < Nanos::secs(70),
        "{}",
        last.pass
    );
}

#[test]
fn a_small_target_is_not_kept_waiting_by_a_large_one() {
    let mut machine = machine();
    let small = machine.spawn(&[pages(0, 200)]);
    let large = machine.spawn(&[pages(0, 1 << 20)]);
    machine.knows_resident = true;
    [small, large].iter().for_each(|id| touch_all(&mut machine, *id));
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(CpuShare(5_000), MethodPolicy::Auto);
    let said = tables_of(&mut context, &mut machine, 300, |machine, _| {
        machine.touch(small, pages(50, 100));
    });
    // Each chunk of the large one costs 10 ms: two seconds of the budget.
    let settled = said[&small].iter().filter(|said| said.0 > Nanos::secs(20));
    for (at, tables, _) in settled {
        assert_eq!(tables.idle[0][0], Bytes(50 * PAGE_SIZE), "at {at}");
        assert!(tables.pass < Nanos::secs(5), "{} at {at}", tables.pass);
    }
    let passes = |id: TargetId| said[&id].last().unwrap().1.nr_passes;
    assert!(passes(small) >= 60, "{} passes", passes(small));
    assert!(passes(large) >= 1, "{} passes", passes(large));
}

#[test]
fn the_budget_is_divided_half_evenly_and_half_by_size() {
    let mut machine = machine();
    machine.knows_resident = true;
    let sizes = [1 << 15, 1 << 15, 1 << 17];
    let ids: Vec<TargetId> = sizes
        .iter()
        .map(|size| machine.spawn(&[pages(0, *size)]))
        .collect();
    ids.iter().for_each(|id| touch_all(&mut machine, *id));
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, MethodPolicy::Auto);
    let said = tables_of(&mut context, &mut machine, 600, |_, _| {});
    let passes: Vec<u64> = ids
        .iter()
        .map(|id| said[id].last().unwrap().1.nr_passes)
        .collect();
    // Pages scanned: a third of a half and a sixth of a half each, beside a third and two thirds.
    let scanned = |nth: usize| (passes[nth] * sizes[nth]) as f64;
    let ratio = scanned(2) / scanned(0);
    assert!((1.7..=2.3).contains(&ratio), "{ratio}: {passes:?}");
    assert!(passes[0].abs_diff(passes[1]) <= 1, "{passes:?}");
}

#[test]
fn a_target_that_comes_later_does_not_keep_the_others_waiting() {
    let (mut machine, first, mut context) = at_one_percent(pages(0, 1 << 15));
    let mut second = None;
    let said = tables_of(&mut context, &mut machine, 160, |machine, now| {
        if now > Nanos::secs(100) && second.is_none() {
            let id = machine.spawn(&[pages(0, 1 << 15)]);
            touch_all(machine, id);
            second = Some(id);
        }
    });
    let passes = |id: TargetId, at: u64| {
        let said = said[&id].iter().rfind(|said| said.0 <= Nanos::secs(at));
        said.map_or(0, |said| said.1.nr_passes)
    };
    let (of_first, of_second) = (
        passes(first, 150) - passes(first, 105),
        passes(second.unwrap(), 150) - passes(second.unwrap(), 105),
    );
    assert!(of_first.abs_diff(of_second) <= 2, "{of_first} and {of_second}");
}

#[test]
fn a_deferred_scan_waits_and_does_not_wait_for_ever() {
    let (mut machine, id, mut context) = at_one_percent(pages(0, 2000));
    let other = machine.spawn(&[pages(0, 2000)]);
    let said = tables_of(&mut context, &mut machine, 150, |machine, now| {
        if now > Nanos::secs(20) {
            machine.deferred.insert(id);
        }
    });
    let passes = |id: TargetId, from: u64, to: u64| {
        let within = said[&id]
            .iter()
            .filter(|said| (Nanos::secs(from)..Nanos::secs(to)).contains(&said.0));
        let counts: Vec<u64> = within.map(|said| said.1.nr_passes).collect();
        counts.last().unwrap() - counts[0]
    };
    assert!(passes(id, 5, 20) > 10);
    assert_eq!(passes(id, 24, 75), 0, "it is deferred");
    assert!((1..=2).contains(&passes(id, 24, 149)), "once a minute");
    assert!(passes(other, 24, 75) > 10, "the others are scanned");
}

#[test]
fn memory_that_comes_back_is_counted_by_how_long_it_was_idle() {
    let (mut machine, id, mut context) = at_one_percent(pages(0, 2000));
    let said = tables_of(&mut context, &mut machine, 60, |machine, now| {
        if now > Nanos::secs(40) && now < Nanos::secs(41) {
            machine.touch(id, pages(100, 150));
        }
    });
    let reaccessed: Vec<Bytes> = (0..NR_AGES)
        .map(|age| said[&id].iter().map(|said| said.1.reaccessed[age]).sum())
        .collect();
    let expected = Bytes(50 * PAGE_SIZE);
    assert_eq!(reaccessed[5], expected, "after 30 s to a minute: {reaccessed:?}");
    assert_eq!(reaccessed.iter().copied().sum::<Bytes>(), expected);
}

#[test]
fn each_of_many_targets_has_room_for_regions_of_its_own() {
    let hot: Vec<AddrRange> = (0..4).map(|nth| pages(nth * 100 + 50, nth * 100 + 60)).collect();
    let found_with = |regions_each| {
        let mut machine = machine();
        let ids: Vec<TargetId> = (0..30).map(|_| machine.spawn(&[pages(0, 400)])).collect();
        ids.iter().for_each(|id| touch_all(&mut machine, *id));
        let few = Attrs {
            max_nr_regions: 100,
            ..Attrs::default()
        };
        let mut context = Context::new(few, 1)
            .unwrap()
            .with_budget(ONE_PERCENT, MethodPolicy::Scan)
            .with_regions_each(regions_each);
        let regions = watch(&mut context, &mut machine, 120, |machine, _| {
            ids.iter()
                .for_each(|id| hot.iter().for_each(|hot| machine.touch(*id, *hot)));
        });
        let told_hot = regions.iter().filter(|region| region.nr_accesses > 0);
        told_hot.map(|region| region.range).collect::<Vec<_>>()
    };
    assert_eq!(found_with(20), hot);
    assert!(
        found_with(0).len() < hot.len(),
        "a hundred regions are three of each"
    );
}

#[test]
fn many_targets_have_long_passes_and_exact_pages() {
    let mut machine = machine();
    let ids: Vec<TargetId> = (0..200).map(|_| machine.spawn(&[pages(0, 2000)])).collect();
    ids.iter().for_each(|id| touch_all(&mut machine, *id));
    let hot = pages(1800, 1900);
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, MethodPolicy::Auto)
        .with_regions_each(20);
    // A pass takes 24 s.
    let regions = watch(&mut context, &mut machine, 300, |machine, _| {
        ids.iter().for_each(|id| machine.touch(*id, hot));
    });
    let found: Vec<AddrRange> = regions
        .iter()
        .filter(|region| region.nr_accesses > 0)
        .map(|region| region.range)
        .collect();
    assert_eq!(found, [hot]);
}

#[test]
fn a_scheme_takes_exactly_what_matches_and_not_again_at_once() {
    let (mut machine, id, mut context) = at_one_percent(pages(0, 2000));
    let mut scheme = Scheme::new(Action::Cold);
    scheme.pattern = idle_for(Nanos::secs(20));
    context.set_schemes(vec![scheme]).unwrap();
    let hot = pages(700, 800);
    watch(&mut context, &mut machine, 35, |machine, _| {
        machine.touch(id, hot)
    });
    let stats = *context.schemes()[0].stats();
    assert_eq!(
        stats.sz_tried,
        Bytes(1900 * PAGE_SIZE),
        "tried once, all that is cold"
    );
}

#[test]
fn what_is_acted_on_as_touched_does_not_look_idle_for_it() {
    let (mut machine, id, mut context) = at_one_percent(pages(0, 2000));
    let mut scheme = Scheme::new(Action::LruPrio);
    scheme.pattern.nr_accesses.min = Rate::Samples(1);
    context.set_schemes(vec![scheme]).unwrap();
    // Too few pages for a change of heat to count as one before the window has gone by.
    let few = pages(1000, 1008);
    let mut counts = Vec::new();
    let mut sink = |event: &Event<'_>| {
        if let Event::Aggregated { targets, end, .. } = event {
            let of_few = targets[0].regions.iter().find(|r| r.range.contains(few.start));
            if *end > Nanos::secs(10) {
                counts.extend(of_few.map(|region| region.nr_accesses));
            }
        }
    };
    run_until(
        &mut context,
        &mut machine,
        &mut sink,
        Nanos::secs(60),
        |machine, now| {
            machine.touch(id, pages(0, 1000));
            if now < Nanos::secs(40) {
                machine.touch(id, few);
            }
        },
    );
    counts.dedup();
    assert!(
        counts.starts_with(&[70]) && counts.is_sorted_by(|a, b| a >= b) && counts.ends_with(&[0]),
        "{counts:?} in the snapshots"
    );
    assert!(context.schemes()[0].stats().sz_applied > Bytes::ZERO);
}

#[test]
fn pageout_leaves_the_hot_page_in_the_middle() {
    let (mut machine, id, mut context) = at_one_percent(pages(0, 2000));
    let mut scheme = Scheme::new(Action::Pageout);
    scheme.pattern = idle_for(Nanos::secs(10));
    context.set_schemes(vec![scheme]).unwrap();
    watch(&mut context, &mut machine, 40, |machine, _| {
        machine.touch(id, pages(1000, 1001))
    });
    assert_eq!(
        machine.count(id, pages(0, 2000), |page| page.place == Place::Present),
        1
    );
    assert_eq!(machine.count(id, pages(0, 2000), |page| page.refaults > 0), 0);
}

#[test]
fn schemes_see_runs_that_are_finer_than_the_regions() {
    let mut machine = machine();
    let id = machine.spawn(&[pages(0, 2000)]);
    touch_all(&mut machine, id);
    let attrs = Attrs {
        max_nr_regions: 10,
        ..Attrs::default()
    };
    let mut context = Context::new(attrs, 1)
        .unwrap()
        .with_budget(ONE_PERCENT, MethodPolicy::Auto);
    let mut scheme = Scheme::new(Action::Pageout);
    scheme.pattern = idle_for(Nanos::secs(5));
    context.set_schemes(vec![scheme]).unwrap();
    // Every tenth page is busy: 200 of them, far more than regions.
    let regions = watch(&mut context, &mut machine, 40, |machine, _| {
        (0..2000)
            .step_by(10)
            .for_each(|nth| machine.touch(id, pages(nth, nth + 1)));
    });
    assert!(regions.len() <= 10, "{} regions", regions.len());
    let present = machine.count(id, pages(0, 2000), |page| page.place == Place::Present);
    assert_eq!(present, 200, "what is left in memory is what is busy");
}

#[test]
fn a_quota_is_used_in_every_window_also_between_snapshots() {
    let (mut machine, _, mut context) = at_one_percent(pages(0, 1 << 15));
    let mut scheme = Scheme::new(Action::Pageout);
    scheme.pattern = idle_for(Nanos::secs(5));
    scheme.quota.sz = Bytes(500 * PAGE_SIZE);
    scheme.quota.reset_interval = Nanos::millis(500);
    context.set_schemes(vec![scheme]).unwrap();
    let mut applied = Vec::new();
    let mut sink = |event: &Event<'_>| match event {
        Event::SchemeApplied { now, tried, .. } if !tried.is_empty() => {
            applied.push((
                *now,
                tried.iter().map(|tried| tried.run.range.len()).sum::<Bytes>(),
            ));
        }
        _ => {}
    };
    idle_until(&mut context, &mut machine, &mut sink, Nanos::secs(30));
    assert!(
        applied.len() > 35,
        "{} windows of 44 were used: {applied:?}",
        applied.len()
    );
    assert!(
        applied.iter().all(|(_, sz)| *sz <= Bytes(500 * PAGE_SIZE)),
        "{applied:?}"
    );
    let windows = applied.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].0));
    assert!(
        windows.into_iter().all(|apart| apart >= Nanos::millis(500)),
        "{applied:?}"
    );
    let snapshots = context.schemes()[0].stats().nr_snapshots;
    assert!(
        (20..=30).contains(&snapshots),
        "a snapshot counts once: {snapshots}"
    );
}

#[test]
fn targets_come_and_go_during_passes() {
    let mut machine = machine();
    let mut ids: Vec<TargetId> = (0..50).map(|_| machine.spawn(&[pages(0, 400)])).collect();
    ids.iter().for_each(|id| touch_all(&mut machine, *id));
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, MethodPolicy::Auto);
    let mut nth = 0;
    watch(&mut context, &mut machine, 30, |machine, now| {
        // The last updates find everything settled.
        if now > Nanos::secs(25) {
            return;
        }
        nth += 1;
        if nth % 5 == 0 && ids.len() > 10 {
            machine.kill(ids.remove(nth % ids.len()));
        }
        if nth % 20 == 0 {
            let id = machine.spawn(&[pages(0, 400)]);
            touch_all(machine, id);
            ids.push(id);
        }
    });
    let watched: Vec<TargetId> = context.targets().map(|t| t.id).collect();
    assert!(
        watched.len() >= 10 && context.nr_regions() >= watched.len(),
        "{watched:?}"
    );
}
