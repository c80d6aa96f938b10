//! Why a call could not be injected.

use std::io;

/// Why a call could not be injected. Unless stated otherwise, the target is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InjectError {
    /// Not possible with this target, now or later.
    #[error("cannot make process {pid} set the huge page flag: {why}")]
    Refused {
        /// The target.
        pid: u32,
        /// The reason, and the way out if there is one.
        why: String,
    },
    /// No thread was suitable in the given time. A later attempt may succeed.
    #[error("process {pid} has no thread that can be stopped safely now: {why}. Try again later")]
    NoSuitableThread {
        /// The target.
        pid: u32,
        /// The reason for the last thread that was checked.
        why: String,
    },
    /// The call started and did not end in time. The target completes it and continues by itself.
    #[error("process {pid} did not complete the call in time; it continues by itself afterwards")]
    Unfinished {
        /// The target.
        pid: u32,
    },
    /// The process has ended.
    #[error("process {pid} has ended")]
    Gone {
        /// The target.
        pid: u32,
    },
    /// The kernel refused a ptrace request.
    #[error("cannot stop process {pid}: ptrace: {source}{}", way_out(.source))]
    Kernel {
        /// The target.
        pid: u32,
        /// The error of the kernel.
        source: io::Error,
    },
}

/// What the user can do about an error of ptrace(2).
fn way_out(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            ". Run as root outside of any user namespace, and check that no other program traces it"
        }
        Some(libc::ENOSYS) => ": a system call filter (seccomp) hides the call",
        _ => "",
    }
}

impl InjectError {
    /// Classifies an error of a request on `pid`.
    pub(super) fn from_request(pid: u32, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ESRCH) => Self::Gone { pid },
            _ => Self::Kernel { pid, source },
        }
    }

    pub(super) fn refused(pid: u32, why: impl Into<String>) -> Self {
        Self::Refused { pid, why: why.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_right_is_said_to_need_root() {
        let text = |errno| InjectError::from_request(7, io::Error::from_raw_os_error(errno)).to_string();
        assert!(text(libc::EPERM).contains("Run as root"), "{}", text(libc::EPERM));
        assert!(text(libc::ENOSYS).contains("system call filter"));
        let other = text(libc::EIO);
        assert!(
            other.ends_with("ptrace: Input/output error (os error 5)"),
            "{other}"
        );
        assert!(text(libc::ESRCH).contains("has ended"));
    }
}
