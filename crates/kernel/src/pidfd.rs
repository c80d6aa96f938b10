//! A process held by a descriptor, so that its number can be given to another without our noticing (`pidfd_open(2)`).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

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

    /// Takes over a descriptor that another made. Returns it with the number of its process.
    ///
    /// # Errors
    /// `EBADF` when it is no pidfd, `ESRCH` when the process has ended and was waited for.
    pub fn take(fd: OwnedFd) -> io::Result<(Self, u32)> {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
        match number_of(&info) {
            Some(pid) => match u32::try_from(pid) {
                Ok(pid) if pid > 0 => Ok((Self(fd), pid)),
                _ => Err(rustix::io::Errno::SRCH.into()),
            },
            None => Err(rustix::io::Errno::BADF.into()),
        }
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

/// The living processes that process `pid` of the machine at `root` (`/`) holds by descriptors.
///
/// # Errors
/// `ENOENT` when it is gone, `EACCES` without the right to look into it.
pub fn held_by(root: &Path, pid: u32) -> io::Result<BTreeSet<u32>> {
    let mut held = BTreeSet::new();
    for entry in fs::read_dir(root.join(format!("proc/{pid}/fdinfo")))? {
        // A descriptor may be closed before it is read.
        let info = fs::read_to_string(entry?.path()).unwrap_or_default();
        held.extend(number_of(&info).and_then(|pid| u32::try_from(pid).ok()));
    }
    Ok(held)
}

/// The process a descriptor is of, by its description. Only a pidfd has this line (proc_pid_fdinfo(5)); a process that
/// is gone has the number -1.
fn number_of(fdinfo: &str) -> Option<i64> {
    let number = fdinfo.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    number.trim().parse().ok()
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
    fn a_descriptor_tells_its_process() {
        let ours = PidFd::open(std::process::id()).unwrap().0;
        assert_eq!(PidFd::take(ours).unwrap().1, std::process::id());
        let file = std::fs::File::open("/dev/null").unwrap();
        let wrong = PidFd::take(file.into()).unwrap_err();
        assert_eq!(wrong.raw_os_error(), Some(libc::EBADF));
        let mut child = Command::new("true").spawn().unwrap();
        let gone = PidFd::open(child.id()).unwrap().0;
        child.wait().unwrap();
        assert_eq!(PidFd::take(gone).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn whom_a_process_holds_is_told_while_they_live() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let _held = PidFd::open(child.id()).unwrap();
        let ours = || held_by(Path::new("/"), std::process::id()).unwrap();
        assert!(ours().contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!ours().contains(&child.id()));
        assert!(held_by(Path::new("/"), u32::MAX).is_err());
    }

    #[test]
    fn numbers_of_no_process_are_refused() {
        for pid in [0, u32::MAX, i32::MAX as u32] {
            assert!(PidFd::open(pid).is_err(), "{pid}");
        }
    }
}
