//! Examples of quotas, priorities and goals.

use crate::bench::{Bench, region};
use thermo_engine::scheme::{Goal, GoalTuner, Quota, Scheme, SystemMetric, Weights};
use thermo_engine::{Action, Attrs, TargetId};
use thermo_units::{Bytes, Nanos, PAGE_SIZE};

fn pages(n: u64) -> Bytes {
    Bytes(n * PAGE_SIZE)
}

/// A quota of `n` pages in each second.
fn quota(n: u64) -> Quota {
    Quota {
        sz: pages(n),
        reset_interval: Nanos::secs(1),
        ..Quota::default()
    }
}

#[test]
fn each_window_continues_at_last_position() {
    let scheme = Scheme {
        quota: quota(4),
        ..Scheme::new(Action::Willneed)
    };
    let mut bench = Bench::new(
        scheme,
        &[&[region(0, 3, 0, 7), region(3, 8, 0, 7)], &[region(0, 2, 0, 7)]],
    );
    assert_eq!(bench.ranges_at(Nanos::secs(0)), [(0, 0, 3), (0, 3, 4)]);
    assert_eq!(
        bench.ages(),
        [(0, 0), (3, 0), (4, 7), (0, 7)],
        "the region is split where the quota ended"
    );
    assert_eq!(bench.ranges_at(Nanos::millis(500)), [], "the window is used up");
    assert_eq!(bench.ranges_at(Nanos::secs(1)), [(0, 4, 8)]);
    assert_eq!(bench.ranges_at(Nanos::secs(2)), [(1, 0, 2), (0, 0, 2)]);
    // After merging, the region is split where the last window stopped.
    bench.targets[0].1 = vec![region(0, 8, 0, 7)];
    assert_eq!(bench.ranges_at(Nanos::secs(3)), [(0, 2, 6)]);
    assert_eq!(bench.ages(), [(0, 7), (2, 0), (6, 7), (0, 0)]);
    // The target in which the window stopped is gone: the next target follows.
    bench.targets.remove(0);
    assert_eq!(bench.ranges_at(Nanos::secs(4)), [(1, 0, 2)]);
    let stats = bench.states[0].stats();
    assert_eq!((stats.qt_exceeds, stats.sz_tried), (4, pages(18)));
    assert_eq!(stats.effective_sz, pages(4));
}

#[test]
fn held_target_keeps_its_ages_and_uses_no_quota() {
    for quota in [quota(4), Quota::default()] {
        let scheme = Scheme {
            quota,
            ..Scheme::new(Action::Pageout)
        };
        let mut bench = Bench::new(scheme, &[&[region(0, 4, 0, 7)], &[region(0, 4, 0, 7)]]);
        bench.machine.held = Some(TargetId(0));
        assert_eq!(bench.ranges_at(Nanos::secs(0)), [(1, 0, 4)]);
        assert_eq!(bench.ages(), [(0, 7), (0, 0)]);
        bench.machine.held = None;
        assert_eq!(bench.ranges_at(Nanos::secs(1)).first(), Some(&(0, 0, 4)));
    }
    let mut counting = Bench::new(Scheme::new(Action::Stat), &[&[region(0, 4, 0, 7)]]);
    counting.machine.held = Some(TargetId(0));
    counting.ranges_at(Nanos::secs(0));
    assert_eq!(
        counting.states[0].stats().sz_tried,
        pages(4),
        "what only counts goes on"
    );
}

#[test]
fn quota_rounds_down_to_pages() {
    let scheme = Scheme {
        quota: Quota {
            sz: Bytes(6000),
            ..quota(0)
        },
        ..Scheme::new(Action::Pageout)
    };
    let mut bench = Bench::new(scheme, &[&[region(0, 3, 0, 7)]]);
    assert_eq!(bench.ranges_at(Nanos::ZERO), [(0, 0, 1)]);
    let scheme = Scheme {
        quota: Quota {
            sz: Bytes(4095),
            ..quota(0)
        },
        ..Scheme::new(Action::Pageout)
    };
    let mut bench = Bench::new(scheme, &[&[region(0, 3, 0, 7)]]);
    assert_eq!(bench.ranges_at(Nanos::ZERO), []);
}

/// Regions of 3 pages, idle for 0, 2, 8, 32 and 2 s, and a hot region.
fn mixed(action: Action) -> Bench {
    let weights = Weights {
        sz: 0,
        nr_accesses: 3,
        age: 7,
    };
    let scheme = Scheme {
        quota: Quota { weights, ..quota(7) },
        ..Scheme::new(action)
    };
    let first = [region(0, 3, 0, 0), region(3, 6, 0, 20), region(6, 9, 0, 80)];
    let second = [
        region(20, 23, 0, 320),
        region(23, 26, 0, 20),
        region(26, 29, 20, 80),
    ];
    Bench::new(scheme, &[&first, &second])
}

#[test]
fn coldest_regions_go_first_at_any_address() {
    assert_eq!(
        mixed(Action::Pageout).ranges_at(Nanos::ZERO),
        [(1, 20, 23), (0, 6, 9), (0, 3, 4)]
    );
}

#[test]
fn hottest_regions_go_first() {
    assert_eq!(
        mixed(Action::LruPrio).ranges_at(Nanos::ZERO),
        [(1, 26, 29), (0, 0, 3), (0, 3, 4)]
    );
}

