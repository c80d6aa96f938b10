//! Schemes applied to regions: examples with values computed by hand, and property tests.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod bench;
#[path = "../common/mod.rs"]
mod common;
mod huge_pages;
mod migration;
mod properties;
mod quotas;
mod with_context;

use bench::{Bench, LoggedRequest, region};
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
fn matching_regions_share_one_request_and_restart_age() {
    let scheme = Scheme {
        pattern: idle_for(5),
        ..Scheme::new(Action::Pageout)
    };
    let first = [region(0, 10, 0, 5), region(10, 20, 3, 9), region(20, 30, 0, 4)];
    let mut bench = Bench::new(scheme, &[&first, &[region(7, 8, 0, 60)]]);
    assert_eq!(bench.ranges_at(Nanos::ZERO), [(0, 0, 10), (1, 7, 8)]);
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
        "ages before the action"
    );

    assert_eq!(
        bench.ranges_at(Nanos::millis(100)),
        [],
        "the ages are now too low"
    );
    assert!(
        bench.tried[1].is_empty(),
        "an event is emitted although nothing matched"
    );
}

#[test]
fn stat_changes_nothing() {
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
        (Bytes(20 * PAGE_SIZE), Bytes::ZERO)
    );
}

#[test]
fn failed_action_is_warned_once_and_changes_nothing() {
    let mut bench = Bench::new(Scheme::new(Action::MigrateCold), &[&[region(0, 10, 0, 5)]]);
    bench.machine.refuses = true;
    bench.apply_at(Nanos::ZERO);
    bench.apply_at(Nanos::millis(100));
    assert_eq!(
        bench.warnings,
        ["scheme 0 (migrate_cold): this is not supported: the test disables it"]
    );
    let stats = bench.states[0].stats();
    assert_eq!(
        (stats.nr_tried, stats.nr_applied, stats.sz_applied),
        (2, 0, Bytes::ZERO)
    );
    assert_eq!(bench.ages(), [(0, 5)]);
}

#[test]
fn cold_actions_skip_unknown_memory() {
    for (action, is_taken) in [
        (Action::Pageout, false),
        (Action::Cold, false),
        (Action::LruDeprio, false),
        (Action::MigrateCold, false),
        (Action::Willneed, true),
    ] {
        let mut unknown = region(0, 10, 0, 50);
        unknown.unknown = true;
        let mut bench = Bench::new(Scheme::new(action), &[&[unknown]]);
        assert_eq!(!bench.ranges_at(Nanos::ZERO).is_empty(), is_taken, "{action}");
    }
}

#[test]
fn address_filter_splits_regions_at_its_ends() {
    let range = AddrRange::new(4 * PAGE_SIZE, 15 * PAGE_SIZE);
    let mut scheme = Scheme::new(Action::Pageout);
    scheme.filters.core = vec![CoreFilter {
        kind: CoreFilterKind::Addr(range),
        matching: true,
        allow: true,
    }];
    let mut bench = Bench::new(scheme, &[&[region(0, 10, 0, 5), region(10, 20, 0, 9)]]);
    assert_eq!(bench.ranges_at(Nanos::ZERO), [(0, 4, 10), (0, 10, 15)]);
    assert_eq!(bench.ages(), [(0, 5), (4, 0), (10, 0), (15, 9)]);
}

#[test]
fn core_filter_allow_bypasses_ops_filters() {
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
    let request = |ranges: &[_], filtered| LoggedRequest {
        action: Action::Pageout,
        ranges: ranges.to_vec(),
        filtered,
    };
    assert_eq!(
        bench.apply_at(Nanos::ZERO),
        [
            request(&[(1, 5, 6)], false),
            request(&[(0, 0, 1), (2, 8, 9)], true)
        ]
    );
}

#[test]
fn watermarks_activate_scheme_and_pause_monitoring() {
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
    assert_eq!(
        bench.check_watermarks_at(Nanos::secs(1), 600),
        Some(Nanos::secs(6))
    );
    assert_eq!(bench.ranges_at(Nanos::secs(1)), []);
    assert_eq!(
        bench.check_watermarks_at(Nanos::secs(2), 300),
        Some(Nanos::secs(6)),
        "no check before the interval ends"
    );
    assert_eq!(
        bench.check_watermarks_at(Nanos::secs(6), 450),
        Some(Nanos::secs(11)),
        "inactive until below mid"
    );
    assert_eq!(bench.check_watermarks_at(Nanos::secs(11), 399), None);
    assert_eq!(bench.ranges_at(Nanos::secs(11)), [(0, 0, 10)]);
    assert_eq!(
        bench.check_watermarks_at(Nanos::secs(12), 500),
        None,
        "active up to high"
    );
    assert_eq!(
        bench.check_watermarks_at(Nanos::secs(13), 100),
        Some(Nanos::secs(18))
    );
    assert_eq!(bench.activity, [(0, false, 600), (0, true, 399), (0, false, 100)]);

    let other = Scheme::new(Action::Stat);
    bench.states.push(thermo_engine::scheme::SchemeState::new(other));
    assert_eq!(
        bench.check_watermarks_at(Nanos::secs(18), 100),
        None,
        "another scheme is active"
    );
}

#[test]
fn unreadable_watermark_metric_deactivates_scheme() {
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
fn finished_scheme_stops_but_monitoring_continues() {
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
    assert_eq!(bench.check_watermarks_at(Nanos::ZERO, 500), None);
}
