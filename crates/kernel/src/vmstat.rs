//! `/proc/vmstat`: counters of the memory management.

use std::collections::BTreeMap;
use std::path::Path;

use crate::file::{self, FileError};

/// All counters, by the kernel's name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vmstat {
    counters: BTreeMap<String, u64>,
}

impl Vmstat {
    /// The counter `name`; `None` if this kernel does not have it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.counters.get(name).copied()
    }

    /// Pages on the active LRU lists.
    #[must_use]
    pub fn active_pages(&self) -> u64 {
        self.sum(&["nr_active_anon", "nr_active_file"])
    }

    /// Pages on the inactive LRU lists.
    #[must_use]
    pub fn inactive_pages(&self) -> u64 {
        self.sum(&["nr_inactive_anon", "nr_inactive_file"])
    }

    /// Pages scanned for reclaim so far, other than for single control groups. The kernel clears accessed
    /// bits of pages that it scans.
    #[must_use]
    pub fn scanned_pages(&self) -> u64 {
        self.sum(&["pgscan_kswapd", "pgscan_direct", "pgscan_khugepaged"])
    }

    /// Pages scanned for single control groups: all scanned pages except [`Vmstat::scanned_pages`].
    #[must_use]
    pub fn scanned_pages_of_groups(&self) -> u64 {
        let all = self.sum(&["pgscan_anon", "pgscan_file"]);
        all.saturating_sub(self.scanned_pages())
    }

    fn sum(&self, names: &[&str]) -> u64 {
        names
            .iter()
            .filter_map(|name| self.get(name))
            .fold(0, u64::saturating_add)
    }
}

/// Reads `/proc/vmstat`.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn read(root: &Path) -> Result<Vmstat, FileError> {
    let text = file::text(&root.join("proc/vmstat"))?;
    let counter = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.trim().parse().ok()?))
    };
    Ok(Vmstat {
        counters: text.lines().filter_map(counter).collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn vmstat_sums_anonymous_and_file_pages() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        let text = "nr_inactive_anon 1\nnr_active_anon 20\nnr_inactive_file 3\nnr_active_file 40\npgmajfault 7\n\
             pgscan_kswapd 5\npgscan_direct 2\npgscan_direct_throttle 9\n\
             pgscan_anon 3\npgscan_file 15\n";
        std::fs::write(root.path().join("proc/vmstat"), text).unwrap();
        let vmstat = read(root.path()).unwrap();
        assert_eq!((vmstat.active_pages(), vmstat.inactive_pages()), (60, 4));
        assert_eq!(
            (vmstat.scanned_pages(), vmstat.scanned_pages_of_groups()),
            (7, 11)
        );
        assert_eq!(
            (vmstat.get("pgmajfault"), vmstat.get("nr_dreams")),
            (Some(7), None)
        );
    }
}
