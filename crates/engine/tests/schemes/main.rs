//! Schemes applied to regions: examples with numbers worked out by hand, and rules that hold whatever the
//! regions are.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../common/mod.rs"]
mod common;
mod huge;
mod limits;
mod machine;
mod rules;
mod whole;

use machine::{Asked, Bench, region};
use thermo_engine::ops::Skip;
use thermo_engine::scheme::{
    AccessPattern, Age, Bounds, CoreFilter, CoreFilterKind, OpsFilter, OpsFilterKind, Rate, Scheme,
    WatermarkMetric, Watermarks,
};
use thermo_engine::{Action, TargetId};
use thermo_units::{AddrRange, Bytes, Nanos, PAGE_SIZE, Permille};

fn idle_for(aggrs: u32) -> AccessPattern {
    AccessPattern {
        nr_accesses: Bounds {
            min: Rate::Samples(0),
            max: Rate::Samples(0),
        },
        age: Bounds {
            min: Age::Aggrs(aggrs),
            max: Age::Time(Nanos::MAX),
        },
        ..AccessPattern::default()
    }
}

#[test]
fn everything_that_matches_is_asked_for_at_once_and_its_age_begins_anew() {
    let scheme = Scheme {
        pattern: idle_for(5),
        ..Scheme::new(Action::Pageout)
    };
    let first = [region(0, 10, 0, 5), region(10, 20, 3, 9), region(20, 30, 0, 4)];
    let mut bench = Bench::new(scheme, &[&first, &[region(7, 8, 0, 60)]]);
    assert_eq!(bench.pieces_at(Nanos::ZERO), [(0, 0, 10), (1, 7, 8)]);
    assert_eq!(bench.ages(), [(0, 0), (10, 9), (20, 4), (7, 0)]);

    let stats = bench.states[0].stats();
    assert_eq!((stats.nr_tried, stats.sz_tried), (2, Bytes(11 * PAGE_SIZE)));
    assert_eq!(
        (stats.nr_applied, stats.sz_applied),
        (2, Bytes(11 * PAGE_SIZE / 2))
    );
    assert_eq!(
        (stats.sz_changed, stats.nr_snapshots),
        (Bytes(11 * PAGE_SIZE / 2), 1)
    );
    assert_eq!(
        stats.effective_sz,
        Bytes::ZERO,
        "a scheme without a quota has none"
    );
    assert_eq!(bench.skipped, [(Skip::Young, Bytes(11 * PAGE_SIZE / 2))]);
    assert_eq!(
        bench.tried[0].iter().map(|tried| tried.age).collect::<Vec<_>>(),
        [5, 60],
        "as they were before"
    );

    assert_eq!(
        bench.pieces_at(Nanos::millis(100)),
        [],
        "the ages are too low now"
    );
    assert!(bench.tried[1].is_empty(), "that nothing matched is told too");
}

#[test]
fn looking_changes_nothing() {
    let mut bench = Bench::new(
        Scheme::new(Action::Stat),
        &[&[region(0, 10, 0, 5), region(10, 20, 3, 9)]],
    );
    assert_eq!(bench.apply_at(Nanos::ZERO), []);
    assert_eq!(bench.ages(), [(0, 5), (10, 9)]);
    let stats = bench.states[0].stats();
    assert_eq!((stats.nr_tried, stats.nr_applied), (2, 0));
    assert_eq!(
        (stats.sz_tried, stats.sz_ops_filter_passed),
        (Bytes(20 * PAGE_SIZE), Bytes(20 * PAGE_SIZE))
    );
}

#[test]
fn what_cannot_be_done_is_said_once_and_changes_nothing() {
    let mut bench = Bench::new(Scheme::new(Action::MigrateCold), &[&[region(0, 10, 0, 5)]]);
    bench.machine.refuses = true;
    bench.apply_at(Nanos::ZERO);
    bench.apply_at(Nanos::millis(100));
    assert_eq!(
        bench.warnings,
        ["scheme 0 (migrate_cold): this is not supported: a test said so"]
    );
    let stats = bench.states[0].stats();
    assert_eq!(
        (stats.nr_tried, stats.nr_applied, stats.sz_applied),
        (2, 0, Bytes::ZERO)
    );
    assert_eq!(bench.ages(), [(0, 5)]);
}

#[test]
fn unknown_memory_is_never_cold() {
    for (action, taken) in [
        (Action::Pageout, false),
        (Action::Cold, false),
        (Action::LruDeprio, false),
        (Action::MigrateCold, false),
        (Action::Willneed, true),
    ] {
        let mut unknown = region(0, 10, 0, 50);
        unknown.unknown = true;
        let mut bench = Bench::new(Scheme::new(action), &[&[unknown]]);
        assert_eq!(!bench.pieces_at(Nanos::ZERO).is_empty(), taken, "{action}");
    }
}

