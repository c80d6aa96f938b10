//! Errors that end an experiment. A failed run does not end it: the run is saved as failed.

use std::path::PathBuf;

use thermo_units::text::ParseError;

use crate::needs::{Need, packages, programs};

/// An experiment cannot be read, run or printed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {operation} {path}: {source}", path = path.display())]
    File {
        /// The operation: create, open, read or write.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The experiment file has an error.
    #[error("{}", error.in_file(&path.display().to_string()))]
    Parse {
        /// The file.
        path: PathBuf,
        /// The error, with its position.
        error: ParseError,
    },
    /// Programs are not installed.
    #[error("missing: {}. Install them with: apt-get install {}", programs(.0), packages(.0))]
    Missing(Vec<Need>),
    /// A name given on the command line is not in the experiment.
    #[error("unknown workload or configuration {name:?}: the experiment has {known}")]
    Unknown {
        /// The given name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The results folder holds runs of another experiment file, or of an older version of this one.
    #[error(
        "{path} holds runs of another experiment file ({found}, not {expected}): \
         use another folder or remove this one; runs of different files must not be mixed",
        path = path.display()
    )]
    OtherExperiment {
        /// The file of runs in the folder.
        path: PathBuf,
        /// Hash or size of the experiment file that the runs belong to.
        found: String,
        /// Hash or size of the experiment file given now.
        expected: String,
    },
    /// The squeeze experiment failed.
    #[error("squeeze: {0}")]
    Squeeze(String),
    /// A results file has an invalid line.
    #[error("{path}:{line}: not a valid line of results: {message}", path = path.display())]
    InvalidResults {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The error.
        message: String,
    },
    /// The control group for measuring cannot be set up.
    #[error("cannot measure in a memory cgroup: {0}")]
    Cgroup(String),
    /// The swap of the experiment cannot be created.
    #[error("cannot create zram swap of {size}: {reason}. {advice}")]
    Swap {
        /// Size of the swap.
        size: thermo_units::Bytes,
        /// Reason of the failure.
        reason: String,
        /// What to do, and which other swap exists.
        advice: String,
    },
    /// The set-up of a workload failed.
    #[error("set-up of {workload} failed ({status}): {output}")]
    SetUp {
        /// The workload.
        workload: String,
        /// Exit status of the set-up script.
        status: String,
        /// Last lines of its output.
        output: String,
    },
}

/// Why one run has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunFailure {
    /// The user stopped the experiment. The run is not saved; a resumed experiment makes it again.
    #[error("stopped")]
    Stopped,
    /// The run failed and is saved as failed. The message is one sentence.
    #[error("{0}")]
    Failed(String),
}

impl RunFailure {
    /// A failed run.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }
}
