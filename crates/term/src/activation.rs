//! Inherited sockets: from socket activation by a service manager, or on standard input.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd, RawFd};

use anyhow::{Context as _, bail};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// The first descriptor passed by a service manager (sd_listen_fds(3)).
const FIRST_FD: RawFd = 3;

/// The listening sockets that a service manager passed to this process.
///
/// # Errors
/// `LISTEN_FDS` is not a valid number, or a descriptor is not open.
pub fn sockets(env: impl Fn(&str) -> Option<String>) -> anyhow::Result<Vec<OwnedFd>> {
    let own_pid = getpid().as_raw_nonzero().to_string();
    let Some(count) = env("LISTEN_FDS").filter(|_| env("LISTEN_PID").is_none_or(|pid| pid == own_pid)) else {
        return Ok(Vec::new());
    };
    let fd_count: RawFd = count
        .parse()
        .ok()
        .filter(|fd_count| (0..=1024).contains(fd_count))
        .with_context(|| format!("LISTEN_FDS={count} is not a number of sockets (0 to 1024)"))?;
    let all = FIRST_FD..FIRST_FD + fd_count;
    // Checked before the first is duplicated: a duplicate may get the number of a missing descriptor.
    if let Some(missing) = all.clone().find(|fd| !is_open(*fd)) {
        bail!("LISTEN_FDS={count}, but descriptor {missing} is not open");
    }
    all.map(|fd| duplicate(fd).with_context(|| format!("cannot use descriptor {fd} of LISTEN_FDS={count}")))
        .collect()
}

fn is_open(fd: RawFd) -> bool {
    std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_ok()
}

/// Standard input, if it is a socket.
///
/// # Errors
/// Standard input is closed.
pub fn stdin() -> io::Result<Option<OwnedFd>> {
    let fd = io::stdin().as_fd().try_clone_to_owned()?;
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
    Ok((kind == rustix::fs::FileType::Socket).then_some(fd))
}

// Taking ownership of a raw descriptor needs `unsafe`. Duplicating it with pidfd_getfd(2) does not (Linux
// 5.6).
fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, fd, PidfdGetfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn sockets_for(pid: &str, count: &str) -> anyhow::Result<Vec<OwnedFd>> {
        sockets(|name| match name {
            "LISTEN_PID" => Some(pid.to_owned()),
            "LISTEN_FDS" => Some(count.to_owned()),
            _ => None,
        })
    }

    #[test]
    fn sockets_for_another_process_are_ignored() {
        assert!(sockets_for("1", "3").unwrap().is_empty());
        assert!(sockets(|_| None).unwrap().is_empty());
    }

    #[test]
    fn invalid_listen_fds_are_reported() {
        let own_pid = getpid().as_raw_nonzero().to_string();
        assert!(
            sockets_for(&own_pid, "many")
                .unwrap_err()
                .to_string()
                .contains("LISTEN_FDS=many")
        );
        assert!(
            sockets_for(&own_pid, "1024")
                .unwrap_err()
                .to_string()
                .contains("is not open")
        );
    }
}
