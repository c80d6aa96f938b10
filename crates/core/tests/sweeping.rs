//! Page-exact sweeps and the budget, on a simulated machine.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use thermo_core::budget::{CpuShare, Looks, Way};
use thermo_core::scheme::{AccessPattern, Age, Bounds, Rate};
use thermo_core::{
    Action, AddrRange, Attrs, Bytes, Context, Event, Nanos, PAGE_SIZE, Region, Scheme, TargetId,
};
use thermo_sim::{Machine, Place, run};

const ONE_PERCENT: CpuShare = CpuShare(10_000);

fn pages(start: u64, end: u64) -> AddrRange {
    AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE)
}

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
    run(context, machine, &mut sink, Nanos(0), Nanos::secs(secs), touch).unwrap();
    (last, plans)
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
fn the_budget_is_kept_on_small_and_large_targets() {
    for (nr_pages, way) in [
        (1 << 11, Way::Sweep),
        (1 << 15, Way::Sweep),
        (1 << 20, Way::Sample),
    ] {
        let mut machine = machine();
        let id = machine.spawn(&[pages(0, nr_pages)]);
        touch_all(&mut machine, id);
        let mut context = Context::new(Attrs::default(), 1)
            .unwrap()
            .with_budget(ONE_PERCENT, Looks::Auto);
        watch(&mut context, &mut machine, 120, |_, _| {});
        let permille = machine.spent_looking.0 * 1000 / Nanos::secs(120).0;
        assert!(
            permille <= 11,
            "{permille} thousandths of a CPU for {nr_pages} pages"
        );
        assert_eq!(context.plan().unwrap().way, way, "{nr_pages} pages");
    }
}

#[test]
fn plans_settle() {
    let mut machine = machine();
    let id = machine.spawn(&[pages(0, 1 << 17)]);
    touch_all(&mut machine, id);
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, Looks::Auto);
    let (_, plans) = watch(&mut context, &mut machine, 300, |_, _| {});
    assert!(plans.len() <= 4, "{plans:?}");
}

#[test]
fn a_scheme_takes_exactly_what_matches_and_not_again_at_once() {
    let mut machine = machine();
    let id = machine.spawn(&[pages(0, 2000)]);
    touch_all(&mut machine, id);
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, Looks::Auto);
    let cold = AccessPattern {
        nr_accesses: Bounds {
            min: Rate::Samples(0),
            max: Rate::Samples(0),
        },
        age: Bounds {
            min: Age::Time(Nanos::secs(20)),
            max: Age::Time(Nanos::MAX),
        },
        ..AccessPattern::default()
    };
    let mut scheme = Scheme::new(Action::Cold);
    scheme.pattern = cold;
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
fn pageout_leaves_the_hot_page_in_the_middle() {
    let mut machine = machine();
    let id = machine.spawn(&[pages(0, 2000)]);
    touch_all(&mut machine, id);
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, Looks::Auto);
    let mut scheme = Scheme::new(Action::Pageout);
    scheme.pattern.nr_accesses.max = Rate::Samples(0);
    scheme.pattern.age.min = Age::Time(Nanos::secs(10));
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
