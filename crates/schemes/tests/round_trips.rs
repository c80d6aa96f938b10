//! Printed schemes parse to the same schemes in every format; no text makes a parser panic.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use proptest::prelude::*;
use thermo_engine::ops::TargetId;
use thermo_engine::scheme::{
    AccessPattern, Age, AutoAge, Bounds, CoreFilter, CoreFilterKind, Destination, Filters, Goal, GoalTuner,
    OpsFilter, OpsFilterKind, Quota, Rate, SystemMetric, WatermarkMetric, Watermarks, Weights,
};
use thermo_engine::{Action, Scheme};
use thermo_schemes::{
    Format, checked_json, describe, normal_form, parse, parse_as, print_json, print_line, print_toml,
};
use thermo_units::{AddrRange, Bytes, Nanos, Permille, SharePerMinute};

/// Small, large and round numbers, and the largest.
fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..100u64,
        any::<u64>(),
        (0..60u32, 1..1000u64).prop_map(|(shift, n)| n << shift),
        Just(u64::MAX)
    ]
}

fn any_span() -> impl Strategy<Value = Nanos> {
    let scaled = (
        1..2000u64,
        prop::sample::select(vec![1, 1000, 1_000_000, 1_000_000_000, 60_000_000_000]),
    );
    prop_oneof![
        Just(Nanos::MAX),
        Just(Nanos::ZERO),
        scaled.prop_map(|(n, scale)| Nanos(n * scale))
    ]
}

fn bounds<T: Ord + Copy + std::fmt::Debug>(
    value: impl Strategy<Value = T> + Clone,
) -> impl Strategy<Value = Bounds<T>> {
    (value.clone(), value).prop_map(|(a, b)| Bounds {
        min: a.min(b),
        max: a.max(b),
    })
}

fn map<T: Copy, U>(Bounds { min, max }: Bounds<T>, wrap: impl Fn(T) -> U) -> Bounds<U> {
    Bounds {
        min: wrap(min),
        max: wrap(max),
    }
}

fn any_pattern() -> impl Strategy<Value = AccessPattern> {
    let share = (0..=1000u32).prop_map(Permille).boxed();
    let rate = prop_oneof![
        bounds(share).prop_map(|both| map(both, Rate::Permille)),
        bounds(any::<u32>().boxed()).prop_map(|both| map(both, Rate::Samples)),
    ];
    let age = prop_oneof![
        bounds(any_span().boxed()).prop_map(|both| map(both, Age::Time)),
        bounds(any::<u32>().boxed()).prop_map(|both| map(both, Age::Aggrs)),
    ];
    let sz = bounds(any_number().prop_map(Bytes).boxed());
    (sz, rate, age).prop_map(|(sz, nr_accesses, age)| AccessPattern { sz, nr_accesses, age })
}

fn any_goal() -> impl Strategy<Value = Goal> {
    let path = "/[a-z\"\\\\ .é]{0,8}";
    let metric = prop_oneof![
        any::<u32>().prop_map(|nid| SystemMetric::NodeMemUsedBp { nid }),
        any::<u32>().prop_map(|nid| SystemMetric::NodeMemFreeBp { nid }),
        (any::<u32>(), path).prop_map(|(nid, path)| SystemMetric::NodeMemcgUsedBp { nid, path }),
        (any::<u32>(), path).prop_map(|(nid, path)| SystemMetric::NodeMemcgFreeBp { nid, path }),
        Just(SystemMetric::ActiveMemBp),
        Just(SystemMetric::InactiveMemBp),
    ];
    prop_oneof![
        (any_number(), any_number()).prop_map(|(target, current)| Goal::UserInput { target, current }),
        (0..1u64 << 50).prop_map(|target| Goal::Metric {
            metric: SystemMetric::SomeMemPsiUs,
            target
        }),
        (metric, 0..=10_000u64).prop_map(|(metric, target)| Goal::Metric { metric, target }),
        (any::<u32>(), 0..=10_000u64).prop_map(|(nid, target)| Goal::NodeEligibleMem { nid, target }),
    ]
}

