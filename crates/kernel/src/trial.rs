//! Tries calls that act on other processes, on a child of our own: capabilities do not tell whether a call
//! works. In a user namespace all of them may be there and count for nothing, and a system call filter hides
//! calls.
//!
//! The child, and not this process, is acted on: from Linux 6.13 on, a process may give itself any advice.

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use thermo_units::Addr;

use crate::move_pages;
use crate::pagemap::Pagemap;
use crate::pidfd::PidFd;
use crate::process_madvise::{self, Advice};
use crate::process_vm;
use crate::refusal::{Call, Refusal};

/// The calls that the kernel refuses, each with its error; none if no child can be started. No memory is
/// changed.
///
/// They are tried once: a process that has given up its privileges may not start a child any more.
pub fn refused_calls() -> &'static [Refusal] {
    static REFUSED: OnceLock<Vec<Refusal>> = OnceLock::new();
    REFUSED.get_or_init(|| try_calls().unwrap_or_default())
}

fn try_calls() -> io::Result<Vec<Refusal>> {
    let child = Child::start()?;
    let pid = child.0.cast_unsigned();
    let pidfd = PidFd::open(pid)?;
    let advice = [Advice::WillNeed, Advice::Cold, Advice::PageOut, Advice::Collapse];
    let advice = advice.map(|advice| {
        let tried = process_madvise::check(&pidfd, advice);
        (Call::Madvise(advice), tried)
    });
    // Nothing is mapped at address 0, so EFAULT means that the rest of the memory may be read.
    let read = process_vm::touch(pid, &[Addr(0)]).map(|_| ());
    let read = read.or_else(|error| match error.raw_os_error() {
        Some(libc::EFAULT) => Ok(()),
        _ => Err(error),
    });
    let others = [
        (Call::ReadMemory, read),
        (Call::MovePages, move_pages::query(pid, &[], &mut Vec::new())),
        (Call::OpenPagemap, Pagemap::open(Path::new("/"), pid).map(drop)),
    ];
    let refused = |(call, tried): (Call, io::Result<()>)| Some(Refusal::new(call, &tried.err()?));
    Ok(advice.into_iter().chain(others).filter_map(refused).collect())
}

/// A child that waits. It ends when this is dropped, or with the thread that started it.
struct Child(libc::pid_t);

impl Child {
    fn start() -> io::Result<Self> {
        // SAFETY: the child makes only system calls, which allocate no memory and take no lock.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => loop {
                // SAFETY: as above.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::pause();
                }
            },
            pid => Ok(Self(pid)),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A sandbox may refuse signals. Then the child ends with this thread, not before.
        // SAFETY: the child is not reaped yet, so its number is its own; no memory is passed.
        unsafe {
            if libc::kill(self.0, libc::SIGKILL) == 0 {
                libc::waitpid(self.0, std::ptr::null_mut(), 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn child_is_gone_after_the_trial() {
        let first = Child::start().unwrap();
        let pidfd = PidFd::open(first.0.cast_unsigned()).unwrap();
        assert!(pidfd.is_alive());
        drop(first);
        assert!(!pidfd.is_alive());
        let refused = refused_calls();
        let has_read = !refused.iter().any(|refusal| refusal.call == Call::ReadMemory);
        // The child is ours, so it may be read wherever the call exists.
        assert!(has_read, "{refused:?}");
    }
}
