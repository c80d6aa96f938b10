//! The mapping at an address (`PROCMAP_QUERY`, Linux 6.11, Documentation/filesystems/proc.rst), for who needs to know
//! few of many: half a microsecond each, where reading all takes as much for every mapping there is.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use thermo_units::{Addr, AddrRange};

/// `struct procmap_query` of linux/fs.h.
#[repr(C)]
#[derive(Debug, Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const PROCMAP_QUERY: libc::Ioctl = libc::_IOWR::<Query>(b'f' as u32, 17);

/// The open list of the mappings of a process.
#[derive(Debug)]
pub struct MapsFile(File);

impl MapsFile {
    /// Opens that of process `pid` of the machine at `root` (`/`).
    ///
    /// # Errors
    /// `ENOENT` when there is no such process, `EACCES` without the right to ptrace-read it.
    pub fn open(root: &Path, pid: u32) -> io::Result<Self> {
        File::open(root.join(format!("proc/{pid}/maps"))).map(Self)
    }

    /// Where the mapping lies that holds `addr`, if one does.
    ///
    /// # Errors
    /// `ENOTTY` on kernels that do not answer, `ESRCH` when the address space is gone.
    pub fn at(&self, addr: Addr) -> io::Result<Option<AddrRange>> {
        let mut query = Query {
            size: size_of::<Query>() as u64,
            query_addr: addr.0,
            ..Query::default()
        };
        // SAFETY: the kernel writes `query` alone, which is as large as it says and ours; names are not asked for.
        let answer = unsafe { libc::ioctl(self.0.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
        if answer >= 0 {
            return Ok(Some(AddrRange::new(query.vma_start, query.vma_end)));
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            error => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn our_stack_lies_where_the_list_says() {
        let here = 0_u8;
        let addr = Addr(std::ptr::from_ref(&here) as u64);
        let file = MapsFile::open(Path::new("/"), std::process::id()).unwrap();
        let found = match file.at(addr) {
            Ok(found) => found.unwrap(),
            Err(why) => {
                return eprintln!("SKIP: this kernel answers no queries of mappings (Linux 6.11): {why}");
            }
        };
        assert!(found.contains(addr));
        // It may have grown in between, downwards.
        let all = crate::maps::read(Path::new("/"), std::process::id()).unwrap();
        assert!(
            all.iter().any(|mapping| mapping.range.end == found.end),
            "{found:?}"
        );
        assert_eq!(file.at(Addr(0x1000)).unwrap(), None);
    }

    #[test]
    fn a_file_answers_no_queries() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        std::fs::write(
            root.path().join("proc/7/maps"),
            "1000-3000 r-xp 00000000 08:01 11 /lib/x\n",
        )
        .unwrap();
        assert!(MapsFile::open(root.path(), 7).unwrap().at(Addr(0x1000)).is_err());
        assert!(MapsFile::open(root.path(), 8).is_err());
    }
}
