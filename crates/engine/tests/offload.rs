//! A context with offloaded monitoring only follows the offload and does not monitor or act itself.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use thermo_engine::ops::{Offload, Outcome, Probe, Request, Snapshot};
use thermo_engine::scheme::{SchemeStats, SystemMetric};
use thermo_engine::{
    Action, Attrs, Context, Event, Next, Operations, OpsError, Region, Scheme, TargetId, TargetLayout,
};
use thermo_units::{AddrRange, Bytes, Nanos};

/// An offload that always returns the same regions.
#[derive(Default)]
struct FakeOffload {
    commits: Vec<(Attrs, usize)>,
    nr_snapshots: u64,
}

const HOT: AddrRange = AddrRange::new(0x1000, 0x5000);

impl Operations for FakeOffload {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        let range = AddrRange::new(0x1000, 0x9000);
        Ok(vec![TargetLayout::new(TargetId(3), Some(77), vec![range])])
    }

    fn prepare_access_checks(&mut self, _probes: &[Probe]) {
        panic!("the offload makes access checks");
    }

    fn check_accesses(&mut self, _probes: &mut [Probe]) {
        panic!("the offload makes access checks");
    }

    fn as_offload(&mut self) -> Option<&mut dyn Offload> {
        Some(self)
    }

    fn any_target_left(&mut self) -> bool {
        true
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        panic!("the offload applies {}", request.action);
    }

    fn metric(&mut self, _metric: &SystemMetric) -> Result<u64, OpsError> {
        panic!("the offload reads metrics");
    }
}

impl Offload for FakeOffload {
    fn commit_parameters(&mut self, attrs: &Attrs, schemes: &[Scheme]) -> Result<(), OpsError> {
        self.commits.push((*attrs, schemes.len()));
        Ok(())
    }

    fn follow(&mut self) -> Result<Snapshot, OpsError> {
        self.nr_snapshots += 1;
        let taken = Nanos::millis(100 * self.nr_snapshots);
        let region = Region {
            nr_accesses: 18,
            age: 4,
            ..Region::new(HOT)
        };
        let stats = SchemeStats {
            // The scheme is applied in every second aggregation.
            nr_tried: self.nr_snapshots / 2,
            sz_applied: Bytes(4096),
            ..SchemeStats::default()
        };
        Ok(Snapshot {
            taken,
            next: taken + Nanos::millis(7),
            targets: vec![(TargetId(3), vec![region]), (TargetId(9), Vec::new())],
            schemes: vec![stats],
        })
    }
}

#[test]
fn context_follows_regions_stats_and_pace_of_offload() {
    let mut context = Context::new(Attrs::default(), 1).unwrap();
    context.set_schemes(vec![Scheme::new(Action::Pageout)]).unwrap();
    let mut offload = FakeOffload::default();
    let (mut spans, mut applied) = (Vec::new(), 0);
    let mut now = Nanos(0);
    for _ in 0..4 {
        let mut sink = |event: &Event<'_>| match event {
            Event::Aggregated {
                start, end, targets, ..
            } => {
                assert_eq!(targets[0].regions[0].nr_accesses, 18);
                assert_eq!((targets[0].regions[0].range, targets[0].regions[0].age), (HOT, 4));
                spans.push((*start, *end));
            }
            Event::SchemeApplied { stats, .. } => {
                assert_eq!(stats.sz_applied, Bytes(4096));
                applied += 1;
            }
            _ => {}
        };
        let Next::At(next) = context.step(now, &mut offload, &mut sink).unwrap() else {
            panic!("a target still lives");
        };
        now = next;
    }
    let ends: Vec<Nanos> = spans.iter().map(|span| span.1).collect();
    assert_eq!(ends, [100, 200, 300, 400].map(Nanos::millis));
    assert!(
        spans.windows(2).all(|two| two[0].1 == two[1].0),
        "aggregations leave no gap: {spans:?}"
    );
    assert_eq!(now, Nanos::millis(407), "the time that the offload returned");
    assert_eq!(applied, 2, "emitted only if the scheme was applied again");
    assert_eq!(
        offload.commits.len(),
        4,
        "settings are committed before each snapshot"
    );
    assert_eq!(offload.commits[0], (Attrs::default(), 1));
}

#[test]
fn changed_settings_reach_the_offload() {
    let mut context = Context::new(Attrs::default(), 1).unwrap();
    let mut offload = FakeOffload::default();
    let mut ignore = |_: &Event<'_>| {};
    context.step(Nanos(0), &mut offload, &mut ignore).unwrap();
    let slower = Attrs {
        aggr: Nanos::secs(1),
        ..Attrs::default()
    };
    context.set_attrs(slower).unwrap();
    context.set_schemes(vec![Scheme::new(Action::Cold)]).unwrap();
    context
        .step(Nanos::millis(107), &mut offload, &mut ignore)
        .unwrap();
    assert_eq!(offload.commits[1], (slower, 1));
}
