//! The files of a history: `STATE/history/POLICY/START_UNIX_MS.arrow`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thermo_units::Nanos;

use super::error::HistoryError;

/// Name of the folder below the state directory.
const FOLDER: &str = "history";
const EXTENSION: &str = "arrow";

/// A segment: one recording of one policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    /// When it began, in Unix time. The file's name has this time in milliseconds.
    pub start: Nanos,
    /// The policy.
    pub policy: String,
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// The folder of the history below `state_dir`.
#[must_use]
pub fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join(FOLDER)
}

/// Whether a policy of this name can have a history: the name of the policy is the name of a folder.
#[must_use]
pub fn is_policy_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@:+".contains(&byte);
    !name.is_empty() && name.len() <= 128 && !name.starts_with('.') && name.bytes().all(is_allowed)
}

/// The path of a segment of `policy` that begins at `start`. A segment of the same millisecond, left by a
/// clock that was set back, is not replaced.
pub(super) fn new_path(state_dir: &Path, policy: &str, start: Nanos) -> PathBuf {
    let folder = folder(state_dir).join(policy);
    let path = |ms: u64| folder.join(format!("{ms}.{EXTENSION}"));
    let first = start.0 / Nanos::millis(1).0;
    let mut free = (first..=u64::MAX)
        .map(path)
        .filter(|path| fs::symlink_metadata(path).is_err());
    free.next().unwrap_or_else(|| path(first))
}

/// All segments below `state_dir`, the oldest first. Other files and folders are ignored.
///
/// # Errors
/// A folder cannot be read. A missing folder is an empty one.
pub fn segments(state_dir: &Path) -> Result<Vec<Segment>, HistoryError> {
    let mut found = Vec::new();
    for policy in entries(&folder(state_dir))? {
        let Some(name) = policy.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if is_policy_name(name) && policy.is_dir() {
            let files = entries(&policy)?;
            found.extend(files.into_iter().filter_map(|path| segment(name, path)));
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, HistoryError> {
    let error = |source| HistoryError::Folder {
        path: folder.to_owned(),
        source,
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(error(source)),
    };
    entries
        .map(|entry| entry.map(|entry| entry.path()).map_err(error))
        .collect()
}

/// `None`: the file is not a segment, or has gone since.
fn segment(policy: &str, path: PathBuf) -> Option<Segment> {
    if path.extension()? != EXTENSION {
        return None;
    }
    let ms: u64 = path.file_stem()?.to_str()?.parse().ok()?;
    let metadata = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?;
    Some(Segment {
        start: Nanos::millis(ms),
        policy: policy.to_owned(),
        path,
        bytes: metadata.len(),
    })
}
