//! The controller with tables made up minute by minute.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use super::*;
use crate::access_tables::age_bucket;
use crate::budget::Method;

const BOUND: SharePerMinute = SharePerMinute(2000);
const WORKING_SET: Bytes = Bytes(1_000_000_000);
/// The bound on the working set, in bytes a minute.
const ALLOWED: u64 = 2_000_000;

/// A controller and the time, with one target. Snapshots are taken once a second, passes take a second.
struct Bench {
    ages: AgeController,
    now: u64,
    pass: Nanos,
    texts: Vec<String>,
}

impl Bench {
    /// After the first snapshot, at second 0.
    fn new() -> Self {
        let mut bench = Self {
            ages: AgeController::default(),
            now: 0,
            pass: Nanos::secs(1),
            texts: Vec::new(),
        };
        bench.snapshot(&[]);
        bench
    }

    /// Takes snapshots for `seconds`. In each minute, `bytes` are accessed again after `age` seconds.
    fn run(&mut self, seconds: u64, reaccessed: &[(u64, u64)]) -> Option<u64> {
        for _ in 0..seconds {
            self.now += 1;
            self.snapshot(reaccessed);
        }
        self.age()
    }

    fn snapshot(&mut self, reaccessed: &[(u64, u64)]) {
        let mut tables = AccessTables::new(Method::Scan);
        tables.idle[0][0] = WORKING_SET;
        tables.idle[0][NR_AGES - 1] = Bytes::gib(10);
        tables.pass = self.pass;
        tables.nr_passes = self.now;
        for (age, bytes) in reaccessed {
            // Unevenly, as accesses come.
            let is_due = self.now.is_multiple_of(20);
            tables.reaccessed[age_bucket(Nanos::secs(*age))] = Bytes(if is_due { bytes / 3 } else { 0 });
        }
        let targets = [(TargetId(0), &tables)].into_iter();
        let decision = self.ages.observe(Nanos::secs(self.now), BOUND, targets);
        self.texts.extend(decision.map(|decision| decision.to_string()));
    }

    fn age(&self) -> Option<u64> {
        self.ages.age().map(|age| age.0 / Nanos::secs(1).0)
    }
}

#[test]
fn nothing_is_chosen_in_the_first_minutes() {
    let mut bench = Bench::new();
    assert_eq!(bench.run(179, &[(300, 1 << 40)]), None);
    assert_eq!(bench.ages.new_targets().count(), 1);
    assert_eq!(
        bench.texts,
        ["none: nothing is done in the first 3 min of a target, until its accesses are known"]
    );
    // Accesses of the first two minutes do not count.
    let mut bench = Bench::new();
    bench.run(120, &[(300, 1 << 40)]);
    assert_eq!(bench.run(60, &[]), Some(10));
    assert_eq!(bench.ages.new_targets().count(), 0);
}

#[test]
fn age_is_the_smallest_within_the_bound() {
    for (reaccessed, age) in [
        (&[(5, 1 << 40)][..], 10),
        (&[(20, ALLOWED * 2)], 30),
        (&[(20, ALLOWED * 2), (90, ALLOWED * 9 / 10)], 30),
        (&[(20, ALLOWED / 2), (90, ALLOWED * 2 / 3)], 30),
        (&[(20, ALLOWED / 3), (90, ALLOWED / 3)], 10),
        (&[(90, ALLOWED * 2)], 120),
        (&[(40_000, ALLOWED * 2)], 86_400),
    ] {
        let mut bench = Bench::new();
        assert_eq!(bench.run(300, reaccessed), Some(age), "{reaccessed:?}");
        assert_eq!(bench.run(3000, reaccessed), Some(age), "{reaccessed:?}");
        assert_eq!(bench.texts.len(), 2, "the age is stated once: {:?}", bench.texts);
    }
}

#[test]
fn nothing_is_done_if_every_age_is_beyond_the_bound() {
    let mut bench = Bench::new();
    assert_eq!(bench.run(1000, &[(100_000, ALLOWED * 2)]), None);
    assert_eq!(
        bench.texts[1],
        "none: 0.4%/min of 954 MiB were accessed again after 24 h, the bound is 0.2%/min"
    );
}

