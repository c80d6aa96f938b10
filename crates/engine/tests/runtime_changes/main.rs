//! Changes while a context runs: attributes, schemes, targets, and the machine's state. On a simulated
//! machine.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../common/mod.rs"]
mod common;
mod scans;

use common::{idle_until, pages, run_until};
use thermo_engine::budget::{CpuShare, Method, MethodPolicy};
use thermo_engine::scheme::{SystemMetric, WatermarkMetric, Watermarks};
use thermo_engine::{Action, Attrs, Context, Event, IntervalsGoal, Next, Operations as _, Region, Scheme};
use thermo_sim::{Machine, run};
use thermo_units::{AddrRange, Nanos, Permille};

const ONE_PERCENT: CpuShare = CpuShare(10_000);
const ALL: AddrRange = pages(0, 1 << 40);

/// A machine that supports scans, with one process that maps `mappings` and has accessed each page once.
fn machine(mappings: &[AddrRange]) -> Machine {
    let mut machine = Machine::new();
    machine.scans = true;
    machine.cost_of_probing = Nanos(100);
    machine.cost_of_scanning = Nanos(100);
    let id = machine.spawn(mappings);
    machine.touch(id, ALL);
    machine
}

fn touch_first(machine: &mut Machine, range: AddrRange) {
    let id = machine.update().unwrap()[0].id;
    machine.touch(id, range);
}

fn regions(context: &Context) -> Vec<Region> {
    context.targets().flat_map(|t| t.regions.to_vec()).collect()
}

fn scanning() -> Context {
    Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, MethodPolicy::Scan)
}

#[test]
fn set_bounds_keeps_intervals_of_budget() {
    let mut machine = machine(&[pages(0, 1000)]);
    machine.scans = true;
    let mut context = scanning().with_regions_per_target(20);
    let mut ignore = |_: &Event<'_>| {};
    let touch = |machine: &mut Machine, _| {
        for nth in 0..10 {
            touch_first(machine, pages(nth * 100, nth * 100 + 50));
        }
    };
    run_until(&mut context, &mut machine, &mut ignore, Nanos::secs(20), touch);
    assert_eq!(regions(&context).len(), 20);
    let few = Attrs {
        min_nr_regions: 3,
        max_nr_regions: 5,
        ..Attrs::default()
    };
    assert_eq!(context.set_bounds(&few), Ok(true));
    let aggr = context.attrs().aggr;
    let start = Nanos::secs(20);
    run(
        &mut context,
        &mut machine,
        &mut ignore,
        start,
        start + Nanos::secs(5),
        touch,
    )
    .unwrap();
    let plan = context.plan().unwrap();
    assert_eq!(
        (plan.method, plan.attrs.max_nr_regions, plan.attrs.aggr),
        (Method::Scan, 5, aggr)
    );
    assert!(regions(&context).len() <= 5);

    let other_intervals = Attrs {
        aggr: Nanos::secs(1),
        ..few
    };
    assert_eq!(context.set_bounds(&other_intervals), Ok(false));
    let mut without_budget = Context::new(few, 1).unwrap();
    assert_eq!(without_budget.set_bounds(&few), Ok(false));
}

#[test]
fn frequent_updates_lose_no_access_checks() {
    let attrs = Attrs {
        update: Attrs::default().sample,
        ..Attrs::default()
    };
    let mut machine = machine(&[pages(0, 100)]);
    let mut context = Context::new(attrs, 1).unwrap();
    let mut highest = 0;
    let mut sink = |event: &Event<'_>| {
        if let Event::Aggregated { targets, .. } = event {
            highest = targets[0].regions.iter().map(|r| r.nr_accesses).max().unwrap();
        }
    };
    let touch = |machine: &mut Machine, _| touch_first(machine, ALL);
    run_until(&mut context, &mut machine, &mut sink, Nanos::secs(1), touch);
    assert_eq!(highest, attrs.max_nr_accesses());
}

