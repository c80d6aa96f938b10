//! Entries for the fuzz targets: the kernel's files that only [`crate::PageTables::open`] reads.

/// The end of physical memory, from the text of `/proc/zoneinfo`.
#[must_use]
pub fn memory_end(zoneinfo: &str) -> Option<u64> {
    crate::max_pfn::memory_end(zoneinfo)
}
