//! A thread that this thread traces.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::request;
use super::stop::{self, Stop};

/// Time of busy waiting for a stop: most stops happen within it.
const SPIN_TIME: Duration = Duration::from_micros(20);
/// Sleep between two checks after that. It leaves the processor to the tracee.
const SLEEP_TIME: Duration = Duration::from_micros(10);

/// A seized thread. It resumes when this value is dropped, and when the tracing thread ends.
#[derive(Debug)]
pub struct Tracee {
    tid: u32,
    is_stopped: bool,
    /// The signal at whose delivery the thread is stopped, and which must not be lost; 0: none.
    signal: i32,
}

impl Tracee {
    /// Seizes thread `tid` without stopping it.
    ///
    /// # Errors
    /// `ESRCH` if there is none, `EPERM` without the right or if another process traces it.
    pub fn seize(tid: u32) -> io::Result<Self> {
        // Without timer slack, sleeps are not 50 microseconds longer than requested. If this fails, they are.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        // SAFETY: passes no pointers; `data` is a set of flags.
        unsafe { request(libc::PTRACE_SEIZE, tid, 0, libc::PTRACE_O_TRACESYSGOOD as usize) }?;
        Ok(Self {
            tid,
            is_stopped: false,
            signal: 0,
        })
    }

    /// The thread id.
    #[must_use]
    pub const fn tid(&self) -> u32 {
        self.tid
    }

    /// Requests a stop before the thread runs more of its program. An interruptible system call ends early,
    /// as for a signal.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended.
    pub fn interrupt(&mut self) -> io::Result<()> {
        // SAFETY: passes no pointers.
        unsafe { request(libc::PTRACE_INTERRUPT, self.tid, 0, 0) }.map(|_| ())
    }

    /// Waits for a stop, at most until `deadline`; `None` if the thread has not stopped by then.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended.
    pub fn wait(&mut self, deadline: Instant) -> io::Result<Option<Stop>> {
        let start = Instant::now();
        let mut checks = 0_u32;
        loop {
            checks += 1;
            // Another thread of this process that waits for children may have consumed the stop, so every
            // 32nd check asks the thread itself.
            let stopped = match stop::poll_wait(self.tid)? {
                None if checks.is_multiple_of(32) => stop::current(self.tid)?,
                stopped => stopped,
            };
            if let Some(stop) = stopped {
                self.is_stopped = true;
                self.signal = stop.signal();
                return Ok(stopped);
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(None);
            }
            if now.duration_since(start) < SPIN_TIME {
                std::hint::spin_loop();
            } else {
                thread::sleep(SLEEP_TIME);
            }
        }
    }

    /// Resumes the thread, with the signal at which it was stopped, if any.
    ///
    /// # Errors
    /// `ESRCH` if the thread is not stopped.
    pub fn cont(&mut self) -> io::Result<()> {
        self.resume(libc::PTRACE_CONT)
    }

    /// Resumes the thread up to the next entry or exit of a system call.
    ///
    /// # Errors
    /// `ESRCH` if the thread is not stopped.
    pub fn cont_to_syscall(&mut self) -> io::Result<()> {
        self.resume(libc::PTRACE_SYSCALL)
    }

    /// Detaches; the thread resumes, with the signal at which it was stopped, if any.
    ///
    /// # Errors
    /// `ESRCH` if the thread is not stopped: it is then detached when the tracing thread ends.
    pub fn detach(mut self) -> io::Result<()> {
        self.resume(libc::PTRACE_DETACH)
    }

    fn resume(&mut self, kind: libc::c_uint) -> io::Result<()> {
        // SAFETY: passes no pointers; `data` is a signal number.
        unsafe { request(kind, self.tid, 0, self.signal as usize) }?;
        (self.is_stopped, self.signal) = (false, 0);
        Ok(())
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if self.is_stopped {
            // Fails only if the thread was killed meanwhile.
            drop(self.resume(libc::PTRACE_DETACH));
        }
    }
}
