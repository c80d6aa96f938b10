//! Runs read back from a results folder, and what they say beside `orig`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::metric::{self, Measurements, Metric};
use crate::stats::{Summary, Welch, welch};

/// The file of runs in a results folder.
pub(crate) const RUNS: &str = "runs.jsonl";

/// The first line: what the runs are of, and where they were made.
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
    /// The configurations, in order; the first is the one others are compared to.
    pub configurations: Vec<String>,
    /// What configurations are compared to, where that is not the first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub against: BTreeMap<String, String>,
    /// The machine.
    pub host: Host,
}

/// The machine the runs were made on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The kernel's release.
    pub kernel: String,
    /// Its CPUs.
    pub cpus: usize,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// The mode of transparent huge pages.
    pub thp: String,
}

impl Host {
    /// This machine.
    #[must_use]
    pub fn this() -> Self {
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

/// One run, as kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its workload.
    pub workload: String,
    /// Its configuration.
    pub configuration: String,
    /// Its round, from 0.
    pub repeat: usize,
    /// When it began, in seconds since 1970.
    pub started_s: u64,
    /// Memory touched and freed before it.
    #[serde(default)]
    pub warmed_bytes: u64,
    /// Why it has no result.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<String>,
    /// What was measured; empty for a failed run.
    #[serde(default)]
    pub measured: Measurements,
    /// Memory over time: milliseconds since measuring began, resident bytes, bytes zram holds for them.
    #[serde(default)]
    pub samples: Vec<(u64, u64, u64)>,
}

/// The runs of one results folder.
#[derive(Debug, Clone)]
pub struct Results {
    /// What they are of.
    pub head: Head,
    /// Every run in the order it was made, failed ones too.
    pub runs: Vec<Run>,
}

/// One workload under one configuration, summed up, beside what that is compared to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cell {
    /// Its runs.
    pub summary: Summary,
    /// By how many percent its mean lies above that of what it is compared to.
    pub overhead_percent: Option<f64>,
    /// Welch's test against that.
    pub welch: Option<Welch>,
}

impl Results {
    /// Reads the results in `folder`.
    ///
    /// # Errors
    /// When there are none, or with the line that is not one of results.
    pub fn load(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(RUNS);
        let text = fs::read_to_string(&path).map_err(|source| Error::File {
            doing: "read",
            path: path.clone(),
            source,
        })?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let wrong = |line: usize, message: String| Error::NotResults {
            path: path.clone(),
            line,
            message,
        };
        let mut lines = whole.lines().enumerate();
        let first = lines.next().map_or("", |(_, line)| line);
        let head: Head = serde_json::from_str(first).map_err(|error| wrong(1, error.to_string()))?;
        if head.schema != 1 {
            let message = format!(
                "schema {}, and this program reads schema 1: use a newer one",
                head.schema
            );
            return Err(wrong(1, message));
        }
        let runs = lines
            .map(|(at, line)| serde_json::from_str(line).map_err(|error| wrong(at + 1, error.to_string())))
            .collect::<Result<_, _>>()?;
        Ok(Self { head, runs })
    }

    /// The configuration the others are compared to, unless they say otherwise.
    #[must_use]
    pub fn orig(&self) -> &str {
        self.head.configurations.first().map_or("orig", String::as_str)
    }

    /// What `configuration` is compared to.
    #[must_use]
    pub fn base_of(&self, configuration: &str) -> &str {
        self.head
            .against
            .get(configuration)
            .map_or(self.orig(), String::as_str)
    }

    /// The most memory `workload` took under the first configuration: the mean of its runs' peaks. None where none was seen.
    #[must_use]
    pub fn peak(&self, workload: &str) -> Option<u64> {
        let runs = self.of(workload, self.orig());
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
        Summary::of(&peaks).map(|peaks| peaks.mean as u64)
    }

    /// The metrics these runs have measurements of, in the order they are shown.
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

    /// The runs that have a result of one workload under one configuration, one for each repeat.
    #[must_use]
    pub fn of(&self, workload: &str, configuration: &str) -> Vec<&Run> {
        let mut by_repeat: BTreeMap<usize, &Run> = BTreeMap::new();
        let of = self
            .runs
            .iter()
            .filter(|run| run.workload == workload && run.configuration == configuration);
        for run in of.filter(|run| run.failure.is_none()) {
            by_repeat.entry(run.repeat).or_insert(run);
        }
        by_repeat.into_values().collect()
    }

    /// The measurements of `metric` in those runs.
    #[must_use]
    pub fn values(&self, metric: &Metric, workload: &str, configuration: &str) -> Vec<f64> {
        let runs = self.of(workload, configuration);
        runs.iter()
            .filter_map(|run| run.measured.get(&metric.key).copied())
            .collect()
    }

    /// Those measurements summed up and compared to `orig`; nothing when there are none.
    #[must_use]
    pub fn cell(&self, metric: &Metric, workload: &str, configuration: &str) -> Option<Cell> {
        let summary = Summary::of(&self.values(metric, workload, configuration))?;
        let base = self.base_of(configuration);
        let orig = (configuration != base && metric.compares)
            .then(|| Summary::of(&self.values(metric, workload, base)))
            .flatten();
        Some(Cell {
            summary,
            overhead_percent: orig.and_then(|orig| summary.overhead_percent(&orig)),
            welch: orig.and_then(|orig| welch(&summary, &orig)),
        })
    }

    /// The failed runs that no later run made good.
    #[must_use]
    pub fn failures(&self) -> Vec<&Run> {
        let good = |failed: &Run| {
            self.of(&failed.workload, &failed.configuration)
                .iter()
                .any(|run| run.repeat == failed.repeat)
        };
        self.runs
            .iter()
            .filter(|run| run.failure.is_some() && !good(run))
            .collect()
    }
}
