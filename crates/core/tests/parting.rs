//! Some targets swept beside samples of others: where a budget does not pay for all pages of all, and while one must not be
//! swept.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use common::{idle_for, pages};
use thermo_core::budget::{CpuShare, Looks, Plan, Way};
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

/// Two small targets, of which the second is delicate.
fn one_delicate() -> (Machine, [TargetId; 2]) {
    let mut machine = machine(1);
    let ids = [machine.spawn(&[SMALL]), machine.spawn(&[SMALL])];
    ids.iter().for_each(|id| machine.touch(*id, SMALL));
    machine.delicate.insert(ids[1]);
    (machine, ids)
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
    let (mut machine, ids) = one_delicate();
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
    let why = "; not at every page of 2 targets that grow, or come back from swap, while memory is short";
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
    let (mut machine, ids) = one_delicate();
    let mut context = context();
    let scheme = Scheme {
        pattern: idle_for(Nanos::secs(5)),
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

/// Two small targets of which the second is delicate, watched for 20 s.
fn parted() -> (Machine, [TargetId; 2], Context) {
    let (mut machine, ids) = one_delicate();
    let mut context = context();
    watch(&mut context, &mut machine, (0, 20), |machine, _| {
        ids.iter().for_each(|id| machine.touch(*id, HOT));
    });
    (machine, ids, context)
}

#[test]
fn what_goes_over_to_sweeps_is_unknown_until_it_was_seen() {
    let (mut machine, ids, mut context) = parted();
    machine.delicate.clear();
    // Rounds take long, so that there are pictures before the first is through.
    machine.cost_of_sweeping = Nanos::micros(20);
    let mut sink = |event: &Event<'_>| {
        let Event::Aggregated { targets, .. } = event else {
            return;
        };
        let hot = targets[1].regions.iter().find(|r| r.range.overlaps(&HOT));
        assert!(hot.is_none_or(|r| r.unknown || r.nr_accesses > 0), "{hot:?}");
    };
    let touch = |machine: &mut Machine, _| ids.iter().for_each(|id| machine.touch(*id, HOT));
    let (from, until) = (Nanos::secs(20), Nanos::secs(60));
    thermo_sim::run(&mut context, &mut machine, &mut sink, from, until, touch).unwrap();
    assert_eq!(context.plan().unwrap().way, Way::Sweep);
}

#[test]
fn a_delicate_moment_of_one_leaves_the_others_their_history() {
    let mut machine = machine(1);
    let id = machine.spawn(&[SMALL]);
    machine.touch(id, SMALL);
    let mut context = context();
    watch(&mut context, &mut machine, (0, 60), |_, _| {});
    let other = machine.spawn(&[SMALL]);
    machine.delicate.insert(other);
    watch(&mut context, &mut machine, (60, 70), |_, _| {});
    machine.delicate.clear();
    let (_, plans) = watch(&mut context, &mut machine, (70, 80), |_, _| {});
    let plan = context.plan().unwrap();
    assert_eq!((plan.way, plan.nr_delicate), (Way::Sweep, 0), "{plans:?}");
    let target = context.targets().next().unwrap();
    let oldest = target.regions.iter().map(|region| region.age).max().unwrap();
    assert!(
        plan.attrs.aggr * u64::from(oldest) >= Nanos::secs(70),
        "{oldest} rounds"
    );
}

#[test]
fn targets_that_come_and_go_hold_nothing_up() {
    let pictures = |come_each: u64| {
        let (mut machine, _, mut context) = parted();
        let (mut pictures, mut next, mut last) = (0, 20, None);
        let mut sink = |event: &Event<'_>| {
            if let Event::Aggregated { targets, .. } = event {
                pictures += 1;
                assert!(targets[0].swept);
            }
        };
        let touch = |machine: &mut Machine, now: Nanos| {
            if now >= Nanos::secs(next) {
                next += come_each;
                if let Some(last) = last.replace(machine.spawn(&[SMALL])) {
                    machine.kill(last);
                }
            }
        };
        let (from, until) = (Nanos::secs(20), Nanos::secs(80));
        thermo_sim::run(&mut context, &mut machine, &mut sink, from, until, touch).unwrap();
        pictures
    };
    let (calm, busy) = (pictures(1000), pictures(1));
    assert!(busy * 2 > calm, "{busy} pictures, {calm} where nobody comes");
}

#[test]
fn what_goes_over_to_samples_is_covered_as_a_whole_by_not_too_many_regions() {
    let mut machine = machine(1);
    let id = machine.spawn(&[LARGE]);
    let holes = pages(100_000, 120_000);
    machine.change(id, holes, |page| page.place = Place::Absent);
    let attrs = Attrs {
        update: Nanos::secs(30),
        ..Attrs::default()
    };
    let mut context = Context::new(attrs, 1)
        .unwrap()
        .with_budget(CpuShare(2000), Looks::Auto);
    let scattered = |machine: &mut Machine, _| {
        (0..1500).for_each(|nth| machine.touch(id, pages(nth * 60, nth * 60 + 20)));
    };
    watch(&mut context, &mut machine, (0, 50), scattered);
    assert!(context.nr_regions() > 900, "{}", context.nr_regions());
    machine.delicate.insert(id);
    for secs in 50..90 {
        watch(&mut context, &mut machine, (secs, secs + 1), scattered);
        if context.plan().unwrap().way == Way::Sample {
            let target = context.targets().next().unwrap();
            let covered: u64 = target.regions.iter().map(|region| region.len().0).sum();
            assert_eq!(covered, LARGE.len().0);
            assert!(target.regions.len() <= 110, "{}", target.regions.len());
            return;
        }
    }
    panic!("it is swept still");
}

#[test]
fn when_none_is_left_to_be_swept_samples_have_all() {
    let (mut machine, ids, mut context) = parted();
    machine.kill(ids[0]);
    watch(&mut context, &mut machine, (20, 30), |_, _| {});
    let plan = context.plan().unwrap();
    assert_eq!((plan.way, plan.rounds), (Way::Sample, None));
}