#[test]
fn burst_raises_the_age_after_a_minute_and_quiet_hours_lower_it() {
    let mut bench = Bench::new();
    assert_eq!(bench.run(3600, &[(20, ALLOWED * 2)]), Some(30));
    assert_eq!(bench.run(60, &[(400, ALLOWED * 5)]), Some(600));
    assert_eq!(
        bench.texts.last().unwrap(),
        "10 min (was 30 s): 1%/min of 954 MiB were accessed again after 5 min, the bound is 0.2%/min"
    );
    // The percentile forgives one of fifty minutes.
    assert_eq!(bench.run(60, &[(20, ALLOWED * 2)]), Some(30));
    assert_eq!(
        bench.texts.last().unwrap(),
        "30 s (was 10 min): the bound of 0.2%/min held at this age in 98 % of the last 60 minutes"
    );
    // Three of a hundred are too many, until they are too long ago.
    assert_eq!(bench.run(180, &[(400, ALLOWED * 5)]), Some(600));
    assert_eq!(bench.run(60 * 96, &[(20, ALLOWED * 2)]), Some(600));
    assert_eq!(bench.run(60 * 4, &[(20, ALLOWED * 2)]), Some(30));
}

#[test]
fn age_is_at_least_two_passes() {
    let mut bench = Bench::new();
    bench.pass = Nanos::secs(21);
    assert_eq!(bench.run(300, &[]), Some(60));
    assert_eq!(
        bench.texts[1],
        "1 min: a scan pass takes 21.0 s, so smaller ages are not exact"
    );
}

#[test]
fn accesses_during_a_pause_do_not_count() {
    let mut bench = Bench::new();
    assert_eq!(bench.run(300, &[]), Some(10));
    bench.ages.resume();
    bench.now += 1000;
    bench.run(1, &[(900, 1 << 40)]);
    assert_eq!(bench.run(120, &[]), Some(10));
}

#[test]
fn rates_of_longer_intervals_are_per_minute() {
    let mut ages = AgeController::default();
    let mut tables = AccessTables::new(Method::Scan);
    tables.idle[0][0] = WORKING_SET;
    for minute in 0..10 {
        tables.nr_passes = minute * 10;
        // Every five minutes, four times the bound of one.
        tables.reaccessed[age_bucket(Nanos::secs(20))] = Bytes(ALLOWED * 4);
        let targets = [(TargetId(0), &tables)].into_iter();
        ages.observe(Nanos::secs(minute * 300), BOUND, targets);
    }
    assert_eq!(ages.age(), Some(Nanos::secs(10)));
}

#[test]
fn new_targets_neither_count_nor_stop_the_others() {
    let mut ages = AgeController::default();
    let mut observe = |second: u64, with_new: bool| {
        let mut tables = AccessTables::new(Method::Scan);
        tables.idle[0][0] = WORKING_SET;
        tables.nr_passes = second;
        let mut new = tables;
        new.reaccessed[age_bucket(Nanos::secs(20))] = Bytes(ALLOWED * 10);
        let targets = [(TargetId(0), &tables), (TargetId(1), &new)];
        let shown = if with_new { 2 } else { 1 };
        ages.observe(Nanos::secs(second), BOUND, targets.into_iter().take(shown));
        (ages.age(), ages.new_targets().collect::<Vec<_>>())
    };
    (0..300).for_each(|second| drop(observe(second, false)));
    (300..400).for_each(|second| drop(observe(second, true)));
    assert_eq!(observe(400, true), (Some(Nanos::secs(10)), vec![TargetId(1)]));
    (401..600).for_each(|second| drop(observe(second, true)));
    assert_eq!(observe(600, true), (Some(Nanos::secs(30)), vec![]));
    observe(601, false);
    assert_eq!(
        observe(602, true).1,
        [TargetId(1)],
        "a target that comes back is new"
    );
}
