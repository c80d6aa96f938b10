//! Why a process could not be made to make a call.

use std::io;

/// Why. Unless it says otherwise, the target was left as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InjectError {
    /// It cannot be done to this target, now or later.
    #[error("process {pid} cannot be made to set the flag itself: {why}")]
    Refused {
        /// The target.
        pid: u32,
        /// The reason, and the way out if there is one.
        why: String,
    },
    /// None of its threads could be used in the time given; it may go another time.
    #[error("process {pid} has no thread that could be stopped without harm: {why}. It may go another time")]
    NoFitThread {
        /// The target.
        pid: u32,
        /// What stood against the last that was looked at.
        why: String,
    },
    /// The call was begun and did not end in time. The target ends it and goes on by itself.
    #[error("process {pid} makes the call for longer than was waited for, and goes on by itself after it")]
    Unfinished {
        /// The target.
        pid: u32,
    },
    /// It ended.
    #[error("process {pid} has ended")]
    Gone {
        /// The target.
        pid: u32,
    },
    /// The kernel refused a request.
    #[error("process {pid} cannot be stopped: {source}. Run as root, and see whether it is traced already")]
    Kernel {
        /// The target.
        pid: u32,
        /// What the kernel said.
        source: io::Error,
    },
}

impl InjectError {
    /// Sorts an error of a request on `pid`.
    pub(super) fn of(pid: u32, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ESRCH) => Self::Gone { pid },
            _ => Self::Kernel { pid, source },
        }
    }

    pub(super) fn refused(pid: u32, why: impl Into<String>) -> Self {
        Self::Refused { pid, why: why.into() }
    }
}
