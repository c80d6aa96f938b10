//! An experiment as a person writes it: which workloads, under which configurations, how often.
//!
//! The file is TOML. `workloads/experiments/` holds ready ones; docs of each key stand at its field here. In
//! commands and `env`, words in braces are filled in for each run, see [`crate::placeholder`].

mod reader;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regex::Regex;
use thermo_core::text::Fault;
use thermo_core::{Bytes, Nanos};
use thermo_sys::thp::ThpMode;

use self::reader::{FileText, Reader};
use crate::Error;
use crate::needs::Need;

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
#[derive(Debug, Clone)]
pub struct Configuration {
    /// What it is called in tables.
    pub name: String,
    /// What it is, in a sentence.
    pub about: String,
    /// Arguments of the `thermo` that is attached while the workload is measured; none for `orig`.
    pub attach: Vec<String>,
    /// Environment of the workload's command.
    pub env: BTreeMap<String, String>,
    /// The machine's mode of transparent huge pages for its runs; as it is when not given.
    pub thp: Option<ThpMode>,
    /// Limits of the workload's group, one after the other and from the first again while it is measured; none
    /// when empty.
    pub pressure: Vec<Step>,
    /// The configuration it is compared to; the first when not given.
    pub against: Option<String>,
}

/// One limit of a pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The limit, in percent of the workload's peak memory under the first configuration.
    pub percent: u32,
    /// How long it holds.
    pub span: Nanos,
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
