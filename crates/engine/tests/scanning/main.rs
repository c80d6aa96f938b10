//! Scans and the CPU budget, on a simulated machine.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../common/mod.rs"]
mod common;
mod properties;

use std::collections::BTreeMap;

use common::{idle_for, idle_until, pages, run_until};
use thermo_engine::access_tables::{NR_AGES, UnknownReason};
use thermo_engine::budget::{CpuShare, Method, MethodPolicy};
use thermo_engine::scheme::Rate;
use thermo_engine::{AccessTables, Action, Attrs, Context, Event, Region, Scheme, TargetId};
use thermo_sim::{Machine, PageLocation};
use thermo_units::{AddrRange, Bytes, Nanos, PAGE_SIZE};

const ONE_PERCENT: CpuShare = CpuShare(10_000);

/// A machine that supports scans. A probe costs 3 µs. A scanned page costs 600 ns, ten times as much as on
/// real machines, so that targets can be small.
fn machine() -> Machine {
    let mut machine = Machine::new();
    machine.scans = true;
    machine.cost_of_probing = Nanos(3000);
    machine.cost_of_scanning = Nanos(600);
    machine
}

/// Runs from 0 to `secs`. Returns the regions of the first target in the last snapshot.
fn monitor(
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

/// A process that maps `range` and has accessed each page once, and a context with a budget of 1 %.
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
fn scan_finds_exact_hot_ranges() {
    let mut machine = machine();
    let id = machine.spawn(&[pages(1000, 5000)]);
    touch_all(&mut machine, id);
    let hot = [pages(1234, 1300), pages(3001, 3002)];
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, MethodPolicy::Auto);
    let regions = monitor(&mut context, &mut machine, 30, |machine, _| {
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
fn scans_stay_within_budget_at_any_target_size() {
    for nr_pages in [1 << 11, 1 << 15, 1 << 20] {
        let (mut machine, _, mut context) = at_one_percent(pages(0, nr_pages));
        monitor(&mut context, &mut machine, 3, |_, _| {});
        let at_start = machine.spent_monitoring;
        monitor(&mut context, &mut machine, 240, |_, _| {});
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

#[test]
fn context_wants_more_budget_only_if_its_memory_is_large() {
    for (nr_pages, wants_more) in [(1 << 11, false), (1 << 20, true)] {
        let (mut machine, _, mut context) = at_one_percent(pages(0, nr_pages));
        monitor(&mut context, &mut machine, 60, |_, _| {});
        let found = context.wants_more_budget(Nanos::secs(60));
        assert_eq!(found, wants_more, "{nr_pages} pages");
    }
    let without = Context::new(Attrs::default(), 1).unwrap();
    assert!(!without.wants_more_budget(Nanos::secs(60)));
}

/// One target in one snapshot.
struct TargetSnapshot {
    end: Nanos,
    tables: AccessTables,
}

/// Runs from 0 to `secs`. Returns all snapshots, by target.
fn tables_of(
    context: &mut Context,
    machine: &mut Machine,
    secs: u64,
    touch: impl FnMut(&mut Machine, Nanos),
) -> BTreeMap<TargetId, Vec<TargetSnapshot>> {
    let mut snapshots: BTreeMap<TargetId, Vec<TargetSnapshot>> = BTreeMap::new();
    let mut sink = |event: &Event<'_>| {
        if let Event::Aggregated { targets, end, .. } = event {
            for target in *targets {
                let tables = *target.tables.unwrap();
                snapshots
                    .entry(target.id)
                    .or_default()
                    .push(TargetSnapshot { end: *end, tables });
            }
        }
    };
    run_until(context, machine, &mut sink, Nanos::secs(secs), touch);
    snapshots
}

#[test]
fn snapshots_come_every_second_during_long_passes() {
    // A pass takes a minute.
    let (mut machine, id, mut context) = at_one_percent(pages(0, 1 << 20));
    machine.knows_resident = true;
    let snapshots = tables_of(&mut context, &mut machine, 150, |machine, _| {
        machine.touch(id, pages(5000, 6000));
    });
    let snapshots = &snapshots[&id];
    assert!(snapshots.len() >= 148, "{}", snapshots.len());
    for pair in snapshots.windows(2) {
        let interval = pair[1].end - pair[0].end;
        assert!(interval < Nanos::millis(1500), "{interval} at {}", pair[1].end);
    }
    let all = Bytes(PAGE_SIZE << 20);
    let not_scanned = |snapshot: &TargetSnapshot| snapshot.tables.unknown[UnknownReason::NotScanned.index()];
    assert!(snapshots.iter().all(|snapshot| snapshot.tables.resident() == all));
    assert!(
        not_scanned(&snapshots[2]) > Bytes(all.0 / 2),
        "{:?}",
        snapshots[2].tables
    );
    let first_pass = snapshots
        .iter()
        .position(|snapshot| snapshot.tables.nr_passes == 1)
        .unwrap();
    assert!((20..80).contains(&first_pass), "{first_pass}");
    assert!(
        snapshots[first_pass..]
            .iter()
            .all(|snapshot| not_scanned(snapshot) == Bytes(0))
    );
    let last = snapshots.last().unwrap().tables;
    assert_eq!(last.idle[0][0], Bytes(1000 * PAGE_SIZE), "accessed bytes");
    assert!(
        last.pass > Nanos::secs(20) && last.pass < Nanos::secs(70),
        "{}",
        last.pass
    );
}

#[test]
fn small_target_is_not_delayed_by_large_one() {
    let mut machine = machine();
    let small = machine.spawn(&[pages(0, 200)]);
    let large = machine.spawn(&[pages(0, 1 << 20)]);
    machine.knows_resident = true;
    [small, large].iter().for_each(|id| touch_all(&mut machine, *id));
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(CpuShare(5_000), MethodPolicy::Auto);
    let snapshots = tables_of(&mut context, &mut machine, 300, |machine, _| {
        machine.touch(small, pages(50, 100));
    });
    // Each chunk of the large target costs 10 ms, which is the budget of 2 s.
    for TargetSnapshot { end, tables } in &snapshots[&small] {
        if *end <= Nanos::secs(20) {
            continue;
        }
        assert_eq!(tables.idle[0][0], Bytes(50 * PAGE_SIZE), "at {end}");
        assert!(tables.pass < Nanos::secs(5), "{} at {end}", tables.pass);
    }
    let passes = |id: TargetId| snapshots[&id].last().unwrap().tables.nr_passes;
    assert!(passes(small) >= 60, "{} passes", passes(small));
    assert!(passes(large) >= 1, "{} passes", passes(large));
}

#[test]
fn budget_is_shared_half_evenly_half_by_size() {
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
    let snapshots = tables_of(&mut context, &mut machine, 600, |_, _| {});
    let passes: Vec<u64> = ids
        .iter()
        .map(|id| snapshots[id].last().unwrap().tables.nr_passes)
        .collect();
    // Share of the budget: small targets 1/2 x 1/3 + 1/2 x 1/6 each, the large target 1/2 x 1/3 + 1/2 x 2/3.
    let scanned = |nth: usize| (passes[nth] * sizes[nth]) as f64;
    let ratio = scanned(2) / scanned(0);
    assert!((1.7..=2.3).contains(&ratio), "{ratio}: {passes:?}");
    assert!(passes[0].abs_diff(passes[1]) <= 1, "{passes:?}");
}

#[test]
fn later_target_does_not_delay_others() {
    let (mut machine, first, mut context) = at_one_percent(pages(0, 1 << 15));
    let mut second = None;
    let snapshots = tables_of(&mut context, &mut machine, 160, |machine, now| {
        if now > Nanos::secs(100) && second.is_none() {
            let id = machine.spawn(&[pages(0, 1 << 15)]);
            touch_all(machine, id);
            second = Some(id);
        }
    });
    let passes = |id: TargetId, at: u64| {
        let snapshot = snapshots[&id]
            .iter()
            .rfind(|snapshot| snapshot.end <= Nanos::secs(at));
        snapshot.map_or(0, |snapshot| snapshot.tables.nr_passes)
    };
    let (of_first, of_second) = (
        passes(first, 150) - passes(first, 105),
        passes(second.unwrap(), 150) - passes(second.unwrap(), 105),
    );
    assert!(of_first.abs_diff(of_second) <= 2, "{of_first} and {of_second}");
}

#[test]
fn reaccessed_memory_is_counted_by_idle_age() {
    let (mut machine, id, mut context) = at_one_percent(pages(0, 2000));
    let snapshots = tables_of(&mut context, &mut machine, 60, |machine, now| {
        if now > Nanos::secs(40) && now < Nanos::secs(41) {
            machine.touch(id, pages(100, 150));
        }
    });
    let reaccessed: Vec<Bytes> = (0..NR_AGES)
        .map(|age| {
            let of_age = snapshots[&id]
                .iter()
                .map(|snapshot| snapshot.tables.reaccessed[age]);
            of_age.sum()
        })
        .collect();
    let expected = Bytes(50 * PAGE_SIZE);
    assert_eq!(reaccessed[5], expected, "idle for 30 s to 60 s: {reaccessed:?}");
    assert_eq!(reaccessed.iter().copied().sum::<Bytes>(), expected);
}

#[test]
fn regions_each_raises_max_nr_regions_per_target() {
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
            .with_regions_per_target(regions_each);
        let regions = monitor(&mut context, &mut machine, 120, |machine, _| {
            ids.iter()
                .for_each(|id| hot.iter().for_each(|hot| machine.touch(*id, *hot)));
        });
        let hot_regions = regions.iter().filter(|region| region.nr_accesses > 0);
        hot_regions.map(|region| region.range).collect::<Vec<_>>()
    };
    assert_eq!(found_with(20), hot);
    assert!(
        found_with(0).len() < hot.len(),
        "100 regions are 3 for each target"
    );
}

#[test]
fn hot_ranges_are_exact_with_many_targets() {
    let mut machine = machine();
    let ids: Vec<TargetId> = (0..200).map(|_| machine.spawn(&[pages(0, 2000)])).collect();
    ids.iter().for_each(|id| touch_all(&mut machine, *id));
    let hot = pages(1800, 1900);
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, MethodPolicy::Auto)
        .with_regions_per_target(20);
    // A pass takes 24 s.
    let regions = monitor(&mut context, &mut machine, 300, |machine, _| {
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
fn scheme_takes_each_matching_page_once() {
    let (mut machine, id, mut context) = at_one_percent(pages(0, 2000));
    let mut scheme = Scheme::new(Action::Cold);
    scheme.pattern = idle_for(Nanos::secs(20));
    context.set_schemes(vec![scheme]).unwrap();
    let hot = pages(700, 800);
    monitor(&mut context, &mut machine, 35, |machine, _| {
        machine.touch(id, hot)
    });
    let stats = *context.schemes()[0].stats();
    assert_eq!(stats.sz_tried, Bytes(1900 * PAGE_SIZE), "all cold pages, once");
}

#[test]
fn acting_on_hot_pages_keeps_access_counts() {
    let (mut machine, id, mut context) = at_one_percent(pages(0, 2000));
    let mut scheme = Scheme::new(Action::LruPrio);
    scheme.pattern.nr_accesses.min = Rate::Samples(1);
    context.set_schemes(vec![scheme]).unwrap();
    // So few pages that a change of their access rate shows only after the history window.
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
fn pageout_skips_single_hot_page() {
    let (mut machine, id, mut context) = at_one_percent(pages(0, 2000));
    let mut scheme = Scheme::new(Action::Pageout);
    scheme.pattern = idle_for(Nanos::secs(10));
    context.set_schemes(vec![scheme]).unwrap();
    monitor(&mut context, &mut machine, 40, |machine, _| {
        machine.touch(id, pages(1000, 1001))
    });
    assert_eq!(
        machine.count(id, pages(0, 2000), |page| page.location == PageLocation::Present),
        1
    );
    assert_eq!(machine.count(id, pages(0, 2000), |page| page.refaults > 0), 0);
}

#[test]
fn schemes_act_on_page_runs_finer_than_regions() {
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
    // Every tenth page is accessed: 200 pages, far more than regions.
    let regions = monitor(&mut context, &mut machine, 40, |machine, _| {
        (0..2000)
            .step_by(10)
            .for_each(|nth| machine.touch(id, pages(nth, nth + 1)));
    });
    assert!(regions.len() <= 10, "{} regions", regions.len());
    let present = machine.count(id, pages(0, 2000), |page| page.location == PageLocation::Present);
    assert_eq!(present, 200, "only the accessed pages stay resident");
}

#[test]
fn single_idle_pages_leave_however_many_there_are() {
    const PAGES: u64 = 80_000;
    let (mut machine, id, mut context) = at_one_percent(pages(0, PAGES));
    machine.cost_of_scanning = Nanos(60);
    let mut scheme = Scheme::new(Action::Pageout);
    scheme.pattern = idle_for(Nanos::secs(5));
    context.set_schemes(vec![scheme]).unwrap();
    // Every second page is accessed: more idle runs than schemes are applied to at once.
    let mut next = Nanos::ZERO;
    monitor(&mut context, &mut machine, 40, |machine, now| {
        if now >= next {
            next = now + Nanos::secs(2);
            let hot = (0..PAGES).step_by(2);
            hot.for_each(|nth| machine.touch(id, pages(nth, nth + 1)));
        }
    });
    let present = machine.count(id, pages(0, PAGES), |page| page.location == PageLocation::Present);
    assert_eq!(present, PAGES / 2, "only the accessed pages stay resident");
}

#[test]
fn quota_is_used_in_each_window_between_snapshots() {
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
                tried
                    .iter()
                    .map(|tried| tried.target_range.range.len())
                    .sum::<Bytes>(),
            ));
        }
        _ => {}
    };
    idle_until(&mut context, &mut machine, &mut sink, Nanos::secs(30));
    assert!(
        applied.len() > 35,
        "the scheme acted in {} of 44 windows: {applied:?}",
        applied.len()
    );
    assert!(
        applied.iter().all(|(_, sz)| *sz <= Bytes(500 * PAGE_SIZE)),
        "{applied:?}"
    );
    let windows = applied.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].0));
    assert!(
        windows.into_iter().all(|interval| interval >= Nanos::millis(500)),
        "{applied:?}"
    );
    let snapshots = context.schemes()[0].stats().nr_snapshots;
    assert!(
        (20..=30).contains(&snapshots),
        "each snapshot is counted once: {snapshots}"
    );
}

