//! Reads filters. Core and ops filters share one list; the order within a kind is kept.

use thermo_engine::ops::TargetId;
use thermo_engine::scheme::{Bounds, CoreFilter, CoreFilterKind, Filters, OpsFilter, OpsFilterKind};
use thermo_units::AddrRange;
use thermo_units::Bytes;
use thermo_units::text::ParseError;

use super::pattern::{bounds, check_order};
use crate::tree::{Fields, Node};
use crate::vocabulary::Vocabulary;
use crate::{exact, quantity};

const TYPES: &str = "anon, memcg, young, active, hugepage_size, unmapped, addr, target";

enum Kind {
    Core(CoreFilterKind),
    Ops(OpsFilterKind),
}

/// Reads a list of filters.
pub(crate) fn read(text: &str, node: Node, vocab: &Vocabulary) -> Result<Filters, ParseError> {
    let mut filters = Filters::default();
    for node in node.list(text, "filters")? {
        let mut fields = Fields::new(text, node, "a filter")?;
        let kind = kind(&mut fields, vocab)?;
        let mut asked = |name: &str| {
            fields
                .take(name)
                .map(|node| quantity::flag(text, &node))
                .transpose()
        };
        let matching = asked("matching")?.unwrap_or(true);
        let old_allow = asked("filter_pass")?;
        let allow = asked("allow")?.or(old_allow).unwrap_or(false);
        // damo writes every field, with null or "" where the type does not use it.
        for unused in ["memcg_path", "address_range", "damon_target_idx", "hugepage_size"] {
            let is_set =
                |node: &Node| !matches!(&node.kind, crate::tree::Kind::Text(text) if text.is_empty());
            if let Some(node) = fields.take(unused).filter(is_set) {
                return Err(node.error(text, format!("a filter of this type has no {unused}: remove it")));
            }
        }
        fields.finish(
            "a filter",
            &[
                vocab.filter_type,
                "matching",
                "allow",
                "memcg_path",
                "address_range",
                "damon_target_idx",
                "hugepage_size",
            ],
        )?;
        match kind {
            Kind::Core(kind) => filters.core.push(CoreFilter {
                kind,
                matching,
                allow,
            }),
            Kind::Ops(kind) => filters.ops.push(OpsFilter {
                kind,
                matching,
                allow,
            }),
        }
    }
    Ok(filters)
}

fn kind(fields: &mut Fields<'_>, vocab: &Vocabulary) -> Result<Kind, ParseError> {
    let text = fields.text;
    let Some(node) = fields.take(vocab.filter_type) else {
        return Err(fields.error(format!(
            "this filter has no {}: use one of {TYPES}",
            vocab.filter_type
        )));
    };
    Ok(match quantity::string(text, &node)?.as_str() {
        "anon" => Kind::Ops(OpsFilterKind::Anon),
        "young" => Kind::Ops(OpsFilterKind::Young),
        "active" => Kind::Ops(OpsFilterKind::Active),
        "unmapped" => Kind::Ops(OpsFilterKind::Unmapped),
        "memcg" => {
            let path = required(fields, "memcg_path", "\"/system.slice\"")?;
            Kind::Ops(OpsFilterKind::Memcg(quantity::string(text, &path)?))
        }
        "hugepage_size" => {
            let any = Bounds {
                min: Bytes::ZERO,
                max: Bytes::MAX,
            };
            let read = |node: &Node| quantity::bytes(text, node);
            let Some((bounds, at)) = bounds(fields, "hugepage_size", any, read)? else {
                return Err(fields.error("this filter needs a hugepage_size, like [\"2M\", \"max\"]"));
            };
            check_order(bounds, "hugepage_size", exact::bytes_text)
                .map_err(|message| ParseError::at_offset(text, at, message))?;
            Kind::Ops(OpsFilterKind::HugepageSize {
                min: bounds.min,
                max: bounds.max,
            })
        }
        "target" => {
            let index = required(fields, "damon_target_idx", "0")?;
            Kind::Core(CoreFilterKind::Target(TargetId(quantity::small(text, &index)?)))
        }
        "addr" => Kind::Core(CoreFilterKind::Addr(range(fields)?)),
        other => {
            return Err(node.error(
                text,
                format!("{other:?} is not a filter type: use one of {TYPES}"),
            ));
        }
    })
}

fn required(fields: &mut Fields<'_>, name: &str, example: &str) -> Result<Node, ParseError> {
    fields
        .take(name)
        .ok_or_else(|| fields.error(format!("this filter needs a {name}, like {example}")))
}

fn range(fields: &mut Fields<'_>) -> Result<AddrRange, ParseError> {
    let text = fields.text;
    let mut inner = Fields::new(
        text,
        required(fields, "address_range", "{ start = 0x1000, end = 0x2000 }")?,
        "address_range",
    )?;
    let mut address = |name: &str| match inner.take(name) {
        Some(node) => quantity::count(text, &node),
        None => Err(ParseError::at_offset(
            text,
            inner.at,
            format!("this address_range has no {name}"),
        )),
    };
    let range = AddrRange::new(address("start")?, address("end")?);
    if range.is_empty() {
        let message = format!("the address_range {range} is empty: its end must be above its start");
        return Err(inner.error(message));
    }
    inner.finish("address_range", &["start", "end"])?;
    Ok(range)
}
