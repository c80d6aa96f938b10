//! Another process's memory, written (`process_vm_writev(2)`). It is read by [`crate::process_vm::read`].

use std::io;

use thermo_units::Addr;

/// Writes `bytes` to `addr` in process `pid`, all of them.
///
/// # Errors
/// `EFAULT` when not all of it may be written (a part may have been), `ESRCH`, `EPERM`.
pub fn write(pid: u32, addr: Addr, bytes: &[u8]) -> io::Result<()> {
    let ours = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let theirs = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(addr.0 as usize),
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel only reads `bytes`. What it writes is the other process's; of ours, were it the same,
    // callers give memory that nothing of ours is in.
    let written =
        unsafe { libc::process_vm_writev(pid.cast_signed(), &raw const ours, 1, &raw const theirs, 1, 0) };
    match usize::try_from(written) {
        Ok(written) if written == bytes.len() => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn what_is_not_mapped_is_not_written() {
        let refused = write(std::process::id(), Addr(0x10), b"text").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EFAULT));
    }
}
