//! Migration on a simulated machine: quotas, order, goals and interleaving.

use thermo_engine::ops::{Request, Skip, TargetRange};
use thermo_engine::scheme::{
    Bounds, Destination, Goal, GoalTuner, Quota, Rate, Scheme, SystemMetric, Weights,
};
use thermo_engine::{Action, Attrs, Context, Event, Operations, TargetId};
use thermo_sim::{Machine, Page};
use thermo_units::{AddrRange, Bytes, Nanos, PAGE_SIZE, Permille};

use super::common::run_until;
use crate::bench::{Bench, region};

fn pages(start: u64, end: u64) -> AddrRange {
    AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE)
}

fn hot_to(nid: u32, quota_pages: u64) -> Scheme {
    Scheme {
        destinations: vec![Destination::only(nid)],
        quota: Quota {
            sz: Bytes(quota_pages * PAGE_SIZE),
            reset_interval: Nanos::secs(1),
            weights: Weights {
                sz: 0,
                nr_accesses: 1,
                age: 1,
            },
            ..Quota::default()
        },
        ..Scheme::new(Action::MigrateHot)
    }
}

#[test]
fn memory_on_its_node_does_not_use_up_quota() {
    let regions = [region(0, 10, 20, 5), region(10, 20, 5, 5)];
    let mut bench = Bench::new(hot_to(0, 12), &[&regions]);
    bench.machine.done = vec![pages(0, 8)];
    // The hottest memory is on the node already, but for two pages; the next hottest fills the quota.
    assert_eq!(bench.ranges_at(Nanos::ZERO), [(0, 8, 10), (0, 10, 20)]);
}

#[test]
fn quota_ends_at_border_of_huge_page_and_continues_there() {
    let regions = [region(100, 5000, 20, 5)];
    let mut bench = Bench::new(hot_to(0, 1000), &[&regions]);
    assert_eq!(bench.ranges_at(Nanos::ZERO), [(0, 100, 1024)]);
    assert!(
        bench.states[0].next_window_start().is_some(),
        "it continues with the rest"
    );
    bench.machine.done = vec![pages(100, 1024)];
    assert_eq!(bench.ranges_at(Nanos::secs(1))[0], (0, 1024, 1536));
}

fn two_nodes() -> (Machine, TargetId) {
    let mut machine = Machine::new();
    machine.nodes = [(0, Bytes(100 * PAGE_SIZE)), (1, Bytes(1000 * PAGE_SIZE))].into();
    let id = machine.spawn(&[pages(0, 200)]);
    machine.touch(id, pages(0, 200));
    machine.change(id, pages(0, 200), |page| page.node = 1);
    (machine, id)
}

#[test]
fn full_node_takes_no_more_and_interleaving_follows_weights() {
    let (mut machine, id) = two_nodes();
    let run = TargetRange {
        target: id,
        range: pages(0, 200),
    };
    let mut migrate = |destinations: &[Destination]| {
        let pending = machine.pending(Action::MigrateHot, destinations, &run);
        let request = Request {
            action: Action::MigrateHot,
            ranges: &[run],
            filters: &[],
            destinations,
        };
        let result = machine.apply(&request).map(|outcome| outcome.results[0].clone());
        (pending.len(), result)
    };
    let weights = [
        Destination { nid: 0, weight: 1 },
        Destination { nid: 1, weight: 3 },
    ];
    let (pending, result) = migrate(&weights);
    let result = result.unwrap();
    assert_eq!((pending, result.changed), (50, Some(Bytes(50 * PAGE_SIZE))));
    let (_, result) = migrate(&[Destination::only(0)]);
    let result = result.unwrap();
    assert_eq!(result.changed, Some(Bytes(50 * PAGE_SIZE)));
    assert!(
        result.skipped.contains(&(Skip::NodeFull, Bytes(100 * PAGE_SIZE))),
        "{result:?}"
    );
    let refused = migrate(&[Destination::only(7)]).1.unwrap_err().to_string();
    assert!(refused.contains("node 7"), "{refused}");
    assert_eq!(
        machine.count(id, pages(0, 200), |page: &Page| page.node == 0),
        100
    );
}

