//! The loop on a simulated machine: does the picture match what was touched, and do the rules of regions hold
//! whatever happens?

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use common::{idle_until, pages, run_until};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use thermo_engine::{Attrs, Context, Event, Region, TargetId};
use thermo_sim::{Machine, run};
use thermo_units::{Addr, AddrRange, Nanos, PAGE_SIZE};

/// A snapshot as a test wants it.
struct Snapshot {
    end: Nanos,
    targets: Vec<(TargetId, Vec<Region>)>,
}

/// Keeps every aggregation.
fn keep(snapshots: &mut Vec<Snapshot>) -> impl FnMut(&Event<'_>) {
    |event| {
        if let Event::Aggregated { end, targets, .. } = event {
            let targets = targets.iter().map(|t| (t.id, t.regions.to_vec())).collect();
            snapshots.push(Snapshot { end: *end, targets });
        }
    }
}

const SPACE: (u64, u64) = (1000, 11_000);

/// Bytes of `snapshot` in regions accessed in at least a fifth of looks, and how many of them lie in `truth`.
fn hot_bytes(snapshot: &Snapshot, attrs: &Attrs, truth: AddrRange) -> (u64, u64) {
    let hot = snapshot.targets[0]
        .1
        .iter()
        .filter(|r| r.nr_accesses * 5 >= attrs.max_nr_accesses());
    hot.fold((0, 0), |(all, right), region| {
        let overlap = region.range.intersection(&truth).map_or(0, |both| both.len().0);
        (all + region.len().0, right + overlap)
    })
}

#[test]
fn a_hot_piece_is_found_and_followed() {
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
        &mut keep(&mut snapshots),
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
        let (found, right) = hot_bytes(snapshot, &attrs, truth);
        assert!(
            right * 100 >= truth.len().0 * 95,
            "recall at {at}: {right} of {}",
            truth.len().0
        );
        assert!(right * 100 >= found * 90, "precision at {at}: {right} of {found}");
    }
}

#[test]
fn the_same_seed_sees_the_same() {
    let picture = |seed| {
        let mut machine = Machine::new();
        let id = machine.spawn(&[pages(SPACE.0, SPACE.1)]);
        let mut context = Context::new(Attrs::default(), seed).unwrap();
        let mut snapshots = Vec::new();
        let hot = pages(2000, 2500);
        run_until(
            &mut context,
            &mut machine,
            &mut keep(&mut snapshots),
            Nanos::secs(2),
            |machine, _| {
                machine.touch(id, hot);
            },
        );
        snapshots.into_iter().map(|s| s.targets).collect::<Vec<_>>()
    };
    assert_eq!(picture(7), picture(7));
    assert_ne!(picture(7), picture(8));
}

#[test]
fn idle_memory_grows_old_and_a_touch_makes_it_young() {
    let attrs = Attrs::default();
    let mut machine = Machine::new();
    let id = machine.spawn(&[pages(SPACE.0, SPACE.1)]);
    let mut context = Context::new(attrs, 1).unwrap();
    let mut snapshots = Vec::new();
    run_until(
        &mut context,
        &mut machine,
        &mut keep(&mut snapshots),
        Nanos::secs(6),
        |machine, now| {
            if now >= Nanos::secs(5) {
                machine.touch(id, pages(SPACE.0, SPACE.1));
            }
        },
    );
    let youngest = |at: Nanos| {
        let snapshot = snapshots.iter().rev().find(|s| s.end <= at).unwrap();
        snapshot.targets[0].1.iter().map(|r| r.age).min().unwrap()
    };
    assert!(
        youngest(Nanos::millis(4_950)) >= 45,
        "{}",
        youngest(Nanos::millis(4_950))
    );
    assert!(
        youngest(Nanos::millis(5_900)) <= 9,
        "{}",
        youngest(Nanos::millis(5_900))
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
        &mut keep(&mut snapshots),
        Nanos::secs(5),
    );
    let last = &snapshots.last().unwrap().targets[0].1;
    let unknown: u64 = last.iter().filter(|r| r.unknown).map(|r| r.len().0).sum();
    let wrong: u64 = last
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
        wrong * 10 <= shared.len().0,
        "{wrong} bytes of shared memory look cold"
    );
}

#[test]
fn targets_come_and_go_and_the_last_one_ends_it() {
    let mut machine = Machine::new();
    let first = machine.spawn(&[pages(0, 100)]);
    let mut second = None;
    let mut context = Context::new(Attrs::default(), 3).unwrap();
    let mut told = Vec::new();
    let mut sink = |event: &Event<'_>| match event {
        Event::TargetAppeared { id, .. } => told.push((id.0, true)),
        Event::TargetGone { id, .. } => told.push((id.0, false)),
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
    assert_eq!(told, [(0, true), (1, true), (0, false), (1, false)]);
    assert!(ended < Nanos::secs(12), "{ended}");
}

