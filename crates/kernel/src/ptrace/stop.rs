//! Why a traced thread is stopped.

use std::io;

use super::into;

/// Why it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// We asked for it. It is about to return to its program, and has not yet looked for signals.
    Asked,
    /// Its whole process was stopped by a signal, as a shell's Ctrl-Z does.
    Group,
    /// It is about to enter a system call, or to return from one.
    Syscall,
    /// It is about to take this signal.
    Signal(i32),
}

const EVENT_STOP: i32 = libc::PTRACE_EVENT_STOP;

impl Stop {
    /// The signal that is to reach it when it goes on; 0: none.
    pub(super) const fn signal(self) -> i32 {
        match self {
            Self::Signal(signal) => signal,
            Self::Asked | Self::Group | Self::Syscall => 0,
        }
    }

    /// What the status of waitpid(2) means for a seized thread; nothing when it ended.
    const fn of_status(status: i32) -> Option<Self> {
        if status & 0xff == 0x7f {
            Some(Self::of(status >> 8))
        } else {
            None
        }
    }

    /// What a code of a stop means: a signal, and above it an event or the mark of system calls.
    const fn of(code: i32) -> Self {
        const SYSCALL: i32 = libc::SIGTRAP | 0x80;
        if code == SYSCALL {
            Self::Syscall
        } else if code >> 8 != EVENT_STOP {
            Self::Signal(code & 0xff)
        } else if code & 0xff == libc::SIGTRAP {
            Self::Asked
        } else {
            Self::Group
        }
    }
}

/// The stop the kernel has to tell us of, if there is one.
pub(super) fn news(tid: u32) -> io::Result<Option<Stop>> {
    let mut status = 0;
    // SAFETY: `status` is ours. Only our own thread's tracees are asked for, so that no child of another's is taken.
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
                // It ended and was taken in by its parent.
                Some(libc::ECHILD) => Err(io::Error::from_raw_os_error(libc::ESRCH)),
                _ => Err(error),
            }
        }
        _ => Stop::of_status(status)
            .map(Some)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

/// The stop it is in now, asked of itself; nothing while it runs.
pub(super) fn present(tid: u32) -> io::Result<Option<Stop>> {
    // SAFETY: zeroes are a valid siginfo, which is made of numbers.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    match into(libc::PTRACE_GETSIGINFO, tid, 0, &mut info) {
        Ok(_) if info.si_code > 0xff || info.si_code == libc::SIGTRAP | 0x80 => {
            Ok(Some(Stop::of(info.si_code)))
        }
        Ok(_) => Ok(Some(Stop::Signal(info.si_signo))),
        // A group stop has no siginfo.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(Some(Stop::Group)),
        // It runs. If it is gone, waitpid tells.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_told_apart_by_their_status() {
        let stopped = |code: i32| Stop::of_status(code << 8 | 0x7f);
        assert_eq!(stopped(libc::SIGTRAP | 128 << 8), Some(Stop::Asked));
        assert_eq!(stopped(libc::SIGSTOP | 128 << 8), Some(Stop::Group));
        assert_eq!(stopped(libc::SIGTRAP | 0x80), Some(Stop::Syscall));
        assert_eq!(stopped(libc::SIGTRAP), Some(Stop::Signal(libc::SIGTRAP)));
        assert_eq!(stopped(libc::SIGUSR1), Some(Stop::Signal(libc::SIGUSR1)));
        assert_eq!(Stop::of_status(0), None);
        assert_eq!(Stop::of_status(9), None);
    }
}
