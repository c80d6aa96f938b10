//! The kernel's small files: read whole, written in one call, and errors that name the file.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a file of the kernel could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It is not there: an older kernel, or one built without it.
    #[error("{} is not there: this kernel does not have it, or it is not mounted", .0.display())]
    Missing(PathBuf),
    /// The kernel does not let us.
    #[error("{} may not be used: {reason}. Run as root, or as the user who owns it", .path.display())]
    Denied {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        reason: io::Error,
    },
    /// It failed for another reason.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It reads otherwise than expected.
    #[error("{}: {found:?} is not {expected}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What stands there.
        found: String,
        /// What should stand there.
        expected: &'static str,
    },
}

impl FileError {
    /// Sorts an I/O error on `path`.
    #[must_use]
    pub fn new(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing(path),
            io::ErrorKind::PermissionDenied => Self::Denied { path, reason: source },
            _ => Self::Io { path, source },
        }
    }

    /// `found` stands where `expected` should.
    #[must_use]
    pub fn malformed(path: &Path, found: &str, expected: &'static str) -> Self {
        let found = found.chars().take(120).collect();
        Self::Malformed {
            path: path.to_owned(),
            found,
            expected,
        }
    }

    /// True when the file is not there.
    #[must_use]
    pub const fn is_missing(&self) -> bool {
        matches!(self, Self::Missing(_))
    }
}

/// The text of `path`; bytes that are no UTF-8 (names of files, of programs) are replaced.
///
/// # Errors
/// When it cannot be read.
pub fn text(path: &Path) -> Result<String, FileError> {
    let bytes = fs::read(path).map_err(|source| FileError::new(path, source))?;
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(broken) => String::from_utf8_lossy(broken.as_bytes()).into_owned(),
    })
}

/// The one number that stands in `path`.
///
/// # Errors
/// When it cannot be read or is no number.
pub fn number(path: &Path) -> Result<u64, FileError> {
    let text = text(path)?;
    text.trim()
        .parse()
        .map_err(|_| FileError::malformed(path, text.trim(), "a number"))
}

/// Writes `text` in one call, as the kernel's files want it. The file must exist.
///
/// # Errors
/// When the kernel refuses it.
pub fn write(path: &Path, text: &str) -> Result<(), FileError> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(path)
        .map_err(|source| FileError::new(path, source))?;
    file.write_all(text.as_bytes())
        .map_err(|source| FileError::new(path, source))
}

/// Does `act` again while the kernel says that the thing is busy: udev opens new devices for a moment, ending processes
/// hold on to their group. Gives up after five seconds.
pub(crate) fn while_busy<T>(mut act: impl FnMut() -> Result<T, FileError>) -> Result<T, FileError> {
    for _ in 0..500 {
        match act() {
            Err(FileError::Io { source, .. }) if source.kind() == io::ErrorKind::ResourceBusy => {}
            answer => return answer,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    act()
}

/// `Name:   123 kB` lines to `(name, bytes)`, of meminfo, status, smaps. Lines of another form are left out.
pub(crate) fn sizes(text: &str) -> impl Iterator<Item = (&str, thermo_units::Bytes)> {
    text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let kib: u64 = rest.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some((name.trim(), thermo_units::Bytes(kib.saturating_mul(1024))))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn errors_name_the_file_and_what_stands_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nr");
        assert!(number(&path).unwrap_err().is_missing());
        assert!(
            write(&path, "1").unwrap_err().is_missing(),
            "a file of the kernel is never created"
        );
        fs::write(&path, "many\n").unwrap();
        let told = number(&path).unwrap_err().to_string();
        assert!(
            told.contains("nr") && told.contains("\"many\" is not a number"),
            "{told}"
        );
    }
}
