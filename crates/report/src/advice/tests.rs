//! Advice for recordings whose truth is known.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use thermo_engine::access_tables::{AccessTables, Backing, NR_AGES, PageKind};
use thermo_recording::model::{SchemeApplied, Snapshot, Target};
use thermo_units::SharePerMinute;

use super::*;

const MIB: u64 = 1 << 20;

/// A part of a program's memory.
struct Part {
    mib: u64,
    kind: PageKind,
    /// Accessed again whenever so many seconds have passed; `None`: never.
    period_s: Option<u64>,
}

const fn part(mib: u64, backing: Backing, period_s: Option<u64>) -> Part {
    let kind = PageKind::new(backing, false);
    Part { mib, kind, period_s }
}

/// Records `parts` for so many seconds, with a snapshot and a pass a second.
fn records(parts: &[Part], seconds: u64) -> impl Iterator<Item = Record> {
    (1..=seconds).map(move |second| {
        let mut tables = AccessTables::new(Method::Scan);
        for part in parts {
            let idle = part.period_s.map_or(second, |period| second % period);
            tables.idle[part.kind.index()][age_bucket(Nanos::secs(idle))] += Bytes(part.mib * MIB);
            if let Some(period) = part.period_s.filter(|period| second.is_multiple_of(*period)) {
                tables.reaccessed[age_bucket(Nanos::secs(period))] += Bytes(part.mib * MIB);
            }
        }
        (tables.pass, tables.nr_passes) = (Nanos::secs(1), second);
        Record::Snapshot(Snapshot {
            start_ns: Nanos::secs(second - 1).0,
            time_ns: Nanos::secs(second).0,
            targets: vec![Target {
                tables: Some(Box::new(tables)),
                ..Target::default()
            }],
            ..Snapshot::default()
        })
    })
}

fn watch(parts: &[Part], seconds: u64) -> Watched {
    let mut accumulator = AdviceAccumulator::default();
    records(parts, seconds).for_each(|record| accumulator.add(&record));
    accumulator.finish()
}

fn question(samples: Vec<ContentSample>) -> Question {
    Question {
        bounds: Bounds {
            max_refaults: SharePerMinute(2000),
            min_net: 0.1,
        },
        samples,
        exclusive: Exclusive::default(),
        costs: None,
        swap: Some(SwapFacts {
            has_zram: true,
            ..SwapFacts::default()
        }),
    }
}

fn sample(algorithm: &str, share: f64) -> ContentSample {
    let stratum = |age| Stratum {
        backing: Backing::Anon,
        age,
        pages: 100,
        share: Interval {
            low: share - 0.02,
            mid: share,
            high: share + 0.02,
        },
    };
    ContentSample {
        algorithm: algorithm.to_owned(),
        strata: (0..NR_AGES).map(stratum).collect(),
        compress: Nanos(2000),
    }
}

fn row(advice: &Advice, min_age_s: u64) -> &Figures {
    let row = advice.table.iter().find(|row| row.min_age_s == min_age_s);
    row.and_then(|row| row.figures.as_ref()).unwrap()
}

const HOT: Part = part(50, Backing::Anon, Some(1));

#[test]
fn idle_memory_leaves_and_what_comes_back_counts() {
    let parts = [
        HOT,
        part(100, Backing::Anon, None),
        part(10, Backing::File, None),
        part(20, Backing::Anon, Some(60)),
    ];
    let advice = watch(&parts, 400).advise(&question(vec![sample("lz4", 0.3)]));
    let thirty = row(&advice, 30);
    // The periodic part is out for the second half of each minute less three passes, the rest always.
    let near = |bytes: u64, mib: u64| bytes.abs_diff(mib * MIB) < 3 * MIB / 2;
    assert!(near(thirty.leaves_bytes, 119), "{thirty:?}");
    let range = thirty.leaves_range_bytes;
    assert!(near(range.low, 109) && near(range.high, 129), "{range:?}");
    let refaults = thirty.refault_bytes_per_min;
    assert!(refaults.mid.abs_diff(20 * MIB) < 3 * MIB, "{refaults:?}");
    assert!(
        refaults.low < 20 * MIB && refaults.high > 20 * MIB,
        "{refaults:?}"
    );
    let minute = row(&advice, 120);
    assert_eq!(
        (minute.leaves_bytes, minute.leaves_file_bytes),
        (110 * MIB, 10 * MIB)
    );
    assert_eq!(minute.compressed_bytes.mid, 30 * MIB);
    assert_eq!(minute.net_saved_bytes.mid, 80 * MIB);
    assert_eq!(minute.refault_bytes_per_min.mid, 0);
    assert!(minute.refault_bytes_per_min.high > 0, "none seen is not none");
    assert_eq!((advice.advice.worth, advice.advice.min_age_s), (true, Some(120)));
    assert_eq!(advice.advice.net_saved_bytes, 80 * MIB);
    let swap = advice.swap.unwrap();
    assert_eq!(
        (swap.zram_bytes, swap.algorithm.as_deref()),
        (192 * MIB, Some("lz4"))
    );
}

