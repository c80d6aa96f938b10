//! `/proc/zoneinfo`: pages that are free but on a CPU's own list.
//!
//! Each CPU keeps pages that were freed lately, on a large machine up to gigabytes of them since Linux 6.7, and gives them
//! back slowly. `MemFree` does not count them, so that memory looks in use for a minute after it was freed.

use std::path::Path;

use thermo_units::{Bytes, PAGE_SIZE};

use crate::file::{self, FileError};

/// The memory on the lists of all CPUs.
///
/// # Errors
/// When it cannot be read.
pub fn on_cpu_lists(root: &Path) -> Result<Bytes, FileError> {
    let text = file::text(&root.join("proc/zoneinfo"))?;
    Ok(Bytes(pages(&text) * PAGE_SIZE))
}

/// The sum of the lines `count: N`, one for each zone and CPU.
fn pages(text: &str) -> u64 {
    let counts = text.lines().filter_map(|line| line.trim().strip_prefix("count:"));
    counts.filter_map(|count| count.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn the_lists_of_all_zones_and_cpus_are_summed_up() {
        let text = "Node 0, zone   Normal\n  pages free     7\n        high_min 9\n  pagesets\n    cpu: 0\n              count:    3545\n              \
                    high:     9\n    cpu: 1\n              count:    12\nNode 0, zone  Movable\n    cpu: 0\n              count:    1\n";
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/zoneinfo"), text).unwrap();
        assert_eq!(on_cpu_lists(root.path()).unwrap(), Bytes(3558 * PAGE_SIZE));
        assert!(on_cpu_lists(Path::new("/nowhere")).unwrap_err().is_missing());
    }
}
