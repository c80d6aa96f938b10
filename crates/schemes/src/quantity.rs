//! Quantities from the tree: numbers or texts, in the grammar of `thermo_units`.

use std::fmt::Display;

use thermo_engine::scheme::{Age, Rate};
use thermo_units::text::ParseError;
use thermo_units::{Bytes, Nanos, Permille};

use crate::tree::{Kind, Node};

/// The unit of a bare number. Empty: a unit is required, except for sizes, where a bare number is bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bare(pub(crate) &'static str);

/// The text of a value. A bare number, as number or as text, gets the default unit.
fn with_unit(text: &str, node: &Node, Bare(unit): Bare) -> Result<String, ParseError> {
    match &node.kind {
        // DAMON's files write the largest number for "no bound", whatever the unit.
        Kind::Number(number) | Kind::Text(number) if number.trim() == "18446744073709551615" => {
            Ok("max".to_owned())
        }
        Kind::Number(number) => Ok(format!("{number}{unit}")),
        Kind::Text(value) if is_bare(value) => Ok(format!("{}{unit}", value.trim())),
        Kind::Text(value) => Ok(value.clone()),
        _ => Err(node.error(
            text,
            format!(
                "expected a number or a string like \"5%\", found {}",
                node.describe_kind()
            ),
        )),
    }
}

fn is_bare(value: &str) -> bool {
    let value = value.trim();
    !value.is_empty()
        && value
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b',')
}

fn located<T, E: Display>(text: &str, node: &Node, read: Result<T, E>) -> Result<T, ParseError> {
    read.map_err(|error| node.error(text, error.to_string()))
}

/// A size; a bare number is bytes.
pub(crate) fn bytes(text: &str, node: &Node) -> Result<Bytes, ParseError> {
    located(text, node, with_unit(text, node, Bare(""))?.parse())
}

/// A duration.
pub(crate) fn nanos(text: &str, node: &Node, bare: Bare) -> Result<Nanos, ParseError> {
    located(text, node, span(&with_unit(text, node, bare)?))
}

/// Parses `90s` and also `1 m 30 s`, which is how durations are printed.
fn span(value: &str) -> Result<Nanos, thermo_units::UnitError> {
    let fields: Vec<&str> = value.split_whitespace().collect();
    if fields.len() < 4 || !fields.len().is_multiple_of(2) {
        return value.parse();
    }
    fields.chunks(2).try_fold(Nanos::ZERO, |sum, pair| {
        Ok(sum.saturating_add(pair.concat().parse()?))
    })
}

/// A share.
pub(crate) fn permille(text: &str, node: &Node, bare: Bare) -> Result<Permille, ParseError> {
    let value = with_unit(text, node, bare)?;
    match value.strip_suffix("permil") {
        None => located(text, node, value.parse()),
        Some(number) => match number.parse() {
            Ok(share) if share <= 1000 => Ok(Permille(share)),
            _ => Err(node.error(
                text,
                format!("{number} is not a number of thousandths: the maximum is 1000 (100%)"),
            )),
        },
    }
}

/// An access rate: `5%`, `3 samples`.
pub(crate) fn rate(text: &str, node: &Node, bare: Bare) -> Result<Rate, ParseError> {
    let value = with_unit(text, node, bare)?;
    if let Some(samples) = counted(&value, &["samples", "sample_intervals"]) {
        return located(text, node, samples).map(Rate::Samples);
    }
    located(text, node, value.parse()).map(Rate::Permille)
}

/// An age: `5s`, `20 aggr_intervals`.
pub(crate) fn age(text: &str, node: &Node, bare: Bare) -> Result<Age, ParseError> {
    let value = with_unit(text, node, bare)?;
    if let Some(aggrs) = counted(&value, &["aggr_intervals", "aggrs"]) {
        return located(text, node, aggrs).map(Age::Aggrs);
    }
    located(text, node, span(&value)).map(Age::Time)
}

fn counted(value: &str, units: &[&str]) -> Option<Result<u32, String>> {
    let number = units.iter().find_map(|unit| value.trim().strip_suffix(unit))?;
    let digits: String = number.trim().chars().filter(|c| *c != ',').collect();
    Some(digits.parse().map_err(|_| {
        format!(
            "{value:?} is not a whole number of {} up to {}",
            units.first().unwrap_or(&""),
            u32::MAX
        )
    }))
}

/// A plain number.
pub(crate) fn count(text: &str, node: &Node) -> Result<u64, ParseError> {
    if let Kind::Number(number) | Kind::Text(number) = &node.kind {
        let digits: String = number.trim().chars().filter(|c| *c != ',').collect();
        let read = match digits.strip_prefix("0x") {
            Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16),
            None => digits.parse(),
        };
        return read.map_err(|_| {
            node.error(
                text,
                format!("{number:?} is not a whole number of at most 64 bits"),
            )
        });
    }
    Err(node.error(
        text,
        format!("expected a whole number, found {}", node.describe_kind()),
    ))
}

/// A plain number of at most 32 bits.
pub(crate) fn small(text: &str, node: &Node) -> Result<u32, ParseError> {
    let number = count(text, node)?;
    u32::try_from(number).map_err(|_| {
        node.error(
            text,
            format!("{number} is too large: the maximum is {}", u32::MAX),
        )
    })
}

/// Ten-thousandths: a bare number is in this unit, `97.5%` is 9750.
pub(crate) fn basis_points(text: &str, node: &Node) -> Result<u64, ParseError> {
    let points = match &node.kind {
        Kind::Text(value) if value.trim().ends_with('%') => {
            hundredths(value.trim().trim_end_matches('%').trim_end()).ok_or_else(|| {
                node.error(
                    text,
                    format!("{value:?} is not a percentage: write it like \"97.5%\""),
                )
            })?
        }
        _ => count(text, node)?,
    };
    if points > 10_000 {
        return Err(node.error(
            text,
            format!("{points} ten-thousandths are more than 100%: the maximum is 10000"),
        ));
    }
    Ok(points)
}

fn hundredths(number: &str) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits =
        |part: &str| !part.is_empty() && part.len() <= 9 && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let fraction = format!("{fraction:0<2}");
    Some(whole.parse::<u64>().ok()? * 100 + fraction.get(..2)?.parse::<u64>().ok()?)
}

/// True or false, also as `Y`/`N` as in DAMON's files.
pub(crate) fn flag(text: &str, node: &Node) -> Result<bool, ParseError> {
    match &node.kind {
        Kind::Bool(value) => Ok(*value),
        Kind::Text(value) if matches!(value.to_ascii_lowercase().as_str(), "y" | "yes" | "true") => Ok(true),
        Kind::Text(value) if matches!(value.to_ascii_lowercase().as_str(), "n" | "no" | "false") => Ok(false),
        _ => Err(node.error(
            text,
            format!("expected true or false, found {}", node.describe_kind()),
        )),
    }
}

/// The text of a number or a string, without a default unit.
pub(crate) fn scalar(text: &str, node: &Node) -> Result<String, ParseError> {
    with_unit(text, node, Bare(""))
}

/// A string.
pub(crate) fn string(text: &str, node: &Node) -> Result<String, ParseError> {
    match &node.kind {
        Kind::Text(value) => Ok(value.clone()),
        _ => Err(node.error(
            text,
            format!("expected a string in quotes, found {}", node.describe_kind()),
        )),
    }
}
