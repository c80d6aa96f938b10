//! From the text of an experiment file to what is meant, with the place of the first mistake.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;
use serde::Deserialize;
use thermo_core::text::Fault;
use thermo_core::{Bytes, Nanos};
use thermo_sys::thp::ThpMode;
use toml::Spanned;

use super::{Configuration, Ready, Step, Workload};
use crate::ethp::mode_of;
use crate::needs::Need;
use crate::placeholder;

/// The shortest time a limit of a pressure may hold.
const SHORTEST_STEP: Nanos = Nanos::millis(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileText {
    pub(super) name: String,
    #[serde(default)]
    pub(super) about: String,
    #[serde(default = "one")]
    pub(super) seed: u64,
    pub(super) repeats: Spanned<usize>,
    pub(super) zram: Option<Spanned<String>>,
    pub(super) warm: Option<Spanned<String>>,
    pub(super) sample: Option<Spanned<String>>,
    pub(super) configuration: Spanned<Vec<Spanned<ConfigurationText>>>,
    pub(super) workload: Spanned<Vec<Spanned<WorkloadText>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigurationText {
    name: String,
    #[serde(default)]
    about: String,
    #[serde(default)]
    attach: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    pressure: Vec<StepText>,
    against: Option<Spanned<String>>,
    thp: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepText {
    limit: Spanned<String>,
    span: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadText {
    name: String,
    #[serde(default)]
    about: String,
    #[serde(default)]
    needs: Vec<Need>,
    set_up: Option<String>,
    command: Vec<String>,
    ready: Option<ReadyText>,
    #[serde(default)]
    fill: Vec<String>,
    #[serde(default)]
    load: Vec<String>,
    check: Option<Spanned<String>>,
    #[serde(default)]
    latency: BTreeMap<String, Spanned<String>>,
    limit: Option<Spanned<String>>,
    timeout: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
enum ReadyText {
    Line(Spanned<String>),
    Tcp(String),
    File(String),
}

const fn one() -> u64 {
    1
}

/// Turns what serde read into what is meant, and knows where each part stands.
pub(super) struct Reader<'a> {
    pub(super) text: &'a str,
}

impl Reader<'_> {
    pub(super) fn fault<T>(&self, part: &Spanned<T>, message: impl Into<String>) -> Fault {
        Fault::at_offset(self.text, part.span().start, message)
    }

    pub(super) fn bytes(&self, part: Option<&Spanned<String>>) -> Result<Option<Bytes>, Fault> {
        part.map(|part| {
            part.get_ref()
                .parse()
                .map_err(|error| self.fault(part, format!("{error}")))
        })
        .transpose()
    }

    pub(super) fn nanos(&self, part: Option<&Spanned<String>>) -> Result<Option<Nanos>, Fault> {
        part.map(|part| {
            part.get_ref()
                .parse()
                .map_err(|error| self.fault(part, format!("{error}")))
        })
        .transpose()
    }

    fn regex(&self, part: &Spanned<String>) -> Result<Regex, Fault> {
        // A regular expression's error draws a picture of several lines; its last line is the sentence.
        let told = |error: regex::Error| {
            error
                .to_string()
                .lines()
                .last()
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        Regex::new(&format!("(?m){}", part.get_ref()))
            .map_err(|error| self.fault(part, format!("not a regular expression: {}", told(error))))
    }

    pub(super) fn configurations(
        &self,
        given: Spanned<Vec<Spanned<ConfigurationText>>>,
    ) -> Result<Vec<Configuration>, Fault> {
        let mut names = BTreeSet::new();
        for part in given.get_ref() {
            let configuration = part.get_ref();
            self.name(part, &configuration.name, &mut names)?;
            let words = configuration.attach.iter().chain(configuration.env.values());
            words
                .map(String::as_str)
                .try_for_each(|word| self.placeholders(part, word))?;
        }
        let Some(first) = given.get_ref().first() else {
            let message = "no configuration: the first is the one others are compared to";
            return Err(self.fault(&given, message));
        };
        let bare = first.get_ref();
        if !bare.attach.is_empty() || !bare.pressure.is_empty() || bare.against.is_some() {
            let message = "the first configuration is the one others are compared to: it must not attach anything, \
                           press or be compared itself";
            return Err(self.fault(first, message));
        }
        let all = given.into_inner().into_iter().map(Spanned::into_inner);
        all.map(|configuration| self.configuration(configuration, &names))
            .collect()
    }

    fn configuration(
        &self,
        given: ConfigurationText,
        names: &BTreeSet<String>,
    ) -> Result<Configuration, Fault> {
        if let Some(against) = &given.against {
            let (name, known) = (
                against.get_ref(),
                Vec::from_iter(names.iter().map(String::as_str)),
            );
            if !names.contains(name) || *name == given.name {
                let message = format!(
                    "{name:?} is no other configuration: there are {}",
                    known.join(", ")
                );
                return Err(self.fault(against, message));
            }
        }
        let steps = given.pressure.iter().map(|step| self.step(step));
        Ok(Configuration {
            pressure: steps.collect::<Result<_, _>>()?,
            against: given.against.map(Spanned::into_inner),
            name: given.name,
            about: given.about,
            attach: given.attach,
            env: given.env,
            thp: given.thp.map(|word| self.thp(&word)).transpose()?,
        })
    }

    fn thp(&self, word: &Spanned<String>) -> Result<ThpMode, Fault> {
        mode_of(word.get_ref()).ok_or_else(|| {
            let known = "always, madvise and never are";
            self.fault(
                word,
                format!("{:?} is no mode of huge pages: {known}", word.get_ref()),
            )
        })
    }

    fn step(&self, given: &StepText) -> Result<Step, Fault> {
        let text = given.limit.get_ref();
        let percent = text
            .strip_suffix('%')
            .and_then(|number| number.trim().parse().ok());
        let percent = percent
            .filter(|percent| (1..=1000).contains(percent))
            .ok_or_else(|| {
                let right = "give percent of the peak, 1% to 1000%";
                self.fault(
                    &given.limit,
                    format!("{text:?} is no limit of a pressure: {right}"),
                )
            })?;
        let span = self.nanos(Some(&given.span))?.unwrap_or_default();
        if span < SHORTEST_STEP {
            let message = format!(
                "a limit that holds {span} is over before anything could be reclaimed: {SHORTEST_STEP} is the least"
            );
            return Err(self.fault(&given.span, message));
        }
        Ok(Step { percent, span })
    }

    pub(super) fn workloads(
        &self,
        given: Spanned<Vec<Spanned<WorkloadText>>>,
    ) -> Result<Vec<Workload>, Fault> {
        if given.get_ref().is_empty() {
            return Err(self.fault(&given, "no workload: nothing would run"));
        }
        let mut names = BTreeSet::new();
        given
            .into_inner()
            .into_iter()
            .map(|part| self.workload(part, &mut names))
            .collect()
    }

    fn workload(&self, part: Spanned<WorkloadText>, names: &mut BTreeSet<String>) -> Result<Workload, Fault> {
        let given = part.get_ref();
        self.name(&part, &given.name, names)?;
        if given.command.is_empty() {
            return Err(self.fault(&part, format!("workload {:?} has an empty command", given.name)));
        }
        let words = given
            .command
            .iter()
            .chain(&given.fill)
            .chain(&given.load)
            .chain(&given.set_up);
        words
            .map(String::as_str)
            .try_for_each(|word| self.placeholders(&part, word))?;
        let limit = self.bytes(given.limit.as_ref())?;
        let timeout = self.nanos(given.timeout.as_ref())?.unwrap_or(Nanos::secs(600));
        let check = given.check.as_ref().map(|check| self.regex(check)).transpose()?;
        let mut latency = BTreeMap::new();
        for (name, pattern) in &given.latency {
            let regex = self.regex(pattern)?;
            if !name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
            {
                let right = "letters, digits, '_', '-' and '.' make one";
                return Err(self.fault(pattern, format!("{name:?} is not a name of a latency: {right}")));
            }
            if regex.captures_len() < 2 {
                return Err(self.fault(pattern, "no (group): what stands in it is taken as the number"));
            }
            latency.insert(name.clone(), regex);
        }
        let ready = match &given.ready {
            None => None,
            Some(ReadyText::Line(pattern)) => Some(Ready::Line(self.regex(pattern)?)),
            Some(ReadyText::Tcp(port)) => Some(Ready::Tcp(port.clone())),
            Some(ReadyText::File(path)) => Some(Ready::File(path.clone())),
        };
        let given = part.into_inner();
        Ok(Workload {
            name: given.name,
            about: given.about,
            needs: given.needs,
            set_up: given.set_up,
            command: given.command,
            ready,
            fill: given.fill,
            load: given.load,
            check,
            latency,
            limit,
            timeout,
        })
    }

    /// Names become columns, rows and file names.
    fn name<T>(&self, part: &Spanned<T>, name: &str, seen: &mut BTreeSet<String>) -> Result<(), Fault> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_/.".contains(c);
        if name.is_empty() || name.starts_with(['.', '/']) || !name.chars().all(fits) || name.contains("..") {
            let right = "letters, digits, '-', '_', '.' and '/' make a name";
            return Err(self.fault(part, format!("{name:?} is not a name: {right}")));
        }
        if !seen.insert(name.to_owned()) {
            return Err(self.fault(
                part,
                format!("{name:?} is there twice: results are filed under it"),
            ));
        }
        Ok(())
    }

    fn placeholders<T>(&self, part: &Spanned<T>, word: &str) -> Result<(), Fault> {
        placeholder::unknown(word).map_or(Ok(()), |unknown| {
            let known = placeholder::KNOWN.join("}, {");
            Err(self.fault(
                part,
                format!("{{{unknown}}} stands for nothing: there are {{{known}}}"),
            ))
        })
    }
}
