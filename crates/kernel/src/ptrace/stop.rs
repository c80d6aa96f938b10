//! Why a traced thread is stopped.

use std::io;

use super::request_into;

/// The reason for a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A stop by `PTRACE_INTERRUPT`. The thread is about to return to user space and has not checked for
    /// signals yet.
    Interrupt,
    /// A group stop: a signal stopped the whole process, as Ctrl-Z in a shell does.
    Group,
    /// Entry or exit of a system call.
    Syscall,
    /// Delivery of this signal.
    Signal(i32),
}

const EVENT_STOP: i32 = libc::PTRACE_EVENT_STOP;

impl Stop {
    /// The signal to deliver when the thread resumes; 0: none.
    pub(super) const fn signal(self) -> i32 {
        match self {
            Self::Signal(signal) => signal,
            Self::Interrupt | Self::Group | Self::Syscall => 0,
        }
    }

    /// Decodes the status of waitpid(2) for a seized thread; `None` if it ended.
    const fn from_status(status: i32) -> Option<Self> {
        if status & 0xff == 0x7f {
            Some(Self::from_code(status >> 8))
        } else {
            None
        }
    }

    /// Decodes a stop code: a signal, with an event or the system-call flag above it.
    const fn from_code(code: i32) -> Self {
        const SYSCALL: i32 = libc::SIGTRAP | 0x80;
        if code == SYSCALL {
            Self::Syscall
        } else if code >> 8 != EVENT_STOP {
            Self::Signal(code & 0xff)
        } else if code & 0xff == libc::SIGTRAP {
            Self::Interrupt
        } else {
            Self::Group
        }
    }
}

/// The next stop that waitpid(2) reports, if any.
pub(super) fn poll_wait(tid: u32) -> io::Result<Option<Stop>> {
    let mut status = 0;
    // SAFETY: `status` is ours. Only tracees of this thread are waited for (`__WNOTHREAD`), so no child of
    // another thread is reaped.
    let waited = unsafe {
        libc::waitpid(
            tid.cast_signed(),
            &raw mut status,
            libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG,
        )
    };
    match waited {
        0 => Ok(None),
        -1 => {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => Ok(None),
                // It ended and its parent reaped it.
                Some(libc::ECHILD) => Err(io::Error::from_raw_os_error(libc::ESRCH)),
                _ => Err(error),
            }
        }
        _ => Stop::from_status(status)
            .map(Some)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

/// The current stop, read from the thread itself; `None` while it runs.
pub(super) fn current(tid: u32) -> io::Result<Option<Stop>> {
    // SAFETY: all zeroes is a valid siginfo, which holds integers.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    match request_into(libc::PTRACE_GETSIGINFO, tid, 0, &mut info) {
        Ok(_) if info.si_code > 0xff || info.si_code == libc::SIGTRAP | 0x80 => {
            Ok(Some(Stop::from_code(info.si_code)))
        }
        Ok(_) => Ok(Some(Stop::Signal(info.si_signo))),
        // A group stop has no siginfo.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(Some(Stop::Group)),
        // It runs. If it has ended, waitpid reports it.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_is_decoded_from_status() {
        let stopped = |code: i32| Stop::from_status(code << 8 | 0x7f);
        assert_eq!(stopped(libc::SIGTRAP | 128 << 8), Some(Stop::Interrupt));
        assert_eq!(stopped(libc::SIGSTOP | 128 << 8), Some(Stop::Group));
        assert_eq!(stopped(libc::SIGTRAP | 0x80), Some(Stop::Syscall));
        assert_eq!(stopped(libc::SIGTRAP), Some(Stop::Signal(libc::SIGTRAP)));
        assert_eq!(stopped(libc::SIGUSR1), Some(Stop::Signal(libc::SIGUSR1)));
        assert_eq!(Stop::from_status(0), None);
        assert_eq!(Stop::from_status(9), None);
    }
}
