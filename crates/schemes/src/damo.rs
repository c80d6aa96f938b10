//! damo's JSON: a list of schemes. Every quantity is a string with a unit.

use serde_json::{Value, json};
use thermo_engine::Scheme;
use thermo_engine::scheme::{
    CoreFilter, CoreFilterKind, Destination, Filters, Goal, GoalTuner, OpsFilter, OpsFilterKind, Quota,
    SystemMetric, WatermarkMetric, Watermarks,
};
use thermo_units::Permille;
use thermo_units::text::ParseError;

use crate::tree::{Kind, parse_json};
use crate::vocabulary::DAMO;
use crate::{exact, read};

/// Parses damo's list of schemes.
pub(crate) fn parse(text: &str) -> Result<Vec<Scheme>, ParseError> {
    let Some(root) = parse_json(text)? else {
        return Ok(Vec::new());
    };
    match root.kind {
        Kind::List(nodes) => read::schemes(text, nodes, &DAMO),
        _ => Err(root.error(
            text,
            format!(
                "expected a list of schemes, [{{...}}, ...], found {}",
                root.describe_kind()
            ),
        )),
    }
}

/// Prints the list that damo reads (`damo schemes -c FILE`); `None` if a scheme has an automatic age, which
/// damo does not know.
#[must_use]
pub fn print(schemes: &[Scheme]) -> Option<String> {
    if schemes.iter().any(|scheme| scheme.auto_age.is_some()) {
        return None;
    }
    let list: Vec<Value> = schemes.iter().map(scheme).collect();
    Some(format!("{:#}\n", Value::Array(list)))
}

fn scheme(scheme: &Scheme) -> Value {
    let pattern = &scheme.pattern;
    json!({
        "action": scheme.action.name(),
        "target_nid": target_nid(&scheme.destinations),
        "dests": dests(&scheme.destinations),
        "access_pattern": {
            "sz_bytes": { "min": exact::damo_bytes_text(pattern.sz.min), "max": exact::damo_bytes_text(pattern.sz.max) },
            "nr_accesses": { "min": exact::rate_text(pattern.nr_accesses.min), "max": exact::rate_text(pattern.nr_accesses.max) },
            "age": { "min": age(pattern.age.min), "max": age(pattern.age.max) },
        },
        "apply_interval_us": exact::damo_nanos_text(scheme.apply_interval.unwrap_or_default()),
        "quotas": quota(&scheme.quota),
        "watermarks": watermarks(&scheme.watermarks),
        "filters": filters(&scheme.filters),
        "max_nr_snapshots": scheme.max_nr_snapshots,
    })
}

/// The node of a scheme with one destination. damo writes null for others.
pub(crate) fn target_nid(destinations: &[Destination]) -> Option<u32> {
    match destinations {
        [Destination { nid, weight: 1 }] => Some(*nid),
        _ => None,
    }
}

/// The destinations of a scheme, unless [`target_nid`] has the only one.
pub(crate) fn dests(destinations: &[Destination]) -> Vec<Value> {
    if target_nid(destinations).is_some() {
        return Vec::new();
    }
    let dest = |dest: &Destination| json!({ "id": dest.nid, "weight": dest.weight });
    destinations.iter().map(dest).collect()
}

fn age(age: thermo_engine::scheme::Age) -> String {
    match age {
        thermo_engine::scheme::Age::Time(span) => exact::damo_nanos_text(span),
        thermo_engine::scheme::Age::Aggrs(_) => exact::age_text(age),
    }
}

fn quota(quota: &Quota) -> Value {
    json!({
        "time_ms": exact::damo_nanos_text(quota.time),
        "sz_bytes": exact::damo_bytes_text(quota.sz),
        "reset_interval_ms": exact::damo_nanos_text(quota.reset_interval),
        "weights": {
            "sz_permil": quota.weights.sz,
            "nr_accesses_permil": quota.weights.nr_accesses,
            "age_permil": quota.weights.age,
        },
        "goals": goals(quota),
        "goal_tuner": tuner(quota.tuner),
    })
}

/// The name of a tuner in every format.
pub(crate) const fn tuner(tuner: GoalTuner) -> &'static str {
    match tuner {
        GoalTuner::Consist => "consist",
        GoalTuner::Temporal => "temporal",
    }
}

