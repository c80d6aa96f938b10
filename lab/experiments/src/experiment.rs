//! An experiment as a person writes it: which workloads, under which configurations, how often.
//!
//! The file is TOML. `workloads/experiments/` holds ready ones; docs of each key stand at its field here. In
//! commands and `env`, words in braces are filled in for each run, see [`crate::placeholder`].

mod check;
mod written;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde::Deserialize;
use thermo_kernel::thp::ThpMode;
use thermo_units::text::ParseError;
use thermo_units::{Bytes, Nanos};

use crate::needs::Need;
use crate::{Error, text};

/// An experiment, read and checked.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// What it is called.
    pub name: String,
    /// What it asks, in a sentence.
    #[serde(default)]
    pub about: String,
    /// The seed of the random order of runs.
    #[serde(default = "written::one")]
    pub seed: u64,
    /// How often each workload runs under each configuration.
    #[serde(deserialize_with = "written::repeats")]
    pub repeats: usize,
    /// The size of the zram swap made for the experiment and removed after it; none when not given.
    #[serde(default, deserialize_with = "text::some_word")]
    pub zram: Option<Bytes>,
    /// Memory touched and freed before each run, so that none pays for first touches in the host.
    #[serde(default, deserialize_with = "text::some_word")]
    pub warm: Option<Bytes>,
    /// How often memory is sampled.
    #[serde(default = "written::half_a_second", deserialize_with = "written::sample")]
    pub sample: Nanos,
    /// What the workloads run under; the first is `orig`, which all others are compared to.
    #[serde(rename = "configuration")]
    pub configurations: Vec<Configuration>,
    /// What runs.
    #[serde(rename = "workload")]
    pub workloads: Vec<Workload>,
    /// The folder the file is in.
    #[serde(skip)]
    pub here: PathBuf,
    /// The text it was read from.
    #[serde(skip)]
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
    #[serde(default, deserialize_with = "written::thp")]
    pub thp: Option<ThpMode>,
    /// Limits of the workload's group, one after the other and from the first again while it is measured; none
    /// when empty.
    #[serde(default)]
    pub pressure: Vec<Step>,
    /// The configuration it is compared to; the first when not given.
    pub against: Option<String>,
    /// It takes part in so many of the repeats only, the first ones; in all when not given.
    #[serde(default, deserialize_with = "written::repeats_of_its_own")]
    pub repeats: Option<usize>,
}

/// One limit of a pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The limit, in percent of the workload's peak memory under the first configuration.
    #[serde(rename = "limit", deserialize_with = "written::percent_of_peak")]
    pub percent: u32,
    /// How long it holds.
    #[serde(deserialize_with = "written::span")]
    pub span: Nanos,
}

/// One program with its load.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// What it is called in tables.
    pub name: String,
    /// What it does and which access pattern that makes.
    #[serde(default)]
    pub about: String,
    /// Programs it needs.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Shell text run once, before its first run, in its work folder.
    pub set_up: Option<String>,
    /// The measured program and its arguments.
    pub command: Vec<String>,
    /// How to know that it is ready; at once when not given.
    pub ready: Option<Ready>,
    /// Run after it is ready and before measuring begins: fills a server.
    #[serde(default)]
    pub fill: Vec<String>,
    /// The load. Measuring ends with it, and the command is stopped; without it, with the command's own end.
    #[serde(default)]
    pub load: Vec<String>,
    /// What the output of the command or the load must contain: the program's own word that its result is right.
    #[serde(default, deserialize_with = "written::some_pattern")]
    pub check: Option<Regex>,
    /// Latency figures by name, each the first group of a regular expression over the output.
    #[serde(default, deserialize_with = "written::latency")]
    pub latency: BTreeMap<String, Regex>,
    /// The limit of its memory cgroup.
    #[serde(default, deserialize_with = "text::some_word")]
    pub limit: Option<Bytes>,
    /// A run that takes longer has failed.
    #[serde(default = "written::ten_minutes", deserialize_with = "text::word")]
    pub timeout: Nanos,
}

/// How to know that a program is ready.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Ready {
    /// Its output has a line that matches.
    #[serde(deserialize_with = "written::pattern")]
    Line(Regex),
    /// A TCP port of this machine answers.
    Tcp(String),
    /// A file exists.
    File(String),
}

impl Experiment {
    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// When it cannot be read, or with the place of the first mistake in it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        text::read(path, Self::parse)
    }

    /// Checks an experiment's text; `here` is the folder its `{here}` stands for.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn parse(text: &str, here: &Path) -> Result<Self, ParseError> {
        let read: Self = text::parse(text)?;
        check::whole(text, &read)?;
        let (here, text) = (here.to_owned(), text.to_owned());
        Ok(Self { here, text, ..read })
    }

    /// The configuration all others are compared to, unless they say otherwise.
    #[must_use]
    pub fn orig(&self) -> &str {
        self.configurations.first().map_or("orig", |first| &first.name)
    }

    /// True when some configuration presses, which takes a peak to begin with.
    #[must_use]
    pub fn presses(&self) -> bool {
        self.configurations.iter().any(|with| !with.pressure.is_empty())
    }
}
