//! Sampling on a simulated machine: snapshots match the accesses made, and invariants of regions hold for
//! random events.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use common::{idle_until, pages, run_until};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use thermo_engine::{Attrs, Context, Event, Region, TargetId};
use thermo_sim::{Machine, run};
use thermo_units::{Addr, AddrRange, Nanos, PAGE_SIZE};

/// The regions of one aggregation.
struct Snapshot {
    end: Nanos,
    targets: Vec<(TargetId, Vec<Region>)>,
}

/// A sink that keeps all aggregations.
fn keep_in(snapshots: &mut Vec<Snapshot>) -> impl FnMut(&Event<'_>) {
    |event| {
        if let Event::Aggregated { end, targets, .. } = event {
            let targets = targets.iter().map(|t| (t.id, t.regions.to_vec())).collect();
            snapshots.push(Snapshot { end: *end, targets });
        }
    }
}

const SPACE: (u64, u64) = (1000, 11_000);

/// Bytes of `snapshot` in regions accessed in at least a fifth of the access checks, and how many of these
/// bytes lie in `truth`.
fn hot_bytes(snapshot: &Snapshot, attrs: &Attrs, truth: AddrRange) -> (u64, u64) {
    let hot = snapshot.targets[0]
        .1
        .iter()
        .filter(|r| r.nr_accesses * 5 >= attrs.max_nr_accesses());
    hot.fold((0, 0), |(found, correct), region| {
        let overlap = region.range.intersection(&truth).map_or(0, |both| both.len().0);
        (found + region.len().0, correct + overlap)
    })
}

#[test]
fn sampling_finds_and_follows_hot_range() {
    let attrs = Attrs {
        max_nr_regions: 200,
        ..Attrs::default()
    };
    let mut machine = Machine::new();
    let id = machine.spawn(&[pages(SPACE.0, SPACE.1)]);
    let (first, second) = (pages(3000, 4000), pages(8000, 9000));
    let mut context = Context::new(attrs, 42).unwrap();
    let mut snapshots = Vec::new();
    run_until(
        &mut context,
        &mut machine,
        &mut keep_in(&mut snapshots),
        Nanos::secs(20),
        |machine, now| {
            machine.touch(id, if now < Nanos::secs(10) { first } else { second });
        },
    );
    for (at, truth) in [(Nanos::secs(9), first), (Nanos::secs(19), second)] {
        let snapshot = snapshots
            .iter()
            .rev()
            .find(|s| s.end <= at + Nanos::millis(100))
            .unwrap();
        let (found, correct) = hot_bytes(snapshot, &attrs, truth);
        assert!(
            correct * 100 >= truth.len().0 * 95,
            "recall at {at}: {correct} of {}",
            truth.len().0
        );
        assert!(
            correct * 100 >= found * 90,
            "precision at {at}: {correct} of {found}"
        );
    }
}

#[test]
fn same_seed_gives_same_snapshots() {
    let snapshots_with = |seed| {
        let mut machine = Machine::new();
        let id = machine.spawn(&[pages(SPACE.0, SPACE.1)]);
        let mut context = Context::new(Attrs::default(), seed).unwrap();
        let mut snapshots = Vec::new();
        let hot = pages(2000, 2500);
        run_until(
            &mut context,
            &mut machine,
            &mut keep_in(&mut snapshots),
            Nanos::secs(2),
            |machine, _| {
                machine.touch(id, hot);
            },
        );
        snapshots.into_iter().map(|s| s.targets).collect::<Vec<_>>()
    };
    assert_eq!(snapshots_with(7), snapshots_with(7));
    assert_ne!(snapshots_with(7), snapshots_with(8));
}

