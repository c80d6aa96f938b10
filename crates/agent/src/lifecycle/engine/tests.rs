#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use super::*;

mod any_order;

/// A machine with this much anonymous memory in every application and this much swap.
struct Fixed {
    anon_rss: Option<Bytes>,
    swap: (Bytes, Bytes),
}

impl Facts for Fixed {
    fn anon_rss(&mut self, _: &str) -> Option<Bytes> {
        self.anon_rss
    }

    fn swap(&mut self) -> (Bytes, Bytes) {
        self.swap
    }
}

fn plenty() -> Fixed {
    Fixed {
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

fn set(engine: &mut Engine, app: &str, state: State, at: u64, facts: &mut Fixed) -> Kind {
    engine
        .hear(app, StateEvent::Set(state), Nanos::millis(at), facts)
        .unwrap();
    engine.why(app).unwrap().last().unwrap().kind
}

fn done(freed: Bytes, after: Bytes) -> Cost {
    Cost {
        freed,
        advised: freed,
        anon_rss_after: Some(after),
        ..Cost::of_nothing(End::Done)
    }
}

fn jobs(orders: &[Order]) -> Vec<u64> {
    orders.iter().map(Order::job).collect()
}

#[test]
fn an_application_that_is_put_away_is_reclaimed_from() {
    let mut engine = engine(&["a"], Rules::default());
    assert_eq!(
        set(&mut engine, "a", State::Foreground, 0, &mut plenty()),
        Kind::Nothing
    );
    assert_eq!(engine.orders(), []);
    let kind = set(&mut engine, "a", State::Cached, 5, &mut plenty());
    assert_eq!(kind, Kind::Reclaim(Profile::Full));
    let orders = engine.orders();
    let [
        Order::Reclaim {
            job,
            app,
            profile: Profile::Full,
            since,
        },
    ] = &orders[..]
    else {
        panic!("{orders:?}");
    };
    assert_eq!((app.as_str(), *since), ("a", Nanos::millis(5)));
    assert_eq!(engine.orders(), [], "an order is given once");
    engine.ended(*job, done(Bytes::mib(90), Bytes::mib(10)), Nanos::millis(500));
    let last = engine.why("a").unwrap().last().unwrap().clone();
    assert_eq!(last.cost.unwrap().freed, Bytes::mib(90));
    assert_eq!(engine.standings()[0].freed, Bytes::mib(90));
}

#[test]
fn unknown_applications_are_told() {
    let mut engine = engine(&["a"], Rules::default());
    let told = engine
        .hear("b", StateEvent::Idle(true), Nanos::ZERO, &mut plenty())
        .unwrap_err();
    assert!(told.to_string().contains("no application \"b\""), "{told}");
    assert!(engine.why("b").is_err());
}

#[test]
fn who_comes_back_stops_the_reclaim_and_has_its_working_set_brought_in() {
    let rules = Rules {
        prefetch: true,
        ..Rules::default()
    };
    let mut engine = engine(&["a"], rules);
    set(&mut engine, "a", State::Cached, 0, &mut plenty());
    let job = jobs(&engine.orders())[0];
    set(&mut engine, "a", State::Foreground, 10, &mut plenty());
    assert_eq!(engine.orders(), [Order::Cancel { job }]);
    let kinds: Vec<Kind> = engine.why("a").unwrap().map(|decision| decision.kind).collect();
    // Nothing is known of what it used.
    assert_eq!(kinds, [Kind::Reclaim(Profile::Full), Kind::Cancel, Kind::Nothing]);
    let cost = Cost {
        working_set: Some(Bytes::mib(9)),
        ..Cost::of_nothing(End::Cancelled)
    };
    engine.ended(job, cost, Nanos::millis(11));
    assert_eq!(
        engine
            .why("a")
            .unwrap()
            .next()
            .unwrap()
            .cost
            .as_ref()
            .unwrap()
            .end,
        End::Cancelled
    );
    set(&mut engine, "a", State::Cached, 20_000, &mut plenty());
    let job = jobs(&engine.orders())[0];
    assert_eq!(
        set(&mut engine, "a", State::Foreground, 20_001, &mut plenty()),
        Kind::Prefetch
    );
    assert_eq!(
        engine.orders(),
        [Order::Cancel { job }],
        "it waits for the reclaim to end"
    );
    engine.ended(job, Cost::of_nothing(End::Cancelled), Nanos::millis(20_002));
    let orders = engine.orders();
    assert!(matches!(orders[..], [Order::Prefetch { .. }]), "{orders:?}");
    set(&mut engine, "a", State::Cached, 20_003, &mut plenty());
    assert_eq!(
        engine.orders(),
        [Order::Cancel {
            job: jobs(&orders)[0]
        }]
    );
}

#[test]
fn who_comes_back_before_its_turn_is_left_alone() {
    let mut engine = engine(&["a", "b"], Rules::default());
    set(&mut engine, "a", State::Cached, 0, &mut plenty());
    set(&mut engine, "b", State::Cached, 1, &mut plenty());
    let first = jobs(&engine.orders())[0];
    set(&mut engine, "b", State::Foreground, 2, &mut plenty());
    engine.ended(first, done(Bytes::mib(1), Bytes::mib(99)), Nanos::millis(3));
    assert_eq!(engine.orders(), []);
    let told = engine
        .why("b")
        .unwrap()
        .find(|decision| matches!(decision.kind, Kind::Reclaim(_)));
    assert_eq!(told.unwrap().cost, Some(Cost::of_nothing(End::Cancelled)));
}

#[test]
fn who_was_used_longest_ago_comes_first_and_ranks_last() {
    let mut engine = engine(&["a", "b", "c"], Rules::default());
    for (app, at) in [("b", 1), ("c", 2), ("a", 3)] {
        set(&mut engine, app, State::Foreground, at, &mut plenty());
    }
    for (app, at) in [("c", 10), ("b", 11), ("a", 12)] {
        set(&mut engine, app, State::Cached, at, &mut plenty());
    }
    let ranks: Vec<Option<usize>> = engine.standings().into_iter().map(|one| one.rank).collect();
    assert_eq!(ranks, [Some(0), Some(1), Some(2)]);
    for app in ["c", "b", "a"] {
        let orders = engine.orders();
        assert!(
            matches!(&orders[..], [Order::Reclaim { app: of, .. }] if of == app),
            "{orders:?}"
        );
        engine.ended(
            jobs(&orders)[0],
            done(Bytes::ZERO, Bytes::mib(100)),
            Nanos::millis(20),
        );
    }
}

#[test]
fn every_interval_holds_and_what_it_put_off_is_thought_about_again() {
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
        let job = jobs(&engine.orders())[0];
        engine.ended(job, done(Bytes::mib(60), Bytes::mib(40)), Nanos::millis(1000));
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
            Kind::Defer(next)
        );
        assert_eq!(engine.orders(), []);
        let when = engine.next_wake().unwrap();
        assert_eq!(when, Nanos::millis(1000 + interval), "{last} then {next}");
        engine.due(when, &mut plenty());
        assert_eq!(engine.orders().len(), 1);
        assert_eq!(engine.next_wake(), None);
    }
}

