//! damo's list: strings, numbers and nulls.

use thermo_engine::ops::TargetId;
use thermo_engine::scheme::{
    Age, Bounds, CoreFilter, CoreFilterKind, Goal, GoalTuner, OpsFilter, OpsFilterKind, Rate, SystemMetric,
    WatermarkMetric, Weights,
};
use thermo_units::{AddrRange, Bytes, Nanos, Permille};

use super::one;

const WHOLE: &str = r#"[
    {"action": "pageout", "target_nid": null, "dests": [],
     "access_pattern": {
        "sz_bytes": {"min": "4.000 KiB", "max": "max"},
        "nr_accesses": {"min": "0 samples", "max": "3 samples"},
        "age": {"min": "20 aggr_intervals", "max": "4,294,967,295 aggr_intervals"}},
     "apply_interval_us": "1 m 30 s 5 ms",
     "quotas": {"time_ms": 10, "sz_bytes": "1,048,576 B", "reset_interval_ms": "1 s", "effective_sz_bytes": "0 B",
        "weights": {"sz_permil": "0 %", "nr_accesses_permil": 300, "age_permil": "70 %"},
        "goals": [
            {"metric": "user_input", "target_value": "1,000", "current_value": "5", "nid": null},
            {"metric": "some_mem_psi_us", "target_value": "1,500", "current_value": "0", "nid": null},
            {"metric": "node_mem_free_bp", "target_value": "0.50 %", "current_value": "0", "nid": "1"},
            {"metric": "node_memcg_used_bp", "target_value": 9750, "current_value": 0, "nid": 0, "path": "/a"},
            {"metric": "node_eligible_mem_bp", "target_value": "70 %", "current_value": "0", "nid": "2"}],
        "goal_tuner": "temporal"},
     "watermarks": {"metric": "free_mem_rate", "interval_us": 5000000, "high_permil": "50 %", "mid_permil": 400,
        "low_permil": "20.0 %"},
     "filters": [
        {"filter_type": "addr", "matching": true, "allow": true, "memcg_path": "",
         "address_range": {"start": "4,096", "end": "8,192"}, "damon_target_idx": null, "hugepage_size": null},
        {"filter_type": "memcg", "matching": "N", "filter_pass": "y", "memcg_path": "/a b"},
        {"filter_type": "target", "matching": false, "damon_target_idx": "2"},
        {"filter_type": "hugepage_size", "matching": true, "hugepage_size": ["2 MiB", "max"]}],
     "max_nr_snapshots": 7,
     "stats": {"nr_tried": "1,234"}, "tried_regions": []}
    ]"#;

#[test]
fn damo_patterns_and_times_are_parsed() {
    let scheme = one("a.json", WHOLE);
    assert_eq!(
        scheme.pattern.nr_accesses,
        Bounds {
            min: Rate::Samples(0),
            max: Rate::Samples(3)
        }
    );
    assert_eq!(
        scheme.pattern.age,
        Bounds {
            min: Age::Aggrs(20),
            max: Age::Aggrs(u32::MAX)
        }
    );
    assert_eq!(scheme.apply_interval, Some(Nanos::millis(90_005)));
    assert_eq!(scheme.max_nr_snapshots, 7);
}

#[test]
fn damo_quotas_and_goals_are_parsed() {
    let scheme = one("a.json", WHOLE);
    let quota = &scheme.quota;
    assert_eq!(
        (quota.time, quota.sz, quota.reset_interval),
        (Nanos::millis(10), Bytes::mib(1), Nanos::secs(1))
    );
    assert_eq!(
        quota.weights,
        Weights {
            sz: 0,
            nr_accesses: 300,
            age: 700
        }
    );
    assert_eq!(quota.tuner, GoalTuner::Temporal);
    assert_eq!(
        quota.goals,
        [
            Goal::UserInput {
                target: 1000,
                current: 5
            },
            Goal::Metric {
                metric: SystemMetric::SomeMemPsiUs,
                target: 1500
            },
            Goal::Metric {
                metric: SystemMetric::NodeMemFreeBp { nid: 1 },
                target: 50
            },
            Goal::Metric {
                metric: SystemMetric::NodeMemcgUsedBp {
                    nid: 0,
                    path: "/a".into()
                },
                target: 9750
            },
            Goal::NodeEligibleMem { nid: 2, target: 7000 },
        ]
    );
}

#[test]
fn damo_watermarks_and_filters_are_parsed() {
    let scheme = one("a.json", WHOLE);
    let watermarks = scheme.watermarks;
    assert_eq!(
        (watermarks.metric, watermarks.interval),
        (WatermarkMetric::FreeMemRate, Nanos::secs(5))
    );
    assert_eq!(
        (watermarks.high, watermarks.mid, watermarks.low),
        (Permille(500), Permille(400), Permille(200))
    );
    assert_eq!(
        scheme.filters.core,
        [
            CoreFilter {
                kind: CoreFilterKind::Addr(AddrRange::new(4096, 8192)),
                matching: true,
                allow: true
            },
            CoreFilter {
                kind: CoreFilterKind::Target(TargetId(2)),
                matching: false,
                allow: false
            },
        ]
    );
    let huge = OpsFilterKind::HugepageSize {
        min: Bytes::mib(2),
        max: Bytes::MAX,
    };
    assert_eq!(
        scheme.filters.ops,
        [
            OpsFilter {
                kind: OpsFilterKind::Memcg("/a b".into()),
                matching: false,
                allow: true
            },
            OpsFilter {
                kind: huge,
                matching: true,
                allow: false
            },
        ]
    );
}

#[test]
fn damo_units_beside_the_numbers_are_parsed() {
    let pattern = |units: &str| {
        let text = format!(
            r#"[{{"name": "0", "comments": "cold", "action": "pageout", "access_pattern": {{
                "nr_accesses": {{"min": 0, "max": "3"}}, "age": {{"min": 20, "max": "max"}}{units}}}}}]"#
        );
        one("a.json", &text).pattern
    };
    let (samples, share) = (Rate::Samples(3), Rate::Permille(Permille(30)));
    let (aggrs, time) = (Age::Aggrs(20), Age::Time(Nanos::micros(20)));
    for (units, rate, age) in [
        ("", share, time),
        (
            r#", "nr_accesses_unit": "percent", "age_unit": "usec""#,
            share,
            time,
        ),
        (r#", "nr_accesses_unit": "samples""#, samples, time),
        (r#", "nr_accesses_unit": "sample_intervals""#, samples, time),
        (r#", "age_unit": "aggr_intervals""#, share, aggrs),
    ] {
        let pattern = pattern(units);
        assert_eq!((pattern.nr_accesses.max, pattern.age.min), (rate, age), "{units}");
    }
}