fn any_quota() -> impl Strategy<Value = Quota> {
    let weights = (any::<u32>(), 0..2000u32, any::<u32>()).prop_map(|(sz, nr_accesses, age)| Weights {
        sz,
        nr_accesses,
        age,
    });
    let tuner = prop::sample::select(vec![GoalTuner::Consist, GoalTuner::Temporal]);
    let goals = prop::collection::vec(any_goal(), 0..3);
    let window = any_span().prop_map(|span| if span == Nanos::ZERO { Nanos::secs(1) } else { span });
    (any_span(), any_number(), window, weights, goals, tuner).prop_map(
        |(time, sz, reset_interval, weights, goals, tuner)| Quota {
            time,
            sz: Bytes(sz),
            reset_interval,
            weights,
            goals,
            tuner,
        },
    )
}

fn any_filters() -> impl Strategy<Value = Filters> {
    let core = prop_oneof![
        (any::<u32>(), 1..u32::MAX).prop_map(|(start, len)| {
            CoreFilterKind::Addr(AddrRange::new(
                u64::from(start) << 12,
                (u64::from(start) << 12) + u64::from(len),
            ))
        }),
        any::<u32>().prop_map(|index| CoreFilterKind::Target(TargetId(index))),
    ];
    let ops = prop_oneof![
        prop::sample::select(vec![
            OpsFilterKind::Anon,
            OpsFilterKind::Young,
            OpsFilterKind::Active,
            OpsFilterKind::Unmapped
        ]),
        "/[a-z\"'\\\\ .]{0,8}".prop_map(OpsFilterKind::Memcg),
        bounds(any_number().boxed()).prop_map(|Bounds { min, max }| OpsFilterKind::HugepageSize {
            min: Bytes(min),
            max: Bytes(max)
        }),
    ];
    let core = (core, any::<bool>(), any::<bool>()).prop_map(|(kind, matching, allow)| CoreFilter {
        kind,
        matching,
        allow,
    });
    let ops = (ops, any::<bool>(), any::<bool>()).prop_map(|(kind, matching, allow)| OpsFilter {
        kind,
        matching,
        allow,
    });
    (
        prop::collection::vec(core, 0..3),
        prop::collection::vec(ops, 0..3),
    )
        .prop_map(|(core, ops)| Filters { core, ops })
}

fn any_watermarks() -> impl Strategy<Value = Watermarks> {
    (
        1..1_000_000_000u64,
        prop::array::uniform3(0..=1000u32),
        any::<bool>(),
    )
        .prop_map(|(interval, mut marks, none)| {
            marks.sort_unstable();
            let [low, mid, high] = marks.map(Permille);
            let metric = if none {
                WatermarkMetric::None
            } else {
                WatermarkMetric::FreeMemRate
            };
            Watermarks {
                metric,
                interval: Nanos(interval),
                high,
                mid,
                low,
            }
        })
}

fn any_scheme() -> impl Strategy<Value = Scheme> {
    let apply =
        prop::option::of(any_span().prop_map(|span| if span == Nanos::ZERO { Nanos(1) } else { span }));
    let action = prop::sample::select(Action::ALL.to_vec());
    let quota = prop_oneof![Just(Quota::default()), any_quota()];
    let watermarks = prop_oneof![Just(Watermarks::default()), any_watermarks()];
    (
        action,
        any_pattern(),
        apply,
        quota,
        watermarks,
        any_filters(),
        any_number(),
        prop::option::weighted(0.2, any_auto_age()),
        prop::collection::vec((any::<u32>(), any::<u32>()), 0..3),
    )
        .prop_map(
            |(
                action,
                pattern,
                apply_interval,
                quota,
                watermarks,
                filters,
                max_nr_snapshots,
                auto_age,
                nodes,
            )| {
                let nodes = nodes.into_iter().filter(|_| action.migrates());
                Scheme {
                    action,
                    destinations: nodes.map(|(nid, weight)| Destination { nid, weight }).collect(),
                    pattern: auto_age.map_or(pattern, |_| idle(pattern)),
                    auto_age,
                    apply_interval,
                    quota,
                    watermarks,
                    filters,
                    max_nr_snapshots,
                }
            },
        )
}

fn any_auto_age() -> impl Strategy<Value = AutoAge> {
    let bound = prop_oneof![Just(AutoAge::default().max_refaults.0), 0..=1_000_000u32];
    bound.prop_map(|bound| AutoAge {
        max_refaults: SharePerMinute(bound),
    })
}

