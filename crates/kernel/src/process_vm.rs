//! Reads memory of another process (`process_vm_readv(2)`): for its contents, or to mark pages accessed. The
//! kernel counts each read as an access, and activates a page at the second one.

use std::io;

use thermo_units::Addr;

use crate::pidfd::PidFd;
use crate::refusal::{Call, Refusal};
use crate::stalled_call::{self, Wait};

/// Maximum number of pages in one call (`UIO_MAXIOV`).
pub const MAX_PAGES: usize = 1024;

/// Reads and discards one byte at each of `addrs` in process `pid`; addresses beyond [`MAX_PAGES`] are
/// ignored. Returns how many were read: those before the first that is not readable. Swapped-out pages are
/// read in.
///
/// # Errors
/// If the first could not be read: `EFAULT` if it is not mapped, `ESRCH` if the process has ended, `EPERM`
/// without the right to ptrace-read it, `TimedOut` if it does not answer ([`crate::stalled_call`]).
pub fn touch(pid: u32, addrs: &[Addr]) -> io::Result<usize> {
    let number = i32::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let addrs: Vec<Addr> = addrs.iter().take(MAX_PAGES).copied().collect();
    stalled_call::run(pid, Wait::Unkillable, move || touch_now(number, &addrs))?
}

/// At most [`MAX_PAGES`] addresses.
fn touch_now(pid: i32, addrs: &[Addr]) -> io::Result<usize> {
    let remote: Vec<libc::iovec> = addrs
        .iter()
        .take(MAX_PAGES)
        .map(|addr| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(addr.0 as usize),
            iov_len: 1,
        })
        .collect();
    let mut bytes = [0_u8; MAX_PAGES];
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: remote.len(),
    };
    // SAFETY: the kernel writes at most `remote.len()` bytes to `bytes`, one for each of at most `MAX_PAGES`
    // addresses; `bytes` has that length and lives through the call.
    let read =
        unsafe { libc::process_vm_readv(pid, &raw const local, 1, remote.as_ptr(), remote.len() as u64, 0) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Reads one byte of each of `pages` in process `pid`, `times` times, and skips unreadable pages (no read
/// permission, or no longer mapped). Returns the pages that could not be read the last time, by the error of
/// the call. The number may name another process once this one has ended, so `pidfd` is looked at before each
/// call: the rest counts as `ESRCH` then.
pub fn touch_all((pid, pidfd): (u32, &PidFd), pages: &[Addr], times: usize) -> Unread {
    let mut unread = Unread::default();
    for call in pages.chunks(MAX_PAGES) {
        for nth in 1..=times {
            let of_call = touch_skipping_unreadable((pid, pidfd), call);
            if nth == times {
                of_call.0.iter().for_each(|(errno, nr)| unread.add(*errno, *nr));
            }
        }
    }
    unread
}

/// Numbers of pages that could not be read, by error number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unread(Vec<(i32, usize)>);

impl Unread {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> usize {
        self.0.iter().map(|(_, nr)| nr).sum()
    }

    /// Each error number once, with the number of pages.
    pub fn iter(&self) -> impl Iterator<Item = (i32, usize)> {
        self.0.iter().copied()
    }

    /// Adds `nr` pages.
    pub fn add(&mut self, errno: i32, nr: usize) {
        match self.0.iter_mut().find(|(known, _)| *known == errno) {
            Some((_, sum)) => *sum += nr,
            None => self.0.push((errno, nr)),
        }
    }
}

/// Touches all of `pages`, and returns those that could not be read.
fn touch_skipping_unreadable((pid, pidfd): (u32, &PidFd), mut pages: &[Addr]) -> Unread {
    let mut unread = Unread::default();
    let touch_living = |pages: &[Addr]| match pidfd.is_alive() {
        true => touch(pid, pages),
        false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    };
    while !pages.is_empty() {
        let skipped = match touch_living(pages) {
            Ok(done) if done > 0 => done.min(pages.len()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            refused => {
                let call = Call::ReadMemory;
                let refusal = refused.err().map_or(
                    Refusal {
                        call,
                        errno: libc::EFAULT,
                    },
                    |error| Refusal::new(call, &error),
                );
                let skipped = if refusal.is_process_wide() { pages.len() } else { 1 };
                unread.add(refusal.errno, skipped);
                skipped
            }
        };
        pages = pages.get(skipped..).unwrap_or_default();
    }
    unread
}

/// Reads memory at `addr` of process `pid` into `bytes`, as far as it is mapped. Returns the number of bytes.
///
/// # Errors
/// `EFAULT` if nothing is mapped there, `ESRCH`, `EPERM`, `TimedOut`.
pub fn read(pid: u32, addr: Addr, bytes: &mut [u8]) -> io::Result<usize> {
    let wanted = bytes.len();
    let copied = stalled_call::run(pid, Wait::Unkillable, move || {
        let mut copy = vec![0; wanted];
        let read = read_now(pid, addr, &mut copy)?;
        copy.truncate(read);
        io::Result::Ok(copy)
    })??;
    let read = copied.len().min(wanted);
    if let (Some(to), Some(from)) = (bytes.get_mut(..read), copied.get(..read)) {
        to.copy_from_slice(from);
    }
    Ok(read)
}

fn read_now(pid: u32, addr: Addr, bytes: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(addr.0 as usize),
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel writes at most `bytes.len()` bytes to `bytes`, which is borrowed exclusively.
    let read =
        unsafe { libc::process_vm_readv(pid.cast_signed(), &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn read_returns_memory_contents() {
        let text = *b"contents of page";
        let mut copy = [0; 16];
        let at = Addr(text.as_ptr() as u64);
        assert_eq!(read(std::process::id(), at, &mut copy).unwrap(), 16);
        assert_eq!(copy, text);
        assert!(read(std::process::id(), Addr(0x10), &mut copy).is_err());
    }

    #[test]
    fn touch_stops_at_first_unmapped_page() {
        let memory = vec![1_u8; 8 << 12];
        let at = |page: u64| Addr(memory.as_ptr() as u64 + (page << 12));
        let us = std::process::id();
        assert_eq!(touch(us, &[at(0), at(1), at(2)]).unwrap(), 3);
        assert_eq!(touch(us, &[at(0), Addr(1), at(2)]).unwrap(), 1);
        assert_eq!(
            touch(us, &[Addr(1)]).unwrap_err().raw_os_error(),
            Some(libc::EFAULT)
        );
        assert_eq!(touch(us, &[]).unwrap(), 0);
        let pidfd = PidFd::open(us).unwrap();
        let unread = touch_all((us, &pidfd), &[at(0), Addr(1), at(2), Addr(2)], 2);
        assert_eq!(unread.iter().collect::<Vec<_>>(), [(libc::EFAULT, 2)]);
        let gone = touch_all((i32::MAX.cast_unsigned(), &pidfd), &[at(0), at(1)], 1);
        assert_eq!(gone.iter().collect::<Vec<_>>(), [(libc::ESRCH, 2)]);
    }

    #[test]
    fn later_process_with_the_same_number_is_not_touched() {
        let memory = vec![1_u8; 4 << 12];
        let pages = [Addr(memory.as_ptr() as u64), Addr(memory.as_ptr() as u64 + 4096)];
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pidfd = PidFd::open(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        // This process stands for the one that has the number now.
        let gone = touch_all((std::process::id(), &pidfd), &pages, 2);
        assert_eq!(gone.iter().collect::<Vec<_>>(), [(libc::ESRCH, 2)]);
    }
}
