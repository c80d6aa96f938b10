//! The DAMOS line: `min_sz max_sz min_freq max_freq min_age max_age action`, and at its end, if wanted, a limit
//! of bytes and the time it is for: `500M 1s`.
//!
//! `null` means no bound; a bare frequency is percent; a bare size is bytes; a bare age is refused, because
//! tools disagree on what it would mean.

use std::fmt::Display;
use std::str::FromStr;

use thermo_engine::scheme::{AccessPattern, Age, Bounds, Quota, Rate};
use thermo_engine::{Action, Scheme};
use thermo_units::text::ParseError;
use thermo_units::{Bytes, Nanos, Permille};

use crate::exact;
use crate::read::in_order;

const FORM: &str = "min_sz max_sz min_freq max_freq min_age max_age action [limit_sz limit_time]";

/// The schemes of a text, one a line; `#` begins a comment.
pub(crate) fn parse(text: &str) -> Result<Vec<Scheme>, ParseError> {
    let mut schemes = Vec::new();
    for line in text.lines() {
        let said = line.split('#').next().unwrap_or("").trim_end();
        let fields: Vec<&str> = said.split_whitespace().collect();
        if !fields.is_empty() {
            schemes.push(scheme(text, said, &fields)?);
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
        return Err(ParseError::at(text, &line[line.len()..], message));
    };
    let mut scheme = Scheme::new(read::<Action>(text, action)?);
    scheme.pattern = AccessPattern {
        sz: bounds(text, "size", [min_sz, max_sz], exact::bytes)?,
        nr_accesses: wrapped(
            bounds(text, "frequency", [min_freq, max_freq], exact::permille)?,
            Rate::Permille,
        ),
        age: wrapped(bounds(text, "age", [min_age, max_age], exact::nanos)?, Age::Time),
    };
    if let Some((sz, time)) = limit_of(text, line, limit)? {
        (scheme.quota.sz, scheme.quota.reset_interval) = (sz, time);
    }
    Ok(scheme)
}

/// The limit at the end of `line`, if there is one: how much, in what time.
fn limit_of(text: &str, line: &str, fields: &[&str]) -> Result<Option<(Bytes, Nanos)>, ParseError> {
    let (sz, time) = match *fields {
        [] => return Ok(None),
        [sz, time] => (sz, time),
        [_] => {
            let message = "a limit needs its bytes and its time, like `500M 1s`: the time is missing";
            return Err(ParseError::at(text, &line[line.len()..], message));
        }
        [_, _, extra, ..] => {
            let message = format!("{extra:?} is one field too many: a scheme is `{FORM}`");
            return Err(ParseError::at(text, extra, message));
        }
    };
    match (read(text, sz)?, read(text, time)?) {
        (Bytes::ZERO, _) => {
            let message = "a limit of 0 bytes would be no limit: leave out both fields";
            Err(ParseError::at(text, sz, message))
        }
        (_, Nanos::ZERO) => {
            let message = "the limit is for no time: give it one, like 1s";
            Err(ParseError::at(text, time, message))
        }
        limit => Ok(Some(limit)),
    }
}

fn bounds<T, D>(
    text: &str,
    what: &str,
    fields: [&str; 2],
    show: impl Fn(T) -> D,
) -> Result<Bounds<T>, ParseError>
where
    T: FromStr<Err: Display> + PartialOrd + Copy,
    D: Display,
{
    // `null` is what the earliest files wrote for "no bound"; it reads as the word for that side.
    let side = |field: &str, none: &str| match field {
        "null" => none
            .parse()
            .map_err(|error: T::Err| ParseError::at(text, field, error.to_string())),
        _ => read::<T>(text, field),
    };
    let bounds = Bounds {
        min: side(fields[0], "min")?,
        max: side(fields[1], "max")?,
    };
    in_order(bounds, what, show).map_err(|message| ParseError::at(text, fields[0], message))?;
    Ok(bounds)
}

fn read<T: FromStr<Err: Display>>(text: &str, field: &str) -> Result<T, ParseError> {
    field
        .parse()
        .map_err(|error: T::Err| ParseError::at(text, field, error.to_string()))
}

fn wrapped<T, U>(Bounds { min, max }: Bounds<T>, wrap: impl Fn(T) -> U) -> Bounds<U> {
    Bounds {
        min: wrap(min),
        max: wrap(max),
    }
}

/// The line for a scheme; `None` when it says more than a line can hold.
#[must_use]
pub fn print(scheme: &Scheme) -> Option<String> {
    let AccessPattern { sz, nr_accesses, age } = scheme.pattern;
    let limit = match &scheme.quota {
        quota if *quota == Quota::default() => String::new(),
        Quota {
            sz, reset_interval, ..
        } => format!(" {} {}", exact::bytes(*sz), exact::nanos(*reset_interval)),
    };
    let (Rate::Permille(least), Rate::Permille(most)) = (nr_accesses.min, nr_accesses.max) else {
        return None;
    };
    let (Age::Time(youngest), Age::Time(oldest)) = (age.min, age.max) else {
        return None;
    };
    let frequency = |share| {
        if share == Permille(1000) {
            "max".to_owned()
        } else {
            exact::permille(share)
        }
    };
    let line = format!(
        "{} {} {} {} {} {} {}{limit}",
        exact::bytes(sz.min),
        exact::bytes(sz.max),
        frequency(least),
        frequency(most),
        exact::nanos(youngest),
        exact::nanos(oldest),
        scheme.action,
    );
    // The reader is the judge of what a line holds.
    (parse(&line).ok()? == [scheme.clone()]).then_some(line)
}

/// Whether a line can hold all that a scheme says.
#[must_use]
pub fn holds(scheme: &Scheme) -> bool {
    print(scheme).is_some()
}
