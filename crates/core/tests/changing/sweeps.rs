//! Rounds of sweeps that become longer, end, cannot be made, or find that memory is gone.

use thermo_core::budget::Way;
use thermo_core::ops::{Outcome, Probe, Request, Run};
use thermo_core::scheme::SystemMetric;
use thermo_core::sweep::{Piece, Swept};
use thermo_core::{AddrRange, Attrs, Event, Nanos, Operations, OpsError, PAGE_SIZE, TargetLayout};
use thermo_sim::{Machine, run};

use super::common::{idle_until, pages, run_until};
use super::{machine, regions, sweeping, touch_first};

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
    run_until(
        &mut context,
        &mut machine,
        &mut sink,
        Nanos::secs(60),
        |machine, now| {
            machine.cost_of_sweeping = Nanos(if now > Nanos::secs(40) { 2000 } else { 100 });
            touch_first(machine, hot);
        },
    );
    assert!(plans > 1, "intervals should have changed");
    assert!(oldest >= Nanos::secs(40) && oldest <= Nanos::secs(60), "{oldest}");
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
    let now = idle_until(&mut context, &mut machine, &mut none, Nanos::secs(20));
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
    idle_until(&mut context, &mut machine, &mut sink, Nanos::secs(5));
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
