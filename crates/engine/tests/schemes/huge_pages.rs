//! Actions on huge pages use whole units of 2 MiB, and skip units that are already in the wanted state.

use crate::bench::{Bench, region};
use thermo_engine::scheme::{Quota, Scheme};
use thermo_engine::{Action, Region};
use thermo_units::{AddrRange, Bytes, Nanos, PAGE_SIZE};

/// Pages in a huge page.
const UNIT: u64 = 512;

fn unlimited(regions: &[Region]) -> Bench {
    Bench::new(Scheme::new(Action::Hugepage), &[regions])
}

#[test]
fn huge_page_across_regions_is_taken_once() {
    // Four small adjacent regions over units 0 and 1. The last one extends into unit 2, which is not covered.
    let mut bench = unlimited(&[
        region(0, 100, 9, 3),
        region(100, 600, 9, 3),
        region(600, 700, 9, 3),
        region(700, 1100, 9, 3),
        // Not adjacent: covers unit 4 except for one page.
        region(2049, 2560, 9, 3),
        region(3000, 4100, 9, 3),
    ]);
    assert_eq!(
        bench.ranges_at(Nanos::ZERO),
        [(0, 0, 512), (0, 512, 1024), (0, 3072, 4096)]
    );
    // The ages of all regions that were acted on are 0.
    let young: Vec<u64> = bench
        .ages()
        .into_iter()
        .filter(|(_, age)| *age == 0)
        .map(|(at, _)| at)
        .collect();
    assert_eq!(young, [0, 100, 512, 600, 700, 3072]);
}

#[test]
fn quota_is_used_for_whole_pending_huge_pages() {
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
    assert_eq!(bench.ranges_at(Nanos::ZERO), [(0, 3 * UNIT, 5 * UNIT)]);
    assert_eq!(
        bench.ranges_at(Nanos::millis(500)),
        [],
        "the rest of the quota is less than a unit"
    );
    assert_eq!(bench.states[0].stats().sz_tried, Bytes::mib(4));
}

#[test]
fn done_huge_pages_are_not_requested_again() {
    let mut bench = unlimited(&[region(0, 4 * UNIT, 9, 3)]);
    bench.machine.done = vec![AddrRange::new(0, 4 * UNIT * PAGE_SIZE)];
    assert!(bench.apply_at(Nanos::ZERO).is_empty());
    assert_eq!(bench.ages(), [(0, 3)], "the region was not acted on");
}

#[test]
fn nohugepage_skips_unknown_memory() {
    let unknown = Region {
        unknown: true,
        ..region(0, UNIT, 0, 9)
    };
    let mut bench = Bench::new(
        Scheme::new(Action::Nohugepage),
        &[&[unknown, region(2 * UNIT, 3 * UNIT, 0, 9)]],
    );
    assert_eq!(bench.ranges_at(Nanos::ZERO), [(0, 2 * UNIT, 3 * UNIT)]);
}

#[test]
fn note_of_machine_is_warned_once() {
    let mut bench = unlimited(&[region(0, UNIT, 9, 3)]);
    bench.machine.notes = vec!["the flag stays".into()];
    for ms in [0, 100, 200] {
        bench.apply_at(Nanos::millis(ms));
    }
    assert_eq!(bench.warnings, ["scheme 0 (hugepage): the flag stays"]);
}
