//! Parses JSON into the tree.

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use thermo_units::text::ParseError;

use super::{Entry, Kind, Node};

/// Plain JSON without extensions, so that damo accepts every file that we accept.
const PLAIN: ParseOptions = ParseOptions {
    allow_comments: false,
    allow_loose_object_property_names: false,
    allow_trailing_commas: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// The tree of a JSON text; `None` if the text has no value.
pub(crate) fn parse(text: &str) -> Result<Option<Node>, ParseError> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &PLAIN).map_err(|error| {
        let message = format!("this is not JSON: {}", error.kind());
        ParseError::at_offset(text, error.range().start, message)
    })?;
    Ok(parsed.value.map(node))
}

fn node(value: Value<'_>) -> Node {
    let at = value.start();
    let kind = match value {
        Value::NullKeyword(_) => Kind::Null,
        Value::BooleanLit(literal) => Kind::Bool(literal.value),
        Value::NumberLit(literal) => Kind::Number(literal.value.to_owned()),
        Value::StringLit(literal) => Kind::Text(literal.value.into_owned()),
        Value::Array(array) => Kind::List(array.elements.into_iter().map(node).collect()),
        Value::Object(object) => Kind::Table(
            object
                .properties
                .into_iter()
                .map(|property| Entry {
                    at: property.range.start,
                    name: property.name.into_string(),
                    node: node(property.value),
                })
                .collect(),
        ),
    };
    Node { at, kind }
}
