//! The lock of a writer (flock(2)). It distinguishes a recording in progress from a truncated one.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Locks `file` for as long as it is open. On file systems without locks this does nothing, and a recording
/// in progress looks truncated.
pub fn lock(file: &File) {
    let _ = flock(file, FlockOperation::NonBlockingLockExclusive);
}

/// Whether a [`Writer`](crate::Writer) has the regular file at `path` open. Ask before reading: a recording
/// that is complete by then has its end mark.
#[must_use]
pub fn is_being_written(path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }
    File::open(path).is_ok_and(|file| {
        let locked = flock(&file, FlockOperation::NonBlockingLockShared);
        locked == Err(Errno::WOULDBLOCK)
    })
}
