//! Reading another process's memory (`process_vm_readv(2)`): for what stands there, or for the sake of the reading,
//! because the kernel counts each page read as used, and twice used pages move up on its LRU lists.

use std::io;

use thermo_units::Addr;

/// The most pages one call takes (`UIO_MAXIOV`).
pub const MAX_PAGES: usize = 1024;

/// Reads one byte at each of `addrs` (at most [`MAX_PAGES`], others are left out) in process `pid`, and forgets
/// it. Returns how many were read: those before the first that is not mapped readable. A page that is swapped
/// out is brought in by it.
///
/// # Errors
/// When not even the first could be read: `EFAULT` when it is not mapped, `ESRCH` when the process is gone,
/// `EPERM` without the right to ptrace-read it.
pub fn touch(pid: u32, addrs: &[Addr]) -> io::Result<usize> {
    let pid = i32::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let theirs: Vec<libc::iovec> = addrs
        .iter()
        .take(MAX_PAGES)
        .map(|addr| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(addr.0 as usize),
            iov_len: 1,
        })
        .collect();
    let mut bytes = [0_u8; MAX_PAGES];
    let ours = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: theirs.len(),
    };
    // SAFETY: the kernel writes at most `theirs.len()` bytes, one for each of at most `MAX_PAGES` places, into
    // `bytes`, which is that long and lives through the call.
    let read =
        unsafe { libc::process_vm_readv(pid, &raw const ours, 1, theirs.as_ptr(), theirs.len() as u64, 0) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Reads one byte of each of `pages` in process `pid` so many `times`, past pages that may not be read (they have no
/// read permission, or went away). Returns how many of them could not be read the last time.
pub fn touch_all(pid: u32, pages: &[Addr], times: usize) -> usize {
    let mut refused = 0;
    for call in pages.chunks(MAX_PAGES) {
        for nth in 1..=times {
            let unread = touch_past_refused(pid, call);
            refused += if nth == times { unread } else { 0 };
        }
    }
    refused
}

/// Touches all pages of a call; how many could not be read.
fn touch_past_refused(pid: u32, mut pages: &[Addr]) -> usize {
    let mut refused = 0;
    while !pages.is_empty() {
        let skipped = match touch(pid, pages) {
            Ok(done) if done > 0 => done.min(pages.len()),
            _ => {
                refused += 1;
                1
            }
        };
        pages = &pages[skipped..];
    }
    refused
}

/// Reads what stands at `addr` in process `pid` into `bytes`, as far as it is mapped. Returns how much that is.
///
/// # Errors
/// `EFAULT` when nothing is mapped there, `ESRCH`, `EPERM`.
pub fn read(pid: u32, addr: Addr, bytes: &mut [u8]) -> io::Result<usize> {
    let ours = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let theirs = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(addr.0 as usize),
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel writes at most `bytes.len()` bytes to `bytes`, which is exclusively ours.
    let read =
        unsafe { libc::process_vm_readv(pid.cast_signed(), &raw const ours, 1, &raw const theirs, 1, 0) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn what_stands_somewhere_is_read() {
        let text = *b"what stands here";
        let mut copy = [0; 16];
        let at = Addr(text.as_ptr() as u64);
        assert_eq!(read(std::process::id(), at, &mut copy).unwrap(), 16);
        assert_eq!(copy, text);
        assert!(read(std::process::id(), Addr(0x10), &mut copy).is_err());
    }

    #[test]
    fn pages_are_read_up_to_the_first_that_is_not_there() {
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
        assert_eq!(touch_all(us, &[at(0), Addr(1), at(2), Addr(2)], 2), 2);
    }
}
