//! Whatever is said, in whatever order.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use super::*;
use crate::lifecycle::engine::app::KEPT;

fn word() -> impl Strategy<Value = StateEvent> {
    prop_oneof![
        (0..4_usize).prop_map(|nth| StateEvent::Set(State::ALL[nth])),
        (-1000..=1000_i16).prop_map(StateEvent::OomScoreAdj),
        any::<bool>().prop_map(StateEvent::Frozen),
        any::<bool>().prop_map(StateEvent::Idle),
    ]
}

proptest! {
    #![proptest_config(Config {
        cases: 200,
        rng_seed: RngSeed::Fixed(7),
        failure_persistence: None,
        ..Config::default()
    })]

    /// Whatever is said in whatever order: one job of a kind at a time, none for an application that is in use once
    /// its cancel was heeded, every order given once, every job's decision closed, and no log without bounds.
    #[test]
    fn orders_never_overlap_and_every_job_ends(
        words in prop::collection::vec((0..5_usize, word(), 0..4000_u64, any::<bool>()), 1..200),
        prefetch in any::<bool>(),
    ) {
        let names = ["a", "b", "c", "d", "e"];
        let mut engine = engine(&names, Rules { prefetch, background: Some(Profile::Some), ..Rules::default() });
        let mut facts = plenty();
        let (mut now, mut open): (u64, Vec<Order>) = (0, Vec::new());
        let mut seen = std::collections::BTreeSet::new();
        for (app, word, passes, ends) in words {
            now += passes;
            let at = Nanos::millis(now);
            engine.due(at, &mut facts);
            engine.hear(names[app], word, at, &mut facts).unwrap();
            for order in engine.orders() {
                match order {
                    Order::Cancel { job } => {
                        prop_assert!(open.iter().any(|order| order.job() == job));
                        open.retain(|order| order.job() != job);
                        engine.ended(job, Cost::of_nothing(End::Cancelled), at);
                    }
                    order => {
                        prop_assert!(seen.insert(order.job()));
                        open.push(order);
                    }
                }
            }
            let reclaims = open.iter().filter(|order| matches!(order, Order::Reclaim { .. })).count();
            prop_assert!(reclaims <= 1 && open.len() - reclaims <= 1);
            for order in &open {
                if let Order::Reclaim { app, .. } = order {
                    let standings = engine.standings();
                    let state = standings.iter().find(|one| one.name == *app).unwrap().state;
                    prop_assert!(!state.is_in_use(), "{app} is {state}");
                }
            }
            if ends && !open.is_empty() {
                let job = open.remove(0).job();
                engine.ended(job, Cost { working_set: Some(Bytes::mib(5)), ..done(Bytes::mib(1), Bytes::mib(50)) }, at);
            }
        }
        open.extend(engine.orders());
        while let Some(order) = open.pop() {
            engine.ended(order.job(), Cost::of_nothing(End::Done), Nanos::millis(now));
            open.extend(engine.orders());
        }
        for name in names {
            let log: Vec<&Decision> = engine.why(name).unwrap().collect();
            prop_assert!(log.len() <= KEPT + 2);
            for decision in log {
                let has_job = matches!(decision.kind, Kind::Reclaim(_) | Kind::Prefetch);
                prop_assert_eq!(decision.cost.is_some(), has_job, "{:?}", decision);
            }
        }
    }
}
