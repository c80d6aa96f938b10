//! Locks of single bytes that belong to an open file, not to a process (open file description locks,
//! fcntl(2)). They end when the file is closed, so a killed process leaves none behind.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

/// Takes a shared lock of the byte at `offset`, which may be beyond the end of the file.
///
/// # Errors
/// Another open file has an exclusive lock, or the file system has no locks.
pub fn share(file: &File, offset: u32) -> io::Result<()> {
    fcntl(file, libc::F_OFD_SETLK, libc::F_RDLCK, offset, 1).map(drop)
}

/// Ends every lock of `file`. Closing does so too, but not while a child process has the same open file:
/// after fork(2) every child has it until it calls execve(2).
///
/// # Errors
/// The file system has no locks.
pub fn unlock(file: &File) -> io::Result<()> {
    let whole_file = 0;
    fcntl(file, libc::F_OFD_SETLK, libc::F_UNLCK, 0, whole_file).map(drop)
}

/// Whether another open file has a lock of the byte at `offset`, shared or exclusive.
///
/// # Errors
/// The file system has no locks.
pub fn is_locked_elsewhere(file: &File, offset: u32) -> io::Result<bool> {
    let found = fcntl(file, libc::F_OFD_GETLK, libc::F_WRLCK, offset, 1)?;
    Ok(i32::from(found) != libc::F_UNLCK)
}

// Returns the kind of lock that the kernel wrote back. A length of 0 is everything from the offset on.
fn fcntl(
    file: &File,
    command: libc::c_int,
    kind: libc::c_int,
    offset: u32,
    length: libc::off_t,
) -> io::Result<libc::c_short> {
    // SAFETY: all fields are integers, for which zeros are valid. The pid must be 0.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    // The kinds are 0 to 2, SEEK_SET is 0.
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = libc::off_t::from(offset);
    lock.l_len = length;
    // SAFETY: these commands read and write one `flock`, which lives until the call returns.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if done == 0 {
        Ok(lock.l_type)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn lock_is_seen_by_other_open_files_until_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, "x").unwrap();
        let (one, other) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        share(&one, 100).unwrap();
        share(&other, 101).unwrap();
        assert!(is_locked_elsewhere(&other, 100).unwrap());
        assert!(
            !is_locked_elsewhere(&one, 100).unwrap(),
            "an own lock is no conflict"
        );
        assert!(!is_locked_elsewhere(&other, 102).unwrap());
        share(&other, 100).unwrap();
        drop(one);
        assert!(!is_locked_elsewhere(&other, 100).unwrap());
    }
    #[test]
    fn unlock_ends_locks_that_a_child_shares() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, "x").unwrap();
        let (file, other) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        // A duplicate shares the open file as a forked child does.
        let _of_child = file.try_clone().unwrap();
        share(&file, 100).unwrap();
        share(&file, 203).unwrap();
        unlock(&file).unwrap();
        assert!(!is_locked_elsewhere(&other, 100).unwrap());
        assert!(!is_locked_elsewhere(&other, 203).unwrap());
    }
}
