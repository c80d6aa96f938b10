//! Private anonymous mappings that are accessed byte by byte, and the monotonic clock. The only file with
//! `unsafe`.

use std::io;
use std::ptr::NonNull;

use crate::options::Mode;

/// A private anonymous mapping, unmapped when dropped.
pub(crate) struct Mapping {
    begin: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes, not yet backed by pages; `len` must not be 0.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        // SAFETY: without MAP_FIXED the kernel chooses an unused address range: no existing mapping changes.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let begin = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { begin, len })
    }

    /// The address of the first byte.
    pub(crate) fn start(&self) -> u64 {
        self.begin.as_ptr() as u64
    }

    /// Length in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Accesses the byte at `offset` once. The access is volatile: the compiler neither removes nor merges
    /// it.
    ///
    /// # Panics
    /// When `offset` is outside of the mapping. Callers compute offsets modulo the length.
    #[inline]
    pub(crate) fn touch(&mut self, offset: usize, mode: Mode) {
        assert!(
            offset < self.len,
            "byte {offset} of a mapping of {} bytes",
            self.len
        );
        // SAFETY: `offset` is inside of the mapping. The mapping lives as long as `self`, and nothing else
        // borrows it. Every bit pattern is a valid u8.
        unsafe {
            let byte = self.begin.as_ptr().add(offset);
            match mode {
                Mode::Read => {
                    byte.read_volatile();
                }
                Mode::Write => byte.write_volatile(1),
                Mode::ReadWrite => byte.write_volatile(byte.read_volatile().wrapping_add(1)),
            }
        }
    }

    /// All bytes.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable and writable for `len` bytes. The kernel zeroed it. It is borrowed
        // only through `self`.
        unsafe { std::slice::from_raw_parts_mut(self.begin.as_ptr(), self.len) }
    }

    /// Calls `madvise()` on the whole mapping.
    pub(crate) fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the range is this mapping. No advice used here changes the contents of its bytes.
        check(unsafe { libc::madvise(self.begin.as_ptr().cast(), self.len, advice) })
    }

    /// Locks the whole mapping in memory, or unlocks it.
    pub(crate) fn lock(&self, locked: bool) -> io::Result<()> {
        let address = self.begin.as_ptr().cast();
        // SAFETY: the range is this mapping. Locking changes no byte.
        check(unsafe {
            if locked {
                libc::mlock(address, self.len)
            } else {
                libc::munlock(address, self.len)
            }
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped the range, and nothing borrows it any more.
        unsafe { libc::munmap(self.begin.as_ptr().cast(), self.len) };
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds. Recordings use this clock, and `Instant` does not expose its value.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec that the kernel fills.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
