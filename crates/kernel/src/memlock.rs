//! Locks our own memory, so that it stays resident under memory pressure (mlockall(2)).

use std::io;

/// Locks every page of this process when it is first accessed, now and in future. Pages that are never
/// accessed cost nothing.
///
/// # Errors
/// Fails if the limit (`ulimit -l`) is too low and we lack `CAP_IPC_LOCK`.
pub fn lock_on_fault() -> io::Result<()> {
    // SAFETY: takes no pointers; it only changes where our pages may be moved.
    let done = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
