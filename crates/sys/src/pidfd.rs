//! A process held by a descriptor, so that its number can be given to another without our noticing (`pidfd_open(2)`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process that stays the one it was when it was opened, even after it died and its pid was used again.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the process with number `pid` (of its main thread). Needs no privilege; Linux 5.3.
    ///
    /// # Errors
    /// `ESRCH` when there is none, `EINVAL` when it is the number of another thread, 0 or too large.
    pub fn open(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(rustix::io::Errno::INVAL)?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// False once the process ended, whether or not its parent has waited for it.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        loop {
            match poll(&mut fds, Some(&now)) {
                Ok(readable) => return readable == 0,
                Err(rustix::io::Errno::INTR) => {}
                // A descriptor we own can always be polled: what fails is memory for it, which says nothing of
                // the process.
                Err(_) => return true,
            }
        }
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_lives_until_it_ends() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pidfd = PidFd::open(child.id()).unwrap();
        assert!(pidfd.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!pidfd.is_alive());
        assert!(PidFd::open(std::process::id()).unwrap().is_alive());
    }

    #[test]
    fn numbers_of_no_process_are_refused() {
        for pid in [0, u32::MAX, i32::MAX as u32] {
            assert!(PidFd::open(pid).is_err(), "{pid}");
        }
    }
}
