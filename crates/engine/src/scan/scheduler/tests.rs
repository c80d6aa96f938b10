//! The order of scans, the division of the budget, and the pace of passes.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use super::*;
use crate::ops::{OpsError, Outcome, Probe, Request, TargetLayout};
use crate::scheme::SystemMetric;
use thermo_units::{Bytes, PAGE_SIZE};

/// Minimum time between the starts of two passes.
const PASS_INTERVAL: Nanos = Nanos::millis(125);

/// A machine on which every page is idle. Logs the calls.
#[derive(Default)]
struct IdleMachine {
    scanned: Vec<(TargetId, AddrRange)>,
    begun: Vec<TargetId>,
    /// Scans of less than this address end there.
    skips_to: Addr,
    is_joint: bool,
    /// Number of parts of a preparation that are in progress before it is ready.
    nr_parts: usize,
    /// The arguments of all calls of `prepare_passes`.
    prepared: Vec<bool>,
}

impl Operations for IdleMachine {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        unreachable!("the scheduler only scans")
    }
    fn prepare_access_checks(&mut self, _: &[Probe]) {
        unreachable!("the scheduler only scans")
    }
    fn check_accesses(&mut self, _: &mut [Probe]) {
        unreachable!("the scheduler only scans")
    }
    fn any_target_left(&mut self) -> bool {
        unreachable!("the scheduler only scans")
    }
    fn apply(&mut self, _: &Request<'_>) -> Result<Outcome, OpsError> {
        unreachable!("the scheduler only scans")
    }
    fn metric(&mut self, _: &SystemMetric) -> Result<u64, OpsError> {
        unreachable!("the scheduler only scans")
    }
    fn scans_jointly(&self) -> bool {
        self.is_joint
    }
    fn prepare_passes(&mut self, first: bool) -> Preparation {
        self.prepared.push(first);
        match self.prepared.len() % (self.nr_parts + 1) {
            0 => Preparation::Ready,
            part => Preparation::InProgress(Some(format!("part {part}"))),
        }
    }
    fn begin_pass(&mut self, target: TargetId) {
        self.begun.push(target);
    }
    fn scan(&mut self, run: &TargetRange, chunk: &mut ScanChunk) -> Addr {
        self.scanned.push((run.target, run.range));
        chunk.set_range(run.range, false);
        run.range.end.max(self.skips_to)
    }
}

impl IdleMachine {
    /// The scanned ranges since the last call.
    fn take_ranges(&mut self) -> Vec<AddrRange> {
        self.scanned.drain(..).map(|(_, range)| range).collect()
    }
}

/// A target without resident size, so that its weight is its mapped memory.
fn target(id: u32, ranges: &[(u64, u64)]) -> Target {
    let ranges = ranges.iter().map(|(start, end)| AddrRange::new(*start, *end));
    Target::new(
        TargetLayout::new(TargetId(id), None, ranges.collect()),
        Vec::new(),
    )
}

/// Two targets of one page each.
fn two_small() -> Vec<Target> {
    vec![target(0, &[(0, PAGE_SIZE)]), target(1, &[(0, PAGE_SIZE)])]
}

const WORKED: ScanProgress = ScanProgress::Worked(None);

#[test]
fn step_scans_about_a_chunk_up_to_chunk_borders() {
    let (first, second) = ((CHUNK / 2, 2 * CHUNK + 5 * PAGE_SIZE), (7 * CHUNK, 8 * CHUNK));
    let mut targets = [target(0, &[first, second])];
    let (mut scheduler, mut ops) = (Scheduler::default(), IdleMachine::default());
    let mut step = |targets: &mut [Target]| {
        assert_eq!(scheduler.scan_next(Nanos::ZERO, targets, &mut ops), WORKED);
        ops.take_ranges()
    };
    // Half a chunk is not enough for a step.
    let expected = [(CHUNK / 2, CHUNK), (CHUNK, 2 * CHUNK)].map(|(start, end)| AddrRange::new(start, end));
    assert_eq!(step(&mut targets), expected);
    assert_eq!(targets[0].cursor.reached(), Addr(2 * CHUNK));
    let expected = [(2 * CHUNK, first.1), second].map(|(start, end)| AddrRange::new(start, end));
    assert_eq!(step(&mut targets), expected);
    let scanned = Bytes(3 * CHUNK - CHUNK / 2 + 5 * PAGE_SIZE);
    assert_eq!(targets[0].cursor.scanned, scanned);
    assert_eq!(targets[0].states.nr_passes(), 0);
    assert_eq!(step(&mut targets), []);
    assert_eq!(targets[0].states.nr_passes(), 1);
    assert_eq!(targets[0].cursor.reached(), Addr(0), "between passes");
}