/// The pattern of memory without accesses, of any age.
fn idle(pattern: AccessPattern) -> AccessPattern {
    let none = Rate::Permille(Permille(0));
    AccessPattern {
        nr_accesses: Bounds { min: none, max: none },
        age: AccessPattern::default().age,
        ..pattern
    }
}

/// Schemes that a line can express.
fn any_simple() -> impl Strategy<Value = Scheme> {
    let share = (0..=1000u32).prop_map(Permille).boxed();
    let limit = prop::option::of((1..u64::MAX, 1..10_000u64));
    let action = prop::sample::select(Action::ALL.to_vec());
    let sz = bounds(any_number().prop_map(Bytes).boxed());
    (
        action,
        sz,
        bounds(share),
        bounds(any_span().boxed()),
        limit,
        prop::bool::weighted(0.2),
    )
        .prop_map(|(action, sz, rate, age, limit, is_auto)| {
            let mut scheme = Scheme::new(action);
            scheme.pattern = AccessPattern {
                sz,
                nr_accesses: map(rate, Rate::Permille),
                age: map(age, Age::Time),
            };
            if is_auto {
                scheme.pattern = idle(scheme.pattern);
                scheme.auto_age = Some(AutoAge::default());
            }
            if let Some((sz, ms)) = limit {
                (scheme.quota.sz, scheme.quota.reset_interval) = (Bytes(sz), Nanos::millis(ms));
            }
            scheme
        })
}

proptest! {
    #[test]
    fn printed_line_parses_to_same_scheme(scheme in any_simple()) {
        let line = print_line(&scheme).expect("a line can express it");
        prop_assert_eq!(parse_as(Format::Line, &line), Ok(vec![scheme]), "{}", line);
    }

    #[test]
    fn printed_toml_parses_to_same_schemes(schemes in prop::collection::vec(any_scheme(), 1..4)) {
        let text = print_toml(&schemes);
        prop_assert_eq!(parse("", &text), Ok(schemes), "{}", text);
    }

    #[test]
    fn printed_json_parses_to_same_schemes(schemes in prop::collection::vec(any_scheme(), 1..4)) {
        let has_auto_age = schemes.iter().any(|scheme| scheme.auto_age.is_some());
        match print_json(&schemes) {
            Some(text) => prop_assert_eq!(parse("", &text), Ok(schemes), "{}", text),
            None => prop_assert!(has_auto_age),
        }
    }

    #[test]
    fn any_scheme_can_be_described(scheme in any_scheme()) {
        prop_assert!(describe(&scheme).ends_with('.'));
        prop_assert_eq!(parse("", &normal_form(&scheme)), Ok(vec![scheme.clone()]));
        prop_assert_eq!(checked_json(&[scheme])["schemes"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn parser_never_panics_on_any_text(text in "\\PC*") {
        for format in [Format::Line, Format::Json, Format::Toml] {
            let _ = parse_as(format, &text);
        }
    }

    #[test]
    fn parser_never_panics_on_damaged_text(scheme in any_scheme(), cut in any::<prop::sample::Index>(), with in "\\PC{0,3}") {
        for (format, text) in [
            (Format::Json, print_json(std::slice::from_ref(&scheme)).unwrap_or_else(|| "[]".to_owned())),
            (Format::Toml, print_toml(std::slice::from_ref(&scheme))),
            (Format::Line, "4K max 0 5 2m max pageout 128M 1s".to_owned()),
        ] {
            let mut chars: Vec<char> = text.chars().collect();
            let at = cut.index(chars.len());
            chars.splice(at..=at, with.chars());
            let _ = parse_as(format, &chars.iter().collect::<String>());
        }
    }
}

#[test]
fn parser_rejects_deep_nesting() {
    for (open, format) in [
        ("[", Format::Json),
        ("{\"a\":", Format::Json),
        ("a = [", Format::Toml),
    ] {
        assert!(parse_as(format, &open.repeat(100_000)).is_err());
    }
    assert!(parse_as(Format::Toml, &format!("a = {}", "[".repeat(100_000))).is_err());
}
