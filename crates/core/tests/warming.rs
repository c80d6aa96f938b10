//! The first moments with a budget: a picture by samples until the first round of sweeps is through.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use common::{pages, run_until};
use thermo_core::budget::{CpuShare, Looks, Way};
use thermo_core::sweep::MAX_NR_ACCESSES;
use thermo_core::{Action, AddrRange, Attrs, Context, Event, Nanos, PAGE_SIZE, Region, Scheme};
use thermo_sim::Machine;

const ONE_PERCENT: CpuShare = CpuShare(10_000);
/// 512 MiB of which a sixteenth is hot.
const ALL: AddrRange = pages(0, 1 << 17);
const HOT: AddrRange = pages(1 << 16, (1 << 16) + (1 << 13));

/// What was told: when, the most a region can count, its regions.
type Told = (Nanos, u32, Vec<Region>);

/// Watches a machine whose first round takes `round` of CPU time, for so many seconds.
fn watch(round: Nanos, secs: u64, schemes: Vec<Scheme>) -> (Context, Machine, Vec<Told>) {
    let mut machine = Machine::new();
    machine.sweeps = true;
    machine.cost_of_probing = Nanos::micros(4);
    machine.cost_of_sweeping = Nanos(round.0 / (ALL.len().0 / PAGE_SIZE));
    let id = machine.spawn(&[ALL]);
    machine.touch(id, ALL);
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, Looks::Auto);
    context.set_schemes(schemes).unwrap();
    let mut told = Vec::new();
    let mut sink = |event: &Event<'_>| {
        if let Event::Aggregated {
            end, attrs, targets, ..
        } = event
        {
            told.push((*end, attrs.max_nr_accesses(), targets[0].regions.to_vec()));
        }
    };
    let touch = |machine: &mut Machine, _| machine.touch(id, HOT);
    run_until(&mut context, &mut machine, &mut sink, Nanos::secs(secs), touch);
    (context, machine, told)
}

/// Bytes said to be hot that are, and that are not.
fn right_and_wrong(regions: &[Region], most: u32) -> (u64, u64) {
    let hot = regions.iter().filter(|region| region.nr_accesses * 2 >= most);
    hot.fold((0, 0), |(right, wrong), region| {
        let both = region.range.intersection(&HOT).map_or(0, |both| both.len().0);
        (right + both, wrong + region.len().0 - both)
    })
}

#[test]
fn samples_tell_until_the_first_round_is_through() {
    // 100 ms are 10 s of the whole budget; samples take a part of it.
    let (context, machine, told) = watch(Nanos::millis(100), 60, Vec::new());
    let first = told.iter().find(|(_, most, regions)| {
        let (right, wrong) = right_and_wrong(regions, *most);
        right >= HOT.len().0 / 2 && wrong <= HOT.len().0
    });
    let (when, most, _) = first.unwrap();
    assert!(
        *when <= Nanos::secs(8) && *most < MAX_NR_ACCESSES,
        "{when} {most}"
    );
    let (_, most, regions) = told.last().unwrap();
    assert_eq!(context.plan().unwrap().way, Way::Sweep);
    assert_eq!(right_and_wrong(regions, *most), (HOT.len().0, 0));
    let permille = machine.spent_looking.0 * 1000 / Nanos::secs(60).0;
    assert!(permille <= 11, "{permille} thousandths of a CPU");
}

#[test]
fn a_first_round_that_takes_too_long_is_given_up() {
    let (context, machine, told) = watch(Nanos::secs(2), 200, Vec::new());
    assert_eq!(context.plan().unwrap().way, Way::Sample);
    assert!(told[0].0 <= Nanos::secs(8), "{}", told[0].0);
    let permille = machine.spent_looking.0 * 1000 / Nanos::secs(200).0;
    assert!(permille <= 11, "{permille} thousandths of a CPU");
}

#[test]
fn where_a_scheme_acts_it_waits_for_what_is_exact() {
    let (_, _, told) = watch(Nanos::millis(20), 10, vec![Scheme::new(Action::Cold)]);
    assert!(told.iter().all(|(_, most, _)| *most == MAX_NR_ACCESSES));
    // More than what is saved up for the first round.
    let (_, _, told) = watch(Nanos::millis(200), 10, vec![Scheme::new(Action::Stat)]);
    assert!(told.iter().any(|(_, most, _)| *most < MAX_NR_ACCESSES));
}
