//! Reads quotas and their goals.

use thermo_engine::scheme::{Goal, GoalTuner, Quota, SystemMetric, Weights};
use thermo_units::text::ParseError;
use thermo_units::{Bytes, Nanos};

use crate::damo::NODE_ELIGIBLE;
use crate::quantity::{self, Bare};
use crate::tree::{Fields, Kind, Node};
use crate::vocabulary::Vocabulary;

const METRICS: &str = "user_input, some_mem_psi_us, node_mem_used_bp, node_mem_free_bp, node_memcg_used_bp, \
                       node_memcg_free_bp, node_eligible_mem_bp, active_mem_bp, inactive_mem_bp";

/// Reads the quota from a table.
pub(crate) fn read(text: &str, node: Node, vocab: &Vocabulary) -> Result<Quota, ParseError> {
    let name = vocab.quota;
    let mut fields = Fields::new(text, node, name)?;
    let mut quota = Quota::default();
    if let Some(node) = fields.take(vocab.quota_time.0) {
        quota.time = quantity::nanos(text, &node, vocab.quota_time.1)?;
    }
    if let Some(node) = fields.take(vocab.quota_sz) {
        quota.sz = quantity::bytes(text, &node)?;
    }
    let window = fields.take(vocab.reset_interval.0);
    if let Some(node) = &window {
        quota.reset_interval = quantity::nanos(text, node, vocab.reset_interval.1)?;
    }
    if let Some(node) = fields.take("weights") {
        quota.weights = weights(text, node, vocab)?;
    }
    if let Some(node) = fields.take("goals") {
        quota.goals = node
            .list(text, "goals")?
            .into_iter()
            .map(|node| goal(text, node))
            .collect::<Result<_, _>>()?;
    }
    if let Some(node) = fields.take(vocab.tuner) {
        quota.tuner = tuner(text, &node)?;
    }
    let limited = quota.time != Nanos::ZERO || quota.sz != Bytes::ZERO || !quota.goals.is_empty();
    let (window_name, _) = vocab.reset_interval;
    if limited && (quota.reset_interval == Nanos::ZERO || (vocab.window_required && window.is_none())) {
        let message = format!("the quota has no window: give {window_name}, like \"1s\"");
        return Err(window.map_or_else(
            || fields.error(message.clone()),
            |node| node.error(text, message.clone()),
        ));
    }
    for name in vocab.ignored {
        fields.take(name);
    }
    let known = [
        vocab.quota_time.0,
        vocab.quota_sz,
        window_name,
        "weights",
        "goals",
        vocab.tuner,
    ];
    fields.finish(name, &known)?;
    Ok(quota)
}

fn weights(text: &str, node: Node, vocab: &Vocabulary) -> Result<Weights, ParseError> {
    let mut fields = Fields::new(text, node, "weights")?;
    let mut weight = |name: &str| match fields.take(name) {
        // damo writes weights as percentages.
        Some(node) if matches!(&node.kind, Kind::Text(text) if text.contains('%')) => {
            quantity::permille(text, &node, Bare("%")).map(|share| share.0)
        }
        Some(node) => quantity::small(text, &node),
        None => Ok(0),
    };
    let [sz, nr_accesses, age] = vocab.weights;
    let weights = Weights {
        sz: weight(sz)?,
        nr_accesses: weight(nr_accesses)?,
        age: weight(age)?,
    };
    fields.finish("weights", &vocab.weights)?;
    Ok(weights)
}

fn tuner(text: &str, node: &Node) -> Result<GoalTuner, ParseError> {
    match quantity::string(text, node)?.as_str() {
        "consist" => Ok(GoalTuner::Consist),
        "temporal" => Ok(GoalTuner::Temporal),
        other => Err(node.error(
            text,
            format!("{other:?} is not a goal tuner: use one of consist, temporal"),
        )),
    }
}

fn goal(text: &str, node: Node) -> Result<Goal, ParseError> {
    let mut fields = Fields::new(text, node, "a goal")?;
    let Some(metric) = fields.take("metric") else {
        return Err(fields.error(format!("this goal has no metric: use one of {METRICS}")));
    };
    let Some(target) = fields.take("target_value") else {
        return Err(fields.error("this goal has no target_value: give the value that the metric should have"));
    };
    let current = fields.take("current_value");
    let current = current.map_or(Ok(0), |node| quantity::count(text, &node))?;
    let value = goal_value(text, &metric, &mut fields)?;
    fields.finish(
        "a goal",
        &["metric", "target_value", "current_value", "nid", "path"],
    )?;
    Ok(match value {
        GoalValue::UserInput => Goal::UserInput {
            target: quantity::count(text, &target)?,
            current,
        },
        GoalValue::Metric(metric @ SystemMetric::SomeMemPsiUs) => Goal::Metric {
            metric,
            target: quantity::nanos(text, &target, Bare("us"))?.as_micros(),
        },
        GoalValue::Metric(metric) => Goal::Metric {
            metric,
            target: quantity::basis_points(text, &target)?,
        },
        GoalValue::NodeEligibleMem(nid) => Goal::NodeEligibleMem {
            nid,
            target: quantity::basis_points(text, &target)?,
        },
    })
}

/// The value that a goal is about.
enum GoalValue {
    UserInput,
    Metric(SystemMetric),
    /// The share of the scheme's memory on this node.
    NodeEligibleMem(u32),
}

/// The value that a goal names, with its node and control group.
fn goal_value(text: &str, name: &Node, fields: &mut Fields<'_>) -> Result<GoalValue, ParseError> {
    let nid = fields.take("nid");
    let nid = nid.map_or(Ok(0), |node| quantity::small(text, &node))?;
    let path = fields.take("path");
    let path = path.map(|node| quantity::string(text, &node)).transpose()?;
    let group = || path.ok_or_else(|| fields.error("this goal needs the path of a memory control group"));
    Ok(GoalValue::Metric(match quantity::string(text, name)?.as_str() {
        "user_input" => return Ok(GoalValue::UserInput),
        NODE_ELIGIBLE => return Ok(GoalValue::NodeEligibleMem(nid)),
        "some_mem_psi_us" => SystemMetric::SomeMemPsiUs,
        "node_mem_used_bp" => SystemMetric::NodeMemUsedBp { nid },
        "node_mem_free_bp" => SystemMetric::NodeMemFreeBp { nid },
        "node_memcg_used_bp" => SystemMetric::NodeMemcgUsedBp { nid, path: group()? },
        "node_memcg_free_bp" => SystemMetric::NodeMemcgFreeBp { nid, path: group()? },
        "active_mem_bp" => SystemMetric::ActiveMemBp,
        "inactive_mem_bp" => SystemMetric::InactiveMemBp,
        other @ "node_ineligible_mem_bp" => {
            // Only in drafts of the kernel's patch: with two nodes, it is the same goal for the other node.
            let message = format!(
                "{other} is not in any kernel: use {NODE_ELIGIBLE} with the nid of the node where the memory \
                 should be"
            );
            return Err(name.error(text, message));
        }
        other => {
            let message = format!("{other:?} is not a goal metric: use one of {METRICS}");
            return Err(name.error(text, message));
        }
    }))
}
