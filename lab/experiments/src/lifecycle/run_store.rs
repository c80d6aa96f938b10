//! Stores runs in a results folder, one JSON line for each run.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Arm;
use super::counters::Counters;
use crate::Error;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Without or with hints.
    pub arm: Arm,
    /// Repeat, from 0.
    pub repeat: usize,
    /// Reason of a failed run.
    pub failure: Option<String>,
    /// Measurements by name.
    pub measured: std::collections::BTreeMap<String, f64>,
}

impl Run {
    pub(super) fn new(arm: Arm, repeat: usize, outcome: Result<Counters, String>) -> Self {
        let (measured, failure) = match outcome {
            Ok(measured) => (measured, None),
            Err(reason) => (Counters::new(), Some(reason)),
        };
        Self {
            arm,
            repeat,
            failure,
            measured,
        }
    }
}

/// The runs in a results folder.
#[derive(Debug)]
pub struct Results {
    path: PathBuf,
    file: File,
    /// All runs, including failed ones.
    pub runs: Vec<Run>,
}

impl Results {
    /// Opens the folder: a new one, or that of an interrupted experiment.
    pub(super) fn open(folder: &Path, text: &str, switches: usize) -> Result<Self, Error> {
        let failed = |operation, path: &Path| {
            let path = path.to_owned();
            move |source| Error::File {
                operation,
                path,
                source,
            }
        };
        fs::create_dir_all(folder).map_err(failed("create", folder))?;
        let (copy, path) = (folder.join("experiment.toml"), folder.join("runs.jsonl"));
        // Do not change this line: it must equal that of existing folders.
        let text = format!("# switches a run: {switches}\n{text}");
        match fs::read_to_string(&copy) {
            Ok(stored) if stored != text => {
                return Err(Error::OtherExperiment {
                    path,
                    found: format!("{} bytes", stored.len()),
                    expected: format!("{} bytes", text.len()),
                });
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::write(&copy, text).map_err(failed("write", &copy))?;
            }
            Err(error) => return Err(failed("read", &copy)(error)),
        }
        let runs = read_runs(&path)?;
        // Rewrite the file to drop a truncated last line.
        let mut file = File::create(&path).map_err(failed("write", &path))?;
        for run in &runs {
            file.write_all(line(run).as_bytes())
                .map_err(failed("write", &path))?;
        }
        let file = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(failed("open", &path))?;
        Ok(Self { path, file, runs })
    }

    /// True when the run exists and did not fail.
    pub(super) fn has_result(&self, arm: Arm, repeat: usize) -> bool {
        self.runs
            .iter()
            .any(|run| run.arm == arm && run.repeat == repeat && run.failure.is_none())
    }

    /// Appends a run.
    pub(super) fn append(&mut self, run: Run) -> Result<(), Error> {
        let written = self
            .file
            .write_all(line(&run).as_bytes())
            .and_then(|()| self.file.sync_data());
        written.map_err(|source| Error::File {
            operation: "write",
            path: self.path.clone(),
            source,
        })?;
        self.runs.push(run);
        Ok(())
    }

    /// The measurements called `name` in the successful runs of an arm.
    #[must_use]
    pub fn values(&self, arm: Arm, name: &str) -> Vec<f64> {
        let of_arm = self
            .runs
            .iter()
            .filter(|run| run.arm == arm && run.failure.is_none());
        of_arm.filter_map(|run| run.measured.get(name).copied()).collect()
    }

    /// The failed runs without a later successful run.
    #[must_use]
    pub fn failures(&self) -> Vec<&Run> {
        let failed = |run: &&Run| run.failure.is_some() && !self.has_result(run.arm, run.repeat);
        self.runs.iter().filter(failed).collect()
    }
}

fn line(run: &Run) -> String {
    // Serialising cannot fail: all maps have string keys and all numbers are finite.
    serde_json::to_string(run).unwrap_or_default() + "\n"
}

/// Reads the runs in a file; none if it does not exist. A last line without a newline is truncated and
/// skipped.
fn read_runs(path: &Path) -> Result<Vec<Run>, Error> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        // Going on would overwrite the file and lose its runs.
        Err(source) => {
            return Err(Error::File {
                operation: "read",
                path: path.to_owned(),
                source,
            });
        }
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let read = |(nth, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| Error::InvalidResults {
            path: path.to_owned(),
            line: nth + 1,
            message: error.to_string(),
        })
    };
    whole.lines().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn reopened_results_have_runs_and_reject_other_texts() {
        let folder = tempfile::tempdir().unwrap();
        let open = |text| Results::open(folder.path(), text, 5);
        let mut results = open("a").unwrap();
        let measured = Counters::from([("kills".to_owned(), 3.0)]);
        results.append(Run::new(Arm::A, 0, Ok(measured))).unwrap();
        results
            .append(Run::new(Arm::B, 0, Err("it ended".into())))
            .unwrap();
        results.file.write_all(b"{\"arm\":").unwrap();
        let results = open("a").unwrap();
        assert!(results.has_result(Arm::A, 0) && !results.has_result(Arm::B, 0));
        assert_eq!(
            (results.values(Arm::A, "kills"), results.failures().len()),
            (vec![3.0], 1)
        );
        assert!(open("b").unwrap_err().to_string().contains("another experiment"));
        assert!(Results::open(folder.path(), "a", 6).is_err());
    }

    #[test]
    fn unreadable_runs_are_an_error_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        drop(Results::open(folder.path(), "a", 5).unwrap());
        // Not UTF-8: a damaged file may still hold runs, so it must not be overwritten.
        let path = folder.path().join("runs.jsonl");
        fs::write(&path, b"\xff\xfe\n").unwrap();
        let error = Results::open(folder.path(), "a", 5).unwrap_err().to_string();
        assert!(error.contains("runs.jsonl"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"\xff\xfe\n");
    }
}
