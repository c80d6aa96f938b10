//! Runs on disk: one JSON line each, written and flushed as soon as a run ends.
//!
//! The first line says which experiment the runs are of, by a hash of its text: runs of different files must not
//! be mixed. A last line that is cut off (power, `kill -9`) is dropped; that run is made again.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::Error;
use crate::experiment::Experiment;
use crate::results::{Head, Host, RUNS, Results, Run};

/// The copy of the experiment file in a results folder.
const EXPERIMENT: &str = "experiment.toml";

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
        against: experiment
            .configurations
            .iter()
            .filter_map(|with| Some((with.name.clone(), with.against.clone()?)))
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
