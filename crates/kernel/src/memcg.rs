//! The memory controller of a control group, version 1 and 2 (Documentation/admin-guide/cgroup-v2.rst,
//! "Memory"; cgroup-v1/memory.rst).

use std::path::{Path, PathBuf};

use thermo_units::Bytes;

use crate::cgroup::{Group, Version};
use crate::file::{self, FileError};

/// Version 1 shows "no limit" as the largest multiple of a page.
const V1_NO_LIMIT: u64 = 0x7fff_ffff_ffff_0000;

/// Minimum number of pages that the kernel scans each time it reclaims (`SWAP_CLUSTER_MAX`,
/// include/linux/swap.h).
const RECLAIM_BATCH: u64 = 32;

/// Counters of a group with all groups below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemcgStat {
    /// Resident anonymous memory.
    pub anon: Bytes,
    /// Page cache.
    pub file: Bytes,
    /// The mapped part of the page cache.
    pub file_mapped: Bytes,
}

/// The memory controller of a group.
#[derive(Debug, Clone)]
pub struct Memcg {
    group: Group,
}

impl Memcg {
    /// The memory controller of `group`, which must be in the memory controller's hierarchy.
    #[must_use]
    pub const fn new(group: Group) -> Self {
        Self { group }
    }

    /// `group` and its ancestors that have a limit now, nearest first: all of them limit a process.
    ///
    /// # Errors
    /// Fails if a limit cannot be read.
    pub fn with_limits(group: &Group) -> Result<Vec<Self>, FileError> {
        let mut limited = Vec::new();
        let dirs = group.dir.ancestors();
        for dir in dirs.take_while(|dir| dir.join("memory.stat").exists()) {
            let memcg = Self::new(Group {
                version: group.version,
                dir: dir.to_owned(),
            });
            // The root group of version 2 has no limit and no file for one.
            match memcg.effective_limit() {
                Ok(Some(_)) => limited.push(memcg),
                Ok(None) => {}
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(limited)
    }

    /// The folder of the group.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.group.dir
    }

    fn file(&self, v1: &str, v2: &str) -> PathBuf {
        self.group
            .dir
            .join(if self.group.version == Version::V1 { v1 } else { v2 })
    }

    /// Memory in use: resident memory, page cache, and kernel memory of the group.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn usage(&self) -> Result<Bytes, FileError> {
        file::number(&self.file("memory.usage_in_bytes", "memory.current")).map(Bytes)
    }

    /// The hard limit, if there is one.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn limit(&self) -> Result<Option<Bytes>, FileError> {
        let path = self.file("memory.limit_in_bytes", "memory.max");
        match file::text(&path)?.trim() {
            "max" => Ok(None),
            text => match text.parse() {
                Ok(bytes) if bytes < V1_NO_LIMIT => Ok(Some(Bytes(bytes))),
                Ok(_) => Ok(None),
                Err(_) => Err(FileError::malformed(&path, text, "a number of bytes, or max")),
            },
        }
    }

    /// The lower of the hard limit and, on version 2, `memory.high`, where the group is throttled.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn effective_limit(&self) -> Result<Option<Bytes>, FileError> {
        let hard = self.limit()?;
        let high = match self.group.version {
            Version::V1 => None,
            Version::V2 => file::number(&self.group.dir.join("memory.high")).ok().map(Bytes),
        };
        Ok(hard.into_iter().chain(high).min())
    }

    /// Sets or removes the hard limit.
    ///
    /// # Errors
    /// Fails without the right to write it, or (version 1) if more memory is in use and cannot be reclaimed.
    pub fn set_limit(&self, limit: Option<Bytes>) -> Result<(), FileError> {
        let text = match (limit, self.group.version) {
            (Some(bytes), _) => bytes.0.to_string(),
            (None, Version::V1) => "-1".to_owned(),
            (None, Version::V2) => "max".to_owned(),
        };
        file::write(&self.file("memory.limit_in_bytes", "memory.max"), &text)
    }

    /// The counters.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn stat(&self) -> Result<MemcgStat, FileError> {
        let text = file::text(&self.group.dir.join("memory.stat"))?;
        let value = |v1: &str, v2: &str| {
            let name = if self.group.version == Version::V1 { v1 } else { v2 };
            counter(&text, name).unwrap_or(0)
        };
        Ok(MemcgStat {
            anon: Bytes(value("total_rss", "anon")),
            file: Bytes(value("total_cache", "file")),
            file_mapped: Bytes(value("total_mapped_file", "file_mapped")),
        })
    }

    /// Page cache on the LRU lists: it counts as used, but the kernel reclaims it when needed.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn reclaimable_file(&self) -> Result<Bytes, FileError> {
        let names = match self.group.version {
            Version::V1 => ["total_inactive_file ", "total_active_file "],
            Version::V2 => ["inactive_file ", "active_file "],
        };
        let text = file::text(&self.group.dir.join("memory.stat"))?;
        let value = |line: &str| {
            names
                .iter()
                .find_map(|name| line.strip_prefix(name)?.trim().parse().ok())
        };
        Ok(text.lines().filter_map(value).map(Bytes).sum())
    }

    /// The number of pages scanned so far to reclaim memory of this group. Version 1 does not count them:
    /// there the result is a lower bound, one batch for each time that a limit of this group or of an
    /// ancestor was hit.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn scanned_pages(&self) -> Result<u64, FileError> {
        match self.group.version {
            Version::V1 => {
                let own = file::number(&self.group.dir.join("memory.failcnt"))?;
                let ancestors = self.group.dir.ancestors().skip(1);
                let above = ancestors.map_while(|dir| file::number(&dir.join("memory.failcnt")).ok());
                Ok(above.fold(own, u64::saturating_add).saturating_mul(RECLAIM_BATCH))
            }
            Version::V2 => {
                let path = self.group.dir.join("memory.stat");
                let text = file::text(&path)?;
                counter(&text, "pgscan")
                    .ok_or_else(|| FileError::malformed(&path, &text, "a list of counters with pgscan"))
            }
        }
    }

    /// The memory of the group on NUMA node `nid`, as far as it is on evictable LRU lists.
    ///
    /// # Errors
    /// Fails if the kernel has no such counter (built without NUMA, or the root group of version 2 on old
    /// kernels).
    pub fn node_usage(&self, nid: u32) -> Result<Bytes, FileError> {
        let text = file::text(&self.group.dir.join("memory.numa_stat"))?;
        let page = rustix::param::page_size() as u64;
        let (lists, unit, separator): (&[&str], u64, char) = match self.group.version {
            Version::V1 => (&["hierarchical_file", "hierarchical_anon"], page, '='),
            Version::V2 => (
                &["active_anon", "inactive_anon", "active_file", "inactive_file"],
                1,
                ' ',
            ),
        };
        let is_list = |line: &&str| {
            line.split_once(separator)
                .is_some_and(|(name, _)| lists.contains(&name))
        };
        let key = format!("N{nid}=");
        let of_node = |line: &str| {
            line.split(' ')
                .find_map(|word| word.strip_prefix(&key)?.parse::<u64>().ok())
        };
        Ok(Bytes(
            text.lines()
                .filter(is_list)
                .filter_map(of_node)
                .map(|count| count.saturating_mul(unit))
                .fold(0, u64::saturating_add),
        ))
    }
}

