//! Parses TOML into the tree.

use thermo_units::text::ParseError;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::{Entry, Kind, Node};

/// The tree of a TOML text.
pub(crate) fn parse(text: &str) -> Result<Node, ParseError> {
    let parsed = DeTable::parse(text).map_err(|error| {
        let message = format!("this is not TOML: {}", error.message());
        ParseError::from_parser(text, error.span(), &message)
    })?;
    Ok(Node {
        at: 0,
        kind: table(parsed.into_inner()),
    })
}

fn table(table: DeTable<'_>) -> Kind {
    let entry = |(name, value): (Spanned<DeString<'_>>, _)| Entry {
        at: name.span().start,
        name: name.into_inner().to_string(),
        node: node(value),
    };
    Kind::Table(table.into_iter().map(entry).collect())
}

fn node(value: Spanned<DeValue<'_>>) -> Node {
    let at = value.span().start;
    let kind = match value.into_inner() {
        DeValue::Boolean(value) => Kind::Bool(value),
        DeValue::Integer(number) => Kind::Number(
            // Addresses may be hexadecimal; the tree holds decimal numbers.
            u64::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| number.as_str().to_owned(), |n| n.to_string()),
        ),
        DeValue::Float(number) => Kind::Number(number.as_str().to_owned()),
        DeValue::String(value) => Kind::Text(value.into_owned()),
        DeValue::Array(values) => Kind::List(values.into_iter().map(node).collect()),
        DeValue::Table(inner) => table(inner),
        DeValue::Datetime(_) => Kind::Other,
    };
    Node { at, kind }
}
