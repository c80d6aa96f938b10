//! What `schemes check --json` prints: the schemes as plain numbers, for scripts.
//!
//! Units are in the names. "No upper bound" is the number 18446744073709551615 (`u64::MAX`), so that a script
//! can compare without asking. Bounds given in samples or aggregation intervals, which are no time and no
//! share before the intervals are known, stand under `nr_accesses_samples` and `age_aggrs` instead.

use serde_json::{Value, json};
use thermo_engine::Scheme;
use thermo_engine::scheme::{AccessPattern, Age, Bounds, Filters, OpsFilterKind, Rate};
use thermo_units::Nanos;

use crate::damo;
use crate::sentence::sentence;

/// The document: `{"schema":1,"schemes":[…]}`.
#[must_use]
pub fn checked_json(schemes: &[Scheme]) -> Value {
    json!({ "schema": 1, "schemes": schemes.iter().map(scheme).collect::<Vec<_>>() })
}

fn scheme(scheme: &Scheme) -> Value {
    let (quota, marks) = (&scheme.quota, &scheme.watermarks);
    json!({
        "action": scheme.action.name(),
        "access_pattern": pattern(&scheme.pattern),
        "apply_interval_us": scheme.apply_interval.map(micros),
        "quotas": {
            "time_us": micros(quota.time),
            "sz_bytes": quota.sz.0,
            "reset_interval_us": micros(quota.reset_interval),
            "weights": {
                "sz": quota.weights.sz, "nr_accesses": quota.weights.nr_accesses, "age": quota.weights.age,
            },
            "goals": damo::goals(quota),
            "goal_tuner": damo::tuner(quota.tuner),
        },
        "watermarks": {
            "metric": damo::watermark_metric(marks.metric),
            "interval_us": micros(marks.interval),
            "high_permil": marks.high.0,
            "mid_permil": marks.mid.0,
            "low_permil": marks.low.0,
        },
        "filters": filters(&scheme.filters),
        "max_nr_snapshots": scheme.max_nr_snapshots,
        "text": sentence(scheme),
        "normal_form": crate::normal_form(scheme),
    })
}

/// damo's filters, but with sizes as numbers.
fn filters(filters: &Filters) -> Vec<Value> {
    let mut values = damo::filters(filters);
    for (value, filter) in values[filters.core.len()..].iter_mut().zip(&filters.ops) {
        if let OpsFilterKind::HugepageSize { min, max } = filter.kind {
            value["hugepage_size"] = json!([min.0, max.0]);
        }
    }
    values
}

/// Microseconds; without a bound in nanoseconds stays so.
fn micros(span: Nanos) -> u64 {
    if span == Nanos::MAX {
        u64::MAX
    } else {
        span.as_micros()
    }
}

fn pattern(AccessPattern { sz, nr_accesses, age }: &AccessPattern) -> Value {
    let mut pattern = json!({ "sz_bytes": { "min": sz.min.0, "max": sz.max.0 } });
    for (side, rate) in sides(nr_accesses) {
        match rate {
            Rate::Permille(share) => pattern["nr_accesses_permil"][side] = share.0.into(),
            Rate::Samples(n) => pattern["nr_accesses_samples"][side] = n.into(),
        }
    }
    for (side, age) in sides(age) {
        match age {
            Age::Time(span) => pattern["age_us"][side] = micros(span).into(),
            Age::Aggrs(n) => pattern["age_aggrs"][side] = n.into(),
        }
    }
    pattern
}

fn sides<T: Copy>(bounds: &Bounds<T>) -> [(&'static str, T); 2] {
    [("min", bounds.min), ("max", bounds.max)]
}
