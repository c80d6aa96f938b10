//! The physical address of kernel memory that the kernel writes: a hardware breakpoint on the memory
//! (perf_event_open(2), `PERF_TYPE_BREAKPOINT`), whose sample has the physical address
//! (`PERF_SAMPLE_PHYS_ADDR`, since Linux 4.14). Needs CAP_SYS_ADMIN. Nothing is read at the address.

use std::io;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use thermo_units::PAGE_SIZE;

/// `struct perf_event_attr` of include/uapi/linux/perf_event.h, in its second version (Linux 2.6.33).
#[repr(C)]
#[derive(Default)]
struct EventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    bp_addr: u64,
    bp_len: u64,
}

const PERF_TYPE_BREAKPOINT: u32 = 5;
const HW_BREAKPOINT_W: u32 = 2;
const PERF_SAMPLE_ADDR: u64 = 1 << 3;
const PERF_SAMPLE_PHYS_ADDR: u64 = 1 << 19;
const PERF_RECORD_SAMPLE: u64 = 9;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
/// Offset of `data_head` in `struct perf_event_mmap_page`.
const DATA_HEAD: u64 = 1024;
/// A record of our sample: header, address and physical address, 8 bytes each.
const RECORD: u64 = 24;

/// The physical address of the 8 bytes of kernel memory at `addr`, as the kernel translates it when `write`
/// makes the kernel write them in this thread.
///
/// # Errors
/// Fails without CAP_SYS_ADMIN, without a free hardware breakpoint, if `write` fails, or if the kernel did
/// not write at that address.
pub fn phys_addr(addr: u64, write: impl FnOnce() -> io::Result<()>) -> io::Result<u64> {
    let attr = EventAttr {
        kind: PERF_TYPE_BREAKPOINT,
        size: size_of::<EventAttr>() as u32,
        sample_period: 1,
        sample_type: PERF_SAMPLE_ADDR | PERF_SAMPLE_PHYS_ADDR,
        bp_type: HW_BREAKPOINT_W,
        bp_addr: addr,
        bp_len: 8,
        ..EventAttr::default()
    };
    // SAFETY: `attr` lives through the call, and its `size` is that of its type. The event counts in this
    // thread, on any CPU.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            0,
            -1,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel just returned this descriptor; nothing else owns it.
    let event = unsafe { OwnedFd::from_raw_fd(fd) };
    let samples = Samples::map(&event)?;
    write()?;
    samples
        .first(addr)
        .ok_or_else(|| io::Error::other("the kernel wrote nothing there"))
}

/// The event's first page and its ring of samples, which the kernel writes.
struct Samples(NonNull<u8>);

impl Samples {
    const LEN: usize = 2 * PAGE_SIZE as usize;

    fn map(event: &OwnedFd) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                Self::LEN,
                protection,
                MapFlags::SHARED,
                event.as_fd(),
                0,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Self(start))
    }

    /// The word at `offset`, a multiple of 8 within the mapping.
    fn word(&self, offset: u64) -> u64 {
        debug_assert!(offset.is_multiple_of(8) && offset < Self::LEN as u64);
        // SAFETY: the word lies in the mapping and is aligned; the kernel may write it at any time, so it is
        // read atomically.
        let word = unsafe { &*self.0.as_ptr().add(offset as usize).cast::<AtomicU64>() };
        word.load(Ordering::Acquire)
    }

    /// The physical address of the first sample, if it is one of `addr`.
    fn first(&self, addr: u64) -> Option<u64> {
        if self.word(DATA_HEAD) < RECORD {
            return None;
        }
        let [header, sampled, physical] = [0, 8, 16].map(|offset| self.word(PAGE_SIZE + offset));
        // The header: type (32 bits), misc (16 bits), size (16 bits).
        let is_ours = header & u64::from(u32::MAX) == PERF_RECORD_SAMPLE && header >> 48 == RECORD;
        (is_ours && sampled == addr && physical != 0).then_some(physical)
    }
}

impl Drop for Samples {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more. munmap fails only for a wrong
        // address.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), Self::LEN) };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::path::Path;

    use thermo_units::Addr;

    use super::*;
    use crate::pagemap::Pagemap;

    /// The kernel's writes into memory of a program count as well, and the frame of that memory is known.
    #[test]
    fn phys_addr_is_that_of_page_table_entry() {
        let mut words = Box::new([1_u64; 512]);
        let addr = words.as_ptr() as u64;
        let write = |words: &mut [u64; 512]| {
            // SAFETY: a word of our own memory.
            unsafe { words.as_mut_ptr().write_volatile(2) };
            Ok(())
        };
        let found = match phys_addr(addr, || write(&mut words)) {
            Ok(found) => found,
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => {
                eprintln!("SKIP: {why}");
                return;
            }
            Err(why) => panic!("{why}"),
        };
        assert_eq!(found % PAGE_SIZE, addr % PAGE_SIZE);
        let page = Pagemap::open(Path::new("/"), std::process::id()).unwrap();
        match page.page(Addr(addr)).unwrap().pfn() {
            Some(pfn) => assert_eq!(found / PAGE_SIZE, pfn),
            None => eprintln!("SKIP: frame numbers need CAP_SYS_ADMIN"),
        }
        let nothing = phys_addr(addr, || Ok(())).unwrap_err();
        assert_eq!(nothing.to_string(), "the kernel wrote nothing there");
    }
}
