//! An experiment file: which workloads run, under which configurations, how often.
//!
//! The file is TOML; `workloads/experiments/` has examples. Each key is documented at its field here.
//! Placeholders in braces in commands and in `env` are replaced for each run, see [`crate::placeholder`].

mod check;
mod fields;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde::Deserialize;
use thermo_kernel::thp::ThpMode;
use thermo_units::text::ParseError;
use thermo_units::{Bytes, Nanos};

use crate::needs::Need;
use crate::{Error, text};

/// A parsed and validated experiment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name.
    pub name: String,
    /// The question that the experiment answers, in a sentence.
    #[serde(default)]
    pub about: String,
    /// Seed of the random order of runs.
    #[serde(default = "fields::one")]
    pub seed: u64,
    /// Number of runs of each workload under each configuration.
    #[serde(deserialize_with = "fields::repeats")]
    pub repeats: usize,
    /// Size of the zram swap that exists during the experiment; none when not given.
    #[serde(default, deserialize_with = "text::parsed_option")]
    pub zram: Option<Bytes>,
    /// Memory to touch and free before each run, so that no run pays for the host's first allocation of
    /// pages.
    #[serde(default, deserialize_with = "text::parsed_option")]
    pub warm: Option<Bytes>,
    /// Interval between memory samples.
    #[serde(default = "fields::half_a_second", deserialize_with = "fields::sample")]
    pub sample: Nanos,
    /// The configurations. The first is the baseline of the others, usually called `orig`.
    #[serde(rename = "configuration")]
    pub configurations: Vec<Configuration>,
    /// The workloads.
    #[serde(rename = "workload")]
    pub workloads: Vec<Workload>,
    /// The folder of the file, for the placeholder `{here}`.
    #[serde(skip)]
    pub here: PathBuf,
    /// The text of the file.
    #[serde(skip)]
    pub text: String,
}

/// Conditions under which workloads run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// Name in tables.
    pub name: String,
    /// Description, in a sentence.
    #[serde(default)]
    pub about: String,
    /// Arguments of the `thermo` that runs while the workload is measured; the baseline has none.
    #[serde(default)]
    pub attach: Vec<String>,
    /// Environment of the workload's command.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The system's THP mode during its runs; unchanged when not given.
    #[serde(default, deserialize_with = "fields::thp")]
    pub thp: Option<ThpMode>,
    /// Limits of the workload's control group, applied in turn and repeated while the workload is measured;
    /// no limit when empty.
    #[serde(default)]
    pub pressure: Vec<PressureStep>,
    /// The configuration it is compared to; the first when not given.
    pub against: Option<String>,
    /// Take part only in this many first repeats; in all when not given.
    #[serde(default, deserialize_with = "fields::configuration_repeats")]
    pub repeats: Option<usize>,
}

/// A memory limit that holds for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PressureStep {
    /// The limit, in percent of the workload's peak memory under the first configuration.
    #[serde(rename = "limit", deserialize_with = "fields::percent_of_peak")]
    pub percent: u32,
    /// How long the limit holds.
    #[serde(deserialize_with = "fields::span")]
    pub span: Nanos,
}

/// A program and its load.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Name in tables.
    pub name: String,
    /// Description of the program and its access pattern.
    #[serde(default)]
    pub about: String,
    /// Programs that must be installed.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Shell script that runs once in the work folder, before the workload's first run.
    pub set_up: Option<String>,
    /// The measured program and its arguments.
    pub command: Vec<String>,
    /// How to detect that the command is ready; at once when not given.
    pub ready: Option<Ready>,
    /// Command that runs between readiness and measuring, e.g. to fill a server with data.
    #[serde(default)]
    pub fill: Vec<String>,
    /// The load. When it ends, measuring ends and the command is stopped. Without a load, measuring ends when
    /// the command does.
    #[serde(default)]
    pub load: Vec<String>,
    /// Pattern that the output of the command or the load must match: the program's own check of its result.
    #[serde(default, deserialize_with = "fields::some_pattern")]
    pub check: Option<Regex>,
    /// Latency figures by name. Each is the first group of a regular expression over the output.
    #[serde(default, deserialize_with = "fields::latency")]
    pub latency: BTreeMap<String, Regex>,
    /// MemoryLimit of the workload's memory cgroup.
    #[serde(default, deserialize_with = "text::parsed_option")]
    pub limit: Option<Bytes>,
    /// A run that takes longer fails.
    #[serde(default = "fields::ten_minutes", deserialize_with = "text::parsed")]
    pub timeout: Nanos,
}

/// How to detect that a program is ready.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Ready {
    /// A line of its output matches.
    #[serde(deserialize_with = "fields::pattern")]
    Line(Regex),
    /// A local TCP port accepts connections.
    Tcp(String),
    /// A file exists.
    File(String),
}

impl Experiment {
    /// Reads and validates the file at `path`.
    ///
    /// # Errors
    /// When the file cannot be read, or the first error in it with its position.
    pub fn read(path: &Path) -> Result<Self, Error> {
        text::read(path, Self::parse)
    }

    /// Parses and validates the text of an experiment. `here` is the value of the placeholder `{here}`.
    ///
    /// # Errors
    /// The first error, with its position.
    pub fn parse(text: &str, here: &Path) -> Result<Self, ParseError> {
        let parsed: Self = text::parse(text)?;
        check::experiment(text, &parsed)?;
        let (here, text) = (here.to_owned(), text.to_owned());
        Ok(Self { here, text, ..parsed })
    }

    /// The first configuration: the baseline of all configurations without `against`.
    #[must_use]
    pub fn orig(&self) -> &str {
        self.configurations.first().map_or("orig", |first| &first.name)
    }

    /// True when a configuration applies memory pressure. Its limits need a measured peak.
    #[must_use]
    pub fn has_pressure(&self) -> bool {
        self.configurations.iter().any(|with| !with.pressure.is_empty())
    }
}
