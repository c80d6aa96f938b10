//! Forecasts of recordings whose truth is known.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod recording;

use thermo_engine::access_tables::Backing;
use thermo_engine::budget::Method;
use thermo_engine::scheme::{
    Age, CoreFilter, CoreFilterKind, OpsFilter, OpsFilterKind, Quota, Rate, Scheme, WatermarkMetric,
    Watermarks,
};
use thermo_engine::{Action, TargetId};
use thermo_forecast::{Assumptions, FileForecast, Forecast, Replay, SchemeFile};
use thermo_recording::model::{AccessTables, Record, Region, Snapshot, Target};
use thermo_report::{Accumulator, accumulate};
use thermo_units::{AddrRange, Bytes, Nanos, Permille};

use recording::{Area, MIB, bounds, every, idle, metadata, paged_out, records, totals};

fn pageout(min_age_s: u64) -> Scheme {
    let mut scheme = Scheme::new(Action::Pageout);
    scheme.pattern.age.min = Age::Time(Nanos::secs(min_age_s));
    scheme.pattern.nr_accesses.max = Rate::Samples(0);
    scheme
}

fn forecast(records: Vec<Record>, schemes: &[Scheme]) -> Forecast {
    let file = |(nth, scheme): (usize, &Scheme)| SchemeFile {
        name: format!("dir/{nth}.damos"),
        schemes: vec![scheme.clone()],
    };
    let files = schemes.iter().enumerate().map(file).collect();
    let assumptions = Assumptions {
        compressed: Some(Permille(400)),
        ..Assumptions::default()
    };
    let replay = Replay::new(&metadata(), files, assumptions).unwrap();
    accumulate(replay, records.into_iter().map(Ok::<_, ()>)).unwrap()
}

fn scanned(areas: &[Area], seconds: u64, scheme: Scheme) -> FileForecast {
    let mut forecast = forecast(records(areas, seconds, Method::Scan), &[scheme]);
    forecast.files.remove(0)
}

fn leaves_mib(file: &FileForecast) -> u64 {
    (file.leaves_bytes.unwrap() + MIB / 2) / MIB
}

fn refaults_mib(file: &FileForecast) -> i64 {
    (file.refault_bytes_per_min.unwrap().mid + MIB as i64 / 2) / MIB as i64
}

#[test]
fn idle_memory_leaves_at_its_age_and_stays_out() {
    for method in [Method::Scan, Method::Sampling] {
        let forecast = forecast(records(&[idle(100), every(1, 50)], 300, method), &[pageout(30)]);
        let file = &forecast.files[0];
        assert_eq!(
            (leaves_mib(file), refaults_mib(file)),
            (100, 0),
            "{method:?}: {file:?}"
        );
        assert_eq!(file.leaves_end_bytes, Some(100 * MIB));
        assert_eq!(file.net_saved_bytes.unwrap().mid, (60 * MIB) as i64);
        let first = file.over_time.iter().find(|point| point.out_bytes > 0).unwrap();
        assert!((29.0..34.0).contains(&first.time_s), "{method:?}: {first:?}");
        assert_eq!(forecast.working_set_bytes, Some(50 * MIB));
    }
}

#[test]
fn memory_accessed_every_minute_refaults_unless_the_age_is_longer() {
    for method in [Method::Scan, Method::Sampling] {
        let records = || records(&[every(60, 90), every(1, 10)], 602, method);
        let forecast = forecast(records(), &[pageout(30), pageout(90)]);
        let [short, long] = &forecast.files[..] else {
            panic!()
        };
        // Out for half of each minute, and accessed once a minute.
        assert!((43..=47).contains(&leaves_mib(short)), "{method:?}: {short:?}");
        assert!((85..=97).contains(&refaults_mib(short)), "{method:?}: {short:?}");
        let interval = short.refault_bytes_per_min.unwrap();
        assert!(interval.low <= interval.mid && interval.mid <= interval.high);
        assert_eq!((leaves_mib(long), refaults_mib(long)), (0, 0), "{method:?}");
        let share = short.refault_share_of_working_set_per_min.unwrap();
        assert!((0.8..1.0).contains(&share), "{share}");
    }
}

#[test]
fn better_of_two_files_has_fewer_refaults() {
    let areas = [idle(200), every(20, 100), every(1, 50)];
    let forecast = forecast(records(&areas, 300, Method::Scan), &[pageout(10), pageout(60)]);
    let [eager, patient] = &forecast.files[..] else {
        panic!()
    };
    assert!(leaves_mib(eager) > leaves_mib(patient) && leaves_mib(patient) == 200);
    assert!(refaults_mib(eager) > 250 && refaults_mib(patient) == 0);
    let text = forecast.text();
    assert!(text.contains("0.damos") && !text.contains("dir/"), "{text}");
    assert!(
        text.contains("Means exclude the beginning, up to 60.0 s"),
        "{text}"
    );
    let html = forecast.html();
    assert!(html.matches("<svg").count() == 2 && html.contains("1.damos"));
}

