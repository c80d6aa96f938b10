//! Page-cache pages of a file, whether or not a process maps them: find resident pages (`mincore(2)`), mark
//! them accessed (`preadv2(2)` with `RWF_NOWAIT`), and deactivate them (`MADV_COLD` on a mapping of our own).
//!
//! Nothing here reads from the disk, except a page that is evicted between the check and the access. The
//! processor must not read a mapping of a file that another program truncates (`SIGBUS`), so the kernel is
//! asked to populate the mapping.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Access, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use thermo_units::PAGE_SIZE;

/// Maximum number of accesses to a page that can be counted in one call.
pub const MAX_ACCESSES: usize = 5;

/// A regular file whose page cache is inspected.
#[derive(Debug)]
pub struct CachedFile {
    /// One open file per access: the kernel counts successive reads of a page through the same open file as
    /// one access.
    files: [File; MAX_ACCESSES],
    len: u64,
}

/// A mapped part of the file. It is unmapped when dropped.
#[derive(Debug)]
pub struct Window<'a> {
    file: &'a CachedFile,
    first_page: u64,
    map: std::ptr::NonNull<std::ffi::c_void>,
    bytes: usize,
}

impl CachedFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// Fails if the file does not exist or may not be read, is no regular file (`EINVAL`), or is neither
    /// owned nor writable by us (`EPERM`): then the kernel does not show which pages are resident.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Non-blocking: the path may name a pipe.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let first = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let meta = first.metadata()?;
        if !meta.is_file() {
            return Err(Errno::INVAL.into());
        }
        let euid = rustix::process::geteuid();
        let may_see_residency = euid.is_root()
            || euid.as_raw() == meta.uid()
            || rustix::fs::access(path, Access::WRITE_OK).is_ok();
        if !may_see_residency {
            return Err(Errno::PERM.into());
        }
        // Opened through the descriptor: the path may name another file by now.
        let fd_path = format!("/proc/self/fd/{}", first.as_raw_fd());
        let open = || rustix::fs::open(&fd_path, flags, Mode::empty()).map(File::from);
        Ok(Self {
            len: meta.len(),
            files: [open()?, open()?, open()?, open()?, first],
        })
    }

    /// The number of pages of the file.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.len.div_ceil(PAGE_SIZE)
    }

    /// Marks each of `pages` accessed `times` times, at most [`MAX_ACCESSES`]: the second access activates a
    /// page. Returns how many pages were still resident.
    ///
    /// # Errors
    /// Fails if the file system cannot read without blocking, or on an I/O error.
    pub fn mark_accessed(&self, pages: &[u64], times: usize) -> io::Result<u64> {
        let mut resident = 0;
        for (nth, file) in self.files.iter().take(times).enumerate() {
            for page in pages {
                let mut byte = [0];
                let buffers = &mut [IoSliceMut::new(&mut byte)];
                match rustix::io::preadv2(file, buffers, page * PAGE_SIZE, ReadWriteFlags::NOWAIT) {
                    Ok(read) => resident += u64::from(nth + 1 == times && read == 1),
                    // Evicted meanwhile, or under writeback.
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(resident)
    }

    /// Whether the file system can read without blocking, as [`CachedFile::mark_accessed`] does. Reads at the
    /// end of the file, so no page is accessed.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if it cannot.
    pub fn check_mark_accessed(&self) -> io::Result<()> {
        let mut byte = [0];
        let buffers = &mut [IoSliceMut::new(&mut byte)];
        let end = self.pages() * PAGE_SIZE;
        match rustix::io::preadv2(&self.files[0], buffers, end, ReadWriteFlags::NOWAIT) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Maps `pages` pages from `first_page` on, without reading any page in.
    ///
    /// # Errors
    /// Fails if there is no address space for it, or the file system does not support mmap.
    pub fn window(&self, first_page: u64, pages: u64) -> io::Result<Window<'_>> {
        let bytes = usize::try_from(pages * PAGE_SIZE).map_err(|_| Errno::NOMEM)?;
        let offset = first_page * PAGE_SIZE;
        // SAFETY: a new mapping at an address of the kernel's choice; no code reads through it (see the
        // module documentation).
        let map = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                self.files[0].as_fd(),
                offset,
            )
        }?;
        let map = std::ptr::NonNull::new(map).ok_or(Errno::NOMEM)?;
        let window = Window {
            file: self,
            first_page,
            map,
            bytes,
        };
        // A page that was evicted since the check is read back alone, without read-ahead. From Linux 6.3 on
        // the kernel also does not count pages of such a mapping as accessed when it is unmapped.
        window.advise(0, window.bytes, Advice::Random)?;
        Ok(window)
    }
}

