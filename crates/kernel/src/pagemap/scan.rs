//! Which pages of an address space are not in memory, told in runs (`PAGEMAP_SCAN`, Linux 6.7,
//! Documentation/admin-guide/mm/pagemap.rst).
//!
//! The kernel goes through page tables only: 3 ns a page were measured where reading the entries of the pagemap, which
//! looks up every frame, took 37. It does not tell who else maps a page.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

use thermo_units::{AddrRange, PAGE_SIZE};

use super::Pagemap;

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Debug, Default)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of linux/fs.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    start: u64,
    end: u64,
    categories: u64,
}

const PAGEMAP_SCAN: libc::Ioctl = libc::_IOWR::<ScanArg>(b'f' as u32, 16);
const PAGE_IS_PRESENT: u64 = 1 << 3;
/// What the kernel keeps room for, too, before it gives runs out.
const RUNS: usize = 512;

impl Pagemap {
    /// Adds to `absent` the pages of `range` (of whole pages) that are mapped and not in memory, ascending, neighbours
    /// joined. Addresses that nothing maps are not among them.
    ///
    /// # Errors
    /// `ENOTTY` on kernels that cannot tell; `ESRCH` when the address space is gone.
    pub fn absent(&self, range: AddrRange, absent: &mut Vec<AddrRange>) -> io::Result<()> {
        let mut runs = [Found::default(); RUNS];
        let mut next = range.start.0;
        while next < range.end.0 {
            let mut arg = ScanArg {
                size: size_of::<ScanArg>() as u64,
                start: next,
                end: range.end.0,
                vec: runs.as_mut_ptr() as u64,
                vec_len: RUNS as u64,
                category_inverted: PAGE_IS_PRESENT,
                category_mask: PAGE_IS_PRESENT,
                return_mask: PAGE_IS_PRESENT,
                ..ScanArg::default()
            };
            let nr_runs = scan(&self.0, &mut arg)?;
            for run in runs.iter().take(nr_runs) {
                AddrRange::new(run.start, run.end.min(range.end.0)).join_onto(absent);
            }
            // Every call gets on, but a kernel that did not would have us here for good.
            if arg.walk_end <= next {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            next = arg.walk_end;
        }
        // An address space that is gone is gone through like one where nothing is mapped; only reading tells.
        match self.0.read_at(&mut [0; 8], range.start.0 / PAGE_SIZE * 8)? {
            0 => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            _ => Ok(()),
        }
    }
}

/// How many runs it found.
fn scan(pagemap: &File, arg: &mut ScanArg) -> io::Result<usize> {
    loop {
        // SAFETY: the kernel writes `arg`, which is ours alone, and at most `vec_len` runs to `vec`, which is that long
        // and lives through the call.
        let nr_runs = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, std::ptr::from_mut(arg)) };
        match usize::try_from(nr_runs) {
            Ok(nr_runs) => return Ok(nr_runs),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::path::Path;

    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    use super::*;

    const PAGES: usize = 2048;

    /// Memory of our own in which every page whose number `is_touched` was written.
    fn memory(is_touched: impl Fn(usize) -> bool) -> AddrRange {
        let len = PAGES << 12;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: new memory that nobody else knows.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
            .unwrap()
        };
        // SAFETY: it was just mapped. A kernel without huge pages refuses, and needs no telling.
        let _ = unsafe { rustix::mm::madvise(start, len, rustix::mm::Advice::LinuxNoHugepage) };
        for page in (0..PAGES).filter(|page| is_touched(*page)) {
            // SAFETY: it lies in what was mapped.
            unsafe { start.cast::<u8>().add(page << 12).write_volatile(1) };
        }
        AddrRange::new(start as u64, (start as usize + len) as u64)
    }

    fn unmap(range: AddrRange) {
        // SAFETY: it is ours, and nothing points into it.
        unsafe { munmap(range.start.0 as *mut _, range.len().0 as usize).unwrap() };
    }

    /// None, with the reason said, on kernels that cannot tell.
    fn absent(pagemap: &Pagemap, range: AddrRange) -> Option<Vec<AddrRange>> {
        let mut absent = Vec::new();
        match pagemap.absent(range, &mut absent) {
            Ok(()) => Some(absent),
            Err(why) => {
                eprintln!("SKIP: this kernel does not scan pagemaps (Linux 6.7): {why}");
                None
            }
        }
    }

    #[test]
    fn what_was_never_touched_is_absent_however_many_runs_it_is() {
        let pagemap = Pagemap::open(Path::new("/"), std::process::id()).unwrap();
        // All, half in one run, and more runs than one call tells.
        for is_touched in [
            (|_| true) as fn(usize) -> bool,
            |page| page < PAGES / 2,
            |page| page.is_multiple_of(2),
        ] {
            let range = memory(is_touched);
            let Some(absent) = absent(&pagemap, range) else {
                return;
            };
            // What was swapped out meanwhile is absent, too.
            let untouched = (0..PAGES).filter(|page| !is_touched(*page));
            for page in untouched {
                let addr = range.start + thermo_units::Bytes((page << 12) as u64);
                assert!(
                    absent.iter().any(|run| run.contains(addr)),
                    "page {page}: {absent:?}"
                );
            }
            let touched = (0..PAGES).filter(|page| is_touched(*page)).count() as u64;
            let there = range.len() - absent.iter().map(AddrRange::len).sum();
            assert!(
                there.0 >> 12 >= touched / 2,
                "{there} are there of {touched} pages"
            );
            assert!(absent.is_sorted_by_key(|run| run.start));
            assert!(absent.iter().all(|run| run.intersection(&range) == Some(*run)));
            unmap(range);
        }
    }

    #[test]
    fn what_nothing_maps_is_not_told() {
        let pagemap = Pagemap::open(Path::new("/"), std::process::id()).unwrap();
        let Some(absent) = absent(&pagemap, AddrRange::new(0x1000, 0x3000)) else {
            return;
        };
        assert_eq!(absent, []);
    }

    #[test]
    fn a_file_is_no_pagemap_and_the_dead_have_none() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        std::fs::write(root.path().join("proc/7/pagemap"), [0; 64]).unwrap();
        let file = Pagemap::open(root.path(), 7).unwrap();
        assert!(file.absent(AddrRange::new(0, 0x3000), &mut Vec::new()).is_err());
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let dead = Pagemap::open(Path::new("/"), child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let told = dead.absent(AddrRange::new(0x1000, 0x3000), &mut Vec::new());
        assert!(told.is_err(), "of what is gone nothing is told");
    }
}
