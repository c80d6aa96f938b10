//! Keeping our own memory in place while we act on that of others (mlockall(2)).

use std::io;

/// Locks every page of this process from the moment it is touched, now and in future; pages never touched cost
/// nothing.
///
/// # Errors
/// When the limit (`ulimit -l`) does not allow it and we lack `CAP_IPC_LOCK`.
pub fn lock_on_fault() -> io::Result<()> {
    // SAFETY: takes no pointers; it only changes where our pages may go.
    let done = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
