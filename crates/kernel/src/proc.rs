//! The files of one process, and the processes there are.

use std::path::{Path, PathBuf};

use crate::file::{self, FileError};

/// Why something about a process could not be learnt or done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcError {
    /// It has ended. Nobody's fault: look after those that live.
    #[error("process {pid} is gone")]
    Gone {
        /// Which.
        pid: u32,
    },
    /// A file of it failed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ProcError {
    /// True when the process has ended.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }
}

/// The folder of process `pid`.
#[must_use]
pub fn dir(root: &Path, pid: u32) -> PathBuf {
    root.join("proc").join(pid.to_string())
}

/// The text of the file `name` of process `pid`.
///
/// # Errors
/// [`ProcError::Gone`] when the process has ended.
pub fn text(root: &Path, pid: u32, name: &str) -> Result<String, ProcError> {
    let path = dir(root, pid).join(name);
    file::text(&path).map_err(|err| sort(root, pid, err))
}

/// Writes `text` into the file `name` of process `pid`.
///
/// # Errors
/// [`ProcError::Gone`] when the process has ended.
pub fn write(root: &Path, pid: u32, name: &str, text: &str) -> Result<(), ProcError> {
    let path = dir(root, pid).join(name);
    file::write(&path, text).map_err(|err| sort(root, pid, err))
}

// A file of a process that ends after the file was opened answers ESRCH.
fn sort(root: &Path, pid: u32, err: FileError) -> ProcError {
    let ended = match &err {
        FileError::Missing(_) => !dir(root, pid).exists(),
        FileError::Io { source, .. } => source.raw_os_error() == Some(libc::ESRCH),
        _ => false,
    };
    if ended {
        ProcError::Gone { pid }
    } else {
        ProcError::File(err)
    }
}

/// Every process there is now, ascending.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn all(root: &Path) -> Result<Vec<u32>, FileError> {
    let path = root.join("proc");
    let entries = std::fs::read_dir(&path).map_err(|source| FileError::new(&path, source))?;
    let mut pids: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    Ok(pids)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;

    #[test]
    fn a_vanished_process_is_told_from_a_missing_file() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/7")).unwrap();
        assert!(text(root.path(), 8, "maps").unwrap_err().is_gone());
        assert!(matches!(
            text(root.path(), 7, "maps").unwrap_err(),
            ProcError::File(FileError::Missing(_))
        ));
    }

    #[test]
    fn only_numbers_are_processes() {
        let root = tempfile::tempdir().unwrap();
        for name in ["11", "2", "self", "sys", "3x"] {
            fs::create_dir_all(root.path().join("proc").join(name)).unwrap();
        }
        assert_eq!(all(root.path()).unwrap(), [2, 11]);
    }
}