#[test]
fn early_steps_are_not_counted() {
    let mut machine = machine(&[pages(0, 100)]);
    let mut context = Context::new(Attrs::default(), 1).unwrap();
    let mut sampled = 0;
    let mut sink = |event: &Event<'_>| sampled += u32::from(matches!(event, Event::Sampled { .. }));
    let mut due = Next::At(Nanos(0));
    for ms in 0..100 {
        due = context.step(Nanos::millis(ms), &mut machine, &mut sink).unwrap();
    }
    assert_eq!((sampled, due), (19, Next::At(Nanos::millis(100))));
}

/// The number of aggregations after `when` in which no region covers memory that is mapped and accessed at
/// `when`.
fn aggregations_until_covered(mut context: Context, when: Nanos) -> u32 {
    let mut machine = machine(&[pages(0, 100)]);
    let mut is_mapped = false;
    let mapped = pages(200, 300);
    let mut uncovered = 0;
    let mut sink = |event: &Event<'_>| {
        if let Event::Aggregated { end, targets, .. } = event
            && *end > when
            && !targets[0]
                .regions
                .iter()
                .any(|region| region.range.overlaps(&mapped))
        {
            uncovered += 1;
        }
    };
    let map = |machine: &mut Machine, now| {
        if now >= when && !std::mem::replace(&mut is_mapped, true) {
            let id = machine.update().unwrap()[0].id;
            machine.map(id, mapped);
            machine.touch(id, mapped);
        }
    };
    let until = when + Nanos::secs(2);
    run_until(&mut context, &mut machine, &mut sink, until, map);
    uncovered
}

#[test]
fn early_mappings_are_monitored_within_two_aggregations() {
    let sampling = || Context::new(Attrs::default(), 1).unwrap();
    let early = aggregations_until_covered(sampling(), Nanos::millis(205));
    assert!(early <= 2, "{early}");
    let late = aggregations_until_covered(sampling(), Nanos::millis(3205));
    assert!((3..=10).contains(&late), "{late}");
    // The same with a budget, if the budget is large enough.
    let early = aggregations_until_covered(scanning(), Nanos::millis(205));
    assert!(early <= 2, "{early}");
}

/// Sets the metric of the watermarks: free memory, in thousandths.
fn set_free(machine: &mut Machine, permille: u64) {
    machine.metrics.insert(SystemMetric::FreeMemRate, permille);
}

#[test]
fn monitoring_pauses_while_all_schemes_are_inactive() {
    let mut scheme = Scheme::new(Action::Stat);
    scheme.watermarks = Watermarks {
        metric: WatermarkMetric::FreeMemRate,
        interval: Nanos::secs(1),
        high: Permille(500),
        mid: Permille(400),
        low: Permille(200),
    };
    for mut context in [Context::new(Attrs::default(), 1).unwrap(), scanning()] {
        let mut machine = machine(&[pages(0, 100_000)]);
        context.set_schemes(vec![scheme.clone()]).unwrap();
        // Between 10 s and 30 s, free memory is above the high watermark.
        let (mut spent, mut longest) = (Vec::new(), Nanos(0));
        let mut sink = |event: &Event<'_>| {
            if let Event::Aggregated { start, end, .. } = event {
                longest = longest.max(end.saturating_sub(*start));
            }
        };
        run_until(
            &mut context,
            &mut machine,
            &mut sink,
            Nanos::secs(40),
            |machine, now| {
                let inactive = now >= Nanos::secs(10) && now < Nanos::secs(30);
                set_free(machine, if inactive { 900 } else { 300 });
                spent.push((now, machine.spent_monitoring));
            },
        );
        let at = |secs| {
            spent
                .iter()
                .rfind(|(now, _)| *now <= Nanos::secs(secs))
                .unwrap()
                .1
        };
        assert_eq!(at(12), at(29), "{:?}", context.plan());
        assert!(at(9) > Nanos(0) && at(40) > at(31));
        assert!(
            longest < Nanos::secs(10),
            "an aggregation does not include the pause: {longest}"
        );
    }
}

