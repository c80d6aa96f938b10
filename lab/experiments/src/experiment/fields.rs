//! Deserialises and validates single fields of an experiment file. `check` validates what concerns several
//! fields.

use std::collections::BTreeMap;

use regex::Regex;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use thermo_kernel::thp::ThpMode;
use thermo_units::Nanos;
use thermo_units::text::ParseError;

use crate::huge_pages::parse_mode;
use crate::text;

/// Minimum time that a limit of a pressure holds.
const MIN_STEP: Nanos = Nanos::millis(10);
/// Minimum interval between memory samples.
const MIN_SAMPLE: Nanos = Nanos::millis(10);

pub(super) const fn one() -> u64 {
    1
}

pub(super) const fn half_a_second() -> Nanos {
    Nanos::millis(500)
}

pub(super) const fn ten_minutes() -> Nanos {
    Nanos::secs(600)
}

pub(super) fn repeats<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    text::deserialize_checked(from, |&repeats: &usize| {
        let message = "0 repeats measure nothing: use at least 1, or 5 to see the spread";
        (repeats == 0).then(|| message.to_owned())
    })
}

pub(super) fn configuration_repeats<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    let message = "0 repeats measure nothing: remove the configuration";
    text::deserialize_checked(from, |&repeats: &usize| {
        (repeats == 0).then(|| message.to_owned())
    })
    .map(Some)
}

pub(super) fn sample<'de, D: Deserializer<'de>>(from: D) -> Result<Nanos, D::Error> {
    let sample = text::parsed(from)?;
    if sample < MIN_SAMPLE {
        let message =
            format!("a sample interval below {MIN_SAMPLE} disturbs the measurement: use at least that");
        return Err(D::Error::custom(message));
    }
    Ok(sample)
}

pub(super) fn thp<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ThpMode>, D::Error> {
    let word = String::deserialize(from)?;
    let mode = parse_mode(&word)
        .ok_or_else(|| D::Error::custom(format!("{word:?} is no THP mode: use always, madvise or never")));
    mode.map(Some)
}

pub(super) fn percent_of_peak<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let word = String::deserialize(from)?;
    let percent = word
        .strip_suffix('%')
        .and_then(|number| number.trim().parse().ok());
    percent
        .filter(|percent| (1..=1000).contains(percent))
        .ok_or_else(|| {
            D::Error::custom(format!(
                "{word:?} is not a valid limit: use 1% to 1000% of the peak"
            ))
        })
}

pub(super) fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Nanos, D::Error> {
    let span = text::parsed(from)?;
    if span < MIN_STEP {
        return Err(D::Error::custom(format!(
            "a limit that holds for {span} ends before memory can be reclaimed: use at least {MIN_STEP}"
        )));
    }
    Ok(span)
}

pub(super) fn pattern<'de, D: Deserializer<'de>>(from: D) -> Result<Regex, D::Error> {
    let word = String::deserialize(from)?;
    Regex::new(&format!("(?m){word}")).map_err(|error| {
        let sentence = ParseError::regex_message(&error);
        D::Error::custom(format!("not a regular expression: {sentence}"))
    })
}

pub(super) fn some_pattern<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Regex>, D::Error> {
    pattern(from).map(Some)
}

/// The name of a latency.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Name(#[serde(deserialize_with = "latency_name")] String);

/// A pattern with a group that matches the number.
#[derive(Deserialize)]
struct Number(#[serde(deserialize_with = "latency_number")] Regex);

pub(super) fn latency<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Regex>, D::Error> {
    let named = BTreeMap::<Name, Number>::deserialize(from)?;
    let plain = |(Name(name), Number(pattern))| (name, pattern);
    Ok(named.into_iter().map(plain).collect())
}

fn latency_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    text::deserialize_checked(from, |name: &String| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        (!name.chars().all(fits))
            .then(|| format!("{name:?} is not a valid latency name: use letters, digits, '_', '-' and '.'"))
    })
}

fn latency_number<'de, D: Deserializer<'de>>(from: D) -> Result<Regex, D::Error> {
    let pattern = pattern(from)?;
    if pattern.captures_len() < 2 {
        return Err(D::Error::custom(
            "the pattern has no (group): add one around the number",
        ));
    }
    Ok(pattern)
}
