//! Errors of a simulated fleet, each a sentence with the way out.

use std::io;
use std::path::{Path, PathBuf};

use thermo_engine::OpsError;
use thermo_fleet::FleetError;

/// The fleet cannot be simulated or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option is impossible.
    #[error("{0}")]
    Options(String),
    /// The folder has files already.
    #[error("{} has files already: choose another --out, or empty it first", .0.display())]
    NotEmpty(PathBuf),
    /// A file or folder cannot be written or read.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A file of ages or an anchor is wrong.
    #[error("{}: {what}", path.display())]
    Input {
        /// The file.
        path: PathBuf,
        /// The problem, and the way out.
        what: String,
    },
    /// The engine failed on the simulated machine.
    #[error(transparent)]
    Engine(#[from] OpsError),
    /// A file of the fleet cannot be encoded.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// The user interrupted.
    #[error("interrupted: the folder holds a part of the fleet, and no truth.json")]
    Interrupted,
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |error| Self::Io { path, error }
    }

    pub(crate) fn input(path: &Path, what: impl Into<String>) -> Self {
        Self::Input {
            path: path.to_owned(),
            what: what.into(),
        }
    }
}
