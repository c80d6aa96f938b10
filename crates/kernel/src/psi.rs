//! Pressure stall information (PSI): time lost because memory was short (Documentation/accounting/psi.rst).

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thermo_units::Nanos;

use crate::file::{self, FileError};

/// The file with the memory pressure of the whole machine.
#[must_use]
pub fn system_file(root: &Path) -> PathBuf {
    root.join("proc/pressure/memory")
}

/// The total time since boot in which some task of the machine stalled on memory.
///
/// # Errors
/// Fails if the kernel has no PSI: built without it, or off at boot (`psi=1` enables it).
pub fn system_stall(root: &Path) -> Result<Nanos, FileError> {
    stall(&system_file(root))
}

/// The total time in which some task stalled, since boot or since the group was created, from the pressure
/// file `path`: one of `/proc/pressure`, or `memory.pressure` of a group.
///
/// # Errors
/// Fails if the file cannot be read. With PSI off at boot, the read fails with "not supported".
pub fn stall(path: &Path) -> Result<Nanos, FileError> {
    let text = file::text(path)?;
    let total = || {
        let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
        line.split(' ')
            .find_map(|field| field.strip_prefix("total=")?.parse().ok())
            .map(Nanos::micros)
    };
    total()
        .ok_or_else(|| FileError::malformed(path, &text, "a line like: some avg10=0.00 … total=MICROSECONDS"))
}

/// A PSI trigger: wakes the caller when the "some" stalls in a window reach a given time.
#[derive(Debug)]
pub struct Trigger {
    file: File,
    path: PathBuf,
}

impl Trigger {
    /// Sets the trigger on `path`: `stall` in every `window` (500 ms to 10 s; without `CAP_SYS_RESOURCE`
    /// multiples of 2 s, and only since Linux 6.5).
    ///
    /// # Errors
    /// Fails if the kernel refuses the window or the file.
    pub fn new(path: &Path, stall: Nanos, window: Nanos) -> Result<Self, FileError> {
        let file_error = |source| FileError::new(path, source);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(file_error)?;
        let text = format!("some {} {}\0", stall.as_micros(), window.as_micros());
        file.write_all(text.as_bytes()).map_err(file_error)?;
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    /// Waits at most `timeout` for the trigger. Returns true if it fired.
    ///
    /// # Errors
    /// Fails if the group of the trigger was removed.
    pub fn wait(&self, timeout: Nanos) -> Result<bool, FileError> {
        let mut fds = [PollFd::new(&self.file, PollFlags::PRI)];
        let secs = i64::try_from(timeout.0 / 1_000_000_000).unwrap_or(i64::MAX);
        let nanos = i64::try_from(timeout.0 % 1_000_000_000).unwrap_or_default();
        let fired = match poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: secs,
                tv_nsec: nanos,
            }),
        ) {
            Ok(ready) => ready > 0,
            Err(rustix::io::Errno::INTR) => false,
            Err(errno) => return Err(FileError::new(&self.path, errno.into())),
        };
        if fds[0].revents().contains(PollFlags::ERR) {
            return Err(FileError::Missing(self.path.clone()));
        }
        Ok(fired)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn total_of(text: &str) -> Result<Nanos, FileError> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/pressure")).unwrap();
        std::fs::write(root.path().join("proc/pressure/memory"), text).unwrap();
        system_stall(root.path())
    }

    #[test]
    fn stall_total_is_in_microseconds() {
        let text = "some avg10=0.00 avg60=0.12 avg300=0.00 total=1500\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(total_of(text).unwrap(), Nanos::micros(1500));
    }

    #[test]
    fn malformed_pressure_file_is_an_error() {
        assert!(
            total_of("none\n")
                .unwrap_err()
                .to_string()
                .contains("pressure/memory")
        );
    }
}