#[test]
fn an_address_filter_cuts_regions_where_it_ends() {
    let range = AddrRange::new(4 * PAGE_SIZE, 15 * PAGE_SIZE);
    let mut scheme = Scheme::new(Action::Pageout);
    scheme.filters.core = vec![CoreFilter {
        kind: CoreFilterKind::Addr(range),
        matching: true,
        allow: true,
    }];
    let mut bench = Bench::new(scheme, &[&[region(0, 10, 0, 5), region(10, 20, 0, 9)]]);
    assert_eq!(bench.pieces_at(Nanos::ZERO), [(0, 4, 10), (0, 10, 15)]);
    assert_eq!(bench.ages(), [(0, 5), (4, 0), (10, 0), (15, 9)]);
}

#[test]
fn what_a_core_filter_allows_the_ops_filters_are_not_asked_about() {
    let mut scheme = Scheme::new(Action::Pageout);
    scheme.filters.core = vec![CoreFilter {
        kind: CoreFilterKind::Target(TargetId(1)),
        matching: true,
        allow: true,
    }];
    scheme.filters.ops = vec![OpsFilter {
        kind: OpsFilterKind::Anon,
        matching: true,
        allow: false,
    }];
    let mut bench = Bench::new(
        scheme,
        &[
            &[region(0, 1, 0, 0)],
            &[region(5, 6, 0, 0)],
            &[region(8, 9, 0, 0)],
        ],
    );
    let asked = |pieces: &[_], filtered| Asked {
        action: Action::Pageout,
        pieces: pieces.to_vec(),
        filtered,
    };
    assert_eq!(
        bench.apply_at(Nanos::ZERO),
        [asked(&[(1, 5, 6)], false), asked(&[(0, 0, 1), (2, 8, 9)], true)]
    );
}

#[test]
fn watermarks_start_and_stop_a_scheme_and_let_monitoring_rest() {
    let watermarks = Watermarks {
        metric: WatermarkMetric::FreeMemRate,
        interval: Nanos::secs(5),
        high: Permille(500),
        mid: Permille(400),
        low: Permille(200),
    };
    let scheme = Scheme {
        watermarks,
        ..Scheme::new(Action::Pageout)
    };
    let mut bench = Bench::new(scheme, &[&[region(0, 10, 0, 5)]]);
    assert_eq!(bench.check_at(Nanos::secs(1), 600), Some(Nanos::secs(6)));
    assert_eq!(bench.pieces_at(Nanos::secs(1)), []);
    assert_eq!(
        bench.check_at(Nanos::secs(2), 300),
        Some(Nanos::secs(6)),
        "not before its interval is over"
    );
    assert_eq!(
        bench.check_at(Nanos::secs(6), 450),
        Some(Nanos::secs(11)),
        "not before mid"
    );
    assert_eq!(bench.check_at(Nanos::secs(11), 399), None);
    assert_eq!(bench.pieces_at(Nanos::secs(11)), [(0, 0, 10)]);
    assert_eq!(bench.check_at(Nanos::secs(12), 500), None, "not past high");
    assert_eq!(bench.check_at(Nanos::secs(13), 100), Some(Nanos::secs(18)));
    assert_eq!(bench.activity, [(0, false, 600), (0, true, 399), (0, false, 100)]);

    let other = Scheme::new(Action::Stat);
    bench.states.push(thermo_engine::scheme::SchemeState::new(other));
    assert_eq!(
        bench.check_at(Nanos::secs(18), 100),
        None,
        "another scheme is active"
    );
}

#[test]
fn watermarks_that_cannot_be_looked_at_keep_the_scheme_off() {
    let watermarks = Watermarks {
        metric: WatermarkMetric::FreeMemRate,
        interval: Nanos::secs(5),
        ..Watermarks::default()
    };
    let mut bench = Bench::new(
        Scheme {
            watermarks,
            ..Scheme::new(Action::Pageout)
        },
        &[],
    );
    let mut sink = |_: &thermo_engine::Event<'_>| {};
    let wait = thermo_engine::scheme::check_watermarks(
        &mut bench.states,
        Nanos::ZERO,
        &mut bench.machine,
        &mut sink,
    );
    assert_eq!(wait, Some(Nanos::secs(5)));
    assert!(!bench.states[0].is_active());
}

#[test]
fn a_scheme_that_ran_out_of_snapshots_stops_and_does_not_stop_monitoring() {
    let scheme = Scheme {
        max_nr_snapshots: 2,
        ..Scheme::new(Action::Willneed)
    };
    let mut bench = Bench::new(scheme, &[&[region(0, 10, 0, 5)]]);
    for _ in 0..4 {
        bench.apply_at(Nanos::ZERO);
    }
    assert_eq!(bench.states[0].stats().nr_tried, 2);
    assert!(!bench.states[0].is_active());
    assert_eq!(bench.check_at(Nanos::ZERO, 500), None);
}