#[test]
fn settings_change_in_the_middle() {
    let mut machine = Machine::new();
    let id = machine.spawn(&[pages(SPACE.0, SPACE.1)]);
    let mut context = Context::new(Attrs::default(), 3).unwrap();
    let mut snapshots = Vec::new();
    let touch = |machine: &mut Machine, _| machine.touch(id, pages(1000, 2000));
    let now = run_until(
        &mut context,
        &mut machine,
        &mut keep(&mut snapshots),
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
    let ages: u32 = context
        .targets()
        .flat_map(|t| t.regions.to_vec())
        .map(|r| r.age)
        .max()
        .unwrap();
    assert!(
        (3..=5).contains(&ages),
        "50 aggregations of 100 ms are 4 to 5 of 1 s, not {ages}"
    );
    let mut after = Vec::new();
    run(
        &mut context,
        &mut machine,
        &mut keep(&mut after),
        now,
        now + Nanos::secs(10),
        touch,
    )
    .unwrap();
    assert!(
        (8..=10).contains(&after.len()),
        "{} aggregations of a second in ten",
        after.len()
    );
    assert!(after.iter().all(|s| s.targets[0].1.len() <= 20));
}

/// Something that happens to the simulated process between two steps.
#[derive(Debug, Clone)]
enum Happening {
    Touch(u64, u64),
    Map(u64, u64),
    Unmap(usize),
    Attrs(u64, usize),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        8 => (0..2000_u64, 1..300_u64).prop_map(|(start, len)| Happening::Touch(start, len)),
        1 => (0..20_u64, 1..90_u64).prop_map(|(slot, len)| Happening::Map(slot, len)),
        1 => (0..20_usize).prop_map(Happening::Unmap),
        1 => (1..9_u64, 10..60_usize).prop_map(|(sample, max)| Happening::Attrs(sample, max)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, rng_seed: RngSeed::Fixed(7), ..ProptestConfig::default() })]

    /// Regions stay sorted, disjoint, page-aligned, within the mapped ranges and cover them; after merging
    /// there are never more than allowed; ages grow by at most one an aggregation.
    #[test]
    fn regions_keep_their_rules(seed: u64, happenings in prop::collection::vec(happening(), 1..200)) {
        let slot = |nth: u64, len: u64| pages(nth * 100, nth * 100 + len);
        let mut machine = Machine::new();
        let id = machine.spawn(&[slot(3, 50), slot(9, 100)]);
        let mut mapped = std::collections::BTreeMap::from([(3, 50), (9, 100)]);
        let attrs = Attrs { update: Nanos::millis(100), max_nr_regions: 40, ..Attrs::default() };
        let mut context = Context::new(attrs, seed).unwrap();
        let mut now = Nanos(0);
        for happening in happenings {
            match happening {
                Happening::Touch(start, len) => machine.touch(id, pages(start, start + len)),
                Happening::Map(nth, len) => {
                    if let std::collections::btree_map::Entry::Vacant(free) = mapped.entry(nth) {
                        free.insert(len);
                        machine.map(id, slot(nth, len));
                    }
                }
                Happening::Unmap(nth) => {
                    if mapped.remove(&(nth as u64)).is_some() {
                        machine.unmap(id, Addr(nth as u64 * 100 * PAGE_SIZE));
                    }
                }
                Happening::Attrs(sample, max) => {
                    let sample = Nanos::millis(sample);
                    context.set_attrs(Attrs { sample, max_nr_regions: max, ..*context.attrs() }).unwrap();
                }
            }
            let mut seen = Vec::new();
            let most = context.attrs().max_nr_regions;
            let mut sink = |event: &Event<'_>| {
                if let Event::Aggregated { targets, .. } = event {
                    seen.push(targets.iter().map(|t| t.regions.len()).sum::<usize>());
                }
            };
            now = run(&mut context, &mut machine, &mut sink, now, now + Nanos::millis(120), |_, _| {}).unwrap();
            // Ranges that do not touch cannot be merged, and no region grows past its size limit.
            let floor = mapped.len() + context.attrs().min_nr_regions;
            prop_assert!(seen.iter().all(|count| *count <= most.max(2 * floor)), "{seen:?} over {most}");
            for target in context.targets() {
                let regions = target.regions;
                prop_assert!(regions.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
                prop_assert!(regions.iter().all(|r| !r.is_empty()
                    && r.range.start.0.is_multiple_of(PAGE_SIZE) && r.range.end.0.is_multiple_of(PAGE_SIZE)));
            }
        }
        // After one more update the regions cover what is mapped, and nothing else.
        run(&mut context, &mut machine, &mut |_: &Event<'_>| {}, now, now + Nanos::millis(250), |_, _| {}).unwrap();
        let covered: u64 = context.targets().flat_map(|t| t.regions).map(|r| r.len().0).sum();
        prop_assert_eq!(covered, mapped.values().sum::<u64>() * PAGE_SIZE);
    }
}
