//! `/proc/self/mountinfo`: the mounts of the own mount namespace (proc_pid_mountinfo(5)).

use std::fmt;
use std::fs;
use std::path::Path;

use crate::file::FileError;

/// A mount point as `mountinfo` has it: blanks and backslashes are escaped, so that it is one word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPoint(String);

impl MountPoint {
    /// The mount point at `dir`, an absolute path without symbolic links.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        let escape = |c: char| match c {
            ' ' | '\t' | '\n' | '\\' => format!("\\{:03o}", c as u32),
            _ => c.to_string(),
        };
        Self(dir.to_string_lossy().chars().map(escape).collect())
    }

    /// A mount point that is escaped already.
    #[must_use]
    pub fn from_escaped(word: &str) -> Self {
        Self(word.to_owned())
    }
}

impl fmt::Display for MountPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a file system is mounted at `point`. The file system itself is not asked: it may not answer.
///
/// # Errors
/// `mountinfo` cannot be read.
pub fn is_mounted(root: &Path, point: &MountPoint) -> Result<bool, FileError> {
    let path = root.join("proc/self/mountinfo");
    let bytes = fs::read(&path).map_err(|error| FileError::new(&path, error))?;
    let text = String::from_utf8_lossy(&bytes);
    let mut points = text.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(points.any(|mounted| mounted == point.0))
}
