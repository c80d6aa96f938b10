//! The nodes to migrate to: `target_nid`, or `dests` with an id and a weight for each node.

use thermo_engine::Action;
use thermo_engine::scheme::Destination;
use thermo_units::text::ParseError;

use crate::quantity;
use crate::tree::{Fields, Kind, Node};

/// The fields of a scheme about destinations.
pub(super) const FIELDS: [&str; 2] = ["target_nid", "dests"];

/// Takes the destinations of a scheme with this `action`. damo writes empty ones for every action.
pub(super) fn read(fields: &mut Fields<'_>, action: Action) -> Result<Vec<Destination>, ParseError> {
    let text = fields.text;
    let target = fields.take("target_nid").filter(|node| !is_none(node));
    let mut destinations = Vec::new();
    if let Some(list) = fields.take("dests") {
        for node in list.list(text, "dests")? {
            destinations.push(destination(text, node)?);
        }
    }
    match target {
        Some(node) if !destinations.is_empty() => {
            Err(node.error(text, "target_nid and dests are both given: keep one"))
        }
        // DAMON has the file for every action, and ignores its value.
        Some(node) if action.migrates() => Ok(vec![Destination::only(quantity::small(text, &node)?)]),
        _ if !action.migrates() && !destinations.is_empty() => Err(fields.error(format!(
            "dests: {action} does not move memory to a node: remove it, or use migrate_hot or migrate_cold"
        ))),
        _ => Ok(destinations),
    }
}

/// -1 means no node, as in DAMON's file.
fn is_none(node: &Node) -> bool {
    matches!(&node.kind, Kind::Number(number) if number == "-1")
}

fn destination(text: &str, node: Node) -> Result<Destination, ParseError> {
    let mut fields = Fields::new(text, node, "a destination")?;
    let Some(id) = fields.take("id") else {
        return Err(fields.error("this destination has no id: give the number of the node"));
    };
    let nid = quantity::small(text, &id)?;
    let weight = fields.take("weight");
    let weight = weight.map_or(Ok(1), |node| quantity::small(text, &node))?;
    fields.finish("a destination", &["id", "weight"])?;
    Ok(Destination { nid, weight })
}
