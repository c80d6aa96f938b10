//! `/proc/PID/statm`: the memory size of a process, cheap to read (proc_pid_statm(5)).

use std::path::Path;

use thermo_units::Bytes;

use crate::file::FileError;
use crate::proc::{self, ProcError};

/// The sizes of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statm {
    /// All mappings.
    pub size: Bytes,
    /// Resident memory. The kernel batches the counter per CPU, so errors of tens of pages are usual.
    pub resident: Bytes,
    /// Resident file pages and shared memory.
    pub shared: Bytes,
    /// Private mappings that may be written to, and stacks.
    pub data: Bytes,
}

/// Reads it for process `pid`.
///
/// # Errors
/// [`ProcError::Gone`] when the process has ended.
pub fn read(root: &Path, pid: u32) -> Result<Statm, ProcError> {
    let text = proc::text(root, pid, "statm")?;
    let page = rustix::param::page_size() as u64;
    let mut fields = text
        .split_ascii_whitespace()
        .map(|field| field.parse::<u64>().ok());
    let mut next = || Some(Bytes(fields.next()??.saturating_mul(page)));
    let mut sizes = || {
        let (size, resident, shared) = (next()?, next()?, next()?);
        let (_text, _library) = (next()?, next()?);
        Some(Statm {
            size,
            resident,
            shared,
            data: next()?,
        })
    };
    let path = || proc::dir(root, pid).join("statm");
    Ok(sizes().ok_or_else(|| FileError::malformed(&path(), text.trim(), "seven page counts"))?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn statm_converts_pages_to_bytes() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/5")).unwrap();
        std::fs::write(root.path().join("proc/5/statm"), "100 20 3 1 0 30 0\n").unwrap();
        let statm = read(root.path(), 5).unwrap();
        assert_eq!(statm.size.0, 5 * statm.resident.0);
        assert_eq!(statm.shared.0 * 20, statm.resident.0 * 3);
    }
}
