#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use super::*;

mod random_events;

/// A machine where every application has the same anonymous memory.
struct FakeMemory {
    anon_rss: Option<Bytes>,
    swap: (Bytes, Bytes),
}

impl MemoryInfo for FakeMemory {
    fn anon_rss(&mut self, _: &str) -> Option<Bytes> {
        self.anon_rss
    }

    fn swap(&mut self) -> (Bytes, Bytes) {
        self.swap
    }
}

fn plenty() -> FakeMemory {
    FakeMemory {
        anon_rss: Some(Bytes::mib(100)),
        swap: (Bytes::gib(1), Bytes::gib(1)),
    }
}

fn engine(names: &[&str], rules: Rules) -> Engine {
    let mut engine = Engine::default();
    engine.configure(
        names.iter().map(|name| ((*name).to_owned(), rules.clone())),
        Nanos::ZERO,
    );
    engine
}

fn set(engine: &mut Engine, app: &str, state: State, at: u64, memory: &mut FakeMemory) -> DecisionKind {
    engine
        .handle_event(app, StateEvent::Set(state), Nanos::millis(at), memory)
        .unwrap();
    engine.decisions(app).unwrap().last().unwrap().kind
}

fn done(freed: Bytes, after: Bytes) -> JobCost {
    JobCost {
        freed,
        advised: freed,
        anon_rss_after: Some(after),
        ..JobCost::zero(Outcome::Done)
    }
}

fn jobs(commands: &[ExecutorCommand]) -> Vec<u64> {
    commands.iter().map(ExecutorCommand::job).collect()
}

#[test]
fn cached_app_is_reclaimed() {
    let mut engine = engine(&["a"], Rules::default());
    assert_eq!(
        set(&mut engine, "a", State::Foreground, 0, &mut plenty()),
        DecisionKind::Nothing
    );
    assert_eq!(engine.take_commands(), []);
    let kind = set(&mut engine, "a", State::Cached, 5, &mut plenty());
    assert_eq!(kind, DecisionKind::Reclaim(Profile::Full));
    let commands = engine.take_commands();
    let [
        ExecutorCommand::Reclaim {
            job,
            app,
            profile: Profile::Full,
            since,
        },
    ] = &commands[..]
    else {
        panic!("{commands:?}");
    };
    assert_eq!((app.as_str(), *since), ("a", Nanos::millis(5)));
    assert_eq!(engine.take_commands(), [], "a command is returned once");
    engine.job_ended(*job, done(Bytes::mib(90), Bytes::mib(10)), Nanos::millis(500));
    let last = engine.decisions("a").unwrap().last().unwrap().clone();
    assert_eq!(last.cost.unwrap().freed, Bytes::mib(90));
    assert_eq!(engine.status()[0].freed, Bytes::mib(90));
}

#[test]
fn event_for_unknown_app_is_an_error() {
    let mut engine = engine(&["a"], Rules::default());
    let error = engine
        .handle_event("b", StateEvent::Idle(true), Nanos::ZERO, &mut plenty())
        .unwrap_err();
    assert!(error.to_string().contains("no application \"b\""), "{error}");
    assert!(engine.decisions("b").is_err());
}

#[test]
fn returning_app_cancels_reclaim_and_prefetches_working_set() {
    let rules = Rules {
        prefetch: true,
        ..Rules::default()
    };
    let mut engine = engine(&["a"], rules);
    set(&mut engine, "a", State::Cached, 0, &mut plenty());
    let job = jobs(&engine.take_commands())[0];
    set(&mut engine, "a", State::Foreground, 10, &mut plenty());
    assert_eq!(engine.take_commands(), [ExecutorCommand::Cancel { job }]);
    let kinds: Vec<DecisionKind> = engine
        .decisions("a")
        .unwrap()
        .map(|decision| decision.kind)
        .collect();
    // The working set is not known yet.
    assert_eq!(
        kinds,
        [
            DecisionKind::Reclaim(Profile::Full),
            DecisionKind::Cancel,
            DecisionKind::Nothing
        ]
    );
    let cost = JobCost {
        working_set: Some(Bytes::mib(9)),
        ..JobCost::zero(Outcome::Cancelled)
    };
    engine.job_ended(job, cost, Nanos::millis(11));
    assert_eq!(
        engine
            .decisions("a")
            .unwrap()
            .next()
            .unwrap()
            .cost
            .as_ref()
            .unwrap()
            .outcome,
        Outcome::Cancelled
    );
    set(&mut engine, "a", State::Cached, 20_000, &mut plenty());
    let job = jobs(&engine.take_commands())[0];
    assert_eq!(
        set(&mut engine, "a", State::Foreground, 20_001, &mut plenty()),
        DecisionKind::Prefetch
    );
    assert_eq!(
        engine.take_commands(),
        [ExecutorCommand::Cancel { job }],
        "the prefetch waits for the end of the reclaim"
    );
    engine.job_ended(job, JobCost::zero(Outcome::Cancelled), Nanos::millis(20_002));
    let commands = engine.take_commands();
    assert!(
        matches!(commands[..], [ExecutorCommand::Prefetch { .. }]),
        "{commands:?}"
    );
    set(&mut engine, "a", State::Cached, 20_003, &mut plenty());
    assert_eq!(
        engine.take_commands(),
        [ExecutorCommand::Cancel {
            job: jobs(&commands)[0]
        }]
    );
}