#[test]
fn ages_are_judged_only_by_twice_the_time() {
    let advice = watch(&[HOT, part(100, Backing::Anon, None)], 130).advise(&question(Vec::new()));
    let known = |min_age_s| {
        advice
            .table
            .iter()
            .find(|row| row.min_age_s == min_age_s)
            .unwrap()
            .known
    };
    assert_eq!(
        [10, 30, 60, 120, 86_400].map(known),
        [true, true, true, false, false]
    );
    let text = advice.text(&Default::default());
    assert!(text.contains("Cannot tell for 2 min: watch for 5 m;"), "{text}");
    assert!(
        text.contains("if it compresses to half, which was not measured"),
        "{text}"
    );
    let nothing = AdviceAccumulator::default().finish();
    assert!(nothing.unavailable_reason().is_some());
    let advice = nothing.advise(&question(Vec::new()));
    assert_eq!(
        advice.advice.why,
        "Cannot tell: the first scan pass was not complete."
    );
}

#[test]
fn it_is_not_worth_it_for_three_reasons() {
    let why = |parts: &[Part], samples: Vec<ContentSample>| {
        let advice = watch(parts, 300).advise(&question(samples));
        assert!(!advice.advice.worth, "{:?}", advice.advice);
        assert_eq!(advice.swap.unwrap().zram_bytes, 0);
        advice.advice.why
    };
    let compressible = || vec![sample("lz4", 0.3)];
    let hot = why(&[HOT], compressible());
    assert!(hot.contains("almost nothing is idle"), "{hot}");
    let cold = part(100, Backing::Anon, None);
    let raw = why(&[HOT, cold], vec![sample("lz4", 0.95)]);
    assert!(
        raw.contains("does not compress: of 100 MiB that leave, 95.0 MiB"),
        "{raw}"
    );
    let periodic = why(&[HOT, part(100, Backing::Anon, Some(100))], compressible());
    assert!(periodic.contains("comes back"), "{periodic}");
}

#[test]
fn files_are_saved_whole() {
    let parts = [HOT, part(100, Backing::File, None)];
    let advice = watch(&parts, 300).advise(&question(Vec::new()));
    let figures = row(&advice, 60);
    assert_eq!(
        figures.net_saved_bytes,
        Interval {
            low: 100,
            mid: 100,
            high: 100
        }
        .scaled()
    );
    assert_eq!(advice.swap.unwrap().zram_bytes, 0);
}

impl Interval<u64> {
    fn scaled(self) -> Self {
        let [low, mid, high] = [self.low, self.mid, self.high].map(|mib| mib * MIB);
        Self { low, mid, high }
    }
}

