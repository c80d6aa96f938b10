//! Stores runs on disk: one JSON line for each run, written and synced as soon as the run ends.
//!
//! The first line has a hash of the experiment file, so that runs of different files are not mixed. A
//! truncated last line (power loss, `kill -9`) is dropped, and its run is made again.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::Error;
use crate::experiment::Experiment;
use crate::results::{Head, Host, RUNS, Results, Run};

/// The copy of the experiment file in a results folder.
const EXPERIMENT: &str = "experiment.toml";

/// An open results folder.
#[derive(Debug)]
pub(crate) struct RunStore {
    file: File,
    path: PathBuf,
    /// All runs so far.
    pub(crate) results: Results,
}

impl RunStore {
    /// Opens the folder for `experiment`: a new one, or that of an interrupted experiment.
    pub(crate) fn open(folder: &Path, experiment: &Experiment) -> Result<Self, Error> {
        let failed = |operation, path: &Path| {
            let path = path.to_owned();
            move |source| Error::File {
                operation,
                path,
                source,
            }
        };
        fs::create_dir_all(folder).map_err(failed("create", folder))?;
        let path = folder.join(RUNS);
        let results = if fs::metadata(&path).is_ok_and(|meta| meta.len() > 0) {
            Results::load(folder)?
        } else {
            Results {
                head: head(experiment),
                runs: Vec::new(),
            }
        };
        let expected = hash(&experiment.text);
        if results.head.hash != expected {
            return Err(Error::OtherExperiment {
                path,
                found: results.head.hash,
                expected,
            });
        }
        // Rewrite the file without a truncated last line, and replace the old file atomically.
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

    /// Appends a run.
    pub(crate) fn append(&mut self, run: Run) -> Result<(), Error> {
        self.file
            .write_all(line(&run).as_bytes())
            .and_then(|()| self.file.sync_data())
            .map_err(|source| Error::File {
                operation: "write",
                path: self.path.clone(),
                source,
            })?;
        self.results.runs.push(run);
        Ok(())
    }

    /// True when the run exists and did not fail.
    pub(crate) fn has_result(&self, workload: &str, configuration: &str, repeat: usize) -> bool {
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
        against: experiment
            .configurations
            .iter()
            .filter_map(|with| Some((with.name.clone(), with.against.clone()?)))
            .collect(),
        host: Host::detect(),
    }
}

fn line(value: &impl Serialize) -> String {
    // Serialising cannot fail: all maps have string keys and all numbers are finite.
    serde_json::to_string(value).unwrap_or_default() + "\n"
}

/// FNV-1a hash, 64 bits. It only detects that a file was edited.
fn hash(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::metric::{self, Measurements};

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
            warmed_bytes: 0,
            failure: failure.map(str::to_owned),
            measured: Measurements::from([(metric::RUNTIME.to_owned(), 2.5)]),
            samples: vec![(0, 1, 2)],
        }
    }

    #[test]
    fn reopened_store_has_runs_and_retries_failed_ones() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = RunStore::open(folder.path(), &experiment("a")).unwrap();
        store.append(a_run(0, None)).unwrap();
        store
            .append(a_run(1, Some("it was killed by signal 11")))
            .unwrap();
        drop(store);
        let mut store = RunStore::open(folder.path(), &experiment("a")).unwrap();
        assert_eq!(
            store.results.runs,
            [a_run(0, None), a_run(1, Some("it was killed by signal 11"))]
        );
        assert!(store.has_result("w", "orig", 0) && !store.has_result("w", "orig", 1));
        assert_eq!(store.results.failures().len(), 1);
        store.append(a_run(1, None)).unwrap();
        assert!(Results::load(folder.path()).unwrap().failures().is_empty());
    }

    #[test]
    fn truncated_last_line_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = RunStore::open(folder.path(), &experiment("a")).unwrap();
        store.append(a_run(0, None)).unwrap();
        store.file.write_all(b"{\"workload\":\"w\",\"conf").unwrap();
        drop(store);
        let mut store = RunStore::open(folder.path(), &experiment("a")).unwrap();
        store.append(a_run(1, None)).unwrap();
        assert_eq!(
            Results::load(folder.path()).unwrap().runs,
            [a_run(0, None), a_run(1, None)]
        );
    }

    #[test]
    fn runs_of_other_experiment_are_rejected_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        RunStore::open(folder.path(), &experiment("a"))
            .unwrap()
            .append(a_run(0, None))
            .unwrap();
        let message = RunStore::open(folder.path(), &experiment("b"))
            .unwrap_err()
            .to_string();
        assert!(message.contains("another experiment file"), "{message}");
        assert_eq!(Results::load(folder.path()).unwrap().runs.len(), 1);
    }

    #[test]
    fn invalid_results_are_reported_with_line() {
        let folder = tempfile::tempdir().unwrap();
        RunStore::open(folder.path(), &experiment("a"))
            .unwrap()
            .append(a_run(0, None))
            .unwrap();
        let path = folder.path().join(RUNS);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}nonsense\n")).unwrap();
        assert!(matches!(
            Results::load(folder.path()),
            Err(Error::InvalidResults { line: 3, .. })
        ));
        fs::write(&path, text.replacen("\"schema\":1", "\"schema\":9", 1)).unwrap();
        let message = Results::load(folder.path()).unwrap_err().to_string();
        assert!(message.contains("schema 9"), "{message}");
        assert!(matches!(
            Results::load(&folder.path().join("none")),
            Err(Error::File { .. })
        ));
    }
}
