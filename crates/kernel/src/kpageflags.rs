//! Flags, map count and memory cgroup of each page frame (`/proc/kpageflags`, `/proc/kpagecount`,
//! `/proc/kpagecgroup`). Root only.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The flags of one frame (include/uapi/linux/kernel-page-flags.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u64);

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $bit:literal;)*) => {
        impl Flags {$(
            $(#[$doc])*
            #[must_use]
            pub const fn $name(self) -> bool {
                self.0 & (1 << $bit) != 0
            }
        )*}
    };
}

flags! {
    /// `PG_referenced`: accessed through a system call since the last reclaim scan. Not the accessed bit of
    /// page tables.
    is_referenced = 2;
    /// Changed since it was last written to its file or to swap.
    is_dirty = 4;
    /// On an LRU list.
    is_lru = 5;
    /// On an active list. With MGLRU never set for pages in a generation.
    is_active = 6;
    /// Mapped by a process.
    is_mapped = 11;
    /// In the swap cache: memory that has a place in swap.
    is_swap_cache = 13;
    /// Backed by swap: anonymous memory, and files in memory (tmpfs).
    is_swap_backed = 14;
    /// The first page of a folio that is larger than a page.
    is_compound_head = 15;
    /// A further page of a folio that is larger than a page.
    is_compound_tail = 16;
    /// A page of hugetlbfs.
    is_hugetlb = 17;
    /// Not reclaimable (locked).
    is_unevictable = 18;
    /// Merged with pages of the same contents.
    is_ksm = 21;
    /// Part of a transparent huge page.
    is_thp = 22;
    /// The zero page.
    is_zero_page = 24;
    /// Idle: marked idle and not accessed since, on kernels with idle page tracking.
    is_idle = 25;
}

impl Flags {
    /// The flags with these bits.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// A file with one 64-bit value for each page frame.
#[derive(Debug)]
struct FrameTable(File);

impl FrameTable {
    fn read(&self, pfn: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        let offset = pfn.checked_mul(8).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0.read_exact_at(&mut bytes, offset)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// The open files of page frame information.
#[derive(Debug)]
pub struct PageFrames {
    flags: FrameTable,
    count: FrameTable,
    /// `None` on kernels without memory cgroups.
    cgroup: Option<FrameTable>,
}

impl PageFrames {
    /// Opens the files of the machine at `root` (`/`).
    ///
    /// # Errors
    /// `EACCES` without root, `ENOENT` on kernels without `CONFIG_PROC_PAGE_MONITOR`.
    pub fn open(root: &Path) -> io::Result<Self> {
        let open = |name| File::open(root.join("proc").join(name)).map(FrameTable);
        Ok(Self {
            flags: open("kpageflags")?,
            count: open("kpagecount")?,
            cgroup: open("kpagecgroup").ok(),
        })
    }

    /// The flags of frame `pfn`.
    ///
    /// # Errors
    /// Fails if there is no such frame.
    pub fn flags(&self, pfn: u64) -> io::Result<Flags> {
        self.flags.read(pfn).map(Flags)
    }

    /// How often frame `pfn` is mapped. On kernels that no longer count each page: the mean of the folio.
    ///
    /// # Errors
    /// Fails if there is no such frame.
    pub fn map_count(&self, pfn: u64) -> io::Result<u64> {
        self.count.read(pfn)
    }

    /// The inode number of the memory cgroup that frame `pfn` is charged to; 0 for none.
    ///
    /// # Errors
    /// Fails if there is no such frame, or the kernel has no memory cgroups.
    pub fn cgroup(&self, pfn: u64) -> io::Result<u64> {
        self.cgroup.as_ref().ok_or(io::ErrorKind::NotFound)?.read(pfn)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn frame_data_is_read_by_pfn() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let write = |name: &str, words: [u64; 2]| {
            let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
            std::fs::write(root.path().join("proc").join(name), bytes).unwrap();
        };
        write("kpageflags", [0, 1 << 22 | 1 << 16]);
        write("kpagecount", [0, 3]);
        let frames = PageFrames::open(root.path()).unwrap();
        let flags = frames.flags(1).unwrap();
        assert!(flags.is_thp() && flags.is_compound_tail() && !flags.is_active());
        assert_eq!(frames.map_count(1).unwrap(), 3);
        for pfn in [2, u64::MAX] {
            assert!(frames.flags(pfn).is_err(), "the file has two frames");
        }
        assert!(frames.cgroup(1).is_err(), "kpagecgroup does not exist");
    }

    #[test]
    fn open_fails_without_files() {
        assert!(PageFrames::open(tempfile::tempdir().unwrap().path()).is_err());
    }
}