#[test]
fn idle_regions_age_and_access_resets_age() {
    let attrs = Attrs::default();
    let mut machine = Machine::new();
    let id = machine.spawn(&[pages(SPACE.0, SPACE.1)]);
    let mut context = Context::new(attrs, 1).unwrap();
    let mut snapshots = Vec::new();
    run_until(
        &mut context,
        &mut machine,
        &mut keep_in(&mut snapshots),
        Nanos::secs(6),
        |machine, now| {
            if now >= Nanos::secs(5) {
                machine.touch(id, pages(SPACE.0, SPACE.1));
            }
        },
    );
    let lowest_age = |at: Nanos| {
        let snapshot = snapshots.iter().rev().find(|s| s.end <= at).unwrap();
        snapshot.targets[0].1.iter().map(|r| r.age).min().unwrap()
    };
    assert!(
        lowest_age(Nanos::millis(4_950)) >= 45,
        "{}",
        lowest_age(Nanos::millis(4_950))
    );
    assert!(
        lowest_age(Nanos::millis(5_900)) <= 9,
        "{}",
        lowest_age(Nanos::millis(5_900))
    );
}

#[test]
fn shared_memory_is_unknown_not_cold() {
    let mut machine = Machine::new();
    let id = machine.spawn(&[pages(SPACE.0, SPACE.1)]);
    let shared = pages(1000, 6000);
    machine.change(id, shared, |page| page.shared = true);
    let mut context = Context::new(Attrs::default(), 3).unwrap();
    let mut snapshots = Vec::new();
    idle_until(
        &mut context,
        &mut machine,
        &mut keep_in(&mut snapshots),
        Nanos::secs(5),
    );
    let last = &snapshots.last().unwrap().targets[0].1;
    let unknown: u64 = last.iter().filter(|r| r.unknown).map(|r| r.len().0).sum();
    let looks_cold: u64 = last
        .iter()
        .filter(|r| !r.unknown && r.range.overlaps(&shared))
        .map(|r| r.len().0)
        .sum();
    assert!(
        unknown * 10 >= shared.len().0 * 9,
        "{unknown} of {}",
        shared.len().0
    );
    assert!(
        looks_cold * 10 <= shared.len().0,
        "{looks_cold} bytes of shared memory look cold"
    );
}

#[test]
fn context_ends_with_its_last_target() {
    let mut machine = Machine::new();
    let first = machine.spawn(&[pages(0, 100)]);
    let mut second = None;
    let mut context = Context::new(Attrs::default(), 3).unwrap();
    let mut events = Vec::new();
    let mut sink = |event: &Event<'_>| match event {
        Event::TargetAppeared { id, .. } => events.push((id.0, true)),
        Event::TargetGone { id, .. } => events.push((id.0, false)),
        _ => {}
    };
    let ended = run_until(
        &mut context,
        &mut machine,
        &mut sink,
        Nanos::secs(60),
        |machine, now| {
            if now > Nanos::secs(2) && second.is_none() {
                second = Some(machine.spawn(&[pages(500, 600)]));
            }
            if now > Nanos::secs(5) {
                machine.kill(first);
            }
            if now > Nanos::secs(9) {
                machine.kill(second.unwrap());
            }
        },
    );
    assert_eq!(events, [(0, true), (1, true), (0, false), (1, false)]);
    assert!(ended < Nanos::secs(12), "{ended}");
}

#[test]
fn set_attrs_converts_ages_and_applies_bounds() {
    let mut machine = Machine::new();
    let id = machine.spawn(&[pages(SPACE.0, SPACE.1)]);
    let mut context = Context::new(Attrs::default(), 3).unwrap();
    let mut snapshots = Vec::new();
    let touch = |machine: &mut Machine, _| machine.touch(id, pages(1000, 2000));
    let now = run_until(
        &mut context,
        &mut machine,
        &mut keep_in(&mut snapshots),
        Nanos::secs(5),
        touch,
    );
    let slower = Attrs {
        sample: Nanos::millis(20),
        aggr: Nanos::secs(1),
        max_nr_regions: 20,
        ..*context.attrs()
    };
    assert!(
        context
            .set_attrs(Attrs {
                max_nr_regions: 2,
                ..slower
            })
            .is_err()
    );
    assert_eq!(context.attrs(), &Attrs::default());
    context.set_attrs(slower).unwrap();
    let highest_age: u32 = context
        .targets()
        .flat_map(|t| t.regions.to_vec())
        .map(|r| r.age)
        .max()
        .unwrap();
    assert!(
        (3..=5).contains(&highest_age),
        "50 aggregations of 100 ms are 4 to 5 of 1 s, not {highest_age}"
    );
    let mut after = Vec::new();
    run(
        &mut context,
        &mut machine,
        &mut keep_in(&mut after),
        now,
        now + Nanos::secs(10),
        touch,
    )
    .unwrap();
    assert!(
        (8..=10).contains(&after.len()),
        "{} aggregations of 1 s in 10 s",
        after.len()
    );
    assert!(after.iter().all(|s| s.targets[0].1.len() <= 20));
}

