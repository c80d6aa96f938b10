//! The page frame or swap entry behind each page of an address space (`/proc/PID/pagemap`,
//! Documentation/admin-guide/mm/pagemap.rst).

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use thermo_units::{Addr, AddrRange, PAGE_SIZE};

use crate::stalled_call;

/// The entry of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Page(u64);

const PFN: u64 = (1 << 55) - 1;
const EXCLUSIVE: u64 = 1 << 56;
/// Linux 6.15: a guard region (`MADV_GUARD_INSTALL`), which `SWAPPED` is set for too.
const GUARD: u64 = 1 << 58;
const FILE: u64 = 1 << 61;
const SWAPPED: u64 = 1 << 62;
const PRESENT: u64 = 1 << 63;

impl Page {
    /// The entry with these bits.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// True if the page is resident.
    #[must_use]
    pub const fn is_present(self) -> bool {
        self.0 & PRESENT != 0
    }

    /// True if the page is swapped out, or under migration.
    #[must_use]
    pub const fn is_swapped(self) -> bool {
        self.0 & SWAPPED != 0 && self.0 & GUARD == 0
    }

    /// True for a page of a file, or of shared anonymous memory.
    #[must_use]
    pub const fn is_file(self) -> bool {
        self.0 & FILE != 0
    }

    /// True if the page is mapped exactly once (here). Always false for a page that is not present.
    #[must_use]
    pub const fn is_exclusive(self) -> bool {
        self.0 & EXCLUSIVE != 0
    }

    /// The page frame number; `None` if the page is not present, or if we lack CAP_SYS_ADMIN.
    #[must_use]
    pub const fn pfn(self) -> Option<u64> {
        let pfn = self.0 & PFN;
        if self.is_present() && pfn != 0 {
            Some(pfn)
        } else {
            None
        }
    }
}

/// The open pagemap of a process. It keeps showing the address space for which it was opened, also after an
/// exec.
#[derive(Debug)]
pub struct Pagemap {
    file: Arc<File>,
    pid: u32,
}

impl Pagemap {
    /// Opens the pagemap of process `pid` of the machine at `root` (`/`).
    ///
    /// # Errors
    /// `ENOENT` if there is no such process, `EACCES` without the right to ptrace-read it, `TimedOut` if the
    /// process does not answer ([`crate::stalled_call`]).
    pub fn open(root: &Path, pid: u32) -> io::Result<Self> {
        let path = root.join(format!("proc/{pid}/pagemap"));
        let file = stalled_call::run_io(pid, move || File::open(path))?;
        Ok(Self {
            file: Arc::new(file),
            pid,
        })
    }

    /// Reads the entries of all pages that `range` touches into `pages` (which is emptied first). The result
    /// is shorter if the process ends or the range leaves user space.
    ///
    /// # Errors
    /// Fails if the kernel refuses a read. `TimedOut` if the process does not answer
    /// ([`crate::stalled_call`]).
    pub fn read(&self, range: AddrRange, pages: &mut Vec<Page>) -> io::Result<()> {
        let (file, mut found) = (Arc::clone(&self.file), std::mem::take(pages));
        found.clear();
        let read = stalled_call::run_io(self.pid, move || {
            let read = read_now(&file, range, &mut found);
            Ok((read, found))
        });
        let (read, found) = read?;
        *pages = found;
        read
    }

    /// Whether a page of `range` is resident. Page tables that do not exist are skipped as a whole (Linux
    /// 6.7), so a reservation of terabytes costs microseconds. Older kernels read at most the first 64 MiB.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn holds_pages(&self, range: AddrRange) -> io::Result<bool> {
        let file = Arc::clone(&self.file);
        stalled_call::run_io(self.pid, move || holds_pages_now(&file, range))
    }

    /// Reads the entry of the page at `addr`; an empty entry if it cannot be read.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn page(&self, addr: Addr) -> io::Result<Page> {
        let file = Arc::clone(&self.file);
        stalled_call::run_io(self.pid, move || page_now(&file, addr))
    }

    /// Reads the entries of the pages at `addrs`, as [`Self::page`] does. `None`: the kernel refused it.
    ///
    /// # Errors
    /// `TimedOut` if the process does not answer.
    pub fn pages(&self, addrs: Vec<Addr>) -> io::Result<Vec<Option<Page>>> {
        let file = Arc::clone(&self.file);
        stalled_call::run_io(self.pid, move || {
            Ok(addrs.iter().map(|addr| page_now(&file, *addr).ok()).collect())
        })
    }
}

