//! Advice on another process's memory (`process_madvise(2)`, Linux 5.10; `MADV_COLLAPSE` 6.1).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use thermo_units::{AddrRange, Bytes};

/// The most ranges one call takes (`UIO_MAXIOV`).
pub const MAX_RANGES: usize = 1024;

/// The most bytes one call takes: 2 GiB less a page (`MAX_RW_COUNT`).
pub const MAX_BYTES: Bytes = Bytes(0x7fff_f000);

/// What can be advised for another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Advice {
    /// Bring it in from swap or file.
    WillNeed = libc::MADV_WILLNEED,
    /// Take the accessed marks off and move it to the inactive list. Pages that are mapped more than once are
    /// silently left alone.
    Cold = libc::MADV_COLD,
    /// Reclaim it. Pages that are mapped more than once are silently left alone, and anonymous ones where no
    /// swap is free.
    PageOut = libc::MADV_PAGEOUT,
    /// Make huge pages of it, at once.
    Collapse = libc::MADV_COLLAPSE,
}

/// Advises `ranges`, in order, of the process that `pidfd` holds. Returns how many bytes were advised: the
/// ranges before the first that the kernel refused. Advised is not done: verify what matters.
///
/// Needs CAP_SYS_NICE and the right to ptrace-read the process.
///
/// # Errors
/// What the first range was refused for: `ENOMEM` when not all of it is mapped (what is mapped was advised all
/// the same), `EINVAL` when it is locked, hugetlb or device memory, or the kernel does not know the advice,
/// `ESRCH` when the process is gone, `EPERM`; `EINVAL` also for more than [`MAX_RANGES`] ranges.
pub fn process_madvise(pidfd: BorrowedFd<'_>, ranges: &[AddrRange], advice: Advice) -> io::Result<Bytes> {
    if ranges.len() > MAX_RANGES {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let vectors: Vec<libc::iovec> = ranges
        .iter()
        .map(|range| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(range.start.0 as usize),
            iov_len: range.len().0 as usize,
        })
        .collect();
    // SAFETY: `vectors` lives through the call. The addresses in it are the other process's; of ours nothing
    // is touched, and if it is ours, what may be advised loses no contents.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            vectors.as_ptr(),
            vectors.len(),
            advice as i32,
            0_u32,
        )
    };
    u64::try_from(advised)
        .map(Bytes)
        .map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::os::fd::AsFd;

    use super::*;
    use crate::pidfd::PidFd;

    fn ours() -> PidFd {
        PidFd::open(std::process::id()).unwrap()
    }

    #[test]
    fn our_own_memory_takes_advice_up_to_the_first_hole() {
        let memory = vec![1_u8; 64 << 12];
        let start = (memory.as_ptr() as u64).next_multiple_of(4096);
        let good = AddrRange::new(start, start + (16 << 12));
        let advised = process_madvise(ours().as_fd(), &[good], Advice::Cold);
        if advised
            .as_ref()
            .is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
        {
            eprintln!("SKIP: process_madvise needs CAP_SYS_NICE");
            return;
        }
        assert_eq!(advised.unwrap(), good.len());
        let hole = AddrRange::new(0x1000, 0x2000);
        assert_eq!(
            process_madvise(ours().as_fd(), &[good, hole, good], Advice::Cold).unwrap(),
            good.len()
        );
        let refused = process_madvise(ours().as_fd(), &[hole], Advice::Cold).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENOMEM));
    }

    #[test]
    fn too_many_ranges_are_refused_before_the_kernel_sees_them() {
        let ranges = vec![AddrRange::new(0x1000, 0x2000); MAX_RANGES + 1];
        let refused = process_madvise(ours().as_fd(), &ranges, Advice::Cold).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }
}
