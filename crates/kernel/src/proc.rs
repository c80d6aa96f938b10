//! Files of a process, and the list of processes.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::arguments;
use crate::file::{self, FileError};
use crate::stalled_call::{self, NotAnswering, Wait};

/// Why a process could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcError {
    /// The process has ended. Not a failure: callers go on with the others.
    #[error("process {pid} is gone")]
    Gone {
        /// The process.
        pid: u32,
    },
    /// The process does not answer, and is set aside. Not a failure either: callers go on with the others.
    #[error(transparent)]
    NotAnswering(#[from] NotAnswering),
    /// Access to one of its files failed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ProcError {
    /// True if the process has ended.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }

    /// The error number of a call on the process that cannot be made because of this error: `ETIMEDOUT` if
    /// the process does not answer, or else `ESRCH`.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::NotAnswering(_) => libc::ETIMEDOUT,
            Self::Gone { .. } | Self::File(_) => libc::ESRCH,
        }
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
/// [`ProcError::Gone`] if the process has ended, [`ProcError::NotAnswering`] if it holds a lock that the
/// kernel needs for this file.
pub fn text(root: &Path, pid: u32, name: &str) -> Result<String, ProcError> {
    let path = dir(root, pid).join(name);
    let read = match waits_for_process(name) {
        true => stalled_call::run(pid, Wait::Killable, move || file::text(&path))?,
        false => file::text(&path),
    };
    read.map_err(|err| classify(root, pid, err))
}

/// Whether the file `name` takes the lock of the address space (fs/proc/task_mmu.c, fs/proc/base.c). Others
/// are read from what the kernel has.
fn waits_for_process(name: &str) -> bool {
    matches!(
        name,
        "maps" | "smaps" | "smaps_rollup" | "numa_maps" | "environ" | "cmdline" | "clear_refs"
    )
}

/// The first `max` bytes of the file `name` (`cmdline` or `environ`) of process `pid`. Bytes that are no
/// UTF-8 are replaced.
///
/// # Errors
/// [`ProcError::Gone`] if the process has ended, [`ProcError::NotAnswering`] as [`text`]. `EFAULT` if the
/// text is not in memory: the process may have mapped a file there that nobody can read.
pub fn text_start(root: &Path, pid: u32, name: &str, max: usize) -> Result<String, ProcError> {
    let path = dir(root, pid).join(name);
    let (call_root, call_path) = (root.to_owned(), path.clone());
    let read = stalled_call::run(pid, Wait::Killable, move || {
        arguments::check_readable(&call_root, pid, max)?;
        let mut start = Vec::new();
        File::open(call_path)?.take(max as u64).read_to_end(&mut start)?;
        io::Result::Ok(start)
    })?;
    let start = read.map_err(|source| classify(root, pid, FileError::new(&path, source)))?;
    Ok(String::from_utf8_lossy(&start).into_owned())
}

/// Calls `put` with each line of the file `name` of process `pid`, without its end. Bytes that are no UTF-8
/// are replaced. One line is in memory at a time, because a process chooses how long its files are.
///
/// # Errors
/// [`ProcError::Gone`] if the process has ended, [`ProcError::NotAnswering`] as [`text`]; the first error of
/// `put`.
pub(crate) fn for_each_line(
    root: &Path,
    pid: u32,
    name: &str,
    mut put: impl FnMut(&str) -> Result<(), ProcError>,
) -> Result<(), ProcError> {
    let path = dir(root, pid).join(name);
    let failed = |source| classify(root, pid, FileError::new(&path, source));
    let to_open = path.clone();
    let first = stalled_call::run_io(pid, move || {
        let file = Arc::new(File::open(to_open)?);
        let start = read_part(&file, BYTES_PER_CALL)?;
        Ok((file, start))
    });
    let (file, start) = first.map_err(failed)?;
    let rest = Waiting {
        pid,
        file: (start.len() == BYTES_PER_CALL).then_some(file),
    };
    let mut file = io::Cursor::new(start).chain(BufReader::with_capacity(BYTES_PER_CALL, rest));
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        line.pop_if(|last| *last == b'\n');
        put(&String::from_utf8_lossy(&line))?;
        line.clear();
    }
    Ok(())
}