#[test]
fn what_was_put_off_is_dropped_when_the_application_comes_back() {
    let mut engine = engine(&["a"], Rules::default());
    set(&mut engine, "a", State::Cached, 0, &mut plenty());
    let job = jobs(&engine.orders())[0];
    engine.ended(job, done(Bytes::mib(90), Bytes::mib(10)), Nanos::millis(1));
    set(&mut engine, "a", State::Foreground, 2, &mut plenty());
    assert_eq!(
        set(&mut engine, "a", State::Cached, 3, &mut plenty()),
        Kind::Defer(Profile::Full)
    );
    set(&mut engine, "a", State::Foreground, 4, &mut plenty());
    assert_eq!(engine.next_wake(), None);
}

#[test]
fn guards_say_no_on_one_side_of_their_number_and_yes_on_the_other() {
    let first = |facts: &mut Fixed, profile| {
        let mut engine = engine(
            &["a"],
            Rules {
                profile,
                ..Rules::default()
            },
        );
        set(&mut engine, "a", State::Cached, 0, facts)
    };
    let mut facts = plenty();
    for (anon_rss, kind) in [
        (Some(Bytes::mib(12)), Kind::Reclaim(Profile::Full)),
        (Some(Bytes(Bytes::mib(12).0 - 1)), Kind::Skip),
        (None, Kind::Skip),
    ] {
        facts.anon_rss = anon_rss;
        assert_eq!(first(&mut facts, Profile::Full), kind, "{anon_rss:?}");
    }
    assert_eq!(first(&mut facts, Profile::Some), Kind::Skip, "nobody is there");
    facts.anon_rss = Some(Bytes::mib(1));
    assert_eq!(first(&mut facts, Profile::Some), Kind::Reclaim(Profile::Some));
    facts.anon_rss = Some(Bytes::mib(100));
    for (free, full, anon) in [
        (
            Bytes::mib(200),
            Kind::Reclaim(Profile::Full),
            Kind::Reclaim(Profile::Anon),
        ),
        (Bytes::mib(199), Kind::Reclaim(Profile::Some), Kind::Skip),
    ] {
        facts.swap = (free, Bytes::mib(1000));
        assert_eq!(
            (first(&mut facts, Profile::Full), first(&mut facts, Profile::Anon)),
            (full, anon)
        );
    }
    facts.swap = (Bytes::ZERO, Bytes::ZERO);
    assert_eq!(first(&mut facts, Profile::Full), Kind::Reclaim(Profile::Some));
}

#[test]
fn memory_that_hardly_changed_is_not_gone_through_again() {
    for (now, kind) in [
        (Bytes::mib(47), Kind::Skip),
        (Bytes::mib(48), Kind::Reclaim(Profile::Full)),
        (Bytes::mib(32), Kind::Reclaim(Profile::Full)),
    ] {
        let mut engine = engine(&["a"], Rules::default());
        set(&mut engine, "a", State::Cached, 0, &mut plenty());
        let job = jobs(&engine.orders())[0];
        engine.ended(job, done(Bytes::mib(60), Bytes::mib(40)), Nanos::millis(1));
        set(&mut engine, "a", State::Foreground, 2, &mut plenty());
        let mut facts = Fixed {
            anon_rss: Some(now),
            ..plenty()
        };
        assert_eq!(
            set(&mut engine, "a", State::Cached, 60_000, &mut facts),
            kind,
            "{now}"
        );
    }
}

#[test]
fn a_described_application_that_goes_has_its_reclaim_stopped() {
    let mut engine = engine(&["a"], Rules::default());
    set(&mut engine, "a", State::Cached, 0, &mut plenty());
    let job = jobs(&engine.orders())[0];
    engine.configure([("b".to_owned(), Rules::default())], Nanos::millis(1));
    assert_eq!(engine.orders(), [Order::Cancel { job }]);
    engine.ended(job, Cost::of_nothing(End::Cancelled), Nanos::millis(2));
    set(&mut engine, "b", State::Cached, 3, &mut plenty());
    assert_eq!(engine.orders().len(), 1, "the way is free again");
}
