//! What the kernel knows of each page frame (`/proc/kpageflags`, `/proc/kpagecount`, `/proc/kpagecgroup`). Root only.

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
    /// The kernel used it through a system call since it last looked. Not the processor's accessed mark.
    is_referenced = 2;
    /// It is on an LRU list.
    is_lru = 5;
    /// It is on an active list. With MGLRU no page is that is in a generation.
    is_active = 6;
    /// It goes to swap when it is reclaimed: anonymous memory, and files that live in memory only.
    is_swap_backed = 14;
    /// It is a part of a larger folio, its first page.
    is_compound_head = 15;
    /// It is a part of a larger folio, not its first page.
    is_compound_tail = 16;
    /// It is of hugetlbfs.
    is_hugetlb = 17;
    /// It cannot be reclaimed (locked).
    is_unevictable = 18;
    /// It is merged with others of the same contents.
    is_ksm = 21;
    /// It is part of a transparent huge page.
    is_thp = 22;
    /// It is the page of zeroes.
    is_zero_page = 24;
    /// It was marked idle and not touched since, on kernels with idle page tracking.
    is_idle = 25;
}

impl Flags {
    /// The flags with these bits.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// A file with one 64-bit word a page frame.
#[derive(Debug)]
struct Words(File);

impl Words {
    fn read(&self, pfn: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, pfn * 8)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// The open files.
#[derive(Debug)]
pub struct PageFrames {
    flags: Words,
    count: Words,
    /// Kernels without memory cgroups have no such file.
    cgroup: Option<Words>,
}

impl PageFrames {
    /// Opens those of the machine at `root` (`/`).
    ///
    /// # Errors
    /// `EACCES` without root, `ENOENT` on kernels without `CONFIG_PROC_PAGE_MONITOR`.
    pub fn open(root: &Path) -> io::Result<Self> {
        let open = |name| File::open(root.join("proc").join(name)).map(Words);
        Ok(Self {
            flags: open("kpageflags")?,
            count: open("kpagecount")?,
            cgroup: open("kpagecgroup").ok(),
        })
    }

    /// The flags of frame `pfn`.
    ///
    /// # Errors
    /// When there is no such frame.
    pub fn flags(&self, pfn: u64) -> io::Result<Flags> {
        self.flags.read(pfn).map(Flags)
    }

    /// How often frame `pfn` is mapped. In kernels that no longer count each page: the folio's mean.
    ///
    /// # Errors
    /// When there is no such frame.
    pub fn map_count(&self, pfn: u64) -> io::Result<u64> {
        self.count.read(pfn)
    }

    /// The inode number of the memory cgroup that frame `pfn` is charged to; 0 for none.
    ///
    /// # Errors
    /// When there is no such frame, or the kernel has no memory cgroups.
    pub fn cgroup(&self, pfn: u64) -> io::Result<u64> {
        self.cgroup.as_ref().ok_or(io::ErrorKind::NotFound)?.read(pfn)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn a_frame_is_looked_up_by_its_number() {
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
        assert!(frames.flags(2).is_err(), "there is no third frame");
        assert!(frames.cgroup(1).is_err(), "there is no such file");
    }

    #[test]
    fn without_the_files_there_is_an_error() {
        assert!(PageFrames::open(tempfile::tempdir().unwrap().path()).is_err());
    }
}
