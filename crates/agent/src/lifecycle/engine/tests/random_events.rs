//! Property test: random events in random command.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use super::*;
use crate::lifecycle::engine::app::MAX_DECISIONS;

fn any_event() -> impl Strategy<Value = StateEvent> {
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

    /// For any sequence of events: at most one job of each kind runs; no reclaim runs for an application in
    /// use after its cancel was executed; every command is returned once; every decision with a job gets a
    /// result; the log is bounded.
    #[test]
    fn orders_never_overlap_and_every_job_ends(
        events in prop::collection::vec((0..5_usize, any_event(), 0..4000_u64, any::<bool>()), 1..200),
        prefetch in any::<bool>(),
    ) {
        let names = ["a", "b", "c", "d", "e"];
        let mut engine = engine(&names, Rules { prefetch, background: Some(Profile::Some), ..Rules::default() });
        let mut memory = plenty();
        let (mut now, mut open): (u64, Vec<ExecutorCommand>) = (0, Vec::new());
        let mut seen = std::collections::BTreeSet::new();
        for (app, event, elapsed, ends) in events {
            now += elapsed;
            let at = Nanos::millis(now);
            engine.retry_deferred(at, &mut memory);
            engine.handle_event(names[app], event, at, &mut memory).unwrap();
            for command in engine.take_commands() {
                match command {
                    ExecutorCommand::Cancel { job } => {
                        prop_assert!(open.iter().any(|command| command.job() == job));
                        open.retain(|command| command.job() != job);
                        engine.job_ended(job, JobCost::zero(Outcome::Cancelled), at);
                    }
                    command => {
                        prop_assert!(seen.insert(command.job()));
                        open.push(command);
                    }
                }
            }
            let reclaims = open.iter().filter(|command| matches!(command, ExecutorCommand::Reclaim { .. })).count();
            prop_assert!(reclaims <= 1 && open.len() - reclaims <= 1);
            for command in &open {
                if let ExecutorCommand::Reclaim { app, .. } = command {
                    let status = engine.status();
                    let state = status.iter().find(|status| status.name == *app).unwrap().state;
                    prop_assert!(!state.is_in_use(), "{app} is {state}");
                }
            }
            if ends && !open.is_empty() {
                let job = open.remove(0).job();
                engine.job_ended(job, JobCost { working_set: Some(Bytes::mib(5)), ..done(Bytes::mib(1), Bytes::mib(50)) }, at);
            }
        }
        open.extend(engine.take_commands());
        while let Some(command) = open.pop() {
            engine.job_ended(command.job(), JobCost::zero(Outcome::Done), Nanos::millis(now));
            open.extend(engine.take_commands());
        }
        for name in names {
            let log: Vec<&Decision> = engine.decisions(name).unwrap().collect();
            prop_assert!(log.len() <= MAX_DECISIONS + 2);
            for decision in log {
                let has_job = matches!(decision.kind, DecisionKind::Reclaim(_) | DecisionKind::Prefetch);
                prop_assert_eq!(decision.cost.is_some(), has_job, "{:?}", decision);
            }
        }
    }
}
