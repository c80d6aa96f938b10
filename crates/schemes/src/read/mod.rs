//! From the tree to schemes, whichever vocabulary it speaks.

mod filter;
mod pattern;
mod quota;

use thermo_engine::scheme::{WatermarkMetric, Watermarks};
use thermo_engine::{Action, Scheme};
use thermo_units::text::ParseError;
use thermo_units::{Nanos, Permille};

use crate::quantity;
use crate::tree::{Fields, Node};
use crate::vocabulary::Vocabulary;

pub(crate) use pattern::in_order;

/// A list of schemes.
pub(crate) fn schemes(text: &str, nodes: Vec<Node>, words: &Vocabulary) -> Result<Vec<Scheme>, ParseError> {
    nodes.into_iter().map(|node| scheme(text, node, words)).collect()
}

fn scheme(text: &str, node: Node, words: &Vocabulary) -> Result<Scheme, ParseError> {
    let mut fields = Fields::of(text, node, "a scheme")?;
    let Some(action) = fields.take("action") else {
        return Err(fields.fault("this scheme has no action: give one, like \"pageout\" or \"stat\""));
    };
    let name = quantity::string(text, &action)?;
    let mut scheme = Scheme::new(
        name.parse::<Action>()
            .map_err(|error| action.fault(text, error.to_string()))?,
    );
    refuse_destinations(text, &mut fields, scheme.action)?;
    match words.access_pattern {
        None => scheme.pattern = pattern::read(&mut fields, words)?,
        Some(table) => {
            if let Some(node) = fields.take(table) {
                let mut fields = Fields::of(text, node, table)?;
                scheme.pattern = pattern::read(&mut fields, words)?;
                fields.finish(table, &[words.sz, "nr_accesses", "age"])?;
            }
        }
    }
    let (interval, bare) = words.apply_interval;
    if let Some(node) = fields.take(interval) {
        scheme.apply_interval = Some(quantity::nanos(text, &node, bare)?).filter(|span| *span != Nanos::ZERO);
    }
    if let Some(node) = fields.take(words.quota) {
        scheme.quota = quota::read(text, node, words)?;
    }
    if let Some(node) = fields.take("watermarks") {
        scheme.watermarks = watermarks(text, node, words)?;
    }
    if let Some(node) = fields.take("filters") {
        scheme.filters = filter::read(text, node, words)?;
    }
    if let Some(node) = fields.take("max_nr_snapshots") {
        scheme.max_nr_snapshots = quantity::count(text, &node)?;
    }
    for name in words.ignored {
        fields.take(name);
    }
    let mut known = vec!["action"];
    known.extend(words.access_pattern);
    if words.access_pattern.is_none() {
        known.extend([words.sz, "nr_accesses", "age"]);
    }
    known.extend([interval, words.quota, "watermarks", "filters", "max_nr_snapshots"]);
    fields.finish("a scheme", &known)?;
    Ok(scheme)
}

/// damo writes where to migrate to. Saying nothing about what cannot be followed would be a lie.
fn refuse_destinations(text: &str, fields: &mut Fields<'_>, action: Action) -> Result<(), ParseError> {
    let migrates = matches!(action, Action::MigrateHot | Action::MigrateCold);
    let refused = |node: &Node, name: &str| {
        node.fault(
            text,
            format!("{name}: a node to migrate to cannot be chosen: leave it out, the nearest is taken"),
        )
    };
    if let Some(node) = fields.take("target_nid") {
        let none = matches!(&node.kind, crate::tree::Kind::Number(number) if number == "-1");
        if migrates && !none {
            return Err(refused(&node, "target_nid"));
        }
    }
    if let Some(node) = fields.take("dests") {
        let place = Node {
            at: node.at,
            kind: crate::tree::Kind::Null,
        };
        if !node.list(text, "dests")?.is_empty() {
            return Err(refused(&place, "dests"));
        }
    }
    Ok(())
}

fn watermarks(text: &str, node: Node, words: &Vocabulary) -> Result<Watermarks, ParseError> {
    let mut fields = Fields::of(text, node, "watermarks")?;
    let mut marks = Watermarks::default();
    if let Some(node) = fields.take("metric") {
        marks.metric = match quantity::string(text, &node)?.as_str() {
            "none" => WatermarkMetric::None,
            "free_mem_rate" => WatermarkMetric::FreeMemRate,
            other => {
                let message =
                    format!("{other:?} is not a metric of watermarks: use one of none, free_mem_rate");
                return Err(node.fault(text, message));
            }
        };
    }
    let (interval, bare) = words.watermarks_interval;
    if let Some(node) = fields.take(interval) {
        marks.interval = quantity::nanos(text, &node, bare)?;
    }
    let mut share = |name: &str| match fields.take(name) {
        Some(node) => quantity::permille(text, &node, words.share),
        None => Ok(Permille(0)),
    };
    let [high, mid, low] = words.marks;
    (marks.high, marks.mid, marks.low) = (share(high)?, share(mid)?, share(low)?);
    check_watermarks(&fields, &marks)?;
    fields.finish("watermarks", &["metric", interval, high, mid, low])?;
    Ok(marks)
}

fn check_watermarks(fields: &Fields<'_>, marks: &Watermarks) -> Result<(), ParseError> {
    let Watermarks { high, mid, low, .. } = marks;
    if !(low <= mid && mid <= high) {
        let message = format!(
            "the watermarks are out of order (high {high}, mid {mid}, low {low}): high must be the largest and low \
             the smallest"
        );
        return Err(fields.fault(message));
    }
    if marks.metric != WatermarkMetric::None && marks.interval == Nanos::ZERO {
        return Err(fields.fault("the watermarks are never looked at: give an interval, like \"5s\""));
    }
    Ok(())
}
