//! Errors of the history.

use std::io;
use std::path::PathBuf;

use crate::error::WriteError;

/// The history cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// There is no history.
    #[error(
        "there is no history in {}: start `thermo agent`, or name its state directory with --state-dir",
        path.display()
    )]
    Missing {
        /// The state directory.
        path: PathBuf,
    },
    /// A folder cannot be read.
    #[error("cannot read the folder {} of the history: {source}; check its permissions", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A folder cannot be created.
    #[error("cannot create the folder {} for the history: {source}", path.display())]
    Create {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A segment cannot be removed.
    #[error("cannot remove the old segment {}: {source}; remove it by hand", path.display())]
    Remove {
        /// The segment.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The name of a policy cannot be a folder's.
    #[error(
        "the policy {0:?} can have no history: its name needs letters, digits and -_.@:+ only, and no dot in front"
    )]
    PolicyName(String),
    /// A segment cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}
