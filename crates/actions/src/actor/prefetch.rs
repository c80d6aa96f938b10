//! The memory that `willneed` can bring in: pages in swap, and pages of files that the process does not map.
//! The mappings of a process are far larger than that, so their size says nothing about what was read.

use std::cell::OnceCell;
use std::path::Path;

use thermo_engine::ops::{Applied, Skip};
use thermo_kernel::maps;
use thermo_units::{AddrRange, Bytes, PAGE_SIZE};

use super::plan::Task;
use super::range_ops;
use super::range_ops::Ranges;

/// Memory per read of the pagemap.
const CHUNK: Bytes = Bytes::mib(2);

/// The mappings of files of a process, read when first needed. `None` if they cannot be read.
#[derive(Debug, Default)]
pub(super) struct FileMappings(OnceCell<Option<Vec<AddrRange>>>);

impl FileMappings {
    /// Whether a page at `start` that is neither in memory nor in swap belongs to a file. Other memory was
    /// never written there. True if that is not known: the kernel then decides.
    fn contain(&self, root: &Path, pid: u32, start: u64) -> bool {
        let read = || {
            let mappings = maps::read(root, pid).ok()?;
            let files = mappings.iter().filter(|mapping| mapping.inode != 0);
            Some(files.map(|mapping| mapping.range).collect())
        };
        let Some(files) = self.0.get_or_init(read) else {
            return true;
        };
        let after = files.partition_point(|range| range.start.0 <= start);
        after > 0 && files[after - 1].end.0 > start
    }
}

/// The part of `kept` that can be brought in. The rest is counted in `applied`.
pub(super) fn absent(root: &Path, task: &Task<'_>, kept: &[AddrRange], applied: &mut Applied) -> Ranges {
    let (mut absent, mut pages) = (Vec::new(), Vec::new());
    for chunk in range_ops::pieces(kept, CHUNK) {
        // Pages that cannot be read may be absent: the kernel decides.
        if task.pagemap.read(chunk, &mut pages).is_err() {
            pages.clear();
        }
        for (nth, start) in (chunk.start.0..chunk.end.0)
            .step_by(PAGE_SIZE as usize)
            .enumerate()
        {
            let page = AddrRange::new(start, start + PAGE_SIZE);
            match pages.get(nth) {
                Some(seen) if seen.is_present() => applied.skip(Skip::Resident, page.len()),
                Some(seen) if !seen.is_swapped() && !task.files.contain(root, task.process.pid, start) => {
                    applied.skip(Skip::NotPresent, page.len());
                }
                _ => page.coalesce_into(&mut absent),
            }
        }
    }
    absent.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn only_pages_of_files_are_read_without_swap() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let maps = "1000-3000 r--p 00000000 08:01 11 /usr/lib/libc.so.6\n\
                    5000-9000 rw-p 00000000 00:00 0 [heap]\n\
                    a000-b000 r--s 00000000 08:01 12 /data\n";
        std::fs::write(root.path().join("proc/7/maps"), maps).unwrap();
        let files = FileMappings::default();
        for (start, is_file) in [
            (0, false),
            (0x1000, true),
            (0x2000, true),
            (0x3000, false),
            (0x5000, false),
            (0xa000, true),
            (0xb000, false),
        ] {
            assert_eq!(files.contain(root.path(), 7, start), is_file, "{start:#x}");
        }
        assert!(
            FileMappings::default().contain(root.path(), 8, 0x5000),
            "not known"
        );
    }
}
