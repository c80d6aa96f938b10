//! An experiment as a person writes it: which workloads, under which configurations, how often.
//!
//! The file is TOML. `workloads/experiments/` holds ready ones; docs of each key stand at its field here. In
//! commands and `env`, words in braces are filled in for each run, see [`crate::placeholder`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use regex::Regex;
use serde::Deserialize;
use thermo_core::text::Fault;
use thermo_core::{Bytes, Nanos};
use toml::Spanned;

use crate::ethp::mode_of;
use crate::{Error, placeholder};

/// An experiment, read and checked.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// What it is called.
    pub name: String,
    /// What it asks, in a sentence.
    pub about: String,
    /// The seed of the random order of runs.
    pub seed: u64,
    /// How often each workload runs under each configuration.
    pub repeats: usize,
    /// The size of the zram swap made for the experiment and removed after it; none when not given.
    pub zram: Option<Bytes>,
    /// Memory touched and freed before each run, so that none pays for first touches in the host.
    pub warm: Option<Bytes>,
    /// How often memory is sampled.
    pub sample: Nanos,
    /// What the workloads run under; the first is `orig`, which all others are compared to.
    pub configurations: Vec<Configuration>,
    /// What runs.
    pub workloads: Vec<Workload>,
    /// The folder the file is in.
    pub here: PathBuf,
    /// The text it was read from.
    pub text: String,
}

/// One way to run a workload.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// What it is called in tables.
    pub name: String,
    /// What it is, in a sentence.
    #[serde(default)]
    pub about: String,
    /// Arguments of the `thermo` that is attached while the workload is measured; none for `orig`.
    #[serde(default)]
    pub attach: Vec<String>,
    /// Environment of the workload's command.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The machine's mode of transparent huge pages for its runs; as it is when not given.
    #[serde(default)]
    pub thp: Option<String>,
}

/// One program with its load.
#[derive(Debug, Clone)]
pub struct Workload {
    /// What it is called in tables.
    pub name: String,
    /// What it does and which access pattern that makes.
    pub about: String,
    /// Programs it needs.
    pub needs: Vec<Need>,
    /// Shell text run once, before its first run, in its work folder.
    pub set_up: Option<String>,
    /// The measured program and its arguments.
    pub command: Vec<String>,
    /// How to know that it is ready; at once when not given.
    pub ready: Option<Ready>,
    /// Run after it is ready and before measuring begins: fills a server.
    pub fill: Vec<String>,
    /// The load. Measuring ends with it, and the command is stopped; without it, with the command's own end.
    pub load: Vec<String>,
    /// What the output of the command or the load must contain: the program's own word that its result is right.
    pub check: Option<Regex>,
    /// Latency figures by name, each the first group of a regular expression over the output.
    pub latency: BTreeMap<String, Regex>,
    /// The limit of its memory cgroup.
    pub limit: Option<Bytes>,
    /// A run that takes longer has failed.
    pub timeout: Nanos,
}

/// A program and the Debian package that has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// The program, as found on `PATH`, or a path.
    pub program: String,
    /// The package.
    pub package: String,
}

/// How to know that a program is ready.
#[derive(Debug, Clone)]
pub enum Ready {
    /// Its output has a line that matches.
    Line(Regex),
    /// A TCP port of this machine answers.
    Tcp(String),
    /// A file exists.
    File(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    name: String,
    #[serde(default)]
    about: String,
    #[serde(default = "one")]
    seed: u64,
    repeats: Spanned<usize>,
    zram: Option<Spanned<String>>,
    warm: Option<Spanned<String>>,
    sample: Option<Spanned<String>>,
    configuration: Spanned<Vec<Spanned<Configuration>>>,
    workload: Spanned<Vec<Spanned<WorkloadText>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadText {
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

impl Experiment {
    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// When it cannot be read, or with the place of the first mistake in it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::File {
            doing: "read",
            path: path.to_owned(),
            source,
        })?;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let here = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        Self::parse(&text, &here).map_err(|fault| Error::Mistake {
            path: path.to_owned(),
            fault,
        })
    }

    /// Checks an experiment's text; `here` is the folder its `{here}` stands for.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn parse(text: &str, here: &Path) -> Result<Self, Fault> {
        let file: FileText = toml::from_str(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            Fault::at_offset(text, offset, error.message().replace('\n', " "))
        })?;
        let reader = Reader { text };
        if *file.repeats.get_ref() == 0 {
            return Err(reader.fault(
                &file.repeats,
                "0 repeats measure nothing: 5 or more give a spread",
            ));
        }
        let sample = reader.nanos(file.sample.as_ref())?.unwrap_or(Nanos::millis(500));
        if sample < Nanos::millis(10) {
            return Err(Fault::at_offset(
                text,
                file.sample.as_ref().map_or(0, |given| given.span().start),
                "sampling memory more often than each 10ms disturbs what is measured",
            ));
        }
        Ok(Self {
            zram: reader.bytes(file.zram.as_ref())?,
            warm: reader.bytes(file.warm.as_ref())?,
            configurations: reader.configurations(file.configuration)?,
            workloads: reader.workloads(file.workload)?,
            name: file.name,
            about: file.about,
            seed: file.seed,
            repeats: file.repeats.into_inner(),
            sample,
            here: here.to_owned(),
            text: text.to_owned(),
        })
    }

    /// The configuration all others are compared to.
    #[must_use]
    pub fn orig(&self) -> &str {
        self.configurations.first().map_or("orig", |first| &first.name)
    }
}

/// Turns what serde read into what is meant, and knows where each part stands.
struct Reader<'a> {
    text: &'a str,
}

impl Reader<'_> {
    fn fault<T>(&self, part: &Spanned<T>, message: impl Into<String>) -> Fault {
        Fault::at_offset(self.text, part.span().start, message)
    }

    fn bytes(&self, part: Option<&Spanned<String>>) -> Result<Option<Bytes>, Fault> {
        part.map(|part| {
            part.get_ref()
                .parse()
                .map_err(|error| self.fault(part, format!("{error}")))
        })
        .transpose()
    }

    fn nanos(&self, part: Option<&Spanned<String>>) -> Result<Option<Nanos>, Fault> {
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

    fn configurations(
        &self,
        given: Spanned<Vec<Spanned<Configuration>>>,
    ) -> Result<Vec<Configuration>, Fault> {
        let mut names = BTreeSet::new();
        for part in given.get_ref() {
            let configuration = part.get_ref();
            self.name(part, &configuration.name, &mut names)?;
            if let Some(word) = configuration.thp.as_ref().filter(|word| mode_of(word).is_none()) {
                let known = "always, madvise and never are";
                return Err(self.fault(part, format!("{word:?} is no mode of huge pages: {known}")));
            }
            let words = configuration.attach.iter().chain(configuration.env.values());
            words
                .map(String::as_str)
                .try_for_each(|word| self.placeholders(part, word))?;
        }
        match given.get_ref().first() {
            None => Err(self.fault(
                &given,
                "no configuration: the first is the one others are compared to",
            )),
            Some(first) if !first.get_ref().attach.is_empty() => Err(self.fault(
                first,
                "the first configuration is the one others are compared to: it must not attach anything",
            )),
            Some(_) => Ok(given.into_inner().into_iter().map(Spanned::into_inner).collect()),
        }
    }

    fn workloads(&self, given: Spanned<Vec<Spanned<WorkloadText>>>) -> Result<Vec<Workload>, Fault> {
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
