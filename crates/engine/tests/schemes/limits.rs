//! Quotas, priorities and goals by example.

use crate::machine::{Bench, region};
use thermo_engine::scheme::{Goal, GoalTuner, Quota, Scheme, SystemMetric, Weights};
use thermo_engine::{Action, Attrs};
use thermo_units::{Bytes, Nanos, PAGE_SIZE};

fn pages(n: u64) -> Bytes {
    Bytes(n * PAGE_SIZE)
}

/// `n` pages a second.
fn quota(n: u64) -> Quota {
    Quota {
        sz: pages(n),
        reset_interval: Nanos::secs(1),
        ..Quota::default()
    }
}

#[test]
fn each_window_goes_on_where_the_last_one_stopped() {
    let scheme = Scheme {
        quota: quota(4),
        ..Scheme::new(Action::Willneed)
    };
    let mut bench = Bench::new(
        scheme,
        &[&[region(0, 3, 0, 7), region(3, 8, 0, 7)], &[region(0, 2, 0, 7)]],
    );
    assert_eq!(bench.pieces_at(Nanos::secs(0)), [(0, 0, 3), (0, 3, 4)]);
    assert_eq!(
        bench.ages(),
        [(0, 0), (3, 0), (4, 7), (0, 7)],
        "cut at the border of the quota"
    );
    assert_eq!(bench.pieces_at(Nanos::millis(500)), [], "the window is used up");
    assert_eq!(bench.pieces_at(Nanos::secs(1)), [(0, 4, 8)]);
    assert_eq!(bench.pieces_at(Nanos::secs(2)), [(1, 0, 2), (0, 0, 2)]);
    // Merging put the pieces together again: the region is cut where the last window stopped.
    bench.targets[0].1 = vec![region(0, 8, 0, 7)];
    assert_eq!(bench.pieces_at(Nanos::secs(3)), [(0, 2, 6)]);
    assert_eq!(bench.ages(), [(0, 7), (2, 0), (6, 7), (0, 0)]);
    // The target in which it stopped is gone: on to the next.
    bench.targets.remove(0);
    assert_eq!(bench.pieces_at(Nanos::secs(4)), [(1, 0, 2)]);
    let stats = bench.states[0].stats();
    assert_eq!((stats.qt_exceeds, stats.sz_tried), (4, pages(18)));
    assert_eq!(stats.effective_sz, pages(4));
}

#[test]
fn less_than_a_page_is_nothing() {
    let scheme = Scheme {
        quota: Quota {
            sz: Bytes(6000),
            ..quota(0)
        },
        ..Scheme::new(Action::Pageout)
    };
    let mut bench = Bench::new(scheme, &[&[region(0, 3, 0, 7)]]);
    assert_eq!(bench.pieces_at(Nanos::ZERO), [(0, 0, 1)]);
    let scheme = Scheme {
        quota: Quota {
            sz: Bytes(4095),
            ..quota(0)
        },
        ..Scheme::new(Action::Pageout)
    };
    let mut bench = Bench::new(scheme, &[&[region(0, 3, 0, 7)]]);
    assert_eq!(bench.pieces_at(Nanos::ZERO), []);
}

/// Regions of 3 pages that have been idle for 0, 2, 8, 32 and 2 s, and a hot one.
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
fn the_coldest_go_first_whatever_their_address() {
    assert_eq!(
        mixed(Action::Pageout).pieces_at(Nanos::ZERO),
        [(1, 20, 23), (0, 6, 9), (0, 3, 4)]
    );
}

#[test]
fn the_hottest_go_first() {
    assert_eq!(
        mixed(Action::LruPrio).pieces_at(Nanos::ZERO),
        [(1, 26, 29), (0, 0, 3), (0, 3, 4)]
    );
}

#[test]
fn without_weights_addresses_decide() {
    let mut bench = mixed(Action::Pageout);
    let scheme = Scheme {
        quota: quota(4),
        ..Scheme::new(Action::Pageout)
    };
    bench.states[0].commit(scheme, &Attrs::default(), 0);
    assert_eq!(bench.pieces_at(Nanos::ZERO), [(0, 0, 3), (0, 3, 4)]);
}

#[test]
fn time_spent_stays_within_its_share() {
    // 100 us a page, 1 % of a CPU: 100 pages a second. The first window does not know that yet.
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
        let pieces = bench.pieces_at(Nanos::secs(window));
        done.push(pieces.iter().map(|(_, start, end)| end - start).sum::<u64>());
    }
    // 40 MiB are 10240 pages and cost 1.024 s: the next 101 windows pay for it.
    assert_eq!(done[0], 10_240);
    assert!(done[1..=101].iter().all(|pages| *pages == 0), "{done:?}");
    assert_eq!(done[102], 60, "what is left of 10 ms after the last 4 ms of debt");
    assert!(done[103..].iter().all(|pages| *pages == 100), "{done:?}");
    assert!(done.iter().sum::<u64>() <= 200 * 100);
}

#[test]
fn a_goal_opens_and_closes_the_quota() {
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
    // From one byte doubled each window; then halved.
    assert_eq!(sizes[..4], [2, 4, 8, 16]);
    assert_eq!(sizes[15..], [65_536, 32_768, 16_384, 8_192, 4_096]);
    // 2^12 bytes in window 11 to 2^16 in window 15, and back.
    let tried: Vec<u64> = bench
        .tried
        .iter()
        .map(|t| t.iter().map(|t| t.run.range.len().0 / PAGE_SIZE).sum())
        .collect();
    assert_eq!(tried[10..], [0, 1, 2, 4, 8, 16, 8, 4, 2, 1]);
}

#[test]
fn a_goal_that_cannot_be_measured_is_said_once_and_never_means_no_limit() {
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
    for (quota, taken) in [(only_goal, vec![]), (and_size, vec![(0, 0, 2)])] {
        let mut bench = Bench::new(
            Scheme {
                quota,
                ..Scheme::new(Action::Pageout)
            },
            &[&[region(0, 9, 0, 0)]],
        );
        assert_eq!(bench.pieces_at(Nanos::secs(0)), taken);
        bench.pieces_at(Nanos::secs(1));
        assert_eq!(bench.warnings.len(), 1);
        assert!(
            bench.warnings[0].starts_with("scheme 0 (pageout): goal 0 is left out"),
            "{:?}",
            bench.warnings
        );
    }
}

#[test]
fn under_pressure_the_temporal_tuner_stops_at_once() {
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
    let mut taken = Vec::new();
    for (window, total) in [500_000, 500_999, 502_000, 502_000].into_iter().enumerate() {
        bench.machine.metrics.insert(SystemMetric::SomeMemPsiUs, total);
        taken.push(bench.pieces_at(Nanos::secs(window as u64)).len());
    }
    assert_eq!(
        taken,
        [0, 1, 0, 1],
        "nothing is known in the first window; growth of 999, 1001, 0 us"
    );
}