#[test]
fn size_quota_limits_bytes_in_each_window() {
    for method in [Method::Scan, Method::Sampling] {
        let scheme = Scheme {
            quota: Quota {
                sz: Bytes::mib(2),
                reset_interval: Nanos::secs(1),
                ..Quota::default()
            },
            ..pageout(10)
        };
        let forecast = forecast(records(&[idle(500)], 110, method), &[scheme]);
        let file = &forecast.files[0];
        let end = file.leaves_end_bytes.unwrap() / MIB;
        assert!(
            (196..=204).contains(&end),
            "{method:?}: 2 MiB a second for 100 s: {end}"
        );
        let used_up = file.quota_used_up_share.unwrap();
        assert!((0.85..=1.0).contains(&used_up), "{used_up}");
    }
}

#[test]
fn windows_between_snapshots_continue_with_the_rest() {
    let scheme = Scheme {
        quota: Quota {
            sz: Bytes::mib(1),
            reset_interval: Nanos::millis(250),
            ..Quota::default()
        },
        ..pageout(10)
    };
    let file = scanned(&[idle(1000)], 110, scheme);
    let end = file.leaves_end_bytes.unwrap() / MIB;
    assert!(
        (390..=408).contains(&end),
        "four windows a second for 100 s: {end}"
    );
}

#[test]
fn time_quota_limits_bytes_by_the_cost_of_paging_out() {
    let scheme = Scheme {
        quota: Quota {
            time: Nanos::millis(31),
            reset_interval: Nanos::secs(1),
            ..Quota::default()
        },
        ..pageout(10)
    };
    let file = scanned(&[idle(4000)], 110, scheme);
    let end = file.leaves_end_bytes.unwrap() / MIB;
    // 3.1 ms for each MiB: 10 MiB a second. The first window knows no cost yet and repays later.
    assert!((950..=1150).contains(&end), "{end}");
}

#[test]
fn watermarks_follow_recorded_free_memory() {
    let scheme = Scheme {
        watermarks: Watermarks {
            metric: WatermarkMetric::FreeMemRate,
            interval: Nanos::secs(1),
            high: Permille(500),
            mid: Permille(400),
            low: Permille(200),
        },
        ..pageout(10)
    };
    for (free, leaves, warns) in [(Some(900), 0, false), (Some(300), 100, false), (None, 100, true)] {
        let mut records = records(&[idle(100)], 60, Method::Scan);
        records.splice(0..0, free.map(totals));
        let file = forecast(records, std::slice::from_ref(&scheme)).files.remove(0);
        assert_eq!(leaves_mib(&file), leaves, "{free:?}");
        let warned = file
            .warnings
            .iter()
            .any(|text| text.contains("no totals of the machine"));
        assert_eq!(warned, warns, "{:?}", file.warnings);
        assert_eq!(file.schemes[0].inactive_share > 0.9, leaves == 0);
    }
}

#[test]
fn filters_select_memory_that_leaves() {
    let file_area = Area {
        backing: Backing::File,
        ..idle(70)
    };
    let areas = [idle(100), file_area];
    let ops = |kind, matching, allow| OpsFilter {
        kind,
        matching,
        allow,
    };
    let memcg = OpsFilterKind::Memcg("/a".to_owned());
    for method in [Method::Scan, Method::Sampling] {
        for (filter, leaves, net, warns) in [
            (ops(OpsFilterKind::Anon, true, false), 70, 70, false),
            (ops(OpsFilterKind::Anon, true, true), 100, 60, false),
            (ops(memcg.clone(), true, true), 170, 130, true),
        ] {
            let mut scheme = pageout(10);
            scheme.filters.ops = vec![filter];
            let file = forecast(records(&areas, 60, method), &[scheme]).files.remove(0);
            assert_eq!(leaves_mib(&file), leaves, "{method:?}: {file:?}");
            let saved = file.net_saved_bytes.unwrap().mid;
            assert_eq!(
                (saved + MIB as i64 / 2) / MIB as i64,
                net,
                "clean files cost nothing"
            );
            let unknown = "filter memcg is not in the recording; all memory passes it";
            assert_eq!(file.warnings.iter().any(|text| text.contains(unknown)), warns);
        }
    }
}

#[test]
fn address_and_target_filters_are_the_engines() {
    let areas = [idle(100), idle(60)];
    let bounds = bounds(&areas);
    let second = CoreFilterKind::Addr(AddrRange::new(bounds[1], bounds[2]));
    for (kind, leaves, detail) in [
        (second, 60, "regions"),
        (CoreFilterKind::Target(TargetId(0)), 160, "ages"),
        (CoreFilterKind::Target(TargetId(7)), 0, "ages"),
    ] {
        let mut scheme = pageout(10);
        scheme.filters.core = vec![CoreFilter {
            kind,
            matching: true,
            allow: true,
        }];
        let file = scanned(&areas, 60, scheme);
        assert_eq!((leaves_mib(&file), file.detail), (leaves, detail));
    }
}

