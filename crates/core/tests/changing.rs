//! What changes while a context runs: attributes, schemes, targets, the machine's state. On a simulated machine.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use thermo_core::budget::{CpuShare, Looks, Way};
use thermo_core::ops::{Outcome, Probe, Request, Run};
use thermo_core::scheme::{SystemMetric, WatermarkMetric, Watermarks};
use thermo_core::sweep::{Piece, Swept};
use thermo_core::{
    Action, AddrRange, Attrs, Context, Event, IntervalsGoal, Nanos, Next, Operations, OpsError, PAGE_SIZE,
    Permille, Region, Scheme, TargetLayout,
};
use thermo_sim::{Machine, run};

const ONE_PERCENT: CpuShare = CpuShare(10_000);
const ALL: AddrRange = pages(0, 1 << 40);

const fn pages(start: u64, end: u64) -> AddrRange {
    AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE)
}

/// A machine with one process of these mappings, all touched once, that can be swept.
fn machine(mappings: &[AddrRange]) -> Machine {
    let mut machine = Machine::new();
    machine.sweeps = true;
    machine.cost_of_probing = Nanos(100);
    machine.cost_of_sweeping = Nanos(100);
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

fn sweeping() -> Context {
    Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(ONE_PERCENT, Looks::Sweep)
}

#[test]
fn updates_as_frequent_as_looks_do_not_lose_them() {
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
    run(
        &mut context,
        &mut machine,
        &mut sink,
        Nanos(0),
        Nanos::secs(1),
        touch,
    )
    .unwrap();
    assert_eq!(highest, attrs.max_nr_accesses());
}

#[test]
fn calls_that_come_early_count_nothing() {
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

/// How many aggregations pass until memory that is mapped at `when` is a part of a region.
fn aggregations_until_seen(when: Nanos) -> u32 {
    let mut machine = machine(&[pages(0, 100)]);
    let mut context = Context::new(Attrs::default(), 1).unwrap();
    let mapped = pages(200, 300);
    let mut unseen = 0;
    let mut sink = |event: &Event<'_>| {
        if let Event::Aggregated { end, targets, .. } = event
            && *end > when
            && !targets[0]
                .regions
                .iter()
                .any(|region| region.range.overlaps(&mapped))
        {
            unseen += 1;
        }
    };
    let map = |machine: &mut Machine, now| {
        if now == when {
            let id = machine.update().unwrap()[0].id;
            machine.map(id, mapped);
        }
    };
    let until = when + Nanos::secs(2);
    run(&mut context, &mut machine, &mut sink, Nanos(0), until, map).unwrap();
    unseen
}

#[test]
fn what_a_program_maps_in_its_first_moments_is_seen_within_an_aggregation_or_two() {
    let early = aggregations_until_seen(Nanos::millis(205));
    assert!(early <= 2, "{early}");
    let late = aggregations_until_seen(Nanos::millis(3205));
    assert!((3..=10).contains(&late), "{late}");
}

/// Free memory in thousandths, as watermarks see it.
fn set_free(machine: &mut Machine, permille: u64) {
    machine.metrics.insert(SystemMetric::FreeMemRate, permille);
}

#[test]
fn nothing_is_looked_at_while_every_scheme_rests() {
    let mut scheme = Scheme::new(Action::Stat);
    scheme.watermarks = Watermarks {
        metric: WatermarkMetric::FreeMemRate,
        interval: Nanos::secs(1),
        high: Permille(500),
        mid: Permille(400),
        low: Permille(200),
    };
    for mut context in [Context::new(Attrs::default(), 1).unwrap(), sweeping()] {
        let mut machine = machine(&[pages(0, 100_000)]);
        context.set_schemes(vec![scheme.clone()]).unwrap();
        // Enough is free between 10 s and 30 s.
        let (mut spent, mut longest) = (Vec::new(), Nanos(0));
        let mut sink = |event: &Event<'_>| {
            if let Event::Aggregated { start, end, .. } = event {
                longest = longest.max(end.saturating_sub(*start));
            }
        };
        run(
            &mut context,
            &mut machine,
            &mut sink,
            Nanos(0),
            Nanos::secs(40),
            |machine, now| {
                let resting = now >= Nanos::secs(10) && now < Nanos::secs(30);
                set_free(machine, if resting { 900 } else { 300 });
                spent.push((now, machine.spent_looking));
            },
        )
        .unwrap();
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
            "the pause is no part of an aggregation: {longest}"
        );
    }
}