/// The pages of one page table at a time: a call for each page would cost ten times the reading. An answer is
/// as old as the first for this table, so a window is used for a moment only.
#[derive(Debug)]
pub struct Window<'a> {
    pagemap: &'a Pagemap,
    table: RefCell<(Option<u64>, Vec<Page>)>,
}

impl<'a> Window<'a> {
    /// A window that has nothing read.
    #[must_use]
    pub const fn new(pagemap: &'a Pagemap) -> Self {
        let table = RefCell::new((None, Vec::new()));
        Self { pagemap, table }
    }

    /// The entry of the page at `addr`; `None` if it cannot be read.
    #[must_use]
    pub fn page(&self, addr: Addr) -> Option<Page> {
        const TABLE: u64 = 512 * PAGE_SIZE;
        let start = addr.0 / TABLE * TABLE;
        let (read, pages) = &mut *self.table.borrow_mut();
        if *read != Some(start) {
            let range = AddrRange::new(start, start.saturating_add(TABLE));
            // What was read before an error is valid.
            *read = Some(start);
            if self
                .pagemap
                .read(range, pages)
                .is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
            {
                pages.clear();
            }
        }
        pages.get(((addr.0 - start) / PAGE_SIZE) as usize).copied()
    }
}

fn holds_pages_now(file: &File, range: AddrRange) -> io::Result<bool> {
    let mut found = PageRegion::default();
    let request = ScanRequest {
        size: size_of::<ScanRequest>() as u64,
        start: range.start.align_down().0,
        end: range.end.align_up().0,
        vec: (&raw mut found) as u64,
        vec_len: 1,
        max_pages: 1,
        category_mask: PAGE_IS_PRESENT,
        return_mask: PAGE_IS_PRESENT,
        ..ScanRequest::default()
    };
    // SAFETY: the kernel reads and writes `request` and writes at most one region to `found`; both live
    // through the call and have the layout of include/uapi/linux/fs.h.
    let regions = unsafe { libc::ioctl(file.as_raw_fd(), PAGEMAP_SCAN.into(), &raw const request) };
    if regions >= 0 {
        return Ok(regions > 0);
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ENOTTY) => holds_pages_at_start(file, range),
        error => Err(error),
    }
}

fn holds_pages_at_start(file: &File, range: AddrRange) -> io::Result<bool> {
    const MAX_READ: u64 = 64 << 20;
    let end = Addr(range.end.0.min(range.start.0 + MAX_READ));
    let mut pages = Vec::new();
    read_now(file, AddrRange { end, ..range }, &mut pages)?;
    Ok(pages.iter().any(|page| page.is_present()))
}

fn page_now(file: &File, addr: Addr) -> io::Result<Page> {
    let mut bytes = [0; 8];
    let got = file.read_at(&mut bytes, addr.0 / PAGE_SIZE * 8)?;
    Ok(Page(if got == 8 { u64::from_ne_bytes(bytes) } else { 0 }))
}

