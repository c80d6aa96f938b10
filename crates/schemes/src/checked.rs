//! The output of `schemes check --json`: schemes with plain numbers, for scripts.
//!
//! Field names contain the unit. "No upper bound" is 18446744073709551615 (`u64::MAX`), so that scripts can
//! compare without a special case. Bounds in samples or aggregation intervals are in `nr_accesses_samples`
//! and `age_aggrs`, because they have no share or time until the intervals are known.

use serde_json::{Value, json};
use thermo_engine::Scheme;
use thermo_engine::scheme::{AccessPattern, Age, Bounds, Filters, OpsFilterKind, Rate};
use thermo_units::Nanos;

use crate::damo;
use crate::describe::describe;

/// The document: `{"schema":1,"schemes":[…]}`.
#[must_use]
pub fn checked_json(schemes: &[Scheme]) -> Value {
    json!({ "schema": 1, "schemes": schemes.iter().map(scheme).collect::<Vec<_>>() })
}

fn scheme(scheme: &Scheme) -> Value {
    let (quota, watermarks) = (&scheme.quota, &scheme.watermarks);
    json!({
        "action": scheme.action.name(),
        "target_nid": damo::target_nid(&scheme.destinations),
        "dests": damo::dests(&scheme.destinations),
        "access_pattern": pattern(&scheme.pattern),
        "auto_age": scheme.auto_age.map(|auto| json!({ "max_refaults_ppm_per_min": auto.max_refaults.0 })),
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
            "metric": damo::watermark_metric(watermarks.metric),
            "interval_us": micros(watermarks.interval),
            "high_permil": watermarks.high.0,
            "mid_permil": watermarks.mid.0,
            "low_permil": watermarks.low.0,
        },
        "filters": filters(&scheme.filters),
        "max_nr_snapshots": scheme.max_nr_snapshots,
        "text": describe(scheme),
        "normal_form": crate::normal_form(scheme),
    })
}

/// damo's filters with sizes as numbers.
fn filters(filters: &Filters) -> Vec<Value> {
    let mut values = damo::filters(filters);
    for (value, filter) in values.iter_mut().skip(filters.core.len()).zip(&filters.ops) {
        if let OpsFilterKind::HugepageSize { min, max } = filter.kind {
            value["hugepage_size"] = json!([min.0, max.0]);
        }
    }
    values
}

/// Microseconds; "no bound" stays `u64::MAX`.
fn micros(span: Nanos) -> u64 {
    if span == Nanos::MAX {
        u64::MAX
    } else {
        span.as_micros()
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "a JSON object gets the keys that it lacks"
)]
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
