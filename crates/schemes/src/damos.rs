//! The DAMOS line: `min_sz max_sz min_freq max_freq min_age max_age action`, optionally followed by a limit
//! of bytes and its window: `500M 1s`.
//!
//! The minimum age `auto` follows the accesses, with the default bound on re-accesses.
//!
//! `null` means no bound. A bare frequency is percent, a bare size is bytes. A bare age is an error, because
//! tools disagree on its unit.

use std::fmt::Display;
use std::str::FromStr;

use thermo_engine::scheme::{AccessPattern, Age, AutoAge, Bounds, Quota, Rate};
use thermo_engine::{Action, Scheme};
use thermo_units::text::ParseError;
use thermo_units::{Bytes, Nanos, Permille};

use crate::exact;
use crate::read::check_order;

const FORM: &str = "min_sz max_sz min_freq max_freq min_age max_age action [limit_sz limit_time]";

/// The minimum age that follows the accesses.
const AUTO: &str = "auto";

/// Parses one scheme per line; `#` starts a comment.
pub(crate) fn parse(text: &str) -> Result<Vec<Scheme>, ParseError> {
    let mut schemes = Vec::new();
    for line in text.lines() {
        let content = line.split('#').next().unwrap_or("").trim_end();
        let fields: Vec<&str> = content.split_whitespace().collect();
        if !fields.is_empty() {
            schemes.push(scheme(text, content, &fields)?);
        }
    }
    Ok(schemes)
}

fn scheme(text: &str, line: &str, fields: &[&str]) -> Result<Scheme, ParseError> {
    let &[
        min_sz,
        max_sz,
        min_freq,
        max_freq,
        min_age,
        max_age,
        action,
        ref limit @ ..,
    ] = fields
    else {
        let message = format!("{} of 7 fields: a scheme is `{FORM}`", fields.len());
        return Err(ParseError::at(text, end_of(line), message));
    };
    let mut scheme = Scheme::new(read::<Action>(text, action)?);
    let is_auto = min_age == AUTO;
    let min_span = if is_auto { "min" } else { min_age };
    scheme.pattern = AccessPattern {
        sz: bounds(text, "size", [min_sz, max_sz], exact::bytes_text)?,
        nr_accesses: map_bounds(
            bounds(text, "frequency", [min_freq, max_freq], exact::permille_text)?,
            Rate::Permille,
        ),
        age: map_bounds(
            bounds(text, "age", [min_span, max_age], exact::nanos_text)?,
            Age::Time,
        ),
    };
    scheme.auto_age = is_auto.then(AutoAge::default);
    if is_auto && scheme.pattern.nr_accesses.max != Rate::Permille(Permille(0)) {
        let message = "the automatic age is a time without accesses: the maximum frequency must be 0";
        return Err(ParseError::at(text, max_freq, message));
    }
    if let Some((sz, time)) = limit_of(text, line, limit)? {
        (scheme.quota.sz, scheme.quota.reset_interval) = (sz, time);
    }
    Ok(scheme)
}

/// The limit at the end of `line`, if any: bytes and window.
fn limit_of(text: &str, line: &str, fields: &[&str]) -> Result<Option<(Bytes, Nanos)>, ParseError> {
    let (sz, time) = match *fields {
        [] => return Ok(None),
        [sz, time] => (sz, time),
        [_] => {
            let message = "a limit needs bytes and a window, like `500M 1s`: the window is missing";
            return Err(ParseError::at(text, end_of(line), message));
        }
        [_, _, extra, ..] => {
            let message = format!(
                "{extra:?} is one field too many: a scheme is `{FORM}`. Write it in TOML or as damo's JSON if it has \
                 weights, watermarks, filters or a time quota"
            );
            return Err(ParseError::at(text, extra, message));
        }
    };
    match (read(text, sz)?, read(text, time)?) {
        (Bytes::ZERO, _) => {
            let message = "a limit of 0 bytes means no limit: remove both fields";
            Err(ParseError::at(text, sz, message))
        }
        (_, Nanos::ZERO) => {
            let message = "the window of the limit is 0: give a time, like 1s";
            Err(ParseError::at(text, time, message))
        }
        limit => Ok(Some(limit)),
    }
}

/// The empty text at the end of `line`, where something is missing.
fn end_of(line: &str) -> &str {
    line.split_at(line.len()).1
}

fn bounds<T, D>(
    text: &str,
    what: &str,
    [min, max]: [&str; 2],
    show: impl Fn(T) -> D,
) -> Result<Bounds<T>, ParseError>
where
    T: FromStr<Err: Display> + PartialOrd + Copy,
    D: Display,
{
    // The earliest files wrote `null` for "no bound": it means `min` or `max`, depending on the side.
    let side = |field: &str, none: &str| match field {
        "null" => none
            .parse()
            .map_err(|error: T::Err| ParseError::at(text, field, error.to_string())),
        _ => read::<T>(text, field),
    };
    let bounds = Bounds {
        min: side(min, "min")?,
        max: side(max, "max")?,
    };
    check_order(bounds, what, show).map_err(|message| ParseError::at(text, min, message))?;
    Ok(bounds)
}

fn read<T: FromStr<Err: Display>>(text: &str, field: &str) -> Result<T, ParseError> {
    field
        .parse()
        .map_err(|error: T::Err| ParseError::at(text, field, error.to_string()))
}

fn map_bounds<T, U>(Bounds { min, max }: Bounds<T>, wrap: impl Fn(T) -> U) -> Bounds<U> {
    Bounds {
        min: wrap(min),
        max: wrap(max),
    }
}

/// The line for a scheme; `None` if a line cannot express it.
#[must_use]
pub fn print(scheme: &Scheme) -> Option<String> {
    let AccessPattern { sz, nr_accesses, age } = scheme.pattern;
    let limit = match &scheme.quota {
        quota if *quota == Quota::default() => String::new(),
        Quota {
            sz, reset_interval, ..
        } => format!(
            " {} {}",
            exact::bytes_text(*sz),
            exact::nanos_text(*reset_interval)
        ),
    };
    let (Rate::Permille(min_rate), Rate::Permille(max_rate)) = (nr_accesses.min, nr_accesses.max) else {
        return None;
    };
    let (Age::Time(min_age), Age::Time(max_age)) = (age.min, age.max) else {
        return None;
    };
    let frequency = |share| {
        if share == Permille(1000) {
            "max".to_owned()
        } else {
            exact::permille_text(share)
        }
    };
    let min_age = match scheme.auto_age {
        Some(_) => AUTO.to_owned(),
        None => exact::nanos_text(min_age),
    };
    let line = format!(
        "{} {} {} {} {} {} {}{limit}",
        exact::bytes_text(sz.min),
        exact::bytes_text(sz.max),
        frequency(min_rate),
        frequency(max_rate),
        min_age,
        exact::nanos_text(max_age),
        scheme.action,
    );
    // The parser decides what a line can express.
    (parse(&line).ok()? == [scheme.clone()]).then_some(line)
}

/// Whether a line can express the scheme.
#[must_use]
pub fn holds(scheme: &Scheme) -> bool {
    print(scheme).is_some()
}