#[test]
fn returning_app_cancels_queued_reclaim() {
    let mut engine = engine(&["a", "b"], Rules::default());
    set(&mut engine, "a", State::Cached, 0, &mut plenty());
    set(&mut engine, "b", State::Cached, 1, &mut plenty());
    let first = jobs(&engine.take_commands())[0];
    set(&mut engine, "b", State::Foreground, 2, &mut plenty());
    engine.job_ended(first, done(Bytes::mib(1), Bytes::mib(99)), Nanos::millis(3));
    assert_eq!(engine.take_commands(), []);
    let reclaim = engine
        .decisions("b")
        .unwrap()
        .find(|decision| matches!(decision.kind, DecisionKind::Reclaim(_)));
    assert_eq!(reclaim.unwrap().cost, Some(JobCost::zero(Outcome::Cancelled)));
}

#[test]
fn least_recently_used_app_is_reclaimed_first() {
    let mut engine = engine(&["a", "b", "c"], Rules::default());
    for (app, at) in [("b", 1), ("c", 2), ("a", 3)] {
        set(&mut engine, app, State::Foreground, at, &mut plenty());
    }
    for (app, at) in [("c", 10), ("b", 11), ("a", 12)] {
        set(&mut engine, app, State::Cached, at, &mut plenty());
    }
    let ranks: Vec<Option<usize>> = engine.status().into_iter().map(|app| app.rank).collect();
    assert_eq!(ranks, [Some(0), Some(1), Some(2)]);
    for app in ["c", "b", "a"] {
        let commands = engine.take_commands();
        assert!(
            matches!(&commands[..], [ExecutorCommand::Reclaim { app: reclaimed, .. }] if reclaimed == app),
            "{commands:?}"
        );
        engine.job_ended(
            jobs(&commands)[0],
            done(Bytes::ZERO, Bytes::mib(100)),
            Nanos::millis(20),
        );
    }
}

#[test]
fn early_reclaim_is_deferred_for_each_interval() {
    let intervals = [
        (Profile::File, Profile::Some, 5_000),
        (Profile::Some, Profile::Full, 10_000),
        (Profile::Full, Profile::Some, 500),
        (Profile::Anon, Profile::Full, 10_000),
    ];
    for (last, next, interval) in intervals {
        let mut engine = engine(
            &["a"],
            Rules {
                profile: last,
                ..Rules::default()
            },
        );
        set(&mut engine, "a", State::Cached, 0, &mut plenty());
        let job = jobs(&engine.take_commands())[0];
        engine.job_ended(job, done(Bytes::mib(60), Bytes::mib(40)), Nanos::millis(1000));
        engine.configure(
            [(
                "a".to_owned(),
                Rules {
                    profile: next,
                    ..Rules::default()
                },
            )],
            Nanos::millis(1000),
        );
        set(&mut engine, "a", State::Foreground, 1001, &mut plenty());
        let before = 1000 + interval - 1;
        assert_eq!(
            set(&mut engine, "a", State::Cached, before, &mut plenty()),
            DecisionKind::Defer(next)
        );
        assert_eq!(engine.take_commands(), []);
        let when = engine.next_wake().unwrap();
        assert_eq!(when, Nanos::millis(1000 + interval), "{last} then {next}");
        engine.retry_deferred(when, &mut plenty());
        assert_eq!(engine.take_commands().len(), 1);
        assert_eq!(engine.next_wake(), None);
    }
}

