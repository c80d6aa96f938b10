//! Some targets swept beside samples of others: where a budget does not pay for all pages of all, and while one must not be
//! swept.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use common::pages;
use thermo_core::budget::{CpuShare, Looks, Plan, Way};
use thermo_core::scheme::{AccessPattern, Age, Bounds, Rate};
use thermo_core::{Action, AddrRange, Attrs, Context, Event, Nanos, PAGE_SIZE, Region, Scheme, TargetId};
use thermo_sim::{Machine, Place};

const ONE_PERCENT: CpuShare = CpuShare(10_000);
/// Of one of these rounds are cheap, of the other they are not.
const SMALL: AddrRange = pages(0, 1 << 11);
const LARGE: AddrRange = pages(0, 1 << 17);
/// Hot in the small ones, too little to be found by samples soon, and in the large one.
const HOT: AddrRange = pages(1234, 1240);
const LARGE_HOT: AddrRange = pages(1 << 16, (1 << 16) + (1 << 13));

/// A machine on which a page costs what it does in reality, or `dear` times as much.
fn machine(dear: u64) -> Machine {
    let mut machine = Machine::new();
    machine.sweeps = true;
    machine.cost_of_probing = Nanos::micros(4);
    machine.cost_of_sweeping = Nanos(60 * dear);
    machine
}

fn context() -> Context {
    Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, Looks::Auto)
}

/// What was told of each target last: whether by pages, and the regions; and the most they can count.
type Told = (u32, Vec<(TargetId, bool, Vec<Region>)>);

/// Goes on from `from` for `secs`; returns what was told last, and all plans.
fn watch(
    context: &mut Context,
    machine: &mut Machine,
    (from, until): (u64, u64),
    mut touch: impl FnMut(&mut Machine, Nanos),
) -> (Told, Vec<Plan>) {
    let (mut told, mut plans) = ((0, Vec::new()), Vec::new());
    let mut sink = |event: &Event<'_>| match event {
        Event::Aggregated { attrs, targets, .. } => {
            let of = |t: &thermo_core::sink::TargetRegions<'_>| (t.id, t.swept, t.regions.to_vec());
            told = (attrs.max_nr_accesses(), targets.iter().map(of).collect());
        }
        Event::Planned { plan, .. } => plans.push(**plan),
        _ => {}
    };
    let (from, until) = (Nanos::secs(from), Nanos::secs(until));
    thermo_sim::run(context, machine, &mut sink, from, until, |machine, now| {
        touch(machine, now)
    })
    .unwrap();
    (told, plans)
}

fn hot(regions: &[Region], most: u32) -> Vec<AddrRange> {
    let hot = regions.iter().filter(|region| region.nr_accesses * 2 >= most);
    hot.map(|region| region.range).collect()
}

#[test]
fn small_targets_are_exact_beside_one_that_is_too_large() {
    let mut machine = machine(100);
    let small = [machine.spawn(&[SMALL]), machine.spawn(&[SMALL])];
    let large = machine.spawn(&[LARGE]);
    for (id, all) in [(small[0], SMALL), (small[1], SMALL), (large, LARGE)] {
        machine.touch(id, all);
    }
    let mut context = context();
    let touch = |machine: &mut Machine, _| {
        small.iter().for_each(|id| machine.touch(*id, HOT));
        machine.touch(large, LARGE_HOT);
    };
    // After two minutes or so rounds over all are given up.
    watch(&mut context, &mut machine, (0, 200), touch);
    let (told, plans) = watch(&mut context, &mut machine, (200, 280), touch);
    let plan = context.plan().unwrap();
    let rounds = plan.rounds.unwrap();
    assert_eq!(
        (plan.way, rounds.nr_targets, rounds.of),
        (Way::Sample, 2, 3),
        "{plan}"
    );
    assert!(
        plan.to_string()
            .starts_with("look at every page of 2 of 3 targets each "),
        "{plan}"
    );
    let (most, targets) = told;
    for (id, swept, regions) in &targets[..2] {
        assert!(*swept, "{id:?}");
        assert_eq!(hot(regions, most), [HOT], "{regions:?}");
        let idle = regions.iter().filter(|region| region.nr_accesses == 0);
        assert!(
            idle.clone().count() > 0 && idle.clone().all(|region| region.age > 5),
            "{regions:?}"
        );
        let hot = regions.iter().find(|region| region.range == HOT).unwrap();
        assert!(hot.age > 5 && hot.resident.is_some(), "{hot:?}");
    }
    let (_, swept, regions) = &targets[2];
    let right: u64 = hot(regions, most)
        .iter()
        .filter_map(|range| range.intersection(&LARGE_HOT))
        .map(|both| both.len().0)
        .sum();
    assert!(!swept && right > LARGE_HOT.len().0 / 10 * 8, "{regions:?}");
    let permille = machine.spent_looking.0 * 1000 / Nanos::secs(280).0;
    assert!(permille <= 11, "{permille} thousandths of a CPU");
    assert!(plans.len() <= 4, "they settle: {plans:?}");
}