#[test]
fn busy_memory_stays_old_when_rounds_become_longer() {
    let mut machine = machine(&[pages(0, 20_000)]);
    let hot = pages(100, 200);
    let mut context = sweeping();
    let mut plans = 0;
    let mut oldest = Nanos(0);
    let mut sink = |event: &Event<'_>| match event {
        Event::Planned { .. } => plans += 1,
        Event::Aggregated { targets, attrs, .. } => {
            let busy = targets[0].regions.iter().filter(|r| r.nr_accesses == 70);
            oldest = busy
                .map(|r| attrs.aggr * u64::from(r.age))
                .max()
                .unwrap_or_default();
        }
        _ => {}
    };
    run(
        &mut context,
        &mut machine,
        &mut sink,
        Nanos(0),
        Nanos::secs(60),
        |machine, now| {
            machine.cost_of_sweeping = Nanos(if now > Nanos::secs(40) { 2000 } else { 100 });
            touch_first(machine, hot);
        },
    )
    .unwrap();
    assert!(plans > 1, "intervals should have changed");
    assert!(oldest >= Nanos::secs(40) && oldest <= Nanos::secs(60), "{oldest}");
}

/// When schemes were applied and aggregations ended.
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
fn schemes_stay_in_step_with_aggregations() {
    let mut machine = machine(&[pages(0, 100)]);
    let mut context = Context::new(Attrs::default(), 1).unwrap();
    let none = |_: &mut Machine, _| {};
    let mut before = Times::default();
    context.set_schemes(vec![Scheme::new(Action::Stat)]).unwrap();
    let now = run(
        &mut context,
        &mut machine,
        &mut before.sink(),
        Nanos(0),
        Nanos::millis(433),
        none,
    )
    .unwrap();
    assert_eq!(before.applied, before.aggregated);

    let longer = Attrs {
        aggr: Nanos::millis(300),
        ..Attrs::default()
    };
    context.set_attrs(longer).unwrap();
    let mut after = Times::default();
    let until = now + Nanos::millis(1000);
    let now = run(&mut context, &mut machine, &mut after.sink(), now, until, none).unwrap();
    assert_eq!(after.applied, after.aggregated);
    assert_eq!(after.applied.len(), 3);

    context.set_schemes(Vec::new()).unwrap();
    context.set_schemes(vec![Scheme::new(Action::Stat)]).unwrap();
    let mut late = Times::default();
    let until = now + Nanos::millis(1000);
    run(&mut context, &mut machine, &mut late.sink(), now, until, none).unwrap();
    assert_eq!(late.applied, late.aggregated);
}

#[test]
fn after_sweeps_samples_look_at_everything_at_once() {
    let mappings = [pages(0, 1000), pages(5000, 6000)];
    let mut machine = Machine::new();
    machine.sweeps = true;
    let id = machine.spawn(&mappings);
    machine.touch(id, pages(300, 400));
    let mut context = sweeping();
    let mut none = |_: &Event<'_>| {};
    let now = run(
        &mut context,
        &mut machine,
        &mut none,
        Nanos(0),
        Nanos::secs(20),
        |_, _| {},
    )
    .unwrap();
    assert_eq!(
        regions(&context).iter().map(|r| r.range).collect::<Vec<_>>(),
        [pages(300, 400)]
    );

    let attrs = Attrs {
        update: Nanos::secs(3600),
        ..Attrs::default()
    };
    context.set_attrs(attrs).unwrap();
    let mut start_of_first = None;
    let mut sink = |event: &Event<'_>| {
        if let Event::Aggregated { start, .. } = event {
            start_of_first.get_or_insert(*start);
        }
    };
    run(
        &mut context,
        &mut machine,
        &mut sink,
        now,
        now + Nanos::secs(1),
        |_, _| {},
    )
    .unwrap();
    let covered: u64 = regions(&context).iter().map(|r| r.len().0).sum();
    assert_eq!(covered, 2000 * PAGE_SIZE);
    assert!(regions(&context).iter().all(|r| r.resident.is_none()));
    assert_eq!(start_of_first, Some(now));
}

