//! The signals a stopped thread keeps from itself.

use std::io;

use super::{Tracee, into};

impl Tracee {
    /// Reads the mask, one bit a signal, from signal 1: the one it has outside of a call that changes it for its own
    /// time (Linux 5.1; before, within such a call, that call's).
    ///
    /// # Errors
    /// `ESRCH` when it is not stopped.
    pub fn sigmask(&self) -> io::Result<u64> {
        let mut mask = 0_u64;
        into(libc::PTRACE_GETSIGMASK, self.tid(), size_of::<u64>(), &mut mask)?;
        Ok(mask)
    }
}
