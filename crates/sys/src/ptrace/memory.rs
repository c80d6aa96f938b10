//! Another process's memory, read and written (`process_vm_readv(2)`, `process_vm_writev(2)`).

use std::io;

use thermo_core::Addr;

fn remote(addr: Addr, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::without_provenance_mut(addr.0 as usize),
        iov_len: len,
    }
}

fn done(answer: isize) -> io::Result<usize> {
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
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
    let theirs = remote(addr, bytes.len());
    // SAFETY: the kernel writes at most `bytes.len()` bytes to `bytes`, which is exclusively ours.
    done(unsafe { libc::process_vm_readv(pid.cast_signed(), &raw const ours, 1, &raw const theirs, 1, 0) })
}

/// Writes `bytes` to `addr` in process `pid`, all of them.
///
/// # Errors
/// `EFAULT` when not all of it may be written (a part may have been), `ESRCH`, `EPERM`.
pub fn write(pid: u32, addr: Addr, bytes: &[u8]) -> io::Result<()> {
    let ours = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let theirs = remote(addr, bytes.len());
    // SAFETY: the kernel only reads `bytes`. What it writes is the other process's; of ours, were it the same,
    // callers give memory that nothing of ours is in.
    let written = done(unsafe { libc::process_vm_writev(pid.cast_signed(), &raw const ours, 1, &raw const theirs, 1, 0) })?;
    if written == bytes.len() {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EFAULT))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn a_childs_memory_is_not_needed_to_read_our_own() {
        let text = *b"what stands here";
        let mut copy = [0; 16];
        let at = Addr(text.as_ptr() as u64);
        assert_eq!(read(std::process::id(), at, &mut copy).unwrap(), 16);
        assert_eq!(copy, text);
        assert!(read(std::process::id(), Addr(0x10), &mut copy).is_err());
        assert!(write(std::process::id(), Addr(0x10), &text).is_err());
    }
}
