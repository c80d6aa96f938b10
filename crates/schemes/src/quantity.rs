//! Quantities out of the tree: a number or a text, in the one grammar of units.

use std::fmt::Display;

use thermo_engine::scheme::{Age, Rate};
use thermo_units::text::ParseError;
use thermo_units::{Bytes, Nanos, Permille};

use crate::tree::{Kind, Node};

/// What a number without a unit means: the unit, or that there must be one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bare(pub(crate) &'static str);

/// The words of a value. A bare number, as number or as text, gets the unit it stands for.
fn words(text: &str, node: &Node, Bare(unit): Bare) -> Result<String, ParseError> {
    match &node.kind {
        // The largest number is how DAMON's files write "no bound", whatever the unit.
        Kind::Number(number) | Kind::Text(number) if number.trim() == "18446744073709551615" => {
            Ok("max".to_owned())
        }
        Kind::Number(number) => Ok(format!("{number}{unit}")),
        Kind::Text(words) if bare(words) => Ok(format!("{}{unit}", words.trim())),
        Kind::Text(words) => Ok(words.clone()),
        _ => Err(node.fault(
            text,
            format!(
                "this is {} and must be a number or a text like \"5%\"",
                node.what()
            ),
        )),
    }
}

fn bare(words: &str) -> bool {
    let words = words.trim();
    !words.is_empty()
        && words
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b',')
}

fn told<T, E: Display>(text: &str, node: &Node, read: Result<T, E>) -> Result<T, ParseError> {
    read.map_err(|error| node.fault(text, error.to_string()))
}

/// A size; a bare number is bytes.
pub(crate) fn bytes(text: &str, node: &Node) -> Result<Bytes, ParseError> {
    told(text, node, words(text, node, Bare(""))?.parse())
}

/// A span of time.
pub(crate) fn nanos(text: &str, node: &Node, bare: Bare) -> Result<Nanos, ParseError> {
    told(text, node, span(&words(text, node, bare)?))
}

/// Reads `90s` as well as `1 m 30 s`, which is how spans are shown.
fn span(words: &str) -> Result<Nanos, thermo_units::UnitError> {
    let fields: Vec<&str> = words.split_whitespace().collect();
    if fields.len() < 4 || !fields.len().is_multiple_of(2) {
        return words.parse();
    }
    fields.chunks(2).try_fold(Nanos::ZERO, |sum, pair| {
        Ok(sum.saturating_add(pair.concat().parse()?))
    })
}

/// A share of all.
pub(crate) fn permille(text: &str, node: &Node, bare: Bare) -> Result<Permille, ParseError> {
    let words = words(text, node, bare)?;
    match words.strip_suffix("permil") {
        None => told(text, node, words.parse()),
        Some(number) => match number.parse() {
            Ok(share) if share <= 1000 => Ok(Permille(share)),
            _ => Err(node.fault(
                text,
                format!("{number} is not a number of thousandths: the most is 1000 (100%)"),
            )),
        },
    }
}

/// An access rate: `5%`, `3 samples`.
pub(crate) fn rate(text: &str, node: &Node, bare: Bare) -> Result<Rate, ParseError> {
    let words = words(text, node, bare)?;
    if let Some(samples) = counted(&words, &["samples", "sample_intervals"]) {
        return told(text, node, samples).map(Rate::Samples);
    }
    told(text, node, words.parse()).map(Rate::Permille)
}

/// An age: `5s`, `20 aggr_intervals`.
pub(crate) fn age(text: &str, node: &Node, bare: Bare) -> Result<Age, ParseError> {
    let words = words(text, node, bare)?;
    if let Some(aggrs) = counted(&words, &["aggr_intervals", "aggrs"]) {
        return told(text, node, aggrs).map(Age::Aggrs);
    }
    told(text, node, span(&words)).map(Age::Time)
}

fn counted(words: &str, units: &[&str]) -> Option<Result<u32, String>> {
    let number = units.iter().find_map(|unit| words.trim().strip_suffix(unit))?;
    let digits: String = number.trim().chars().filter(|c| *c != ',').collect();
    Some(digits.parse().map_err(|_| {
        format!(
            "{words:?} is not a whole number of {} up to {}",
            units[0],
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
            node.fault(
                text,
                format!("{number:?} is not a whole number of at most 64 bits"),
            )
        });
    }
    Err(node.fault(
        text,
        format!("this is {} and must be a whole number", node.what()),
    ))
}

/// A plain number of at most 32 bits.
pub(crate) fn small(text: &str, node: &Node) -> Result<u32, ParseError> {
    let number = count(text, node)?;
    u32::try_from(number)
        .map_err(|_| node.fault(text, format!("{number} is too large: the most is {}", u32::MAX)))
}

/// Ten-thousandths: a bare number is that, `97.5%` is 9750.
pub(crate) fn basis_points(text: &str, node: &Node) -> Result<u64, ParseError> {
    let points = match &node.kind {
        Kind::Text(words) if words.trim().ends_with('%') => {
            hundredths(words.trim().trim_end_matches('%').trim_end()).ok_or_else(|| {
                node.fault(
                    text,
                    format!("{words:?} is not a percentage: write it like \"97.5%\""),
                )
            })?
        }
        _ => count(text, node)?,
    };
    if points > 10_000 {
        return Err(node.fault(
            text,
            format!("{points} ten-thousandths are more than all: the most is 10000 (100%)"),
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
    Some(whole.parse::<u64>().ok()? * 100 + fraction[..2].parse::<u64>().ok()?)
}

/// True or false, also in the words DAMON's files use.
pub(crate) fn flag(text: &str, node: &Node) -> Result<bool, ParseError> {
    match &node.kind {
        Kind::Bool(value) => Ok(*value),
        Kind::Text(word) if matches!(word.to_ascii_lowercase().as_str(), "y" | "yes" | "true") => Ok(true),
        Kind::Text(word) if matches!(word.to_ascii_lowercase().as_str(), "n" | "no" | "false") => Ok(false),
        _ => Err(node.fault(text, format!("this is {} and must be true or false", node.what()))),
    }
}

/// A word or a path.
pub(crate) fn string(text: &str, node: &Node) -> Result<String, ParseError> {
    match &node.kind {
        Kind::Text(words) => Ok(words.clone()),
        _ => Err(node.fault(
            text,
            format!("this is {} and must be a text in quotes", node.what()),
        )),
    }
}