/// Times when schemes were applied and when aggregations ended.
#[derive(Default)]
struct Times {
    applied: Vec<Nanos>,
    aggregated: Vec<Nanos>,
}

impl Times {
    fn sink(&mut self) -> impl FnMut(&Event<'_>) {
        |event| match event {
            Event::SchemeApplied { now, .. } => self.applied.push(*now),
            Event::Aggregated { end, .. } => self.aggregated.push(*end),
            _ => {}
        }
    }
}

#[test]
fn schemes_stay_aligned_with_aggregations() {
    let mut machine = machine(&[pages(0, 100)]);
    let mut context = Context::new(Attrs::default(), 1).unwrap();
    let no_access = |_: &mut Machine, _| {};
    let mut before = Times::default();
    context.set_schemes(vec![Scheme::new(Action::Stat)]).unwrap();
    let now = run_until(
        &mut context,
        &mut machine,
        &mut before.sink(),
        Nanos::millis(433),
        no_access,
    );
    assert_eq!(before.applied, before.aggregated);

    let longer = Attrs {
        aggr: Nanos::millis(300),
        ..Attrs::default()
    };
    context.set_attrs(longer).unwrap();
    let mut after = Times::default();
    let until = now + Nanos::millis(1000);
    let now = run(
        &mut context,
        &mut machine,
        &mut after.sink(),
        now,
        until,
        no_access,
    )
    .unwrap();
    assert_eq!(after.applied, after.aggregated);
    assert_eq!(after.applied.len(), 3);

    context.set_schemes(Vec::new()).unwrap();
    context.set_schemes(vec![Scheme::new(Action::Stat)]).unwrap();
    let mut late = Times::default();
    let until = now + Nanos::millis(1000);
    run(
        &mut context,
        &mut machine,
        &mut late.sink(),
        now,
        until,
        no_access,
    )
    .unwrap();
    assert_eq!(late.applied, late.aggregated);
}

#[test]
fn tuning_intervals_converts_counts_and_ages() {
    let mut machine = machine(&[pages(0, 1000)]);
    let mut context = Context::new(Attrs::default(), 1).unwrap();
    context
        .set_intervals_goal(Some(IntervalsGoal::default()))
        .unwrap();
    let mut tuned = Vec::new();
    let mut ends = Vec::new();
    let mut sink = |event: &Event<'_>| match event {
        Event::Tuned { attrs, .. } => tuned.push(attrs.sample.0 / 1_000_000),
        Event::Aggregated {
            start, end, attrs, ..
        } => ends.push((*start, end.saturating_sub(*start), attrs.aggr)),
        _ => {}
    };
    let touch = |machine: &mut Machine, now| {
        if now > Nanos::secs(3) {
            touch_first(machine, ALL);
        }
    };
    idle_until(&mut context, &mut machine, &mut sink, Nanos::secs(3));
    // While idle: 3 x 100 ms, 3 x 200 ms, 3 x 400 ms. The next tuning follows after 3 x 800 ms.
    let idle = regions(&context)
        .iter()
        .map(|r| context.attrs().aggr * u64::from(r.age))
        .max()
        .unwrap();
    assert!(idle >= Nanos::millis(1600) && idle <= Nanos::secs(3), "{idle}");
    run(
        &mut context,
        &mut machine,
        &mut sink,
        Nanos::secs(3),
        Nanos::secs(60),
        touch,
    )
    .unwrap();
    assert_eq!(tuned[..3], [10, 20, 40]);
    assert_eq!(
        tuned.last(),
        Some(&5),
        "busy memory leads to the minimum: {tuned:?}"
    );
    assert!(
        ends.iter()
            .all(|(_, took, aggr)| took >= aggr && took.0 < aggr.0 + 50_000_000),
        "{ends:?}"
    );
    let attrs = *context.attrs();
    assert_eq!(attrs.max_nr_accesses(), 20);
    assert!(regions(&context).iter().all(|r| r.last_nr_accesses == 20));
}
