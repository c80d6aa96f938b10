//! The small files of the kernel: read as a whole, written in one call, with errors that name the file.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a kernel file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file does not exist: the kernel is older, or was built without it.
    #[error("{} does not exist: this kernel does not have it, or its file system is not mounted", .0.display())]
    Missing(PathBuf),
    /// Permission denied.
    #[error("no permission for {}: {reason}. Run as root, or as the owner of the file", .path.display())]
    Denied {
        /// The file.
        path: PathBuf,
        /// The error of the kernel.
        reason: io::Error,
    },
    /// Another I/O error.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// Unexpected contents.
    #[error("{}: {found:?} is not {expected}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The contents found.
        found: String,
        /// The contents expected.
        expected: &'static str,
    },
}

impl FileError {
    /// Classifies an I/O error on `path`.
    #[must_use]
    pub fn new(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing(path),
            io::ErrorKind::PermissionDenied => Self::Denied { path, reason: source },
            _ => Self::Io { path, source },
        }
    }

    /// Error for `found` in place of `expected`.
    #[must_use]
    pub fn malformed(path: &Path, found: &str, expected: &'static str) -> Self {
        let found = found.chars().take(120).collect();
        Self::Malformed {
            path: path.to_owned(),
            found,
            expected,
        }
    }

    /// True if the file does not exist.
    #[must_use]
    pub const fn is_missing(&self) -> bool {
        matches!(self, Self::Missing(_))
    }
}

/// The text of `path`. Bytes that are no UTF-8 (names of files and programs) are replaced.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn text(path: &Path) -> Result<String, FileError> {
    let bytes = bytes(path).map_err(|source| FileError::new(path, source))?;
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// The kernel gives files of `/proc` and `/sys` no size. Most fit into this buffer, so two calls read them.
fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(FILE_SIZE);
    // Without `take`, the standard library asks for the size first.
    fs::File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

const FILE_SIZE: usize = 4096;

/// The single number in `path`.
///
/// # Errors
/// Fails if the file cannot be read or does not hold a number.
pub fn number(path: &Path) -> Result<u64, FileError> {
    let text = text(path)?;
    text.trim()
        .parse()
        .map_err(|_| FileError::malformed(path, text.trim(), "a number"))
}

/// Writes `text` in one call, as kernel files require. The file must exist.
///
/// # Errors
/// Fails if the kernel refuses the value.
pub fn write(path: &Path, text: &str) -> Result<(), FileError> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(path)
        .map_err(|source| FileError::new(path, source))?;
    file.write_all(text.as_bytes())
        .map_err(|source| FileError::new(path, source))
}

/// Repeats `act` while the kernel reports EBUSY: udev opens new devices for a moment, and ending processes
/// keep their group busy. Gives up after five seconds.
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

/// Parses the `Name:   123 kB` lines of meminfo, status and smaps to `(name, bytes)`. Other lines are
/// skipped.
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
    fn errors_name_file_and_contents() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nr");
        assert!(number(&path).unwrap_err().is_missing());
        assert!(
            write(&path, "1").unwrap_err().is_missing(),
            "kernel files are never created"
        );
        fs::write(&path, "many\n").unwrap();
        let message = number(&path).unwrap_err().to_string();
        assert!(
            message.contains("nr") && message.contains("\"many\" is not a number"),
            "{message}"
        );
    }
}
