//! The signal mask of a stopped thread.

use std::io;

use super::{Tracee, request_into};

impl Tracee {
    /// Reads the mask of blocked signals: one bit a signal, signal 1 in the lowest. Within a system call that
    /// sets a temporary mask, this is the original mask (since Linux 5.1; before, the temporary one).
    ///
    /// # Errors
    /// `ESRCH` if the thread is not stopped.
    pub fn sigmask(&self) -> io::Result<u64> {
        let mut mask = 0_u64;
        request_into(libc::PTRACE_GETSIGMASK, self.tid(), size_of::<u64>(), &mut mask)?;
        Ok(mask)
    }
}
