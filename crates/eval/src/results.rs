//! Runs on disk: one JSON line each, written and flushed as soon as a run ends.
//!
//! The first line says which experiment the runs are of, by a hash of its text: runs of different files must not
//! be mixed. A last line that is cut off (power, `kill -9`) is dropped; that run is made again.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::experiment::Experiment;
use crate::metric::{self, Measurements, Metric};
use crate::stats::{Summary, Welch, welch};

/// The file of runs in a results folder.
const RUNS: &str = "runs.jsonl";
/// The copy of the experiment file in a results folder.
const EXPERIMENT: &str = "experiment.toml";

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

/// The results folder while runs are made.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: File,
    path: PathBuf,
    /// What is known so far.
    pub(crate) results: Results,
}

impl Ledger {
    /// Opens the folder for `experiment`: a new one, or the one an interrupted experiment left.
    pub(crate) fn open(folder: &Path, experiment: &Experiment) -> Result<Self, Error> {
        let failed = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { doing, path, source }
        };
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        let path = folder.join(RUNS);
        let results = if fs::metadata(&path).is_ok_and(|meta| meta.len() > 0) {
            Results::load(folder)?
        } else {
            Results {
                head: head(experiment),
                runs: Vec::new(),
            }
        };
        let here = hash(&experiment.text);
        if results.head.hash != here {
            return Err(Error::OtherExperiment {
                path,
                there: results.head.hash,
                here,
            });
        }
        // What can be read is written anew, without a cut-off last line, and then replaces the old file whole.
        let fresh = folder.join("runs.jsonl.new");
        let mut file = File::create(&fresh).map_err(failed("write", &fresh))?;
        let text: String = std::iter::once(line(&results.head))
            .chain(results.runs.iter().map(line))
            .collect();
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(failed("write", &fresh))?;
        fs::rename(&fresh, &path).map_err(failed("write", &path))?;
        let copy = folder.join(EXPERIMENT);
        fs::write(&copy, &experiment.text).map_err(failed("write", &copy))?;
        let file = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(failed("open", &path))?;
        Ok(Self { file, path, results })
    }

    /// Keeps a run.
    pub(crate) fn keep(&mut self, run: Run) -> Result<(), Error> {
        self.file
            .write_all(line(&run).as_bytes())
            .and_then(|()| self.file.sync_data())
            .map_err(|source| Error::File {
                doing: "write",
                path: self.path.clone(),
                source,
            })?;
        self.results.runs.push(run);
        Ok(())
    }

    /// True when the run was made and has a result.
    pub(crate) fn has(&self, workload: &str, configuration: &str, repeat: usize) -> bool {
        self.results.runs.iter().any(|run| {
            run.failure.is_none()
                && run.repeat == repeat
                && run.workload == workload
                && run.configuration == configuration
        })
    }
}

fn head(experiment: &Experiment) -> Head {
    Head {
        schema: 1,
        experiment: experiment.name.clone(),
        hash: hash(&experiment.text),
        workloads: experiment
            .workloads
            .iter()
            .map(|workload| workload.name.clone())
            .collect(),
        configurations: experiment
            .configurations
            .iter()
            .map(|with| with.name.clone())
            .collect(),
        host: Host::this(),
    }
}

fn line(value: &impl Serialize) -> String {
    // Maps have text keys and numbers are finite: there is nothing that JSON could not say.
    serde_json::to_string(value).unwrap_or_default() + "\n"
}

/// FNV-1a, 64 bits: tells an edited file from the same one, which is all that is asked of it.
fn hash(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// One workload under one configuration, summed up, beside `orig`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cell {
    /// Its runs.
    pub summary: Summary,
    /// By how many percent its mean lies above that of `orig`.
    pub overhead_percent: Option<f64>,
    /// Welch's test against `orig`.
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

    /// The configuration the others are compared to.
    #[must_use]
    pub fn orig(&self) -> &str {
        self.head.configurations.first().map_or("orig", String::as_str)
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
        let orig = (configuration != self.orig() && metric.compares)
            .then(|| Summary::of(&self.values(metric, workload, self.orig())))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn experiment(about: &str) -> Experiment {
        let text = format!(
            "name = \"n\"\nabout = \"{about}\"\nrepeats = 2\n\
             [[configuration]]\nname = \"orig\"\n[[workload]]\nname = \"w\"\ncommand = [\"true\"]\n"
        );
        Experiment::parse(&text, Path::new(".")).unwrap()
    }

    fn a_run(repeat: usize, failure: Option<&str>) -> Run {
        Run {
            workload: "w".into(),
            configuration: "orig".into(),
            repeat,
            started_s: 1,
            failure: failure.map(str::to_owned),
            measured: Measurements::from([(metric::RUNTIME.to_owned(), 2.5)]),
            samples: vec![(0, 1, 2)],
        }
    }

    #[test]
    fn kept_runs_are_there_again_and_failed_ones_are_to_be_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(folder.path(), &experiment("a")).unwrap();
        ledger.keep(a_run(0, None)).unwrap();
        ledger.keep(a_run(1, Some("it was killed by signal 11"))).unwrap();
        drop(ledger);
        let mut ledger = Ledger::open(folder.path(), &experiment("a")).unwrap();
        assert_eq!(
            ledger.results.runs,
            [a_run(0, None), a_run(1, Some("it was killed by signal 11"))]
        );
        assert!(ledger.has("w", "orig", 0) && !ledger.has("w", "orig", 1));
        assert_eq!(ledger.results.failures().len(), 1);
        ledger.keep(a_run(1, None)).unwrap();
        assert!(Results::load(folder.path()).unwrap().failures().is_empty());
    }

    #[test]
    fn a_cut_off_last_line_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(folder.path(), &experiment("a")).unwrap();
        ledger.keep(a_run(0, None)).unwrap();
        ledger.file.write_all(b"{\"workload\":\"w\",\"conf").unwrap();
        drop(ledger);
        let mut ledger = Ledger::open(folder.path(), &experiment("a")).unwrap();
        ledger.keep(a_run(1, None)).unwrap();
        assert_eq!(
            Results::load(folder.path()).unwrap().runs,
            [a_run(0, None), a_run(1, None)]
        );
    }

    #[test]
    fn runs_of_another_text_are_refused_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        Ledger::open(folder.path(), &experiment("a"))
            .unwrap()
            .keep(a_run(0, None))
            .unwrap();
        let told = Ledger::open(folder.path(), &experiment("b"))
            .unwrap_err()
            .to_string();
        assert!(told.contains("another experiment file"), "{told}");
        assert_eq!(Results::load(folder.path()).unwrap().runs.len(), 1);
    }

    #[test]
    fn what_is_not_results_is_said_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        Ledger::open(folder.path(), &experiment("a"))
            .unwrap()
            .keep(a_run(0, None))
            .unwrap();
        let path = folder.path().join(RUNS);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}nonsense\n")).unwrap();
        assert!(matches!(
            Results::load(folder.path()),
            Err(Error::NotResults { line: 3, .. })
        ));
        fs::write(&path, text.replacen("\"schema\":1", "\"schema\":9", 1)).unwrap();
        let told = Results::load(folder.path()).unwrap_err().to_string();
        assert!(told.contains("schema 9"), "{told}");
        assert!(matches!(
            Results::load(&folder.path().join("none")),
            Err(Error::File { .. })
        ));
    }
}
