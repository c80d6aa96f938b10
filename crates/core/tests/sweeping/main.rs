//! Page-exact sweeps and the budget, on a simulated machine.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../common/mod.rs"]
mod common;
mod world;

use common::{idle_for, idle_until, pages, run_until};
use thermo_core::budget::{CpuShare, Looks, Way};
use thermo_core::scheme::Rate;
use thermo_core::{
    Action, AddrRange, Attrs, Bytes, Context, Event, Nanos, PAGE_SIZE, Region, Scheme, TargetId,
};
use thermo_sim::{Machine, Place};

const ONE_PERCENT: CpuShare = CpuShare(10_000);

/// A machine that can sweep, at the cost of real ones, ten times as much for a page so that targets can be small:
/// 3 µs a probe, 600 ns a page.
fn machine() -> Machine {
    let mut machine = Machine::new();
    machine.sweeps = true;
    machine.cost_of_probing = Nanos(3000);
    machine.cost_of_sweeping = Nanos(600);
    machine
}

/// Runs for `secs` from 0 and returns the regions of the first target at the last aggregation, and the plans.
fn watch(
    context: &mut Context,
    machine: &mut Machine,
    secs: u64,
    touch: impl FnMut(&mut Machine, Nanos),
) -> (Vec<Region>, Vec<(Way, Nanos)>) {
    let (mut last, mut plans) = (Vec::new(), Vec::new());
    let mut sink = |event: &Event<'_>| match event {
        Event::Aggregated { targets, .. } => {
            last = targets.first().map(|t| t.regions.to_vec()).unwrap_or_default()
        }
        Event::Planned { plan, .. } => plans.push((plan.way, plan.attrs.aggr)),
        _ => {}
    };
    run_until(context, machine, &mut sink, Nanos::secs(secs), touch);
    (last, plans)
}

