//! Pressure stall information: the time lost because memory was short (Documentation/accounting/psi.rst).

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thermo_units::Nanos;

use crate::file::{self, FileError};

/// The file of the whole machine's memory pressure.
#[must_use]
pub fn system_file(root: &Path) -> PathBuf {
    root.join("proc/pressure/memory")
}

/// How long some task of the whole machine waited for memory since boot.
///
/// # Errors
/// When the kernel does not tell: built without it, or off at boot (`psi=1` switches it on).
pub fn system(root: &Path) -> Result<Nanos, FileError> {
    read(&system_file(root))
}

/// How long some task waited since boot, or since the group was made, by the pressure file at `path`: one of
/// `/proc/pressure`, or a group's `memory.pressure`.
///
/// # Errors
/// When it cannot be read. With PSI off at boot, reading says "not supported".
pub fn read(path: &Path) -> Result<Nanos, FileError> {
    let text = file::text(path)?;
    let total = || {
        let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
        line.split(' ')
            .find_map(|field| field.strip_prefix("total=")?.parse().ok())
            .map(Nanos::micros)
    };
    total().ok_or_else(|| FileError::malformed(path, &text, "some … total=microseconds"))
}

/// Wakes us when "some" stalls of at least a given length fell into a window.
#[derive(Debug)]
pub struct Trigger {
    file: File,
    path: PathBuf,
}

impl Trigger {
    /// Sets it on `path`: `stall` in every `window` (500 ms to 10 s; without `CAP_SYS_RESOURCE` multiples of 2 s, and
    /// only since Linux 6.5).
    ///
    /// # Errors
    /// When the kernel refuses the window or the file.
    pub fn new(path: &Path, stall: Nanos, window: Nanos) -> Result<Self, FileError> {
        let wrong = |source| FileError::new(path, source);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(wrong)?;
        let text = format!("some {} {}\0", stall.as_micros(), window.as_micros());
        file.write_all(text.as_bytes()).map_err(wrong)?;
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    /// Waits for it at most `timeout`; tells whether it came.
    ///
    /// # Errors
    /// When the group it was set on is gone.
    pub fn wait(&self, timeout: Nanos) -> Result<bool, FileError> {
        let mut fds = [PollFd::new(&self.file, PollFlags::PRI)];
        let secs = i64::try_from(timeout.0 / 1_000_000_000).unwrap_or(i64::MAX);
        let nanos = i64::try_from(timeout.0 % 1_000_000_000).unwrap_or_default();
        let came = match poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: secs,
                tv_nsec: nanos,
            }),
        ) {
            Ok(came) => came > 0,
            Err(rustix::io::Errno::INTR) => false,
            Err(errno) => return Err(FileError::new(&self.path, errno.into())),
        };
        if fds[0].revents().contains(PollFlags::ERR) {
            return Err(FileError::Missing(self.path.clone()));
        }
        Ok(came)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn total(text: &str) -> Result<Nanos, FileError> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/pressure")).unwrap();
        std::fs::write(root.path().join("proc/pressure/memory"), text).unwrap();
        system(root.path())
    }

    #[test]
    fn totals_are_microseconds() {
        let text = "some avg10=0.00 avg60=0.12 avg300=0.00 total=1500\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(total(text).unwrap(), Nanos::micros(1500));
    }

    #[test]
    fn another_text_is_an_error() {
        assert!(
            total("none\n")
                .unwrap_err()
                .to_string()
                .contains("pressure/memory")
        );
    }
}