#[test]
fn sweeps_that_cannot_be_are_told_and_samples_taken() {
    let mut machine = machine(&[pages(0, 100)]);
    machine.sweeps = false;
    let mut context = sweeping();
    let mut warned = 0;
    let mut sink = |event: &Event<'_>| warned += u32::from(matches!(event, Event::Warning { .. }));
    run(
        &mut context,
        &mut machine,
        &mut sink,
        Nanos(0),
        Nanos::secs(5),
        |_, _| {},
    )
    .unwrap();
    assert_eq!((warned, context.plan().unwrap().way), (1, Way::Sample));
}

/// A machine that knows at once where nothing is left.
struct Skipping {
    machine: Machine,
    /// Everything from here on is given back; a look that comes there goes on at the end.
    left: Option<AddrRange>,
}

impl Operations for Skipping {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        self.machine.update()
    }
    fn prepare_access_checks(&mut self, probes: &[Probe]) {
        self.machine.prepare_access_checks(probes);
    }
    fn check_accesses(&mut self, probes: &mut [Probe]) {
        self.machine.check_accesses(probes);
    }
    fn can_sweep(&self) -> bool {
        true
    }
    fn sweep(&mut self, run: &Run, piece: &mut Piece) -> Swept {
        match self.left {
            Some(left) => Swept { next: left.end },
            None => self.machine.sweep(run, piece),
        }
    }
    fn any_target_left(&mut self) -> bool {
        self.machine.any_target_left()
    }
    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        self.machine.apply(request)
    }
    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        self.machine.metric(metric)
    }
}

#[test]
fn what_a_sweep_skips_is_not_there_any_more() {
    // Three pieces of 64 MiB: the look at the first says that nothing is there up to the end of the third.
    let mapping = pages(0, 3 << 14);
    let mut ops = Skipping {
        machine: machine(&[mapping]),
        left: None,
    };
    let mut context = sweeping();
    let mut now = Nanos(0);
    for second in 0..400 {
        if second == 200 {
            assert_eq!(
                regions(&context).iter().map(|r| r.len().0).sum::<u64>(),
                mapping.len().0
            );
            ops.left = Some(mapping);
        }
        now = Nanos::millis(second * 100);
        context.step(now, &mut ops, &mut |_: &Event<'_>| {}).unwrap();
    }
    assert_eq!(regions(&context), [], "at {now}");
}

#[test]
fn intervals_are_tuned_and_counts_and_ages_keep_their_meaning() {
    let mut machine = machine(&[pages(0, 1000)]);
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_intervals_goal(IntervalsGoal::default())
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
    run(
        &mut context,
        &mut machine,
        &mut sink,
        Nanos(0),
        Nanos::secs(3),
        |_, _| {},
    )
    .unwrap();
    // Idle: 3 x 100 ms, 3 x 200 ms, 3 x 400 ms; the next tuning comes after 3 x 800 ms more.
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
    assert_eq!(tuned.last(), Some(&5), "busy: as short as allowed: {tuned:?}");
    assert!(
        ends.iter()
            .all(|(_, took, aggr)| took >= aggr && took.0 < aggr.0 + 50_000_000),
        "{ends:?}"
    );
    let attrs = *context.attrs();
    assert_eq!(attrs.max_nr_accesses(), 20);
    assert!(regions(&context).iter().all(|r| r.last_nr_accesses == 20));
}
