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
    #[error("cannot stop process {pid}: {source}. Run as root, and check that no other program traces it")]
    Kernel {
        /// The target.
        pid: u32,
        /// The error of the kernel.
        source: io::Error,
    },
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