#[test]
fn other_actions_count_and_save_nothing() {
    let scheme = Scheme {
        action: Action::Stat,
        ..pageout(10)
    };
    let file = scanned(&[idle(100)], 60, scheme);
    assert_eq!((leaves_mib(&file), file.net_saved_bytes.unwrap().mid), (0, 0));
    assert!(
        file.schemes[0].sz_tried >= 50 * 100 * MIB,
        "matched in each snapshot"
    );
}

#[test]
fn recording_with_schemes_is_censored() {
    let mut records = records(&[idle(100)], 60, Method::Scan);
    records.push(paged_out(40));
    let forecast = forecast(records, &[pageout(10)]);
    assert_eq!(
        forecast.censored,
        ["leaves_bytes", "net_saved_bytes", "refault_bytes_per_min"]
    );
    assert!(
        forecast
            .text()
            .contains("schemes paged out 40.0 MiB while the recording was made")
    );
}

#[test]
fn short_recording_says_how_long_it_must_be() {
    let forecast = forecast(
        records(&[idle(100)], 50, Method::Scan),
        &[pageout(10), pageout(30)],
    );
    assert!(!forecast.has_no_answer());
    let [answered, short] = &forecast.files[..] else {
        panic!()
    };
    assert_eq!((leaves_mib(answered), short.leaves_bytes), (100, None));
    let expected = "cannot tell: the recording covers 50.0 s, and scheme 0 waits for an age of 30.0 s: record at \
                    least 60.0 s";
    assert_eq!(short.cannot_tell.as_deref(), Some(expected));
    assert!(forecast.text().contains(expected) && forecast.text().contains('?'));
}

#[test]
fn memory_of_an_ended_target_is_gone() {
    let mut records = records(&[idle(100)], 100, Method::Scan);
    for record in &mut records[60..] {
        if let Record::Snapshot(snapshot) = record {
            snapshot.targets[0].id = 1;
        }
    }
    let file = forecast(records, &[pageout(10)]).files.remove(0);
    // The second target's memory is as old, but is known only from its first snapshot on.
    assert_eq!(file.leaves_end_bytes, Some(100 * MIB));
    assert_eq!(refaults_mib(&file), 0);
}

#[test]
fn contradictory_schemes_are_refused_by_file() {
    let mut scheme = pageout(10);
    scheme.pattern.age.max = Age::Time(Nanos::secs(1));
    let files = vec![SchemeFile {
        name: "a.toml".to_owned(),
        schemes: vec![scheme],
    }];
    let error = Replay::new(&metadata(), files, Assumptions::default()).map(Accumulator::finish);
    let message = error.unwrap_err().to_string();
    assert!(
        message.starts_with("a.toml: ") && message.contains("age"),
        "{message}"
    );
}

/// A snapshot as only a damaged recording has: times, addresses and sizes at their limits, out of order.
fn damaged(nth: u64) -> Record {
    let extreme = |shift: u64| u64::MAX >> ((nth * 7 + shift * 13) % 64);
    let region = |shift| Region {
        start: extreme(shift),
        end: extreme(shift + 1),
        nr_accesses: u32::try_from(nth % 2).unwrap() * u32::MAX,
        age: Some(u32::MAX),
        unknown: shift == 3,
    };
    let mut tables = AccessTables::new(Method::Scan);
    tables.nr_passes = extreme(2);
    tables.pass = Nanos(extreme(3));
    tables.idle[(nth % 6) as usize][(nth % 15) as usize] = Bytes(1 << 52);
    tables.reaccessed[(nth * 4 % 15) as usize] = Bytes(1 << 52);
    Record::Snapshot(Snapshot {
        start_ns: extreme(4),
        time_ns: extreme(5),
        aggr_ns: if nth.is_multiple_of(3) { 0 } else { extreme(6) },
        max_nr_accesses: if nth.is_multiple_of(5) { 0 } else { u32::MAX },
        targets: vec![Target {
            scanned: Some(nth % 10 < 5),
            tables: (!nth.is_multiple_of(4)).then(|| Box::new(tables)),
            regions: (0..6).map(region).collect(),
            ..Target::default()
        }],
    })
}

#[test]
fn damaged_recording_does_not_panic() {
    let quota = Quota {
        sz: Bytes::mib(1),
        time: Nanos::millis(1),
        reset_interval: Nanos::millis(1),
        ..Quota::default()
    };
    let mut by_address = pageout(0);
    by_address.pattern.sz.min = Bytes::mib(1);
    let schemes = [
        pageout(0),
        Scheme { quota, ..pageout(0) },
        by_address,
        Scheme::new(Action::Stat),
        Scheme::new(Action::Pageout),
    ];
    let forecast = forecast((0..400).map(damaged).collect(), &schemes);
    assert_eq!(forecast.files.len(), schemes.len());
    assert!(!forecast.text().is_empty() && !forecast.html().is_empty());
}