/// The next `wanted` bytes of the file; fewer at its end. The kernel returns about a page of text at a time.
fn read_part(file: &File, wanted: usize) -> io::Result<Vec<u8>> {
    let mut found = Vec::with_capacity(wanted);
    file.take(wanted as u64).read_to_end(&mut found)?;
    Ok(found)
}

/// Bytes that one call reads of a file that is read line by line: enough that the hand-over to another thread
/// does not count.
const BYTES_PER_CALL: usize = 64 << 10;

/// A file of a process, read by calls that can be given up; `None`: its end was read.
struct Waiting {
    pid: u32,
    file: Option<Arc<File>>,
}

impl Read for Waiting {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(file) = self.file.clone() else {
            return Ok(0);
        };
        let wanted = bytes.len();
        let found = stalled_call::run_io(self.pid, move || read_part(&file, wanted))?;
        let (start, _) = bytes.split_at_mut(found.len());
        start.copy_from_slice(&found);
        Ok(found.len())
    }
}

/// Writes `text` into the file `name` of process `pid`.
///
/// # Errors
/// [`ProcError::Gone`] if the process has ended, [`ProcError::NotAnswering`] as [`text`].
pub fn write(root: &Path, pid: u32, name: &str, text: &str) -> Result<(), ProcError> {
    let path = dir(root, pid).join(name);
    let written = match waits_for_process(name) {
        true => {
            let text = text.to_owned();
            stalled_call::run(pid, Wait::Killable, move || file::write(&path, &text))?
        }
        false => file::write(&path, text),
    };
    written.map_err(|err| classify(root, pid, err))
}

// Reading an open file of a process that has ended since gives ESRCH.
fn classify(root: &Path, pid: u32, err: FileError) -> ProcError {
    if let Some(not_answering) = NotAnswering::of(&err) {
        return not_answering.into();
    }
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

/// The number that the kernel gave out last, for a process or a thread (proc_loadavg(5)). It gives out
/// numbers in ascending order, and begins anew at the end.
///
/// # Errors
/// Fails if `/proc/loadavg` cannot be read.
pub fn last_pid(root: &Path) -> Result<u32, FileError> {
    let path = root.join("proc/loadavg");
    let text = file::text(&path)?;
    let last = text
        .split_ascii_whitespace()
        .last()
        .and_then(|number| number.parse().ok());
    last.ok_or_else(|| FileError::malformed(&path, text.trim(), "the last process number at the end"))
}

/// The pids of all processes, ascending.
///
/// # Errors
/// Fails if `/proc` cannot be read.
pub fn pids(root: &Path) -> Result<Vec<u32>, FileError> {
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
    fn ended_process_differs_from_missing_file() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/7")).unwrap();
        assert!(text(root.path(), 8, "maps").unwrap_err().is_gone());
        assert!(matches!(
            text(root.path(), 7, "maps").unwrap_err(),
            ProcError::File(FileError::Missing(_))
        ));
    }

    #[test]
    fn text_start_ends_at_the_limit() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/7")).unwrap();
        fs::write(root.path().join("proc/7/cmdline"), b"a\0\xffcdef").unwrap();
        let start = |pid, max| text_start(root.path(), pid, "cmdline", max);
        assert_eq!(start(7, 4).unwrap(), "a\0\u{fffd}c");
        assert_eq!(start(7, 100).unwrap(), "a\0\u{fffd}cdef");
        assert!(start(8, 4).unwrap_err().is_gone());
    }

    #[test]
    fn pids_ignores_other_folders() {
        let root = tempfile::tempdir().unwrap();
        for name in ["11", "2", "self", "sys", "3x"] {
            fs::create_dir_all(root.path().join("proc").join(name)).unwrap();
        }
        assert_eq!(pids(root.path()).unwrap(), [2, 11]);
    }
}