#[test]
fn step_scans_a_limited_number_of_small_mappings() {
    let mappings: Vec<(u64, u64)> = (0..40)
        .map(|nth| (nth * CHUNK, nth * CHUNK + PAGE_SIZE))
        .collect();
    let mut targets = [target(0, &mappings)];
    let (mut scheduler, mut ops) = (Scheduler::default(), IdleMachine::default());
    let counts = [0, 1].map(|_| {
        scheduler.scan_next(Nanos::ZERO, &mut targets, &mut ops);
        ops.take_ranges().len()
    });
    assert_eq!(counts, [MAX_RANGES, 40 - MAX_RANGES]);
    assert_eq!(targets[0].states.nr_passes(), 1);
}

#[test]
fn memory_that_a_scan_skips_is_not_scanned() {
    let mut targets = [target(0, &[(0, 3 * CHUNK)])];
    let mut ops = IdleMachine {
        skips_to: Addr(2 * CHUNK),
        ..IdleMachine::default()
    };
    let mut scheduler = Scheduler::default();
    for _ in 0..2 {
        scheduler.scan_next(Nanos::ZERO, &mut targets, &mut ops);
    }
    let expected = [(0, CHUNK), (2 * CHUNK, 3 * CHUNK)].map(|(start, end)| AddrRange::new(start, end));
    assert_eq!(ops.take_ranges(), expected);
    assert_eq!(targets[0].cursor.scanned, Bytes(2 * CHUNK));
}

#[test]
fn each_target_waits_for_its_own_next_pass() {
    let mut targets = two_small();
    let (mut scheduler, mut ops) = (Scheduler::default(), IdleMachine::default());
    let mut step = |targets: &mut [Target], ms| scheduler.scan_next(Nanos::millis(ms), targets, &mut ops);
    assert_eq!(step(&mut targets, 0), WORKED);
    assert_eq!(step(&mut targets, 10), WORKED);
    assert_eq!(step(&mut targets, 20), ScanProgress::WaitUntil(PASS_INTERVAL));
    assert_eq!(step(&mut targets, 125), WORKED);
    assert_eq!(
        step(&mut targets, 125),
        ScanProgress::WaitUntil(Nanos::millis(135))
    );
    assert_eq!(step(&mut targets, 135), WORKED);
    assert_eq!(ops.begun, [0, 1, 0, 1].map(TargetId));
    let scanned: Vec<TargetId> = ops.scanned.iter().map(|(id, _)| *id).collect();
    assert_eq!(scanned, ops.begun);
    assert_eq!(ops.prepared, [], "only joint passes are prepared");
}

#[test]
fn without_targets_there_is_nothing_to_wait_for() {
    for is_joint in [false, true] {
        let mut ops = IdleMachine {
            is_joint,
            ..IdleMachine::default()
        };
        let progress = Scheduler::default().scan_next(Nanos::ZERO, &mut [], &mut ops);
        assert_eq!(progress, ScanProgress::WaitUntil(Nanos::MAX));
    }
}

#[test]
fn target_with_smallest_virtual_time_is_next() {
    let mut targets = vec![target(0, &[(0, 9 * CHUNK)]), target(1, &[(0, 9 * CHUNK)])];
    let (mut scheduler, mut ops) = (Scheduler::default(), IdleMachine::default());
    targets
        .iter_mut()
        .for_each(|target| target.cursor.at = Some(Addr(0)));
    // A chunk of the first target costs three times as much as one of the second.
    for _ in 0..8 {
        scheduler.scan_next(Nanos::ZERO, &mut targets, &mut ops);
        let (id, _) = *ops.scanned.last().unwrap();
        let cost = if id == TargetId(0) { 300 } else { 100 };
        scheduler.charge(Nanos(cost), &mut targets);
    }
    let of_first = ops.scanned.iter().filter(|(id, _)| *id == TargetId(0)).count();
    assert_eq!((of_first, ops.scanned.len()), (2, 8), "{:?}", ops.scanned);
}

#[test]
fn cost_counts_half_evenly_half_by_size() {
    let mut targets = vec![target(0, &[(0, PAGE_SIZE)]), target(1, &[(0, 3 * PAGE_SIZE)])];
    let (mut scheduler, mut ops) = (Scheduler::default(), IdleMachine::default());
    scheduler.scan_next(Nanos::ZERO, &mut targets, &mut ops);
    // A half of a half, and a quarter of the other half: 3/8 of the budget.
    scheduler.charge(Nanos(3_000), &mut targets);
    scheduler.charge(Nanos(7_000), &mut targets);
    let times = |targets: &[Target]| [0, 1].map(|nth: usize| targets[nth].cursor.virtual_time);
    assert_eq!(times(&targets), [8_000, 0], "a step is charged once");
    scheduler.scan_next(Nanos::ZERO, &mut targets, &mut ops);
    scheduler.charge(Nanos(5_000), &mut targets);
    assert_eq!(times(&targets), [8_000, 8_000], "5/8 of the budget");
}

