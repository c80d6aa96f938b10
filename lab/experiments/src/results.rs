//! Loads runs from a results folder and compares configurations.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::metric::{self, Measurements, Metric};
use crate::stats::{Summary, Welch, welch};

/// The file of runs in a results folder.
pub(crate) const RUNS: &str = "runs.jsonl";

/// The first line of a results file: the experiment and the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The version of this format: 1.
    pub schema: u32,
    /// The experiment's name.
    pub experiment: String,
    /// The hash of the experiment's text.
    pub hash: String,
    /// The workloads, in order.
    pub workloads: Vec<String>,
    /// The configurations, in order. The first is the baseline.
    pub configurations: Vec<String>,
    /// Baselines of configurations that are not compared to the first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub against: BTreeMap<String, String>,
    /// The machine.
    pub host: Host,
}

/// The machine of the runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Kernel release.
    pub kernel: String,
    /// Number of CPUs.
    pub cpus: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// THP mode.
    pub thp: String,
}

impl Host {
    /// Describes this machine.
    #[must_use]
    pub fn detect() -> Self {
        let info = rustix::system::sysinfo();
        let thp = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        let chosen = thp.split(['[', ']']).nth(1).unwrap_or("none").to_owned();
        Self {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_bytes: info.totalram * u64::from(info.mem_unit),
            thp: chosen,
        }
    }
}

/// A stored run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Workload.
    pub workload: String,
    /// Configuration.
    pub configuration: String,
    /// Repeat, from 0.
    pub repeat: usize,
    /// Start time, in seconds since 1970.
    pub started_s: u64,
    /// Bytes of memory touched and freed before the run.
    #[serde(default)]
    pub warmed_bytes: u64,
    /// Reason of a failed run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<String>,
    /// Measurements; empty for a failed run.
    #[serde(default)]
    pub measured: Measurements,
    /// Memory over time: milliseconds since measuring began, resident bytes, bytes of its swapped pages in
    /// zram.
    #[serde(default)]
    pub samples: Vec<(u64, u64, u64)>,
}

/// The runs of a results folder.
#[derive(Debug, Clone)]
pub struct Results {
    /// The experiment and the machine.
    pub head: Head,
    /// All runs in the order they were made, including failed ones.
    pub runs: Vec<Run>,
}

/// The summary of one workload under one configuration, compared with the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cell {
    /// Summary of the runs.
    pub summary: Summary,
    /// By how many percent the mean lies above the mean of the baseline.
    pub overhead_percent: Option<f64>,
    /// Welch's test against the baseline.
    pub welch: Option<Welch>,
}

impl Results {
    /// Loads the results in `folder`.
    ///
    /// # Errors
    /// When the file cannot be read or has an invalid line.
    pub fn load(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(RUNS);
        let text = fs::read_to_string(&path).map_err(|source| Error::File {
            operation: "read",
            path: path.clone(),
            source,
        })?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let invalid = |line: usize, message: String| Error::InvalidResults {
            path: path.clone(),
            line,
            message,
        };
        let mut lines = whole.lines().enumerate();
        let first = lines.next().map_or("", |(_, line)| line);
        let head: Head = serde_json::from_str(first).map_err(|error| invalid(1, error.to_string()))?;
        if head.schema != 1 {
            let message = format!(
                "schema {}, but this program reads schema 1: use a newer thermo-lab",
                head.schema
            );
            return Err(invalid(1, message));
        }
        let runs = lines
            .map(|(at, line)| serde_json::from_str(line).map_err(|error| invalid(at + 1, error.to_string())))
            .collect::<Result<_, _>>()?;
        Ok(Self { head, runs })
    }

    /// The first configuration: the baseline of all configurations without `against`.
    #[must_use]
    pub fn orig(&self) -> &str {
        self.head.configurations.first().map_or("orig", String::as_str)
    }

    /// The baseline of `configuration`.
    #[must_use]
    pub fn baseline_of(&self, configuration: &str) -> &str {
        self.head
            .against
            .get(configuration)
            .map_or(self.orig(), String::as_str)
    }

    /// Peak memory of `workload` under the first configuration, in bytes: the mean over its runs. `None`
    /// without runs.
    #[must_use]
    pub fn peak(&self, workload: &str) -> Option<u64> {
        let runs = self.runs_of(workload, self.orig());
        let peaks: Vec<f64> = runs
            .iter()
            .filter_map(|run| run.measured.get(metric::MEMORY_PEAK).copied())
            .filter(|peak| *peak > 0.0)
            .collect();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a mean of memory sizes"
        )]
        Summary::from_values(&peaks).map(|peaks| peaks.mean as u64)
    }

    /// The metrics that were measured, in the order of the tables.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        let keys: std::collections::BTreeSet<&str> = self
            .runs
            .iter()
            .flat_map(|run| run.measured.keys())
            .map(String::as_str)
            .collect();
        let latencies = keys.iter().filter_map(|key| key.strip_prefix(metric::LATENCY));
        metric::all(latencies)
            .into_iter()
            .filter(|metric| keys.contains(metric.key.as_str()))
            .collect()
    }

    /// The successful runs of one workload under one configuration, one for each repeat.
    #[must_use]
    pub fn runs_of(&self, workload: &str, configuration: &str) -> Vec<&Run> {
        let mut by_repeat: BTreeMap<usize, &Run> = BTreeMap::new();
        let matching = self
            .runs
            .iter()
            .filter(|run| run.workload == workload && run.configuration == configuration);
        for run in matching.filter(|run| run.failure.is_none()) {
            by_repeat.entry(run.repeat).or_insert(run);
        }
        by_repeat.into_values().collect()
    }

    /// The measurements of `metric` in those runs.
    #[must_use]
    pub fn values(&self, metric: &Metric, workload: &str, configuration: &str) -> Vec<f64> {
        let runs = self.runs_of(workload, configuration);
        runs.iter()
            .filter_map(|run| run.measured.get(&metric.key).copied())
            .collect()
    }

    /// The summary of those measurements, compared with the baseline. `None` without measurements.
    #[must_use]
    pub fn cell(&self, metric: &Metric, workload: &str, configuration: &str) -> Option<Cell> {
        let summary = Summary::from_values(&self.values(metric, workload, configuration))?;
        let base = self.baseline_of(configuration);
        let base = (configuration != base && metric.compares)
            .then(|| Summary::from_values(&self.values(metric, workload, base)))
            .flatten();
        Some(Cell {
            summary,
            overhead_percent: base.and_then(|base| summary.overhead_percent(&base)),
            welch: base.and_then(|base| welch(&summary, &base)),
        })
    }

    /// The failed runs without a later successful run.
    #[must_use]
    pub fn failures(&self) -> Vec<&Run> {
        let succeeded_later = |failed: &Run| {
            self.runs_of(&failed.workload, &failed.configuration)
                .iter()
                .any(|run| run.repeat == failed.repeat)
        };
        self.runs
            .iter()
            .filter(|run| run.failure.is_some() && !succeeded_later(run))
            .collect()
    }
}
