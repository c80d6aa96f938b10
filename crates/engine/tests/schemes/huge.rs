//! Actions on huge pages go by whole units of 2 MiB, and spend no quota on what is done already.

use crate::machine::{Bench, region};
use thermo_engine::scheme::{Quota, Scheme};
use thermo_engine::{Action, Region};
use thermo_units::{AddrRange, Bytes, Nanos, PAGE_SIZE};

/// Pages of a huge page.
const UNIT: u64 = 512;

fn unlimited(regions: &[Region]) -> Bench {
    Bench::new(Scheme::new(Action::Hugepage), &[regions])
}

#[test]
fn a_unit_across_neighbours_counts_once_and_one_that_reaches_out_not_at_all() {
    // Four small neighbours over units 0 and 1, the last of them reaching into unit 2.
    let mut bench = unlimited(&[
        region(0, 100, 9, 3),
        region(100, 600, 9, 3),
        region(600, 700, 9, 3),
        region(700, 1100, 9, 3),
        // Apart: unit 4 is in it but for a page.
        region(2049, 2560, 9, 3),
        region(3000, 4100, 9, 3),
    ]);
    assert_eq!(
        bench.pieces_at(Nanos::ZERO),
        [(0, 0, 512), (0, 512, 1024), (0, 3072, 4096)]
    );
    // What was acted on begins anew, also where it lies in several regions.
    let young: Vec<u64> = bench
        .ages()
        .into_iter()
        .filter(|(_, age)| *age == 0)
        .map(|(at, _)| at)
        .collect();
    assert_eq!(young, [0, 100, 512, 600, 700, 3072]);
}

#[test]
fn quotas_are_spent_in_whole_units_on_what_is_not_done() {
    let scheme = Scheme {
        quota: Quota {
            sz: Bytes::mib(5),
            reset_interval: Nanos::secs(1),
            ..Quota::default()
        },
        ..Scheme::new(Action::Collapse)
    };
    let mut bench = Bench::new(scheme, &[&[region(0, 8 * UNIT, 9, 3)]]);
    bench.machine.done = vec![AddrRange::new(0, 3 * UNIT * PAGE_SIZE)];
    assert_eq!(bench.pieces_at(Nanos::ZERO), [(0, 3 * UNIT, 5 * UNIT)]);
    assert_eq!(
        bench.pieces_at(Nanos::millis(500)),
        [],
        "less than a unit is left"
    );
    assert_eq!(bench.states[0].stats().sz_tried, Bytes::mib(4));
}

#[test]
fn what_is_done_is_not_asked_for_again() {
    let mut bench = unlimited(&[region(0, 4 * UNIT, 9, 3)]);
    bench.machine.done = vec![AddrRange::new(0, 4 * UNIT * PAGE_SIZE)];
    assert!(bench.apply_at(Nanos::ZERO).is_empty());
    assert_eq!(bench.ages(), [(0, 3)], "nothing was done to it");
}

#[test]
fn memory_of_which_nothing_is_known_keeps_its_huge_pages() {
    let unknown = Region {
        unknown: true,
        ..region(0, UNIT, 0, 9)
    };
    let mut bench = Bench::new(
        Scheme::new(Action::Nohugepage),
        &[&[unknown, region(2 * UNIT, 3 * UNIT, 0, 9)]],
    );
    assert_eq!(bench.pieces_at(Nanos::ZERO), [(0, 2 * UNIT, 3 * UNIT)]);
}

#[test]
fn a_note_of_the_machine_is_told_once() {
    let mut bench = unlimited(&[region(0, UNIT, 9, 3)]);
    bench.machine.notes = vec!["the flag stays".into()];
    for ms in [0, 100, 200] {
        bench.apply_at(Nanos::millis(ms));
    }
    assert_eq!(bench.warnings, ["scheme 0 (hugepage): the flag stays"]);
}