/// The goals, with plain numbers.
pub(crate) fn goals(quota: &Quota) -> Vec<Value> {
    let value = |goal: &Goal| match goal {
        Goal::UserInput { target, current } => {
            json!({ "metric": "user_input", "target_value": target, "current_value": current })
        }
        Goal::Metric { metric, target } => {
            let (name, nid, path) = metric_fields(metric);
            json!({ "metric": name, "target_value": target, "current_value": 0, "nid": nid, "path": path })
        }
        Goal::NodeEligibleMem { nid, target } => {
            json!({ "metric": NODE_ELIGIBLE, "target_value": target, "current_value": 0, "nid": nid, "path": null })
        }
    };
    quota.goals.iter().map(value).collect()
}

/// The name of [`Goal::NodeEligibleMem`] in every format.
pub(crate) const NODE_ELIGIBLE: &str = "node_eligible_mem_bp";

/// A metric's name in files, its node and its control group.
pub(crate) fn metric_fields(metric: &SystemMetric) -> (&'static str, Option<u32>, Option<&str>) {
    match metric {
        SystemMetric::SomeMemPsiUs => ("some_mem_psi_us", None, None),
        SystemMetric::NodeMemUsedBp { nid } => ("node_mem_used_bp", Some(*nid), None),
        SystemMetric::NodeMemFreeBp { nid } => ("node_mem_free_bp", Some(*nid), None),
        SystemMetric::NodeMemcgUsedBp { nid, path } => ("node_memcg_used_bp", Some(*nid), Some(path)),
        SystemMetric::NodeMemcgFreeBp { nid, path } => ("node_memcg_free_bp", Some(*nid), Some(path)),
        SystemMetric::ActiveMemBp => ("active_mem_bp", None, None),
        SystemMetric::InactiveMemBp => ("inactive_mem_bp", None, None),
        SystemMetric::FreeMemRate => ("free_mem_rate", None, None),
    }
}

/// The name of a watermark metric in every format.
pub(crate) const fn watermark_metric(metric: WatermarkMetric) -> &'static str {
    match metric {
        WatermarkMetric::None => "none",
        WatermarkMetric::FreeMemRate => "free_mem_rate",
    }
}

fn watermarks(watermarks: &Watermarks) -> Value {
    let share = |Permille(share): Permille| {
        format!(
            "{} %",
            exact::permille_text(Permille(share)).trim_end_matches('%')
        )
    };
    json!({
        "metric": watermark_metric(watermarks.metric),
        "interval_us": exact::damo_nanos_text(watermarks.interval),
        "high_permil": share(watermarks.high),
        "mid_permil": share(watermarks.mid),
        "low_permil": share(watermarks.low),
    })
}

/// The filters, core filters first: the order of evaluation.
pub(crate) fn filters(filters: &Filters) -> Vec<Value> {
    let core = filters.core.iter().map(core_filter);
    core.chain(filters.ops.iter().map(ops_filter)).collect()
}

fn core_filter(
    CoreFilter {
        kind,
        matching,
        allow,
    }: &CoreFilter,
) -> Value {
    match kind {
        CoreFilterKind::Addr(range) => json!({
            "filter_type": "addr", "matching": matching, "allow": allow,
            "address_range": { "start": range.start.0, "end": range.end.0 },
        }),
        CoreFilterKind::Target(target) => json!({
            "filter_type": "target", "matching": matching, "allow": allow, "damon_target_idx": target.0,
        }),
    }
}

fn ops_filter(
    OpsFilter {
        kind,
        matching,
        allow,
    }: &OpsFilter,
) -> Value {
    let plain = |name: &str| json!({ "filter_type": name, "matching": matching, "allow": allow });
    match kind {
        OpsFilterKind::Anon => plain("anon"),
        OpsFilterKind::Young => plain("young"),
        OpsFilterKind::Active => plain("active"),
        OpsFilterKind::Unmapped => plain("unmapped"),
        OpsFilterKind::Memcg(path) => {
            json!({ "filter_type": "memcg", "matching": matching, "allow": allow, "memcg_path": path })
        }
        OpsFilterKind::HugepageSize { min, max } => json!({
            "filter_type": "hugepage_size", "matching": matching, "allow": allow,
            "hugepage_size": [exact::damo_bytes_text(*min), exact::damo_bytes_text(*max)],
        }),
    }
}