/// The counter `name` of `memory.stat`, if present.
fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn memcg(version: Version, files: &[(&str, &str)]) -> (tempfile::TempDir, Memcg) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let group = Group {
            version,
            dir: dir.path().to_owned(),
        };
        (dir, Memcg::new(group))
    }

    #[test]
    fn v1_reads_huge_number_as_no_limit() {
        let stat = "cache 1\nrss 2\ntotal_cache 10\ntotal_mapped_file 7\ntotal_rss 20\n";
        let files = [
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.stat", stat),
        ];
        let (dir, memcg) = memcg(Version::V1, &files);
        assert_eq!(memcg.limit().unwrap(), None);
        let want = MemcgStat {
            anon: Bytes(20),
            file: Bytes(10),
            file_mapped: Bytes(7),
        };
        assert_eq!(memcg.stat().unwrap(), want);
        std::fs::write(dir.path().join("memory.limit_in_bytes"), "").unwrap();
        memcg.set_limit(Some(Bytes::mib(1))).unwrap();
        assert_eq!(memcg.limit().unwrap(), Some(Bytes::mib(1)));
    }

    #[test]
    fn v2_reads_max_as_no_limit() {
        let files = [
            ("memory.max", "max\n"),
            ("memory.current", "4096\n"),
            ("memory.stat", "anon 5\nfile 6\nfile_mapped 3\n"),
        ];
        let (_dir, memcg) = memcg(Version::V2, &files);
        assert_eq!(
            (memcg.limit().unwrap(), memcg.usage().unwrap()),
            (None, Bytes(4096))
        );
        let want = MemcgStat {
            anon: Bytes(5),
            file: Bytes(6),
            file_mapped: Bytes(3),
        };
        assert_eq!(memcg.stat().unwrap(), want);
    }

    #[test]
    fn scanned_pages_are_counted_or_estimated_low() {
        let (_dir, v2) = memcg(Version::V2, &[("memory.stat", "pgscan 70\npgscan_kswapd 9\n")]);
        assert_eq!(v2.scanned_pages().unwrap(), 70);
        let (_dir, old) = memcg(Version::V2, &[("memory.stat", "anon 1\n")]);
        assert!(old.scanned_pages().unwrap_err().to_string().contains("pgscan"));
        // A limit of the parent group counts as well.
        let (dir, _) = memcg(Version::V1, &[("memory.failcnt", "10\n")]);
        let dir = dir.path().join("below");
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("memory.failcnt"), "3\n").unwrap();
        let version = Version::V1;
        let below = Memcg::new(Group { version, dir });
        assert_eq!(below.scanned_pages().unwrap(), 13 * 32);
    }

    #[test]
    fn node_usage_is_read_in_both_versions() {
        let text = "anon N0=9 N1=9\nactive_anon N0=1 N1=10\ninactive_anon N0=2 N1=20\nactive_file N0=3\ninactive_file N0=4\n";
        let (_dir, v2) = memcg(Version::V2, &[("memory.numa_stat", text)]);
        assert_eq!(
            (v2.node_usage(0).unwrap(), v2.node_usage(1).unwrap()),
            (Bytes(10), Bytes(30))
        );
        let text =
            "file=1 N0=1\nhierarchical_total=7 N0=7\nhierarchical_file=4 N0=4\nhierarchical_anon=2 N0=2\n";
        let (_dir, v1) = memcg(Version::V1, &[("memory.numa_stat", text)]);
        assert_eq!(v1.node_usage(0).unwrap().0, 6 * rustix::param::page_size() as u64);
    }
}
