//! Whether the arguments and the environment of a process can be read without waiting.
//!
//! `/proc/PID/cmdline` and `environ` read the memory of the process (`access_remote_vm()`). A process can map
//! a file over that memory. If the file system never answers (FUSE, a dead network mount), the reader waits,
//! and nothing ends that wait. So such pages are not read at all: arguments and environment are anonymous
//! memory, unless a process wants to be read wrongly.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use thermo_units::PAGE_SIZE;

use crate::pagemap::Page;

/// Checks that the first `max` bytes of the arguments and of the environment are in memory or in swap. Blocks
/// as long as the process holds the lock of its address space.
///
/// # Errors
/// `EFAULT` if a page is neither. Those of reading `stat` and `pagemap`; a machine of a test may have
/// neither.
pub(crate) fn check_readable(root: &Path, pid: u32, max: usize) -> io::Result<()> {
    let dir = crate::proc::dir(root, pid);
    let files = std::fs::read_to_string(dir.join("stat"))
        .and_then(|stat| Ok((stat, File::open(dir.join("pagemap"))?)));
    let (stat, pagemap) = match files {
        Ok(files) => files,
        // A process that has ended: the next read says so.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for range in ranges(&stat) {
        let end = range.end.min(range.start.saturating_add(max as u64));
        let mut page = range.start / PAGE_SIZE;
        while page * PAGE_SIZE < end {
            let mut entry = [0; 8];
            pagemap.read_exact_at(&mut entry, page * 8)?;
            let entry = Page::from_bits(u64::from_ne_bytes(entry));
            if !entry.is_present() && !entry.is_swapped() {
                return Err(io::Error::from_raw_os_error(libc::EFAULT));
            }
            page += 1;
        }
    }
    Ok(())
}

/// The addresses of arguments and environment: fields 48 to 51 of proc_pid_stat(5). The field behind the name
/// is the third.
fn ranges(stat: &str) -> Vec<Range<u64>> {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let mut fields = fields.split_ascii_whitespace().skip(48 - 3);
    let mut next = || fields.next()?.parse::<u64>().ok();
    let mut ranges = Vec::new();
    while let Some((start, end)) = next().zip(next()).filter(|_| ranges.len() < 2) {
        ranges.push(start..end);
    }
    ranges
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn pages_that_are_not_in_memory_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("proc/7");
        std::fs::create_dir_all(&dir).unwrap();
        assert!(
            check_readable(root.path(), 7, 4096).is_ok(),
            "a fake machine without these files"
        );
        let fields = "0 ".repeat(45);
        let stat = format!("7 (a) b) {fields} 4100 4200 8200 12300 0");
        assert_eq!(ranges(&stat), [4100..4200, 8200..12300]);
        std::fs::write(dir.join("stat"), stat).unwrap();
        let (present, swapped) = (1_u64 << 63, 1_u64 << 62);
        let write = |entries: [u64; 4]| {
            let bytes: Vec<u8> = entries.into_iter().flat_map(u64::to_ne_bytes).collect();
            std::fs::write(dir.join("pagemap"), bytes).unwrap();
        };
        write([0, present, swapped, 0]);
        let refused = check_readable(root.path(), 7, 8192).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EFAULT));
        assert!(
            check_readable(root.path(), 7, 100).is_ok(),
            "only the start matters"
        );
        write([0, 0, present, present]);
        assert!(check_readable(root.path(), 7, 100).is_err());
    }

    #[test]
    fn own_arguments_are_readable() {
        assert!(check_readable(Path::new("/"), std::process::id(), 4096).is_ok());
    }
}
