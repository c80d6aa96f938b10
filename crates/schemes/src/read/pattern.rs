//! Reads access patterns: bounds of size, rate and age.

use std::fmt::Display;

use thermo_engine::scheme::{AccessPattern, Age, Bounds, Rate};
use thermo_units::text::ParseError;
use thermo_units::{Nanos, Permille};

use crate::quantity::Bare;
use crate::tree::{Fields, Kind, Node};
use crate::vocabulary::Vocabulary;
use crate::{exact, quantity};

/// Reads the pattern from `fields`; missing bounds match anything.
pub(crate) fn read(fields: &mut Fields<'_>, vocab: &Vocabulary) -> Result<AccessPattern, ParseError> {
    let text = fields.text;
    let mut pattern = AccessPattern::default();
    let (rate, age) = units(fields, vocab)?;
    if let Some((bounds, at)) = bounds(fields, vocab.sz, pattern.sz, |node| quantity::bytes(text, node))? {
        check_order(bounds, vocab.sz, exact::bytes_text)
            .map_err(|message| ParseError::at_offset(text, at, message))?;
        pattern.sz = bounds;
    }
    let read_rate = |node: &Node| quantity::rate(text, node, rate);
    if let Some((bounds, at)) = bounds(fields, "nr_accesses", pattern.nr_accesses, read_rate)? {
        pattern.nr_accesses =
            unify_rates(bounds).map_err(|message| ParseError::at_offset(text, at, message))?;
    }
    let read_age = |node: &Node| quantity::age(text, node, age);
    if let Some((bounds, at)) = bounds(fields, "age", pattern.age, read_age)? {
        pattern.age = unify_ages(bounds).map_err(|message| ParseError::at_offset(text, at, message))?;
    }
    Ok(pattern)
}

/// The units of bare rates and ages: those that the pattern names, else those of the format.
fn units(fields: &mut Fields<'_>, vocab: &Vocabulary) -> Result<(Bare, Bare), ParseError> {
    let [rate, age] = vocab
        .units
        .map_or([None, None], |names| names.map(|name| fields.take(name)));
    let text = fields.text;
    Ok((
        unit(text, rate, &RATE_UNITS)?.unwrap_or(vocab.rate),
        unit(text, age, &AGE_UNITS)?.unwrap_or(vocab.age),
    ))
}

/// damo's names of units, and how they are written after a number.
const RATE_UNITS: [(&str, Bare); 3] = [
    ("percent", Bare("%")),
    ("samples", Bare(" samples")),
    ("sample_intervals", Bare(" samples")),
];
const AGE_UNITS: [(&str, Bare); 2] = [("usec", Bare("us")), ("aggr_intervals", Bare(" aggr_intervals"))];

fn unit(text: &str, node: Option<Node>, known: &[(&str, Bare)]) -> Result<Option<Bare>, ParseError> {
    let Some(node) = node else {
        return Ok(None);
    };
    let name = quantity::string(text, &node)?;
    let found = known.iter().find(|(unit, _)| *unit == name);
    found.map(|(_, bare)| Some(*bare)).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(unit, _)| *unit).collect();
        node.error(
            text,
            format!("{name:?} is not a unit: use one of {}", names.join(", ")),
        )
    })
}

/// Reads `{ min, max }` or `[min, max]`; also returns the position.
pub(crate) fn bounds<T: Copy>(
    fields: &mut Fields<'_>,
    name: &str,
    any: Bounds<T>,
    read: impl Fn(&Node) -> Result<T, ParseError>,
) -> Result<Option<(Bounds<T>, usize)>, ParseError> {
    let text = fields.text;
    let Some(node) = fields.take(name) else {
        return Ok(None);
    };
    let at = node.at;
    let (min, max) = match node.kind {
        Kind::List(nodes) => match <[Node; 2]>::try_from(nodes) {
            Ok([min, max]) => (Some(min), Some(max)),
            Err(nodes) => {
                let message = format!(
                    "{name} has {} entries and must have two: minimum and maximum",
                    nodes.len()
                );
                return Err(ParseError::at_offset(text, at, message));
            }
        },
        Kind::Table(_) => {
            let mut fields = Fields::new(text, node, name)?;
            let both = (fields.take("min"), fields.take("max"));
            fields.finish(name, &["min", "max"])?;
            both
        }
        _ => {
            let message = format!(
                "{name} must be a minimum and a maximum, like [\"min\", \"max\"], found {}",
                node.describe_kind()
            );
            return Err(ParseError::at_offset(text, at, message));
        }
    };
    let value = |node: Option<Node>, default: T| node.map_or(Ok(default), |node| read(&node));
    Ok(Some((
        Bounds {
            min: value(min, any.min)?,
            max: value(max, any.max)?,
        },
        at,
    )))
}

/// Returns an error if the minimum is above the maximum.
pub(crate) fn check_order<T: PartialOrd + Copy, D: Display>(
    Bounds { min, max }: Bounds<T>,
    what: &str,
    show: impl Fn(T) -> D,
) -> Result<(), String> {
    if min <= max {
        return Ok(());
    }
    let (min, max) = (show(min), show(max));
    Err(format!(
        "the minimum {what} ({min}) is above the maximum ({max}), so nothing matches: swap them or raise the maximum"
    ))
}

/// Converts both bounds to the same unit. That is possible if one of them is 0 or 100 %, which needs no unit.
fn unify_rates(bounds: Bounds<Rate>) -> Result<Bounds<Rate>, String> {
    let what = "access rate";
    let samples = |rate| match rate {
        Rate::Samples(n) => Some(n),
        Rate::Permille(Permille(0)) => Some(0),
        Rate::Permille(Permille(1000)) => Some(u32::MAX),
        Rate::Permille(_) => None,
    };
    match (bounds.min, bounds.max) {
        (Rate::Permille(min), Rate::Permille(max)) => {
            check_order(Bounds { min, max }, what, exact::permille_text)?
        }
        (min, max) => {
            let (Some(min), Some(max)) = (samples(min), samples(max)) else {
                return Err(
                    "one bound is in percent, the other in samples: use the same for both".to_owned(),
                );
            };
            check_order(Bounds { min, max }, what, |n| format!("{n} samples"))?;
            return Ok(Bounds {
                min: Rate::Samples(min),
                max: Rate::Samples(max),
            });
        }
    }
    Ok(bounds)
}

/// As [`unify_rates`], for ages.
fn unify_ages(bounds: Bounds<Age>) -> Result<Bounds<Age>, String> {
    let aggrs = |age| match age {
        Age::Aggrs(n) => Some(n),
        Age::Time(Nanos::ZERO) => Some(0),
        Age::Time(Nanos::MAX) => Some(u32::MAX),
        Age::Time(_) => None,
    };
    match (bounds.min, bounds.max) {
        (Age::Time(min), Age::Time(max)) => check_order(Bounds { min, max }, "age", exact::nanos_text)?,
        (min, max) => {
            let (Some(min), Some(max)) = (aggrs(min), aggrs(max)) else {
                return Err(
                    "one bound is a time, the other in aggregation intervals: use the same for both"
                        .to_owned(),
                );
            };
            check_order(Bounds { min, max }, "age", |n| format!("{n} aggr_intervals"))?;
            return Ok(Bounds {
                min: Age::Aggrs(min),
                max: Age::Aggrs(max),
            });
        }
    }
    Ok(bounds)
}