/// Whether a target waits whose pass began at 0 and ended at `ms`.
fn waits_after_pass_until(ms: u64) -> bool {
    let mut targets = [target(0, &[(0, CHUNK)])];
    let (mut scheduler, mut ops) = (Scheduler::default(), IdleMachine::default());
    scheduler.scan_next(Nanos::ZERO, &mut targets, &mut ops);
    scheduler.scan_next(Nanos::millis(ms), &mut targets, &mut ops);
    assert_eq!(targets[0].states.nr_passes(), 1);
    targets[0].cursor.waits
}

#[test]
fn target_waits_if_its_pass_took_less_than_the_interval() {
    assert_eq!([124, 125, 200].map(waits_after_pass_until), [true, false, false]);
}

#[test]
fn target_gets_no_credit_for_time_without_pass() {
    let mut ops = IdleMachine::default();
    let mut virtual_time_at_begin = |waits, began: Option<Nanos>| {
        let mut targets = two_small();
        (targets[1].cursor.waits, targets[1].cursor.began) = (waits, began);
        targets[1].cursor.virtual_time = 10;
        begin_pass(&mut targets[1], 1_000, Nanos::secs(9), &mut ops);
        assert_eq!(targets[1].cursor.began, Some(Nanos::secs(9)));
        targets[1].cursor.virtual_time
    };
    assert_eq!(virtual_time_at_begin(false, None), 1_000, "a new target");
    assert_eq!(virtual_time_at_begin(true, Some(Nanos::ZERO)), 1_000, "it waited");
    assert_eq!(virtual_time_at_begin(false, Some(Nanos::ZERO)), 10);
}

#[test]
fn joint_passes_begin_together_once_prepared() {
    let mut targets = vec![target(0, &[(0, PAGE_SIZE)]), target(1, &[(0, 2 * CHUNK)])];
    let mut scheduler = Scheduler::default();
    let mut ops = IdleMachine {
        is_joint: true,
        nr_parts: 2,
        ..IdleMachine::default()
    };
    let warning = |text: &str| ScanProgress::Worked(Some(text.to_owned()));
    let expected = [warning("part 1"), warning("part 2"), WORKED];
    let prepare = |scheduler: &mut Scheduler, targets: &mut [Target], ops: &mut IdleMachine, now| {
        [0, 1, 2].map(|_| scheduler.scan_next(now, targets, ops))
    };
    assert_eq!(
        prepare(&mut scheduler, &mut targets, &mut ops, Nanos::ZERO),
        expected
    );
    assert_eq!(ops.begun, [0, 1].map(TargetId));
    assert_eq!(ops.scanned, []);
    // The pass over the small target is long over when that over the large one ends.
    for _ in 0..4 {
        assert_eq!(
            scheduler.scan_next(Nanos::millis(124), &mut targets, &mut ops),
            WORKED
        );
    }
    let scanned: Vec<u32> = ops.scanned.iter().map(|(id, _)| id.0).collect();
    assert_eq!(scanned, [0, 1, 1]);
    let progress = scheduler.scan_next(Nanos::millis(124), &mut targets, &mut ops);
    assert_eq!(progress, ScanProgress::WaitUntil(PASS_INTERVAL));
    assert_eq!(
        prepare(&mut scheduler, &mut targets, &mut ops, PASS_INTERVAL),
        expected
    );
    assert_eq!(ops.begun, [0, 1, 0, 1].map(TargetId));
    assert_eq!(ops.prepared, [true, false, false, true, false, false]);
}

#[test]
fn ended_joint_pass_waits_for_the_others() {
    let mut targets = vec![target(0, &[(0, PAGE_SIZE)]), target(1, &[(0, 2 * CHUNK)])];
    let mut scheduler = Scheduler::default();
    let mut ops = IdleMachine {
        is_joint: true,
        ..IdleMachine::default()
    };
    for at in [0, 0, 500, 900, 901] {
        assert_eq!(
            scheduler.scan_next(Nanos::millis(at), &mut targets, &mut ops),
            WORKED
        );
    }
    assert_eq!(ops.begun, [0, 1].map(TargetId), "{:?}", ops.scanned);
    assert_eq!(targets[1].states.nr_passes(), 1);
    assert_eq!(
        scheduler.scan_next(Nanos::millis(901), &mut targets, &mut ops),
        WORKED
    );
    assert_eq!(ops.begun, [0, 1, 0, 1].map(TargetId));
}
