//! What the parts of an experiment must be to each other, with the place of the first mistake.

use std::collections::BTreeSet;

use serde::Deserialize;
use thermo_units::text::ParseError;
use toml::Spanned;

use super::{Configuration, Experiment, Workload};
use crate::placeholder;
use crate::text::{self, Place};

/// Where the parts stand.
#[derive(Deserialize)]
struct Places {
    configuration: Spanned<Vec<Spanned<Against>>>,
    workload: Spanned<Vec<Place>>,
}

#[derive(Deserialize)]
struct Against {
    against: Option<Place>,
}

/// Checks `experiment`, which was read from `text`.
pub(super) fn whole(text: &str, experiment: &Experiment) -> Result<(), ParseError> {
    let places: Places = text::parse(text)?;
    configurations(text, &places.configuration, &experiment.configurations)?;
    if experiment.workloads.is_empty() {
        let message = "no workload: nothing would run";
        return Err(text::fault(text, &places.workload, message));
    }
    let mut names = BTreeSet::new();
    let parts = places.workload.get_ref().iter();
    parts
        .zip(&experiment.workloads)
        .try_for_each(|(part, given)| workload(text, part, given, &mut names))
}

fn configurations(
    text: &str,
    places: &Spanned<Vec<Spanned<Against>>>,
    all: &[Configuration],
) -> Result<(), ParseError> {
    let parts = || places.get_ref().iter().zip(all);
    let mut names = BTreeSet::new();
    for (part, given) in parts() {
        name(text, part, &given.name, &mut names)?;
        placeholders(text, part, given.attach.iter().chain(given.env.values()))?;
    }
    let Some((part, first)) = parts().next() else {
        let message = "no configuration: the first is the one others are compared to";
        return Err(text::fault(text, places, message));
    };
    if !first.attach.is_empty() || !first.pressure.is_empty() || first.against.is_some() {
        let message = "the first configuration is the one others are compared to: it must not attach anything, \
                       press or be compared itself";
        return Err(text::fault(text, part, message));
    }
    for (part, given) in parts() {
        let (Some(place), Some(against)) = (&part.get_ref().against, &given.against) else {
            continue;
        };
        if !names.contains(against) || *against == given.name {
            let known = Vec::from_iter(names.iter().map(String::as_str)).join(", ");
            let message = format!("{against:?} is no other configuration: there are {known}");
            return Err(text::fault(text, place, message));
        }
    }
    Ok(())
}

fn workload(
    text: &str,
    part: &Place,
    given: &Workload,
    names: &mut BTreeSet<String>,
) -> Result<(), ParseError> {
    name(text, part, &given.name, names)?;
    if given.command.is_empty() {
        let message = format!("workload {:?} has an empty command", given.name);
        return Err(text::fault(text, part, message));
    }
    let words = given.command.iter().chain(&given.fill).chain(&given.load);
    placeholders(text, part, words.chain(&given.set_up))
}

/// Names become columns, rows and file names.
fn name<T>(text: &str, part: &Spanned<T>, name: &str, seen: &mut BTreeSet<String>) -> Result<(), ParseError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_/.".contains(c);
    if name.is_empty() || name.starts_with(['.', '/']) || !name.chars().all(fits) || name.contains("..") {
        let right = "letters, digits, '-', '_', '.' and '/' make a name";
        return Err(text::fault(
            text,
            part,
            format!("{name:?} is not a name: {right}"),
        ));
    }
    if !seen.insert(name.to_owned()) {
        let message = format!("{name:?} is there twice: results are filed under it");
        return Err(text::fault(text, part, message));
    }
    Ok(())
}

fn placeholders<'a, T>(
    text: &str,
    part: &Spanned<T>,
    words: impl IntoIterator<Item = &'a String>,
) -> Result<(), ParseError> {
    let Some(unknown) = words.into_iter().find_map(|word| placeholder::unknown(word)) else {
        return Ok(());
    };
    let known = placeholder::KNOWN.join("}, {");
    let message = format!("{{{unknown}}} stands for nothing: there are {{{known}}}");
    Err(text::fault(text, part, message))
}
