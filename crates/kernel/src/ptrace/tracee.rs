//! A thread that is traced by ours.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::request;
use super::stop::{self, Stop};

/// How long a stop is waited for in a hot loop: most come within this.
const HOT: Duration = Duration::from_micros(20);
/// How long is slept between two looks after that. It leaves the processor to the tracee.
const NAP: Duration = Duration::from_micros(10);

/// A thread seized by ours. It goes on when this is dropped, and when our thread ends without dropping it.
#[derive(Debug)]
pub struct Tracee {
    tid: u32,
    is_stopped: bool,
    /// The signal it is stopped for, which it must not lose; 0: none.
    signal: i32,
}

impl Tracee {
    /// Seizes thread `tid` without stopping it.
    ///
    /// # Errors
    /// `ESRCH` when there is none, `EPERM` without the right or when somebody else traces it.
    pub fn seize(tid: u32) -> io::Result<Self> {
        // Naps are as long as they are said to be, not 50 microseconds longer. Where that is refused they are longer.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        // SAFETY: no memory is involved; `data` is a set of flags.
        unsafe { request(libc::PTRACE_SEIZE, tid, 0, libc::PTRACE_O_TRACESYSGOOD as usize) }?;
        Ok(Self {
            tid,
            is_stopped: false,
            signal: 0,
        })
    }

    /// The number of the thread.
    #[must_use]
    pub const fn tid(&self) -> u32 {
        self.tid
    }

    /// Asks it to stop before it runs any more of its program. A call that can sleep ends early by this, as it would
    /// for a signal.
    ///
    /// # Errors
    /// `ESRCH` when it ended.
    pub fn interrupt(&mut self) -> io::Result<()> {
        // SAFETY: no memory is involved.
        unsafe { request(libc::PTRACE_INTERRUPT, self.tid, 0, 0) }.map(|_| ())
    }

    /// Waits until it has stopped, at most until `deadline`; nothing when it has not.
    ///
    /// # Errors
    /// `ESRCH` when it ended.
    pub fn wait(&mut self, deadline: Instant) -> io::Result<Option<Stop>> {
        let begin = Instant::now();
        let mut looks = 0_u32;
        loop {
            looks += 1;
            // Somebody of our own process who waits for children may have taken the news of the stop, so now and
            // then the thread itself is asked.
            let seen = match stop::news(self.tid)? {
                None if looks.is_multiple_of(32) => stop::present(self.tid)?,
                seen => seen,
            };
            if let Some(stop) = seen {
                self.is_stopped = true;
                self.signal = stop.signal();
                return Ok(seen);
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(None);
            }
            if now.duration_since(begin) < HOT {
                std::hint::spin_loop();
            } else {
                thread::sleep(NAP);
            }
        }
    }

    /// Lets it run. A signal it was stopped for reaches it.
    ///
    /// # Errors
    /// `ESRCH` when it is not stopped.
    pub fn go_on(&mut self) -> io::Result<()> {
        self.resume(libc::PTRACE_CONT)
    }

    /// Lets it run up to the next begin or end of a system call.
    ///
    /// # Errors
    /// `ESRCH` when it is not stopped.
    pub fn go_on_to_syscall(&mut self) -> io::Result<()> {
        self.resume(libc::PTRACE_SYSCALL)
    }

    /// Lets go of it; it runs on. A signal it was stopped for reaches it.
    ///
    /// # Errors
    /// `ESRCH` when it is not stopped: then it is let go of when our thread ends.
    pub fn detach(mut self) -> io::Result<()> {
        self.resume(libc::PTRACE_DETACH)
    }

    fn resume(&mut self, how: libc::c_uint) -> io::Result<()> {
        // SAFETY: no memory is involved; `data` is the number of a signal.
        unsafe { request(how, self.tid, 0, self.signal as usize) }?;
        (self.is_stopped, self.signal) = (false, 0);
        Ok(())
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if self.is_stopped {
            // It may have been killed meanwhile; nothing else can go wrong.
            drop(self.resume(libc::PTRACE_DETACH));
        }
    }
}