impl Window<'_> {
    /// The file page numbers of the resident pages.
    ///
    /// # Errors
    /// Fails if the kernel refuses mincore.
    pub fn resident(&self) -> io::Result<Vec<u64>> {
        let page_size = usize::try_from(PAGE_SIZE).unwrap_or(4096);
        let mut flags = vec![0_u8; self.bytes.div_ceil(page_size)];
        // SAFETY: the mapping is ours and has this length; the kernel writes one byte a page to `flags`,
        // which is that long.
        if unsafe { libc::mincore(self.map.as_ptr(), self.bytes, flags.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let numbered = (self.first_page..self.file.pages()).zip(flags);
        Ok(numbered
            .filter(|(_, flag)| flag & 1 == 1)
            .map(|(page, _)| page)
            .collect())
    }

    /// The address at which file page `page` is mapped, if the window contains it.
    #[must_use]
    pub fn addr(&self, page: u64) -> Option<u64> {
        let offset = page.checked_sub(self.first_page)? * PAGE_SIZE;
        (offset < self.bytes as u64).then(|| self.map.as_ptr().addr() as u64 + offset)
    }

    /// Populates the page tables for `resident` pages (ascending) of the window. Returns the number of pages
    /// mapped; the others failed because the file was truncated.
    #[must_use]
    pub fn populate(&self, resident: &[u64]) -> u64 {
        let runs = resident.chunk_by(|a, b| a + 1 == *b);
        let mapped = runs.filter(|run| {
            let (first, pages) = (
                run.first().map_or(0, |first| first - self.first_page),
                run.len() as u64,
            );
            let (start, len) = (first * PAGE_SIZE, pages * PAGE_SIZE);
            let ends = usize::try_from(start).ok().zip(usize::try_from(len).ok());
            ends.is_some_and(|(start, len)| self.advise(start, len, Advice::LinuxPopulateRead).is_ok())
        });
        mapped.map(|run| run.len() as u64).sum()
    }

    /// Moves the mapped pages of the window to the inactive list, except pages that other processes map.
    ///
    /// # Errors
    /// Fails if the kernel refuses the advice: the file is on hugetlbfs.
    pub fn deactivate(&self) -> io::Result<()> {
        // One call for all: the boundaries of several calls would split large folios.
        self.advise(0, self.bytes, Advice::LinuxCold)
    }

    fn advise(&self, start: usize, len: usize, advice: Advice) -> io::Result<()> {
        let len = len.min(self.bytes.saturating_sub(start));
        // SAFETY: the range is inside the mapping; none of the advice used here changes memory contents.
        unsafe {
            Ok(rustix::mm::madvise(
                self.map.as_ptr().byte_add(start),
                len,
                advice,
            )?)
        }
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more. If munmap fails, the mapping stays.
        let _ = unsafe { rustix::mm::munmap(self.map.as_ptr(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn written_pages_are_resident_and_holes_are_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(40 * PAGE_SIZE).unwrap();
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), &[1; 4096 * 4], 8 * PAGE_SIZE).unwrap();
        let cached = CachedFile::open(file.path()).unwrap();
        assert_eq!(cached.pages(), 40);
        let window = cached.window(0, 40).unwrap();
        assert_eq!(window.resident().unwrap(), [8, 9, 10, 11]);
        assert_eq!(window.populate(&[8, 9, 11]), 3);
        window.deactivate().unwrap();
        assert_eq!(
            window.resident().unwrap(),
            [8, 9, 10, 11],
            "residency is unchanged"
        );
        assert!(window.addr(39).is_some() && window.addr(40).is_none());
        // Some in-memory file systems cannot read without blocking.
        assert!(
            cached
                .mark_accessed(&[8, 9], MAX_ACCESSES)
                .is_ok_and(|used| used == 2)
                || cached.mark_accessed(&[8], 2).is_err()
        );
    }

    #[test]
    fn truncated_file_maps_no_pages() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![1; 16 << 12]).unwrap();
        let cached = CachedFile::open(file.path()).unwrap();
        let window = cached.window(0, 16).unwrap();
        file.as_file().set_len(4096).unwrap();
        assert_eq!(window.populate(&[2, 3]), 0);
        assert_eq!(cached.mark_accessed(&[3], 2).unwrap_or(0), 0);
    }

    #[test]
    fn open_refuses_folders_and_pipes() {
        let folder = tempfile::tempdir().unwrap();
        let error = CachedFile::open(folder.path()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(CachedFile::open(&pipe).is_err());
    }
}