/// A process that maps `range` and has touched all of it, and a context that watches it with one percent.
fn at_one_percent(range: AddrRange) -> (Machine, TargetId, Context) {
    let mut machine = machine();
    let id = machine.spawn(&[range]);
    touch_all(&mut machine, id);
    let context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, Looks::Auto);
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
        .with_budget(ONE_PERCENT, Looks::Auto);
    let (regions, _) = watch(&mut context, &mut machine, 30, |machine, _| {
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
fn after_a_change_the_next_round_comes_sooner_and_only_that() {
    // So much that rounds are more than a fifth of a second apart.
    let (mut machine, id, mut context) = at_one_percent(pages(0, 1 << 15));
    let mut ends = Vec::new();
    let mut sink = |event: &Event<'_>| {
        if let Event::Aggregated { end, .. } = event {
            ends.push(*end);
        }
    };
    let moves = Nanos::secs(40);
    run_until(
        &mut context,
        &mut machine,
        &mut sink,
        moves * 2,
        |machine, now| {
            let hot = if now < moves {
                pages(0, 500)
            } else {
                pages(1000, 1500)
            };
            machine.touch(id, hot);
        },
    );
    let sooner = |from: Nanos, to: Nanos| {
        let within = ends.windows(2).filter(|pair| from < pair[0] && pair[1] < to);
        within
            .filter(|pair| pair[1] - pair[0] < Nanos::millis(200))
            .count()
    };
    assert_eq!(sooner(Nanos::secs(10), moves), 0);
    assert!(
        (1..=2).contains(&sooner(moves, moves + Nanos::secs(2))),
        "{ends:?}"
    );
    assert_eq!(sooner(moves + Nanos::secs(4), moves * 2), 0);
}

#[test]
fn the_budget_is_kept_on_small_and_large_targets() {
    for (nr_pages, way) in [
        (1 << 11, Way::Sweep),
        (1 << 15, Way::Sweep),
        (1 << 20, Way::Sample),
    ] {
        let (mut machine, _, mut context) = at_one_percent(pages(0, nr_pages));
        // Of a target that is too large, the first round is given up after a minute or two, or the second is.
        watch(&mut context, &mut machine, 240, |_, _| {});
        let permille = machine.spent_looking.0 * 1000 / Nanos::secs(240).0;
        assert!(
            permille <= 11,
            "{permille} thousandths of a CPU for {nr_pages} pages"
        );
        assert_eq!(context.plan().unwrap().way, way, "{nr_pages} pages");
    }
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
            .with_budget(ONE_PERCENT, Looks::Sweep)
            .with_regions_each(regions_each);
        let (regions, _) = watch(&mut context, &mut machine, 120, |machine, _| {
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
fn many_targets_are_swept_seldom_since_samples_would_see_next_to_nothing_of_each() {
    let mut machine = machine();
    let ids: Vec<TargetId> = (0..200).map(|_| machine.spawn(&[pages(0, 2000)])).collect();
    ids.iter().for_each(|id| touch_all(&mut machine, *id));
    let hot = pages(1800, 1900);
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, Looks::Auto);
    // A round takes 24 s.
    let (regions, plans) = watch(&mut context, &mut machine, 200, |machine, _| {
        ids.iter().for_each(|id| machine.touch(*id, hot));
    });
    assert!(plans.iter().all(|(way, _)| *way == Way::Sweep), "{plans:?}");
    let found: Vec<AddrRange> = regions
        .iter()
        .filter(|region| region.nr_accesses > 0)
        .map(|region| region.range)
        .collect();
    assert_eq!(found, [hot]);
    let permille = machine.spent_looking.0 * 1000 / Nanos::secs(200).0;
    assert!(permille <= 11, "{permille} thousandths of a CPU");
}

#[test]
fn plans_settle() {
    let (mut machine, _, mut context) = at_one_percent(pages(0, 1 << 17));
    let (_, plans) = watch(&mut context, &mut machine, 300, |_, _| {});
    let sweeps = plans.iter().filter(|(way, _)| *way == Way::Sweep).count();
    assert!(sweeps <= 4, "{plans:?}");
    // Samples before them become dearer as regions are found.
    assert!(plans.len() <= 10, "{plans:?}");
    assert!(
        plans.iter().rev().take(sweeps).all(|(way, _)| *way == Way::Sweep),
        "{plans:?}"
    );
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
        if let Event::Aggregated { targets, .. } = event {
            let of_few = targets[0].regions.iter().find(|r| r.range.contains(few.start));
            counts.extend(of_few.map(|region| region.nr_accesses));
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
        counts.ends_with(&[70, 60, 50, 40, 30, 20, 10, 0]),
        "{counts:?} in the rounds"
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
fn schemes_see_runs_that_are_finer_than_the_regions_told_of() {
    let mut machine = machine();
    let id = machine.spawn(&[pages(0, 2000)]);
    touch_all(&mut machine, id);
    let attrs = Attrs {
        max_nr_regions: 10,
        ..Attrs::default()
    };
    let mut context = Context::new(attrs, 1)
        .unwrap()
        .with_budget(ONE_PERCENT, Looks::Auto);
    let mut scheme = Scheme::new(Action::Pageout);
    scheme.pattern = idle_for(Nanos::secs(5));
    context.set_schemes(vec![scheme]).unwrap();
    // Every tenth page is busy: 200 of them, far more than regions.
    let (regions, _) = watch(&mut context, &mut machine, 40, |machine, _| {
        (0..2000)
            .step_by(10)
            .for_each(|nth| machine.touch(id, pages(nth, nth + 1)));
    });
    assert!(regions.len() <= 10, "{} regions", regions.len());
    let present = machine.count(id, pages(0, 2000), |page| page.place == Place::Present);
    assert_eq!(present, 200, "what is left in memory is what is busy");
}

#[test]
fn a_quota_is_used_in_every_window_also_when_rounds_last_longer() {
    let (mut machine, _, mut context) = at_one_percent(pages(0, 1 << 15));
    let mut scheme = Scheme::new(Action::Pageout);
    scheme.pattern = idle_for(Nanos::secs(5));
    scheme.quota.sz = Bytes(500 * PAGE_SIZE);
    scheme.quota.reset_interval = Nanos::millis(500);
    context.set_schemes(vec![scheme]).unwrap();
    let (mut applied, mut rounds) = (Vec::new(), 0);
    let mut sink = |event: &Event<'_>| match event {
        Event::SchemeApplied { now, tried, .. } if !tried.is_empty() => {
            applied.push((
                *now,
                tried.iter().map(|tried| tried.run.range.len()).sum::<Bytes>(),
            ));
        }
        Event::Aggregated { .. } => rounds += 1,
        _ => {}
    };
    idle_until(&mut context, &mut machine, &mut sink, Nanos::secs(30));
    assert!(rounds < 30, "{rounds} rounds of two seconds and more");
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
    assert_eq!(
        context.schemes()[0].stats().nr_snapshots,
        rounds,
        "a snapshot counts once"
    );
}

#[test]
fn targets_come_and_go_during_rounds() {
    let mut machine = machine();
    let mut ids: Vec<TargetId> = (0..50).map(|_| machine.spawn(&[pages(0, 400)])).collect();
    ids.iter().for_each(|id| touch_all(&mut machine, *id));
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, Looks::Auto);
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
