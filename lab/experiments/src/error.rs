//! What ends an experiment. A single run that goes wrong does not: it is kept as a failed run.

use std::path::PathBuf;

use thermo_units::text::ParseError;

use crate::needs::{Need, packages, programs};

/// Why an experiment cannot be read, run or shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that cannot be read or written.
    #[error("cannot {doing} {path}: {source}", path = path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A mistake in the experiment file.
    #[error("{}", fault.in_file(&path.display().to_string()))]
    Mistake {
        /// The file.
        path: PathBuf,
        /// The mistake.
        fault: ParseError,
    },
    /// Programs that are not installed.
    #[error("missing: {}. Install them with: apt-get install {}", programs(.0), packages(.0))]
    Missing(Vec<Need>),
    /// A name given on the command line that the experiment does not have.
    #[error("no workload or configuration {name:?} in the experiment: there are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The results folder belongs to another experiment, or to an older text of this one.
    #[error(
        "{path} holds runs of another experiment file (hash {there}, not {here}): \
         give another folder, or remove this one, runs of different files must not be mixed",
        path = path.display()
    )]
    OtherExperiment {
        /// The folder's file of runs.
        path: PathBuf,
        /// The hash in it.
        there: String,
        /// The hash of the file given now.
        here: String,
    },
    /// The experiment of squeezed pools cannot go on.
    #[error("squeeze: {0}")]
    Squeeze(String),
    /// A results file that is not one.
    #[error("{path}:{line}: not a line of results: {message}", path = path.display())]
    NotResults {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// Memory cannot be measured here.
    #[error("cannot measure in a memory cgroup: {0}")]
    Group(String),
    /// The swap of the experiment cannot be made.
    #[error("cannot make zram swap of {size}: {reason}. {instead}")]
    Swap {
        /// Its size.
        size: thermo_units::Bytes,
        /// What is in the way.
        reason: String,
        /// What to do about it, and which other swap there is.
        instead: String,
    },
    /// The set-up of a workload failed.
    #[error("set-up of {workload} failed ({status}): {output}")]
    SetUp {
        /// The workload.
        workload: String,
        /// How it ended.
        status: String,
        /// The end of what it printed.
        output: String,
    },
}

/// Why one run has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunFailure {
    /// The user asked to stop: the run is not kept, and done again when the experiment is resumed.
    #[error("stopped")]
    Stopped,
    /// Something went wrong; the run is kept as failed.
    #[error("{0}")]
    Wrong(String),
}

impl RunFailure {
    /// A failure in a sentence.
    pub(crate) fn wrong(sentence: impl Into<String>) -> Self {
        Self::Wrong(sentence.into())
    }
}