#[test]
fn returning_app_drops_deferred_reclaim() {
    let mut engine = engine(&["a"], Rules::default());
    set(&mut engine, "a", State::Cached, 0, &mut plenty());
    let job = jobs(&engine.take_commands())[0];
    engine.job_ended(job, done(Bytes::mib(90), Bytes::mib(10)), Nanos::millis(1));
    set(&mut engine, "a", State::Foreground, 2, &mut plenty());
    assert_eq!(
        set(&mut engine, "a", State::Cached, 3, &mut plenty()),
        DecisionKind::Defer(Profile::Full)
    );
    set(&mut engine, "a", State::Foreground, 4, &mut plenty());
    assert_eq!(engine.next_wake(), None);
}

#[test]
fn guards_skip_below_their_limits() {
    let first = |memory: &mut FakeMemory, profile| {
        let mut engine = engine(
            &["a"],
            Rules {
                profile,
                ..Rules::default()
            },
        );
        set(&mut engine, "a", State::Cached, 0, memory)
    };
    let mut memory = plenty();
    for (anon_rss, kind) in [
        (Some(Bytes::mib(12)), DecisionKind::Reclaim(Profile::Full)),
        (Some(Bytes(Bytes::mib(12).0 - 1)), DecisionKind::Skip),
        (None, DecisionKind::Skip),
    ] {
        memory.anon_rss = anon_rss;
        assert_eq!(first(&mut memory, Profile::Full), kind, "{anon_rss:?}");
    }
    assert_eq!(
        first(&mut memory, Profile::Some),
        DecisionKind::Skip,
        "no process runs"
    );
    memory.anon_rss = Some(Bytes::mib(1));
    assert_eq!(
        first(&mut memory, Profile::Some),
        DecisionKind::Reclaim(Profile::Some)
    );
    memory.anon_rss = Some(Bytes::mib(100));
    for (free, full, anon) in [
        (
            Bytes::mib(200),
            DecisionKind::Reclaim(Profile::Full),
            DecisionKind::Reclaim(Profile::Anon),
        ),
        (
            Bytes::mib(199),
            DecisionKind::Reclaim(Profile::Some),
            DecisionKind::Skip,
        ),
    ] {
        memory.swap = (free, Bytes::mib(1000));
        assert_eq!(
            (
                first(&mut memory, Profile::Full),
                first(&mut memory, Profile::Anon)
            ),
            (full, anon)
        );
    }
    memory.swap = (Bytes::ZERO, Bytes::ZERO);
    assert_eq!(
        first(&mut memory, Profile::Full),
        DecisionKind::Reclaim(Profile::Some)
    );
}

#[test]
fn reclaim_is_skipped_when_memory_hardly_changed() {
    for (now, kind) in [
        (Bytes::mib(47), DecisionKind::Skip),
        (Bytes::mib(48), DecisionKind::Reclaim(Profile::Full)),
        (Bytes::mib(32), DecisionKind::Reclaim(Profile::Full)),
    ] {
        let mut engine = engine(&["a"], Rules::default());
        set(&mut engine, "a", State::Cached, 0, &mut plenty());
        let job = jobs(&engine.take_commands())[0];
        engine.job_ended(job, done(Bytes::mib(60), Bytes::mib(40)), Nanos::millis(1));
        set(&mut engine, "a", State::Foreground, 2, &mut plenty());
        let mut memory = FakeMemory {
            anon_rss: Some(now),
            ..plenty()
        };
        assert_eq!(
            set(&mut engine, "a", State::Cached, 60_000, &mut memory),
            kind,
            "{now}"
        );
    }
}

#[test]
fn removing_app_from_config_cancels_its_reclaim() {
    let mut engine = engine(&["a"], Rules::default());
    set(&mut engine, "a", State::Cached, 0, &mut plenty());
    let job = jobs(&engine.take_commands())[0];
    engine.configure([("b".to_owned(), Rules::default())], Nanos::millis(1));
    assert_eq!(engine.take_commands(), [ExecutorCommand::Cancel { job }]);
    engine.job_ended(job, JobCost::zero(Outcome::Cancelled), Nanos::millis(2));
    set(&mut engine, "b", State::Cached, 3, &mut plenty());
    assert_eq!(engine.take_commands().len(), 1, "the next reclaim may start");
}
