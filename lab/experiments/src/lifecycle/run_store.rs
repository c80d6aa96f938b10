//! The runs that were made, kept line by line in a folder.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Arm;
use super::counters::Counters;
use crate::Error;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// With or without hints.
    pub arm: Arm,
    /// The round, from 0.
    pub repeat: usize,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// What it measured, by name.
    pub measured: std::collections::BTreeMap<String, f64>,
}

impl Kept {
    pub(super) fn of(arm: Arm, repeat: usize, made: Result<Counters, String>) -> Self {
        let (measured, failure) = match made {
            Ok(measured) => (measured, None),
            Err(why) => (Counters::new(), Some(why)),
        };
        Self {
            arm,
            repeat,
            failure,
            measured,
        }
    }
}

/// All runs of a folder.
#[derive(Debug)]
pub struct Results {
    path: PathBuf,
    file: File,
    /// They.
    pub runs: Vec<Kept>,
}

impl Results {
    /// Opens the folder: a new one, or the one an interrupted experiment left.
    pub(super) fn open(folder: &Path, text: &str, switches: usize) -> Result<Self, Error> {
        let failed = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { doing, path, source }
        };
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        let (copy, path) = (folder.join("experiment.toml"), folder.join("runs.jsonl"));
        let text = format!("# switches a run: {switches}\n{text}");
        match fs::read_to_string(&copy) {
            Ok(there) if there != text => {
                let (there, here) = (
                    format!("of {} bytes", there.len()),
                    format!("of {} bytes", text.len()),
                );
                return Err(Error::OtherExperiment { path, there, here });
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::write(&copy, text).map_err(failed("write", &copy))?;
            }
            Err(error) => return Err(failed("read", &copy)(error)),
        }
        let runs = lines(&path)?;
        // Written anew: a last line that was cut off is not there any more.
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

    /// Whether the run was made and did not fail.
    pub(super) fn has(&self, arm: Arm, repeat: usize) -> bool {
        self.runs
            .iter()
            .any(|run| run.arm == arm && run.repeat == repeat && run.failure.is_none())
    }

    pub(super) fn keep(&mut self, run: Kept) -> Result<(), Error> {
        let kept = self
            .file
            .write_all(line(&run).as_bytes())
            .and_then(|()| self.file.sync_data());
        kept.map_err(|source| Error::File {
            doing: "write",
            path: self.path.clone(),
            source,
        })?;
        self.runs.push(run);
        Ok(())
    }

    /// What was measured under a name in one arm.
    #[must_use]
    pub fn values(&self, arm: Arm, name: &str) -> Vec<f64> {
        let of_arm = self
            .runs
            .iter()
            .filter(|run| run.arm == arm && run.failure.is_none());
        of_arm.filter_map(|run| run.measured.get(name).copied()).collect()
    }

    /// The runs that failed and were not made again.
    #[must_use]
    pub fn failures(&self) -> Vec<&Kept> {
        let failed = |run: &&Kept| run.failure.is_some() && !self.has(run.arm, run.repeat);
        self.runs.iter().filter(failed).collect()
    }
}

fn line(run: &Kept) -> String {
    // Text keys and finite numbers: there is nothing that JSON could not say.
    serde_json::to_string(run).unwrap_or_default() + "\n"
}

/// The runs in a file; none if it is not there yet. A last line without an end was cut off.
fn lines(path: &Path) -> Result<Vec<Kept>, Error> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        // It would be written anew, without the runs in it.
        Err(source) => {
            return Err(Error::File {
                doing: "read",
                path: path.to_owned(),
                source,
            });
        }
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let read = |(nth, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|why| Error::NotResults {
            path: path.to_owned(),
            line: nth + 1,
            message: why.to_string(),
        })
    };
    whole.lines().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn runs_are_there_again_and_other_texts_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = |text| Results::open(folder.path(), text, 5);
        let mut results = open("a").unwrap();
        let measured = Counters::from([("kills".to_owned(), 3.0)]);
        results.keep(Kept::of(Arm::A, 0, Ok(measured))).unwrap();
        results.keep(Kept::of(Arm::B, 0, Err("it ended".into()))).unwrap();
        results.file.write_all(b"{\"arm\":").unwrap();
        let results = open("a").unwrap();
        assert!(results.has(Arm::A, 0) && !results.has(Arm::B, 0));
        assert_eq!(
            (results.values(Arm::A, "kills"), results.failures().len()),
            (vec![3.0], 1)
        );
        assert!(open("b").unwrap_err().to_string().contains("another experiment"));
        assert!(Results::open(folder.path(), "a", 6).is_err());
    }

    #[test]
    fn runs_that_cannot_be_read_are_not_taken_for_none() {
        let folder = tempfile::tempdir().unwrap();
        drop(Results::open(folder.path(), "a", 5).unwrap());
        // Not UTF-8: the bytes are somebody's runs, whatever happened to them.
        let path = folder.path().join("runs.jsonl");
        fs::write(&path, b"\xff\xfe\n").unwrap();
        let error = Results::open(folder.path(), "a", 5).unwrap_err().to_string();
        assert!(error.contains("runs.jsonl"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"\xff\xfe\n");
    }
}
