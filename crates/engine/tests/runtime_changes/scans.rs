//! Changes during scans: scans become slower, are switched off, are unsupported, or find memory unmapped.

use thermo_engine::budget::Method;
use thermo_engine::ops::{Outcome, Probe, Request, TargetRange};
use thermo_engine::scan::{Preparation, ScanChunk};
use thermo_engine::scheme::SystemMetric;
use thermo_engine::{Attrs, Event, Operations, OpsError, TargetId, TargetLayout};
use thermo_sim::{Machine, run};
use thermo_units::{Addr, AddrRange, Nanos, PAGE_SIZE};

use super::common::{idle_until, pages, run_until};
use super::{machine, regions, scanning, touch_first};

#[test]
fn busy_region_keeps_age_when_passes_slow_down() {
    let mut machine = machine(&[pages(0, 20_000)]);
    let hot = pages(100, 200);
    let mut context = scanning();
    let mut oldest = Nanos(0);
    let mut sink = |event: &Event<'_>| {
        if let Event::Aggregated { targets, attrs, .. } = event {
            let busy = targets[0].regions.iter().filter(|r| r.nr_accesses == 70);
            oldest = busy
                .map(|r| attrs.aggr * u64::from(r.age))
                .max()
                .unwrap_or_default();
        }
    };
    run_until(
        &mut context,
        &mut machine,
        &mut sink,
        Nanos::secs(60),
        |machine, now| {
            machine.cost_of_scanning = Nanos(if now > Nanos::secs(40) { 2000 } else { 100 });
            touch_first(machine, hot);
        },
    );
    assert!(oldest >= Nanos::secs(50) && oldest <= Nanos::secs(60), "{oldest}");
}

#[test]
fn sampling_covers_all_ranges_after_scans() {
    let mappings = [pages(0, 1000), pages(5000, 6000)];
    let mut machine = Machine::new();
    machine.scans = true;
    let id = machine.spawn(&mappings);
    machine.touch(id, pages(300, 400));
    let mut context = scanning();
    let mut ignore = |_: &Event<'_>| {};
    let now = idle_until(&mut context, &mut machine, &mut ignore, Nanos::secs(20));
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
fn unsupported_scans_warn_and_fall_back_to_sampling() {
    let mut machine = machine(&[pages(0, 100)]);
    machine.scans = false;
    let mut context = scanning();
    let mut nr_warnings = 0;
    let mut sink = |event: &Event<'_>| nr_warnings += u32::from(matches!(event, Event::Warning { .. }));
    idle_until(&mut context, &mut machine, &mut sink, Nanos::secs(5));
    assert_eq!(
        (nr_warnings, context.plan().unwrap().method),
        (1, Method::Sampling)
    );
}

/// A machine that can skip unmapped memory in one scan, and logs calls.
#[derive(Default)]
struct SkippingMachine {
    machine: Machine,
    is_joint: bool,
    /// The arguments of all calls of `prepare_passes`.
    prepared: Vec<bool>,
    /// The arguments of all calls of `begin_pass`.
    begun: Vec<TargetId>,
    /// Unmapped memory: a scan skips to its end.
    unmapped: Option<AddrRange>,
    nr_updates: u64,
}

impl Operations for SkippingMachine {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        self.nr_updates += 1;
        self.machine.update()
    }
    fn prepare_access_checks(&mut self, probes: &[Probe]) {
        self.machine.prepare_access_checks(probes);
    }
    fn check_accesses(&mut self, probes: &mut [Probe]) {
        self.machine.check_accesses(probes);
    }
    fn can_scan(&self) -> bool {
        true
    }
    fn scan(&mut self, run: &TargetRange, chunk: &mut ScanChunk) -> Addr {
        match self.unmapped {
            Some(unmapped) => unmapped.end,
            None => self.machine.scan(run, chunk),
        }
    }
    fn scans_jointly(&self) -> bool {
        self.is_joint
    }
    fn prepare_passes(&mut self, first: bool) -> Preparation {
        self.prepared.push(first);
        match self.prepared.len() % 3 {
            0 => Preparation::Ready,
            _ => Preparation::InProgress(None),
        }
    }
    fn begin_pass(&mut self, target: TargetId) {
        self.begun.push(target);
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
fn memory_skipped_by_scan_is_not_resident() {
    // Three chunks of 64 MiB. The scan of the first chunk skips to the end of the third.
    let mapping = pages(0, 3 << 14);
    let mut ops = SkippingMachine {
        machine: machine(&[mapping]),
        ..SkippingMachine::default()
    };
    let mut context = scanning();
    let mut now = Nanos(0);
    for second in 0..400 {
        if second == 200 {
            assert_eq!(
                regions(&context).iter().map(|r| r.len().0).sum::<u64>(),
                mapping.len().0
            );
            ops.unmapped = Some(mapping);
        }
        now = Nanos::millis(second * 100);
        context.step(now, &mut ops, &mut |_: &Event<'_>| {}).unwrap();
    }
    assert_eq!(regions(&context), [], "at {now}");
}

/// Updates in 40 s, of which the nth costs `cost(nth)`, and whether a warning says that they are late.
fn updates_at_cost(cost: fn(u64) -> Nanos) -> (u64, bool) {
    let mut ops = SkippingMachine {
        machine: machine(&[pages(0, 100)]),
        ..SkippingMachine::default()
    };
    let mut context = scanning();
    let (mut total, mut warned) = (Nanos::ZERO, false);
    let mut sink = |event: &Event<'_>| {
        warned |= matches!(event, Event::Warning { text, .. } if text.contains("Raise --cpu"));
    };
    for ms in (0..40_000).step_by(50) {
        let (now, before) = (Nanos::millis(ms), ops.nr_updates);
        context.step(now, &mut ops, &mut sink).unwrap();
        if ops.nr_updates > before {
            total += cost(ops.nr_updates);
        }
        context.charge(now, total);
    }
    (ops.nr_updates, warned)
}

#[test]
fn expensive_update_delays_the_next_only_if_it_repeats() {
    let (updates, warned) = updates_at_cost(|_| Nanos::millis(1));
    assert!((38..=48).contains(&updates) && !warned, "{updates}");
    // Many new processes at once, and a check of 20 ms in every tenth update.
    let (updates, warned) = updates_at_cost(|nth| Nanos::millis(if nth % 10 == 3 { 20 } else { 1 }));
    assert!((38..=48).contains(&updates) && !warned, "{updates}");
    // A quarter of 1 %: one in 8 s.
    let (updates, warned) = updates_at_cost(|_| Nanos::millis(20));
    assert!((5..=9).contains(&updates) && warned, "{updates}");
}

#[test]
fn joint_passes_are_prepared_and_begin_together() {
    let mut ops = SkippingMachine {
        machine: machine(&[pages(0, 100)]),
        is_joint: true,
        ..SkippingMachine::default()
    };
    let other = ops.machine.spawn(&[pages(0, 40_000)]);
    let mut context = scanning();
    for ms in 0..200 {
        let now = Nanos::millis(ms * 10);
        context.step(now, &mut ops, &mut |_: &Event<'_>| {}).unwrap();
    }
    // At most every 125 ms.
    assert!((6..=34).contains(&ops.begun.len()), "{:?}", ops.begun);
    assert!(
        ops.begun
            .chunks(2)
            .all(|pair| pair.len() < 2 || pair == [TargetId(0), other])
    );
    let preparations = ops.prepared.chunks(3).filter(|calls| calls.len() == 3);
    assert!(
        preparations
            .into_iter()
            .all(|calls| calls == [true, false, false]),
        "{:?}",
        ops.prepared
    );
}