#[test]
fn what_must_not_be_swept_is_sampled_until_it_may() {
    let mut machine = machine(1);
    let ids = [machine.spawn(&[SMALL]), machine.spawn(&[SMALL])];
    ids.iter().for_each(|id| machine.touch(*id, SMALL));
    machine.delicate.insert(ids[1]);
    let mut context = context();
    let touch = |machine: &mut Machine, _| ids.iter().for_each(|id| machine.touch(*id, HOT));
    let swept = |told: &Told| told.1.iter().map(|(_, swept, _)| *swept).collect::<Vec<_>>();
    let (told, plans) = watch(&mut context, &mut machine, (0, 30), touch);
    assert_eq!(swept(&told), [true, false]);
    assert_eq!(hot(&told.1[0].2, told.0), [HOT]);
    assert!(
        plans.iter().all(|plan| plan.rounds.is_some()),
        "from the first moment: {plans:?}"
    );

    machine.delicate.clear();
    let (told, _) = watch(&mut context, &mut machine, (30, 60), touch);
    assert_eq!(swept(&told), [true, true]);
    assert_eq!(context.plan().unwrap().way, Way::Sweep);
    assert_eq!(hot(&told.1[1].2, told.0), [HOT]);

    machine.delicate.extend(ids);
    let (told, plans) = watch(&mut context, &mut machine, (60, 90), touch);
    assert_eq!(swept(&told), [false, false]);
    let plan = context.plan().unwrap().to_string();
    let why = "; not at every page of 2 targets that grow while memory is short";
    assert!(plan.ends_with(why), "{plan}");
    assert!(
        plans
            .iter()
            .all(|plan| plan.way == Way::Sample && plan.rounds.is_none()),
        "{plans:?}"
    );
}

#[test]
fn a_budget_told_to_sweep_sweeps() {
    let mut machine = machine(1);
    let id = machine.spawn(&[SMALL]);
    machine.touch(id, SMALL);
    machine.delicate.insert(id);
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, Looks::Sweep);
    let (told, _) = watch(&mut context, &mut machine, (0, 10), |machine, _| {
        machine.touch(id, HOT)
    });
    assert!(told.1[0].1);
}

#[test]
fn targets_that_come_are_swept_as_well_where_they_fit() {
    let mut machine = machine(1);
    let delicate = machine.spawn(&[SMALL]);
    machine.delicate.insert(delicate);
    machine.spawn(&[SMALL]);
    let mut context = context();
    watch(&mut context, &mut machine, (0, 10), |_, _| {});
    machine.spawn(&[SMALL]);
    let (told, _) = watch(&mut context, &mut machine, (10, 20), |_, _| {});
    let swept: Vec<bool> = told.1.iter().map(|(_, swept, _)| *swept).collect();
    assert_eq!(swept, [false, true, true]);
    let rounds = context.plan().unwrap().rounds.unwrap();
    assert_eq!((rounds.nr_targets, rounds.of), (2, 3));
}

#[test]
fn schemes_act_on_exact_runs_of_what_is_swept_and_on_regions_of_the_rest() {
    let mut machine = machine(1);
    let ids = [machine.spawn(&[SMALL]), machine.spawn(&[SMALL])];
    ids.iter().for_each(|id| machine.touch(*id, SMALL));
    machine.delicate.insert(ids[1]);
    let mut context = context();
    let cold = AccessPattern {
        nr_accesses: Bounds {
            min: Rate::Samples(0),
            max: Rate::Samples(0),
        },
        age: Bounds {
            min: Age::Time(Nanos::secs(5)),
            max: Age::Time(Nanos::MAX),
        },
        ..AccessPattern::default()
    };
    let scheme = Scheme {
        pattern: cold,
        ..Scheme::new(Action::Pageout)
    };
    context.set_schemes(vec![scheme]).unwrap();
    watch(&mut context, &mut machine, (0, 60), |machine, _| {
        ids.iter().for_each(|id| machine.touch(*id, HOT));
    });
    let out = |id| machine.count(id, SMALL, |page| page.place == Place::Swapped);
    assert_eq!(out(ids[0]), (SMALL.len().0 - HOT.len().0) / PAGE_SIZE);
    assert!(out(ids[1]) > 0);
}
