//! `/proc/meminfo`: the memory of the machine.

use std::path::Path;

use thermo_units::Bytes;

use crate::file::{self, FileError};

/// The fields that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemInfo {
    /// Total memory.
    pub total: Bytes,
    /// Free memory.
    pub free: Bytes,
    /// Memory available without swapping.
    pub available: Bytes,
    /// Total swap space.
    pub swap_total: Bytes,
    /// Free swap space.
    pub swap_free: Bytes,
    /// Memory that is in swap too, or for which swap has a place that the device did not take.
    pub swap_cached: Bytes,
    /// Anonymous huge pages.
    pub anon_huge_pages: Bytes,
    /// Anonymous memory in page tables.
    pub anon_pages: Bytes,
    /// Page cache in page tables, shared memory included.
    pub mapped: Bytes,
    /// Page cache without block devices, shared memory included.
    pub cached: Bytes,
    /// Page cache of block devices.
    pub buffers: Bytes,
}

/// Reads `/proc/meminfo`.
///
/// # Errors
/// Fails if the file cannot be read or has no MemTotal line.
pub fn read(root: &Path) -> Result<MemInfo, FileError> {
    let path = root.join("proc/meminfo");
    let text = file::text(&path)?;
    let mut info = MemInfo::default();
    for (name, bytes) in file::sizes(&text) {
        match name {
            "MemTotal" => info.total = bytes,
            "MemFree" => info.free = bytes,
            "MemAvailable" => info.available = bytes,
            "SwapTotal" => info.swap_total = bytes,
            "SwapFree" => info.swap_free = bytes,
            "SwapCached" => info.swap_cached = bytes,
            "AnonHugePages" => info.anon_huge_pages = bytes,
            "AnonPages" => info.anon_pages = bytes,
            "Mapped" => info.mapped = bytes,
            "Cached" => info.cached = bytes,
            "Buffers" => info.buffers = bytes,
            _ => {}
        }
    }
    if info.total == Bytes::ZERO {
        return Err(FileError::malformed(&path, &text, "a text with a MemTotal line"));
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn fields_are_matched_by_full_name() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        let text = "MemTotal:   100 kB\nMemFree:     40 kB\nMapped:      9 kB\nMapped(anon):  5 kB\nHugePages_Total:  0\n";
        std::fs::write(root.path().join("proc/meminfo"), text).unwrap();
        let info = read(root.path()).unwrap();
        assert_eq!(
            (info.total, info.free, info.mapped),
            (Bytes::kib(100), Bytes::kib(40), Bytes::kib(9))
        );
        std::fs::write(root.path().join("proc/meminfo"), "hello\n").unwrap();
        assert!(read(root.path()).is_err());
    }
}
