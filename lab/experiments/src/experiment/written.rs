//! The values of an experiment file as they are written, each checked by itself; what takes more than one of them is
//! checked in `check`.

use std::collections::BTreeMap;

use regex::Regex;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use thermo_kernel::thp::ThpMode;
use thermo_units::Nanos;
use thermo_units::text::ParseError;

use crate::ethp::mode_of;
use crate::text;

/// The shortest time a limit of a pressure may hold.
const SHORTEST_STEP: Nanos = Nanos::millis(10);
/// Memory is not sampled more often.
const SHORTEST_SAMPLE: Nanos = Nanos::millis(10);

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
    text::checked(from, |&repeats: &usize| {
        let message = "0 repeats measure nothing: 5 or more give a spread";
        (repeats == 0).then(|| message.to_owned())
    })
}

pub(super) fn repeats_of_its_own<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    let message = "0 repeats measure nothing: leave the configuration out";
    text::checked(from, |&repeats: &usize| {
        (repeats == 0).then(|| message.to_owned())
    })
    .map(Some)
}

pub(super) fn sample<'de, D: Deserializer<'de>>(from: D) -> Result<Nanos, D::Error> {
    let sample = text::word(from)?;
    if sample < SHORTEST_SAMPLE {
        let message =
            format!("sampling memory more often than each {SHORTEST_SAMPLE} disturbs what is measured");
        return Err(D::Error::custom(message));
    }
    Ok(sample)
}

pub(super) fn thp<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ThpMode>, D::Error> {
    let word = String::deserialize(from)?;
    let mode = mode_of(&word).ok_or_else(|| {
        D::Error::custom(format!(
            "{word:?} is no mode of huge pages: always, madvise and never are"
        ))
    });
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
            let right = "give percent of the peak, 1% to 1000%";
            D::Error::custom(format!("{word:?} is no limit of a pressure: {right}"))
        })
}

pub(super) fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Nanos, D::Error> {
    let span = text::word(from)?;
    if span < SHORTEST_STEP {
        return Err(D::Error::custom(format!(
            "a limit that holds {span} is over before anything could be reclaimed: {SHORTEST_STEP} is the least"
        )));
    }
    Ok(span)
}

pub(super) fn pattern<'de, D: Deserializer<'de>>(from: D) -> Result<Regex, D::Error> {
    let word = String::deserialize(from)?;
    Regex::new(&format!("(?m){word}")).map_err(|error| {
        let sentence = ParseError::sentence_of_pattern(&error);
        D::Error::custom(format!("not a regular expression: {sentence}"))
    })
}

pub(super) fn some_pattern<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Regex>, D::Error> {
    pattern(from).map(Some)
}

/// A name of a latency.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Name(#[serde(deserialize_with = "latency_name")] String);

/// A pattern whose group is the number.
#[derive(Deserialize)]
struct Number(#[serde(deserialize_with = "latency_number")] Regex);

pub(super) fn latency<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Regex>, D::Error> {
    let named = BTreeMap::<Name, Number>::deserialize(from)?;
    let plain = |(Name(name), Number(pattern))| (name, pattern);
    Ok(named.into_iter().map(plain).collect())
}

fn latency_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    text::checked(from, |name: &String| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let right = "letters, digits, '_', '-' and '.' make one";
        (!name.chars().all(fits)).then(|| format!("{name:?} is not a name of a latency: {right}"))
    })
}

fn latency_number<'de, D: Deserializer<'de>>(from: D) -> Result<Regex, D::Error> {
    let pattern = pattern(from)?;
    if pattern.captures_len() < 2 {
        return Err(D::Error::custom(
            "no (group): what stands in it is taken as the number",
        ));
    }
    Ok(pattern)
}
