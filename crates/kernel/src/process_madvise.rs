//! Advice on another process's memory (`process_madvise(2)`, Linux 5.10; `MADV_COLLAPSE` 6.1).

use std::io;
use std::os::fd::AsRawFd as _;

use thermo_units::{AddrRange, Bytes};

use crate::pidfd::PidFd;
use crate::stalled_call::{self, Wait};

/// Maximum number of ranges in one call (`UIO_MAXIOV`).
pub const MAX_RANGES: usize = 1024;

/// Maximum number of bytes in one call: 2 GiB less a page (`MAX_RW_COUNT`).
pub const MAX_BYTES: Bytes = Bytes(0x7fff_f000);

/// Advice that may be given for another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Advice {
    /// Read it from swap or file.
    WillNeed = libc::MADV_WILLNEED,
    /// Clear the accessed bits and move the pages to the inactive list. The kernel skips shared pages (mapped
    /// more than once) without an error.
    Cold = libc::MADV_COLD,
    /// Reclaim it. The kernel skips, without an error, shared pages, and anonymous pages if no swap is free.
    PageOut = libc::MADV_PAGEOUT,
    /// Collapse it to huge pages, synchronously.
    Collapse = libc::MADV_COLLAPSE,
}

impl Advice {
    /// The name in madvise(2).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WillNeed => "MADV_WILLNEED",
            Self::Cold => "MADV_COLD",
            Self::PageOut => "MADV_PAGEOUT",
            Self::Collapse => "MADV_COLLAPSE",
        }
    }
}

/// Whether `advice` may be given to the process that `pidfd` refers to. The kernel makes all its checks of
/// the process; no memory is advised, because the call has no range.
///
/// # Errors
/// Those of [`process_madvise`] that do not depend on a range: `EPERM`, `ESRCH`, `ENOSYS`, and `EINVAL` if
/// the kernel does not know the advice.
pub fn check(pidfd: &PidFd, advice: Advice) -> io::Result<()> {
    process_madvise(pidfd, &[], advice).map(|_| ())
}

/// Advises `ranges`, in order, of the process that `pidfd` refers to. Returns how many bytes were advised:
/// the ranges before the first that the kernel refused. Success does not mean that the advice had an effect:
/// verify what matters.
///
/// Needs CAP_SYS_NICE and the right to ptrace-read the process.
///
/// # Errors
/// The reason for refusing the first range: `ENOMEM` if a part is not mapped (the mapped part was advised
/// nevertheless), `EINVAL` for locked, hugetlb or device memory, or if the kernel does not know the advice,
/// `ESRCH` if the process has ended, `EPERM`. `TimedOut` if the process does not answer
/// ([`crate::stalled_call`]): the advice may yet be given. Also `EINVAL` for more than [`MAX_RANGES`] ranges.
pub fn process_madvise(pidfd: &PidFd, ranges: &[AddrRange], advice: Advice) -> io::Result<Bytes> {
    if ranges.len() > MAX_RANGES {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let (fd, ranges) = (pidfd.shared(), ranges.to_vec());
    stalled_call::run(pidfd.pid(), Wait::Unkillable, move || {
        call(fd.as_raw_fd(), &ranges, advice)
    })?
}

fn call(pidfd: i32, ranges: &[AddrRange], advice: Advice) -> io::Result<Bytes> {
    let vectors: Vec<libc::iovec> = ranges
        .iter()
        .map(|range| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(range.start.0 as usize),
            iov_len: range.len().0 as usize,
        })
        .collect();
    // SAFETY: `vectors` lives through the call. Its addresses are those of the other process; no memory of
    // ours is accessed. If the process is ours, this advice does not change memory contents.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd,
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
    use super::*;

    fn ours() -> PidFd {
        PidFd::open(std::process::id()).unwrap()
    }

    #[test]
    fn advice_stops_at_first_hole() {
        let memory = vec![1_u8; 64 << 12];
        let start = (memory.as_ptr() as u64).next_multiple_of(4096);
        let good = AddrRange::new(start, start + (16 << 12));
        let advised = process_madvise(&ours(), &[good], Advice::Cold);
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
            process_madvise(&ours(), &[good, hole, good], Advice::Cold).unwrap(),
            good.len()
        );
        let refused = process_madvise(&ours(), &[hole], Advice::Cold).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENOMEM));
    }

    #[test]
    fn check_finds_a_process_that_has_ended_and_changes_nothing() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let pidfd = PidFd::open(child.id()).unwrap();
        let alive = check(&pidfd, Advice::Cold);
        assert!(
            alive.is_ok() || alive.as_ref().unwrap_err().raw_os_error() == Some(libc::EPERM),
            "{alive:?}"
        );
        child.kill().unwrap();
        child.wait().unwrap();
        let ended = check(&pidfd, Advice::Cold).unwrap_err();
        assert_eq!(ended.raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn too_many_ranges_are_refused() {
        let ranges = vec![AddrRange::new(0x1000, 0x2000); MAX_RANGES + 1];
        let refused = process_madvise(&ours(), &ranges, Advice::Cold).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }
}