fn read_now(file: &File, range: AddrRange, pages: &mut Vec<Page>) -> io::Result<()> {
    const ENTRIES_PER_READ: u64 = 8192;
    let (first, last) = (
        range.start.align_down().0 / PAGE_SIZE,
        range.end.align_up().0 / PAGE_SIZE,
    );
    let mut next = first;
    while next < last {
        let so_far = pages.len();
        pages.resize(so_far + (last - next).min(ENTRIES_PER_READ) as usize, Page(0));
        let read = file.read_at(as_bytes(pages.split_at_mut(so_far).1), next * 8);
        let got = read.as_ref().map_or(0, |bytes| bytes / 8);
        pages.truncate(so_far + got);
        read?;
        if got == 0 {
            break;
        }
        next += got as u64;
    }
    Ok(())
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
pub const PAGEMAP_SCAN: u32 = 0xc060_6610;
const PAGE_IS_PRESENT: u64 = 1 << 3;

/// `struct pm_scan_arg`.
#[derive(Debug, Default)]
#[repr(C)]
struct ScanRequest {
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

/// `struct page_region`.
#[derive(Debug, Default)]
#[repr(C)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// The bytes of the entries, for the kernel to write.
fn as_bytes(pages: &mut [Page]) -> &mut [u8] {
    // SAFETY: the same memory and lifetime; `Page` is a transparent u64, for which any bytes are valid.
    unsafe { std::slice::from_raw_parts_mut(pages.as_mut_ptr().cast(), size_of_val(pages)) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn reservation_holds_pages_once_one_was_written() {
        let bytes = 256_usize << 20;
        // SAFETY: a new mapping at an address of the kernel's choice, unmapped below.
        let map = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0)
        };
        assert_ne!(map, libc::MAP_FAILED);
        let start = map.addr() as u64;
        let range = AddrRange::new(start, start + bytes as u64);
        let pagemap = Pagemap::open(Path::new("/"), std::process::id()).unwrap();
        assert!(!pagemap.holds_pages(range).unwrap());
        // SAFETY: the page is ours and writable; afterwards the memory is only inspected and unmapped.
        unsafe {
            map.cast::<u8>().byte_add(32 << 20).write(1);
            assert_eq!(libc::mprotect(map, bytes, libc::PROT_NONE), 0);
        }
        assert!(pagemap.holds_pages(range).unwrap());
        assert!(holds_pages_at_start(&pagemap.file, range).unwrap());
        let after = AddrRange::new(start + (64 << 20), range.end.0);
        assert!(!pagemap.holds_pages(after).unwrap());
        // SAFETY: nothing refers to the mapping.
        unsafe { libc::munmap(map, bytes) };
    }

    #[test]
    fn entry_bits_are_decoded() {
        let page = Page::from_bits(PRESENT | EXCLUSIVE | 0x1234);
        assert!(page.is_present() && page.is_exclusive() && !page.is_swapped() && !page.is_file());
        assert_eq!(page.pfn(), Some(0x1234));
        // In a swap entry, the swap type and offset take the place of the frame number.
        assert_eq!(Page::from_bits(SWAPPED | 0x1234).pfn(), None);
        assert_eq!(Page::from_bits(PRESENT).pfn(), None);
        assert!(!Page::from_bits(SWAPPED | GUARD).is_swapped(), "a guard page");
    }

    #[test]
    fn written_pages_are_present() {
        let memory = vec![1_u8; 64 << 12];
        let start = Addr(memory.as_ptr() as u64).align_up();
        let range = AddrRange {
            start,
            end: Addr(start.0 + (60 << 12)),
        };
        let pagemap = Pagemap::open(Path::new("/"), std::process::id()).unwrap();
        let mut pages = Vec::new();
        pagemap.read(range, &mut pages).unwrap();
        assert_eq!(pages.len(), 60);
        assert!(pages.iter().all(|page| page.is_present() || page.is_swapped()));
        assert!(!pagemap.page(Addr(0)).unwrap().is_present());
    }

    #[test]
    fn pagemap_is_read_below_root() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let entries: Vec<u8> = [0, PRESENT | 5, SWAPPED]
            .into_iter()
            .flat_map(u64::to_ne_bytes)
            .collect();
        std::fs::write(root.path().join("proc/7/pagemap"), entries).unwrap();
        let pagemap = Pagemap::open(root.path(), 7).unwrap();
        let mut pages = Vec::new();
        pagemap.read(AddrRange::new(0x1000, 0x9000), &mut pages).unwrap();
        assert_eq!(pages.len(), 2, "the file ends after three pages");
        assert_eq!(pages[0].pfn(), Some(5));
        let window = Window::new(&pagemap);
        assert_eq!(window.page(Addr(0x1fff)).unwrap().pfn(), Some(5));
        assert!(window.page(Addr(0x2000)).unwrap().is_swapped());
        assert_eq!(
            (window.page(Addr(0x3000)), window.page(Addr(1 << 40))),
            (None, None)
        );
        let some = pagemap.pages(vec![Addr(0x2000), Addr(0x1000)]).unwrap();
        assert_eq!(some, [Some(pages[1]), Some(pages[0])]);
        assert!(pages[1].is_swapped());
        assert!(Pagemap::open(root.path(), 8).is_err());
    }
}