#[test]
fn node_goal_stops_migration() {
    let mut scheme = hot_to(0, 30);
    scheme.quota.tuner = GoalTuner::Temporal;
    scheme.quota.goals = vec![Goal::Metric {
        metric: SystemMetric::NodeMemUsedBp { nid: 0 },
        target: 9_000,
    }];
    let mut bench = Bench::new(scheme, &[&[region(0, 100, 20, 5)]]);
    for (at, used, nr_pages) in [(0, 0, 30), (1, 8_999, 30), (2, 9_000, 0)] {
        let metric = SystemMetric::NodeMemUsedBp { nid: 0 };
        bench.machine.metrics.insert(metric, used);
        let ranges = bench.ranges_at(Nanos::secs(at));
        let nr: u64 = ranges.iter().map(|(_, start, end)| end - start).sum();
        assert_eq!(nr, nr_pages, "{used} of 10000 used");
    }
}

/// Memory accessed in at least half of the access checks, which moves to node `nid` until `percent` of all
/// such memory is there.
fn hot_share_to(nid: u32, percent: u64) -> Scheme {
    let mut scheme = hot_to(nid, 20);
    scheme.pattern.nr_accesses = Bounds {
        min: Rate::Permille(Permille(500)),
        max: Rate::Permille(Permille(1000)),
    };
    scheme.quota.reset_interval = Nanos::millis(200);
    scheme.quota.tuner = GoalTuner::Temporal;
    scheme.quota.goals = vec![Goal::NodeEligibleMem {
        nid,
        target: percent * 100,
    }];
    scheme
}

#[test]
fn eligible_memory_goal_counts_pages_with_the_pattern_only() {
    let scheme = hot_share_to(0, 60);
    // 100 hot pages and, on node 0, 900 cold ones.
    let regions = [region(0, 100, 20, 5), region(100, 1000, 0, 5)];
    let mut bench = Bench::new(scheme, &[&regions]);
    for (at, near, nr_pages) in [(0, 0, 20), (1, 59, 20), (2, 60, 0), (3, 59, 20)] {
        bench.machine.on_node_0 = vec![pages(0, near), pages(100, 1000)];
        bench.machine.done = vec![pages(0, near)];
        let ranges = bench.ranges_at(Nanos::secs(at));
        let nr: u64 = ranges.iter().map(|(_, start, end)| end - start).sum();
        assert_eq!(nr, nr_pages, "{near} hot pages on node 0");
    }
    // Without hot memory in sight the goal has no value, and nothing moves.
    bench.targets[0].1 = vec![region(100, 1000, 0, 5)];
    assert!(bench.ranges_at(Nanos::secs(4)).is_empty());
    assert!(bench.warnings.is_empty(), "{:?}", bench.warnings);
}

#[test]
fn eligible_memory_goal_of_missing_node_is_ignored_with_a_warning() {
    let mut bench = Bench::new(hot_share_to(7, 60), &[&[region(0, 100, 20, 5)]]);
    bench.ranges_at(Nanos::ZERO);
    assert!(bench.warnings[0].contains("node 7"), "{:?}", bench.warnings);
}

/// Two schemes hold 70 % of the hot memory on node 0 and 30 % on node 1, whichever way it begins.
#[test]
fn eligible_memory_goals_divide_hot_memory_between_nodes() {
    let (all, hot) = (pages(1000, 9000), pages(3000, 6000));
    for begins_on in [0, 1] {
        let mut machine = Machine::new();
        machine.nodes = [(0, Bytes(9000 * PAGE_SIZE)), (1, Bytes(9000 * PAGE_SIZE))].into();
        let id = machine.spawn(&[all]);
        machine.touch(id, all);
        machine.change(id, all, |page| {
            (page.node, page.accessed) = (begins_on, false);
        });
        let mut context = Context::new(Attrs::default(), 7).unwrap();
        let schemes = [(0, 70), (1, 30)].map(|(nid, percent)| hot_share_to(nid, percent));
        context.set_schemes(schemes.into()).unwrap();
        let mut sink = |event: &Event<'_>| {
            if let Event::Warning { text, .. } = event {
                panic!("{text}");
            }
        };
        let touch = |machine: &mut Machine, _| machine.touch(id, hot);
        run_until(&mut context, &mut machine, &mut sink, Nanos::secs(60), touch);
        let near = machine.count(id, hot, |page| page.node == 0);
        let nr_hot = hot.len().0 / PAGE_SIZE;
        let is_divided = (66..=74).contains(&(100 * near / nr_hot));
        assert!(is_divided, "from node {begins_on}: {near} of {nr_hot}");
        let moved = |range| machine.count(id, range, |page| page.node != begins_on);
        let cold = moved(all) - moved(hot);
        assert!(cold < 100, "from node {begins_on}: {cold} cold pages moved");
    }
}
