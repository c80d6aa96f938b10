//! Sockets that somebody else opened for us: a service manager, or whoever started us with one as standard input.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd, RawFd};

use anyhow::{Context as _, bail};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// The first descriptor that a service manager hands over (sd_listen_fds(3)).
const FIRST: RawFd = 3;

/// The listening sockets that a service manager opened for this process.
///
/// # Errors
/// `LISTEN_FDS` is no number, or the descriptors are not there.
pub fn sockets(env: impl Fn(&str) -> Option<String>) -> anyhow::Result<Vec<OwnedFd>> {
    let ours = getpid().as_raw_nonzero().to_string();
    let Some(count) = env("LISTEN_FDS").filter(|_| env("LISTEN_PID").is_none_or(|pid| pid == ours)) else {
        return Ok(Vec::new());
    };
    let number: RawFd = count
        .parse()
        .ok()
        .filter(|number| (0..=1024).contains(number))
        .with_context(|| format!("LISTEN_FDS={count} is no number of sockets (0 to 1024)"))?;
    let all = FIRST..FIRST + number;
    // Before the first is taken: what stands for it here may get the number of one that is missing.
    if let Some(missing) = all.clone().find(|fd| !is_there(*fd)) {
        bail!("LISTEN_FDS={count}, but there is no descriptor {missing}");
    }
    all.map(|fd| own(fd).with_context(|| format!("cannot take descriptor {fd} of LISTEN_FDS={count}")))
        .collect()
}

fn is_there(fd: RawFd) -> bool {
    std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_ok()
}

/// The socket that standard input is, if it is one.
///
/// # Errors
/// Standard input is closed.
pub fn stdin() -> io::Result<Option<OwnedFd>> {
    let fd = io::stdin().as_fd().try_clone_to_owned()?;
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
    Ok((kind == rustix::fs::FileType::Socket).then_some(fd))
}

// A descriptor is only a number until its owner says so; asking the kernel for another that means the same needs no
// such word (pidfd_getfd(2), Linux 5.6).
fn own(fd: RawFd) -> io::Result<OwnedFd> {
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, fd, PidfdGetfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn given(pid: &str, count: &str) -> anyhow::Result<Vec<OwnedFd>> {
        sockets(|name| match name {
            "LISTEN_PID" => Some(pid.to_owned()),
            "LISTEN_FDS" => Some(count.to_owned()),
            _ => None,
        })
    }

    #[test]
    fn what_was_meant_for_another_process_is_left_alone() {
        assert!(given("1", "3").unwrap().is_empty());
        assert!(sockets(|_| None).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_number_or_not_there_is_said() {
        let ours = getpid().as_raw_nonzero().to_string();
        assert!(
            given(&ours, "many")
                .unwrap_err()
                .to_string()
                .contains("LISTEN_FDS=many")
        );
        assert!(
            given(&ours, "1024")
                .unwrap_err()
                .to_string()
                .contains("there is no descriptor")
        );
    }
}
