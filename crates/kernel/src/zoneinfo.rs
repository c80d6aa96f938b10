//! `/proc/zoneinfo`: free pages on per-CPU lists.
//!
//! Each CPU keeps recently freed pages on a list of its own, since Linux 6.7 up to gigabytes on large
//! machines, and returns them slowly. `MemFree` does not count these pages, so memory seems to be in use for
//! up to a minute after it was freed.

use std::path::Path;

use thermo_units::{Bytes, PAGE_SIZE};

use crate::file::{self, FileError};

/// The free memory on the lists of all CPUs.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn per_cpu_free(root: &Path) -> Result<Bytes, FileError> {
    let text = file::text(&root.join("proc/zoneinfo"))?;
    Ok(Bytes(pages(&text).saturating_mul(PAGE_SIZE)))
}

/// The sum of the lines `count: N`, one for each zone and CPU.
fn pages(text: &str) -> u64 {
    let counts = text.lines().filter_map(|line| line.trim().strip_prefix("count:"));
    counts
        .filter_map(|count| count.trim().parse().ok())
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn per_cpu_free_sums_all_zones_and_cpus() {
        let text = "Node 0, zone   Normal\n  pages free     7\n        high_min 9\n  pagesets\n    cpu: 0\n              count:    3545\n              \
                    high:     9\n    cpu: 1\n              count:    12\nNode 0, zone  Movable\n    cpu: 0\n              count:    1\n";
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/zoneinfo"), text).unwrap();
        assert_eq!(per_cpu_free(root.path()).unwrap(), Bytes(3558 * PAGE_SIZE));
        std::fs::write(
            root.path().join("proc/zoneinfo"),
            format!("count: {0}\ncount: {0}\n", u64::MAX),
        )
        .unwrap();
        assert_eq!(per_cpu_free(root.path()).unwrap(), Bytes::MAX);
        assert!(per_cpu_free(Path::new("/nowhere")).unwrap_err().is_missing());
    }
}
