//! Checks between the parts of an experiment. Errors have the position of the part.

use std::collections::BTreeSet;

use serde::Deserialize;
use thermo_units::text::ParseError;
use toml::Spanned;

use super::{Configuration, Experiment, Workload};
use crate::placeholder;
use crate::text::{self, Location};

/// Positions of the parts in the text.
#[derive(Deserialize)]
struct Locations {
    configuration: Spanned<Vec<Spanned<Against>>>,
    workload: Spanned<Vec<Location>>,
}

#[derive(Deserialize)]
struct Against {
    against: Option<Location>,
}

/// Checks `experiment`, which was parsed from `text`.
pub(super) fn experiment(text: &str, experiment: &Experiment) -> Result<(), ParseError> {
    let locations: Locations = text::parse(text)?;
    configurations(text, &locations.configuration, &experiment.configurations)?;
    if experiment.workloads.is_empty() {
        let message = "there is no workload: add [[workload]]";
        return Err(text::error_at(text, &locations.workload, message));
    }
    let mut names = BTreeSet::new();
    let parts = locations.workload.get_ref().iter();
    parts
        .zip(&experiment.workloads)
        .try_for_each(|(part, given)| workload(text, part, given, &mut names))
}

fn configurations(
    text: &str,
    locations: &Spanned<Vec<Spanned<Against>>>,
    all: &[Configuration],
) -> Result<(), ParseError> {
    let parts = || locations.get_ref().iter().zip(all);
    let mut names = BTreeSet::new();
    for (part, given) in parts() {
        name(text, part, &given.name, &mut names)?;
        placeholders(text, part, given.attach.iter().chain(given.env.values()))?;
    }
    let Some((part, first)) = parts().next() else {
        let message = "there is no configuration: the first one is the baseline of the others";
        return Err(text::error_at(text, locations, message));
    };
    if !first.attach.is_empty() || !first.pressure.is_empty() || first.against.is_some() {
        let message = "the first configuration is the baseline: it must not have attach, pressure or against";
        return Err(text::error_at(text, part, message));
    }
    for (part, given) in parts() {
        let (Some(location), Some(against)) = (&part.get_ref().against, &given.against) else {
            continue;
        };
        if !names.contains(against) || *against == given.name {
            let known = Vec::from_iter(names.iter().map(String::as_str)).join(", ");
            let message = format!("{against:?} is no other configuration: use one of {known}");
            return Err(text::error_at(text, location, message));
        }
    }
    Ok(())
}

fn workload(
    text: &str,
    part: &Location,
    given: &Workload,
    names: &mut BTreeSet<String>,
) -> Result<(), ParseError> {
    name(text, part, &given.name, names)?;
    if given.command.is_empty() {
        let message = format!("workload {:?} has an empty command", given.name);
        return Err(text::error_at(text, part, message));
    }
    let words = given.command.iter().chain(&given.fill).chain(&given.load);
    placeholders(text, part, words.chain(&given.set_up))
}

/// Checks a name. Names are used for columns, rows and files.
fn name<T>(text: &str, part: &Spanned<T>, name: &str, seen: &mut BTreeSet<String>) -> Result<(), ParseError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_/.".contains(c);
    if name.is_empty() || name.starts_with(['.', '/']) || !name.chars().all(fits) || name.contains("..") {
        let message = format!("{name:?} is not a valid name: use letters, digits, '-', '_', '.' and '/'");
        return Err(text::error_at(text, part, message));
    }
    if !seen.insert(name.to_owned()) {
        let message =
            format!("{name:?} is used twice: give each a name of its own, results are stored by name");
        return Err(text::error_at(text, part, message));
    }
    Ok(())
}

fn placeholders<'a, T>(
    text: &str,
    part: &Spanned<T>,
    words: impl IntoIterator<Item = &'a String>,
) -> Result<(), ParseError> {
    let Some(unknown) = words
        .into_iter()
        .find_map(|word| placeholder::first_unknown(word))
    else {
        return Ok(());
    };
    let known = placeholder::KNOWN.join("}, {");
    let message = format!("unknown placeholder {{{unknown}}}: use one of {{{known}}}");
    Err(text::error_at(text, part, message))
}
