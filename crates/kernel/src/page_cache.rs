//! Pages of a file that are in memory though perhaps no process maps them: which they are (`mincore(2)`), counting
//! them as used (`preadv2(2)` with `RWF_NOWAIT`), and giving up their place (`MADV_COLD` on a mapping of our own).
//!
//! Nothing here reads from the disk, but for a page that is evicted between the look and the use. A mapping of a file
//! that somebody cuts short must not be read by the processor (`SIGBUS`), so pages are mapped by asking the kernel to.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Access, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use thermo_units::PAGE_SIZE;

/// How often a page can be used in one go.
pub const MOST_USES: usize = 5;

/// A regular file, open for looking at its pages.
#[derive(Debug)]
pub struct CachedFile {
    /// Opened that often: the kernel counts reads of a page one after the other through one of them as one use.
    files: [File; MOST_USES],
    len: u64,
}

/// A part of the file mapped by us. It goes when dropped.
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
    /// It is not there or may not be read; it is no regular file (`EINVAL`); it is neither ours nor may we write to
    /// it (`EPERM`): the kernel does not tell then which of its pages are in memory.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Not blocking: what is named may be a pipe.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let first = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let meta = first.metadata()?;
        if !meta.is_file() {
            return Err(Errno::INVAL.into());
        }
        let ours = rustix::process::geteuid();
        let told = ours.is_root()
            || ours.as_raw() == meta.uid()
            || rustix::fs::access(path, Access::WRITE_OK).is_ok();
        if !told {
            return Err(Errno::PERM.into());
        }
        // By its descriptor: another file may stand at the path by now.
        let again = format!("/proc/self/fd/{}", first.as_raw_fd());
        let open = || rustix::fs::open(&again, flags, Mode::empty()).map(File::from);
        Ok(Self {
            len: meta.len(),
            files: [open()?, open()?, open()?, open()?, first],
        })
    }

    /// How many pages it has.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.len.div_ceil(PAGE_SIZE)
    }

    /// Counts each of `pages` as used so many `times`, at most [`MOST_USES`]: the second use moves it up to the active list.
    /// Returns how many were in memory still.
    ///
    /// # Errors
    /// When its file system cannot read without waiting, or the disk is broken.
    pub fn use_often(&self, pages: &[u64], times: usize) -> io::Result<u64> {
        let mut used = 0;
        for (nth, file) in self.files.iter().take(times).enumerate() {
            for page in pages {
                let mut byte = [0];
                let buffers = &mut [IoSliceMut::new(&mut byte)];
                match rustix::io::preadv2(file, buffers, page * PAGE_SIZE, ReadWriteFlags::NOWAIT) {
                    Ok(read) => used += u64::from(nth + 1 == times && read == 1),
                    // Evicted meanwhile, or being written.
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(used)
    }

    /// Maps `pages` pages from `first_page` on, none of which is brought in by it.
    ///
    /// # Errors
    /// When there is no room for it, or its file system has no mappings.
    pub fn window(&self, first_page: u64, pages: u64) -> io::Result<Window<'_>> {
        let bytes = usize::try_from(pages * PAGE_SIZE).map_err(|_| Errno::NOMEM)?;
        let offset = first_page * PAGE_SIZE;
        // SAFETY: a new mapping at a place of the kernel's choice, which nobody reads through: see the module's text.
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
        // A page that went away since it was looked for is brought back alone, without its neighbours.
        window.advise(0, window.bytes, Advice::Random)?;
        Ok(window)
    }
}

impl Window<'_> {
    /// The numbers, in the file, of the pages that are in memory.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn resident(&self) -> io::Result<Vec<u64>> {
        let page_size = usize::try_from(PAGE_SIZE).unwrap_or(4096);
        let mut flags = vec![0_u8; self.bytes.div_ceil(page_size)];
        // SAFETY: the mapping is ours and as long as told; the kernel writes one byte a page of it.
        if unsafe { libc::mincore(self.map.as_ptr(), self.bytes, flags.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let numbered = (self.first_page..self.file.pages()).zip(flags);
        Ok(numbered
            .filter(|(_, flag)| flag & 1 == 1)
            .map(|(page, _)| page)
            .collect())
    }

    /// The address page `page` of the file is mapped at, if it lies in the window.
    #[must_use]
    pub fn addr(&self, page: u64) -> Option<u64> {
        let offset = page.checked_sub(self.first_page)? * PAGE_SIZE;
        (offset < self.bytes as u64).then(|| self.map.as_ptr().addr() as u64 + offset)
    }

    /// Maps `resident` pages (ascending) of the window for us. Returns how many; the rest could not be, for the file
    /// was cut short.
    #[must_use]
    pub fn map(&self, resident: &[u64]) -> u64 {
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

    /// Moves what is mapped of the window down to the inactive list, but for pages that others map too.
    ///
    /// # Errors
    /// When the kernel refuses: the file is on huge pages of their own (hugetlbfs).
    pub fn give_up(&self) -> io::Result<()> {
        // In one go: the borders of single calls would cut larger folios to pieces.
        self.advise(0, self.bytes, Advice::LinuxCold)
    }

    fn advise(&self, start: usize, len: usize, advice: Advice) -> io::Result<()> {
        let len = len.min(self.bytes.saturating_sub(start));
        // SAFETY: the range lies in the mapping; none of the advice used here changes what its memory holds.
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
        // SAFETY: the mapping is ours, and nothing refers to it any more. That it could not be unmapped leaves it.
        let _ = unsafe { rustix::mm::munmap(self.map.as_ptr(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn pages_that_were_written_are_there_and_holes_are_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(40 * PAGE_SIZE).unwrap();
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), &[1; 4096 * 4], 8 * PAGE_SIZE).unwrap();
        let cached = CachedFile::open(file.path()).unwrap();
        assert_eq!(cached.pages(), 40);
        let window = cached.window(0, 40).unwrap();
        assert_eq!(window.resident().unwrap(), [8, 9, 10, 11]);
        assert_eq!(window.map(&[8, 9, 11]), 3);
        window.give_up().unwrap();
        assert_eq!(
            window.resident().unwrap(),
            [8, 9, 10, 11],
            "nothing came and nothing went"
        );
        assert!(window.addr(39).is_some() && window.addr(40).is_none());
        // Some file systems in memory cannot read without waiting.
        assert!(
            cached.use_often(&[8, 9], MOST_USES).is_ok_and(|used| used == 2)
                || cached.use_often(&[8], 2).is_err()
        );
    }

    #[test]
    fn a_file_cut_short_is_no_crash() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![1; 16 << 12]).unwrap();
        let cached = CachedFile::open(file.path()).unwrap();
        let window = cached.window(0, 16).unwrap();
        file.as_file().set_len(4096).unwrap();
        assert_eq!(window.map(&[2, 3]), 0);
        assert_eq!(cached.use_often(&[3], 2).unwrap_or(0), 0);
    }

    #[test]
    fn what_is_no_file_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let error = CachedFile::open(folder.path()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(CachedFile::open(&pipe).is_err());
    }
}