#[test]
fn address_order_decides_without_weights() {
    let mut bench = mixed(Action::Pageout);
    let scheme = Scheme {
        quota: quota(4),
        ..Scheme::new(Action::Pageout)
    };
    bench.states[0].commit(scheme, &Attrs::default(), 0);
    assert_eq!(bench.ranges_at(Nanos::ZERO), [(0, 0, 3), (0, 3, 4)]);
}

#[test]
fn time_quota_holds_over_many_windows() {
    // 100 us for a page and a quota of 1 % of a CPU allow 100 pages in each second. The first window has no
    // measurement yet.
    let time = Quota {
        time: Nanos::millis(10),
        reset_interval: Nanos::secs(1),
        ..Quota::default()
    };
    let scheme = Scheme {
        quota: time,
        ..Scheme::new(Action::Willneed)
    };
    let mut bench = Bench::new(scheme, &[&[region(0, 1 << 20, 0, 0)]]);
    bench.machine.cost_per_page = Nanos::micros(100);
    let mut done = Vec::new();
    for window in 0..200 {
        let pieces = bench.ranges_at(Nanos::secs(window));
        done.push(pieces.iter().map(|(_, start, end)| end - start).sum::<u64>());
    }
    // 40 MiB are 10240 pages and cost 1.024 s, which is the quota of the next 101 windows.
    assert_eq!(done[0], 10_240);
    assert!(done[1..=101].iter().all(|pages| *pages == 0), "{done:?}");
    assert_eq!(done[102], 60, "10 ms less the last 4 ms of debt");
    assert!(done[103..].iter().all(|pages| *pages == 100), "{done:?}");
    assert!(done.iter().sum::<u64>() <= 200 * 100);
}

#[test]
fn goal_raises_and_lowers_quota() {
    let goals = vec![Goal::UserInput {
        target: 10_000,
        current: 0,
    }];
    let scheme = Scheme {
        quota: Quota {
            goals,
            ..quota(1 << 20)
        },
        ..Scheme::new(Action::Willneed)
    };
    let mut bench = Bench::new(scheme, &[&[region(0, 100, 0, 0)]]);
    let mut sizes = Vec::new();
    for window in 0..20 {
        bench.set_user_input(if window < 16 { 0 } else { 15_000 });
        bench.apply_at(Nanos::secs(window));
        sizes.push(bench.states[0].stats().effective_sz.0);
    }
    // Starts at one byte and doubles in each window, then halves.
    assert_eq!(sizes[..4], [2, 4, 8, 16]);
    assert_eq!(sizes[15..], [65_536, 32_768, 16_384, 8_192, 4_096]);
    // 2^12 bytes in window 11, up to 2^16 in window 15, and down again.
    let tried: Vec<u64> = bench
        .tried
        .iter()
        .map(|t| t.iter().map(|t| t.target_range.range.len().0 / PAGE_SIZE).sum())
        .collect();
    assert_eq!(tried[10..], [0, 1, 2, 4, 8, 16, 8, 4, 2, 1]);
}

#[test]
fn unmeasurable_goal_is_warned_once_and_not_unlimited() {
    let goals = vec![Goal::Metric {
        metric: SystemMetric::SomeMemPsiUs,
        target: 10_000,
    }];
    let only_goal = Quota {
        goals,
        reset_interval: Nanos::secs(1),
        ..Quota::default()
    };
    let and_size = Quota {
        sz: pages(2),
        ..only_goal.clone()
    };
    for (quota, expected) in [(only_goal, vec![]), (and_size, vec![(0, 0, 2)])] {
        let mut bench = Bench::new(
            Scheme {
                quota,
                ..Scheme::new(Action::Pageout)
            },
            &[&[region(0, 9, 0, 0)]],
        );
        assert_eq!(bench.ranges_at(Nanos::secs(0)), expected);
        bench.ranges_at(Nanos::secs(1));
        assert_eq!(bench.warnings.len(), 1);
        assert!(
            bench.warnings[0].starts_with("scheme 0 (pageout): goal 0 is ignored"),
            "{:?}",
            bench.warnings
        );
    }
}

#[test]
fn temporal_tuner_stops_at_goal() {
    let goals = vec![Goal::Metric {
        metric: SystemMetric::SomeMemPsiUs,
        target: 1_000,
    }];
    let quota = Quota {
        goals,
        tuner: GoalTuner::Temporal,
        reset_interval: Nanos::secs(1),
        ..Quota::default()
    };
    let mut bench = Bench::new(
        Scheme {
            quota,
            ..Scheme::new(Action::Willneed)
        },
        &[&[region(0, 9, 0, 0)]],
    );
    let mut nr_ranges = Vec::new();
    for (window, total) in [500_000, 500_999, 502_000, 502_000].into_iter().enumerate() {
        bench.machine.metrics.insert(SystemMetric::SomeMemPsiUs, total);
        nr_ranges.push(bench.ranges_at(Nanos::secs(window as u64)).len());
    }
    assert_eq!(
        nr_ranges,
        [0, 1, 0, 1],
        "no score in the first window; then growth of 999, 1001 and 0 us"
    );
}