#[test]
fn schemes_and_costs_are_told() {
    let mut accumulator = AdviceAccumulator::default();
    records(&[HOT, part(64, Backing::Anon, Some(40))], 300).for_each(|record| accumulator.add(&record));
    accumulator.add(&Record::Scheme(SchemeApplied {
        action: "pageout".to_owned(),
        sz_changed: 5 * MIB,
        ..SchemeApplied::default()
    }));
    let costs = PageCosts {
        out: Nanos(4000),
        back: Nanos(6000),
        wait: Nanos(7000),
    };
    let advice = accumulator.finish().advise(&Question {
        costs: Some(costs),
        ..question(Vec::new())
    });
    assert!(
        advice.notes[0].starts_with("5.00 MiB were paged out by a scheme"),
        "{:?}",
        advice.notes
    );
    let figures = row(&advice, 30);
    // 96 MiB come back in a minute, of which a tenth within 3 of the 30 seconds until the next age: 22,118
    // pages, 10 us of CPU time each, 7 us of waiting.
    let pages = figures.refault_bytes_per_min.mid as f64 / 4096.0;
    assert!((pages - 22_118.0).abs() < 1800.0, "{pages}");
    let cpu = figures.cpu_share.unwrap();
    assert!((cpu - pages * 10e-6 / 60.0).abs() < 1e-6, "{cpu}");
    let wait = figures.wait_ms_per_min.unwrap();
    assert!((wait - pages * 7e-3).abs() < 1e-3, "{wait}");
    assert!(advice.html().contains("refaults a minute"));
}

#[test]
fn json_has_the_documented_fields() {
    let advice =
        watch(&[HOT, part(100, Backing::Anon, None)], 130).advise(&question(vec![sample("lz4", 0.3)]));
    let json = serde_json::to_value(&advice).unwrap();
    let first = &json["table"][0];
    assert_eq!((&first["min_age_s"], &first["known"]), (&10.into(), &true.into()));
    assert_eq!(first["leaves_bytes"], 100 * MIB);
    assert_eq!(first["net_saved_bytes"]["mid"], 70 * MIB);
    assert_eq!(json["table"][9]["known"], false);
    assert!(json["table"][9]["why"].is_string());
    assert!(json["advice"]["why"].is_string());
    assert_eq!(json["swap"]["ratio"]["lz4"], 0.3);
}

#[test]
fn memory_that_comes_back_leaves_some_passes_late() {
    let parts = [
        HOT,
        part(100, Backing::Anon, None),
        part(60, Backing::Anon, Some(60)),
    ];
    let advice = watch(&parts, 300).advise(&question(Vec::new()));
    let thirty = row(&advice, 30);
    // 60 MiB are idle for 30 s half of the time, 1 MiB a second comes back, and a pass takes a second.
    assert!(thirty.leaves_bytes.abs_diff(127 * MIB) < 2 * MIB, "{thirty:?}");
    // Nothing of the rest comes back.
    let two_minutes = row(&advice, 120);
    assert_eq!(two_minutes.leaves_bytes, 100 * MIB);
}

#[test]
fn memory_of_several_processes_does_not_leave() {
    let parts = [
        HOT,
        part(100, Backing::Shmem, None),
        part(40, Backing::File, None),
        part(60, Backing::Shmem, Some(60)),
    ];
    let stratum = |backing, age, mid| Stratum {
        backing,
        age,
        pages: 50,
        share: Interval {
            low: mid,
            mid,
            high: mid,
        },
    };
    // Of shared memory that is idle for 2 minutes a quarter is mapped once, of the other half of it.
    let old = age_bucket(Nanos::secs(120));
    let shmem = (0..NR_AGES).map(|age| stratum(Backing::Shmem, age, if age >= old { 0.25 } else { 0.5 }));
    let file = (0..NR_AGES).map(|age| stratum(Backing::File, age, 0.0));
    let exclusive = Exclusive(shmem.chain(file).collect());
    let advice = watch(&parts, 400).advise(&Question {
        exclusive,
        ..question(Vec::new())
    });
    let minutes = row(&advice, 120);
    assert_eq!((minutes.leaves_bytes, minutes.leaves_file_bytes), (25 * MIB, 0));
    let all = watch(&parts, 400).advise(&question(Vec::new()));
    let (shared, all) = (row(&advice, 30), row(&all, 30));
    let share = shared.leaves_bytes as f64 / all.leaves_bytes as f64;
    let back = |row: &Figures| row.refault_bytes_per_min.mid as f64;
    assert!(
        share < 0.4 && (back(shared) / back(all) - share).abs() < 0.02,
        "{shared:?}"
    );
    assert!(
        advice.notes[0].contains("are mapped by several processes"),
        "{:?}",
        advice.notes
    );
}