#[test]
fn ages_begin_anew_when_a_scheme_tries_pages_unless_they_are_kept() {
    for keeps_ages in [false, true] {
        let (mut machine, id, mut context) = at_one_percent(pages(0, 1 << 10));
        let mut scheme = Scheme::new(Action::Cold);
        scheme.pattern = idle_for(Nanos::secs(5));
        context.set_schemes(vec![scheme]).unwrap();
        context.set_keeps_ages(keeps_ages);
        idle_until(
            &mut context,
            &mut machine,
            &mut |_: &Event<'_>| {},
            Nanos::secs(30),
        );
        let idle = context.idle_for(Nanos::secs(15), Nanos::secs(30));
        let sz: Bytes = idle
            .iter()
            .filter(|(target, _)| *target == id)
            .flat_map(|(_, ranges)| ranges)
            .map(|range| range.len())
            .sum();
        assert_eq!(sz > Bytes::ZERO, keeps_ages, "{sz}");
    }
}

#[test]
fn targets_appear_and_exit_during_passes() {
    let mut machine = machine();
    let mut ids: Vec<TargetId> = (0..50).map(|_| machine.spawn(&[pages(0, 400)])).collect();
    ids.iter().for_each(|id| touch_all(&mut machine, *id));
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, MethodPolicy::Auto);
    let mut nth = 0;
    monitor(&mut context, &mut machine, 30, |machine, now| {
        // No changes in the last seconds, so that the last updates see the final state.
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
    let monitored: Vec<TargetId> = context.targets().map(|t| t.id).collect();
    assert!(
        monitored.len() >= 10 && context.nr_regions() >= monitored.len(),
        "{monitored:?}"
    );
}

#[test]
fn sampled_pages_have_their_age() {
    // Of 4,096 pages every other is accessed all the time, the first quarter of the rest never again.
    let (mut machine, id, mut context) = at_one_percent(pages(0, 4096));
    let is_idle = |page: u64| !page.is_multiple_of(2) && page < 1024;
    monitor(&mut context, &mut machine, 40, |machine, _| {
        for page in (0..4096).filter(|page| !is_idle(*page)) {
            machine.touch(id, pages(page, page + 1));
        }
    });
    let drawn = |per_age| context.sample_pages(Nanos::secs(40), per_age, 7);
    let all = drawn(5000);
    assert_eq!(all.len(), 4096, "all pages, if there are not too many");
    for page in &all {
        let number = page.addr.0 / PAGE_SIZE;
        assert_eq!(page.age >= 5, is_idle(number), "{page:?}");
    }
    let some = drawn(100);
    let idle: Vec<_> = some.iter().filter(|page| page.age >= 5).collect();
    assert_eq!((some.len(), idle.len()), (200, 100));
    let mean = idle.iter().map(|page| page.addr.0 / PAGE_SIZE).sum::<u64>() / 100;
    assert!(mean.abs_diff(512) < 90, "drawn from everywhere: {mean}");
    assert_eq!(some, drawn(100), "the same seed draws the same pages");
}
