//! Converts the tree into schemes, with the vocabulary of either format.

mod auto_age;
mod destinations;
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

pub(crate) use pattern::check_order;

/// Reads a list of schemes.
pub(crate) fn schemes(text: &str, nodes: Vec<Node>, vocab: &Vocabulary) -> Result<Vec<Scheme>, ParseError> {
    nodes.into_iter().map(|node| scheme(text, node, vocab)).collect()
}

fn scheme(text: &str, node: Node, vocab: &Vocabulary) -> Result<Scheme, ParseError> {
    let mut fields = Fields::new(text, node, "a scheme")?;
    let Some(action) = fields.take("action") else {
        return Err(fields.error("this scheme has no action: give one, like \"pageout\" or \"stat\""));
    };
    let name = quantity::string(text, &action)?;
    let mut scheme = Scheme::new(
        name.parse::<Action>()
            .map_err(|error| action.error(text, error.to_string()))?,
    );
    scheme.destinations = destinations::read(&mut fields, scheme.action)?;
    match vocab.access_pattern {
        None => scheme.pattern = pattern::read(&mut fields, vocab)?,
        Some(table) => {
            if let Some(node) = fields.take(table) {
                let mut fields = Fields::new(text, node, table)?;
                scheme.pattern = pattern::read(&mut fields, vocab)?;
                let units = vocab.units.into_iter().flatten();
                let known: Vec<&str> = [vocab.sz, "nr_accesses", "age"]
                    .into_iter()
                    .chain(units)
                    .collect();
                fields.finish(table, &known)?;
            }
        }
    }
    scheme.auto_age = auto_age::read(&mut fields, &scheme.pattern, vocab)?;
    let (interval, bare) = vocab.apply_interval;
    if let Some(node) = fields.take(interval) {
        scheme.apply_interval = Some(quantity::nanos(text, &node, bare)?).filter(|span| *span != Nanos::ZERO);
    }
    if let Some(node) = fields.take(vocab.quota) {
        scheme.quota = quota::read(text, node, vocab)?;
    }
    if let Some(node) = fields.take("watermarks") {
        scheme.watermarks = watermarks(text, node, vocab)?;
    }
    if let Some(node) = fields.take("filters") {
        scheme.filters = filter::read(text, node, vocab)?;
    }
    if let Some(node) = fields.take("max_nr_snapshots") {
        scheme.max_nr_snapshots = quantity::count(text, &node)?;
    }
    for name in vocab.ignored {
        fields.take(name);
    }
    let mut known = vec!["action"];
    known.extend(vocab.access_pattern);
    if vocab.access_pattern.is_none() {
        known.extend([vocab.sz, "nr_accesses", "age"]);
    }
    if vocab.auto_age {
        known.extend(auto_age::FIELDS);
    }
    known.extend(destinations::FIELDS);
    known.extend([interval, vocab.quota, "watermarks", "filters", "max_nr_snapshots"]);
    fields.finish("a scheme", &known)?;
    Ok(scheme)
}

fn watermarks(text: &str, node: Node, vocab: &Vocabulary) -> Result<Watermarks, ParseError> {
    let mut fields = Fields::new(text, node, "watermarks")?;
    let mut watermarks = Watermarks::default();
    if let Some(node) = fields.take("metric") {
        watermarks.metric = match quantity::string(text, &node)?.as_str() {
            "none" => WatermarkMetric::None,
            "free_mem_rate" => WatermarkMetric::FreeMemRate,
            other => {
                let message = format!("{other:?} is not a watermark metric: use one of none, free_mem_rate");
                return Err(node.error(text, message));
            }
        };
    }
    let (interval, bare) = vocab.watermarks_interval;
    if let Some(node) = fields.take(interval) {
        watermarks.interval = quantity::nanos(text, &node, bare)?;
    }
    let mut share = |name: &str| match fields.take(name) {
        Some(node) => quantity::permille(text, &node, vocab.share),
        None => Ok(Permille(0)),
    };
    let [high, mid, low] = vocab.watermarks;
    (watermarks.high, watermarks.mid, watermarks.low) = (share(high)?, share(mid)?, share(low)?);
    check_watermarks(&fields, &watermarks)?;
    fields.finish("watermarks", &["metric", interval, high, mid, low])?;
    Ok(watermarks)
}

fn check_watermarks(fields: &Fields<'_>, watermarks: &Watermarks) -> Result<(), ParseError> {
    let Watermarks { high, mid, low, .. } = watermarks;
    if !(low <= mid && mid <= high) {
        let message = format!(
            "the watermarks are out of order (high {high}, mid {mid}, low {low}): high must be the largest and low \
             the smallest"
        );
        return Err(fields.error(message));
    }
    if watermarks.metric != WatermarkMetric::None && watermarks.interval == Nanos::ZERO {
        return Err(fields.error("the watermarks are never checked: give an interval, like \"5s\""));
    }
    Ok(())
}