/// An event in the simulated process between two steps.
#[derive(Debug, Clone)]
enum MachineEvent {
    Touch(u64, u64),
    Map(u64, u64),
    Unmap(usize),
    Attrs(u64, usize),
}

fn machine_event() -> impl Strategy<Value = MachineEvent> {
    prop_oneof![
        8 => (0..2000_u64, 1..300_u64).prop_map(|(start, len)| MachineEvent::Touch(start, len)),
        1 => (0..20_u64, 1..90_u64).prop_map(|(slot, len)| MachineEvent::Map(slot, len)),
        1 => (0..20_usize).prop_map(MachineEvent::Unmap),
        1 => (1..9_u64, 10..60_usize).prop_map(|(sample, max)| MachineEvent::Attrs(sample, max)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, rng_seed: RngSeed::Fixed(7), ..ProptestConfig::default() })]

    /// Regions are sorted, disjoint and page-aligned. They cover exactly the mapped ranges after an update.
    /// Merging keeps the maximum number of regions.
    #[test]
    fn region_invariants_hold_for_random_events(seed: u64, events in prop::collection::vec(machine_event(), 1..200)) {
        let slot = |nth: u64, len: u64| pages(nth * 100, nth * 100 + len);
        let mut machine = Machine::new();
        let id = machine.spawn(&[slot(3, 50), slot(9, 100)]);
        let mut mapped = std::collections::BTreeMap::from([(3, 50), (9, 100)]);
        let attrs = Attrs { update: Nanos::millis(100), max_nr_regions: 40, ..Attrs::default() };
        let mut context = Context::new(attrs, seed).unwrap();
        let mut now = Nanos(0);
        for event in events {
            match event {
                MachineEvent::Touch(start, len) => machine.touch(id, pages(start, start + len)),
                MachineEvent::Map(nth, len) => {
                    if let std::collections::btree_map::Entry::Vacant(free) = mapped.entry(nth) {
                        free.insert(len);
                        machine.map(id, slot(nth, len));
                    }
                }
                MachineEvent::Unmap(nth) => {
                    if mapped.remove(&(nth as u64)).is_some() {
                        machine.unmap(id, Addr(nth as u64 * 100 * PAGE_SIZE));
                    }
                }
                MachineEvent::Attrs(sample, max_nr_regions) => {
                    let sample = Nanos::millis(sample);
                    context.set_attrs(Attrs { sample, max_nr_regions, ..*context.attrs() }).unwrap();
                }
            }
            let mut counts = Vec::new();
            let max = context.attrs().max_nr_regions;
            let mut sink = |event: &Event<'_>| {
                if let Event::Aggregated { targets, .. } = event {
                    counts.push(targets.iter().map(|t| t.regions.len()).sum::<usize>());
                }
            };
            now = run(&mut context, &mut machine, &mut sink, now, now + Nanos::millis(120), |_, _| {}).unwrap();
            // Regions of ranges that are not adjacent cannot be merged, and merging has a size limit.
            let floor = mapped.len() + context.attrs().min_nr_regions;
            prop_assert!(counts.iter().all(|count| *count <= max.max(2 * floor)), "{counts:?} over {max}");
            for target in context.targets() {
                let regions = target.regions;
                prop_assert!(regions.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
                prop_assert!(regions.iter().all(|r| !r.is_empty()
                    && r.range.start.0.is_multiple_of(PAGE_SIZE) && r.range.end.0.is_multiple_of(PAGE_SIZE)));
            }
        }
        // After one more update, the regions cover exactly the mapped ranges.
        run(&mut context, &mut machine, &mut |_: &Event<'_>| {}, now, now + Nanos::millis(250), |_, _| {}).unwrap();
        let covered: u64 = context.targets().flat_map(|t| t.regions).map(|r| r.len().0).sum();
        prop_assert_eq!(covered, mapped.values().sum::<u64>() * PAGE_SIZE);
    }
}
