//! A process held by a file descriptor, so that reuse of its pid is noticed (`pidfd_open(2)`).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A reference to one process. It never refers to another, even after the process has ended and its pid was
/// reused.
#[derive(Debug)]
pub struct PidFd {
    fd: Arc<OwnedFd>,
    pid: u32,
}

impl PidFd {
    /// Opens the process `pid` (the pid of its main thread). Needs no privilege; Linux 5.3.
    ///
    /// # Errors
    /// `ESRCH` if there is none, `EINVAL` if `pid` is the id of another thread, 0 or too large.
    pub fn open(pid: u32) -> io::Result<Self> {
        let number = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(rustix::io::Errno::INVAL)?;
        Ok(Self::of(pidfd_open(number, PidfdFlags::empty())?, pid))
    }

    fn of(fd: OwnedFd, pid: u32) -> Self {
        Self {
            fd: Arc::new(fd),
            pid,
        }
    }

    /// The number of the process. Once the process has ended, another may have it.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// The descriptor, for a call that may outlive this value.
    pub(crate) fn shared(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// Takes over a pidfd that another process created. Returns it with its pid.
    ///
    /// # Errors
    /// `EBADF` if it is no pidfd, `ESRCH` if the process has ended and was reaped.
    pub fn take(fd: OwnedFd) -> io::Result<(Self, u32)> {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
        match pid_of(&info) {
            Some(pid) => match u32::try_from(pid) {
                Ok(pid) if pid > 0 => Ok((Self::of(fd, pid), pid)),
                _ => Err(rustix::io::Errno::SRCH.into()),
            },
            None => Err(rustix::io::Errno::BADF.into()),
        }
    }

    /// False once the process has ended, even if it is not reaped yet.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        // Polling an open descriptor fails only for lack of memory, which does not mean that the process has
        // ended.
        !rustix::io::retry_on_intr(|| poll(&mut fds, Some(&NOW))).is_ok_and(|readable| readable > 0)
    }
}

/// Whether [`PidFd::open`] failed because there is no such process.
#[must_use]
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// Which of these processes have ended, in their order. One call for all: 0.1 µs for each.
#[must_use]
pub fn have_ended(processes: &[&PidFd]) -> Vec<bool> {
    let mut fds: Vec<PollFd<'_>> = processes
        .iter()
        .map(|process| PollFd::new(&process.fd, PollFlags::IN))
        .collect();
    // As in `is_alive`: what cannot be polled counts as alive.
    let answer = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&NOW)));
    let has_ended = |fd: &PollFd<'_>| answer.is_ok() && !fd.revents().is_empty();
    fds.iter().map(has_ended).collect()
}

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// The live processes to which process `pid` of the machine at `root` (`/`) holds pidfds.
///
/// # Errors
/// `ENOENT` if the process has ended, `EACCES` without the right to inspect it.
pub fn held_processes(root: &Path, pid: u32) -> io::Result<BTreeSet<u32>> {
    let mut held = BTreeSet::new();
    for entry in fs::read_dir(root.join(format!("proc/{pid}/fdinfo")))? {
        // A descriptor may be closed before it is read.
        let info = fs::read_to_string(entry?.path()).unwrap_or_default();
        held.extend(pid_of(&info).and_then(|pid| u32::try_from(pid).ok()));
    }
    Ok(held)
}

/// The pid in the fdinfo of a descriptor. Only a pidfd has this line (proc_pid_fdinfo(5)); the pid of a
/// reaped process is -1.
fn pid_of(fdinfo: &str) -> Option<i64> {
    let number = fdinfo.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    number.trim().parse().ok()
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::process::Command;

    use super::*;

    #[test]
    fn pidfd_is_alive_until_process_ends() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pidfd = PidFd::open(child.id()).unwrap();
        assert!(pidfd.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!pidfd.is_alive());
        assert!(PidFd::open(std::process::id()).unwrap().is_alive());
    }

    #[test]
    fn take_returns_pid_of_descriptor() {
        let ours = PidFd::open(std::process::id()).unwrap();
        let ours = ours.as_fd().try_clone_to_owned().unwrap();
        assert_eq!(PidFd::take(ours).unwrap().1, std::process::id());
        let file = std::fs::File::open("/dev/null").unwrap();
        let wrong = PidFd::take(file.into()).unwrap_err();
        assert_eq!(wrong.raw_os_error(), Some(libc::EBADF));
        let mut child = Command::new("true").spawn().unwrap();
        let gone = PidFd::open(child.id()).unwrap();
        let gone = gone.as_fd().try_clone_to_owned().unwrap();
        child.wait().unwrap();
        assert_eq!(PidFd::take(gone).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn held_processes_lists_live_processes() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let _held = PidFd::open(child.id()).unwrap();
        let ours = || held_processes(Path::new("/"), std::process::id()).unwrap();
        assert!(ours().contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!ours().contains(&child.id()));
        assert!(held_processes(Path::new("/"), u32::MAX).is_err());
    }

    #[test]
    fn open_refuses_invalid_pids() {
        for pid in [0, u32::MAX, i32::MAX as u32] {
            assert!(PidFd::open(pid).is_err(), "{pid}");
        }
    }
}
