//! MGLRU, the multi-generational LRU (Documentation/admin-guide/mm/multigen_lru.rst).

use std::path::Path;

use crate::file;

/// True if the main switch of MGLRU is on; false on kernels without MGLRU.
#[must_use]
pub fn is_enabled(root: &Path) -> bool {
    let text = file::text(&root.join("sys/kernel/mm/lru_gen/enabled")).unwrap_or_default();
    let hex = text.trim().strip_prefix("0x");
    let bits = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok());
    bits.is_some_and(|bits| bits & 1 == 1)
}

/// Accesses that activate a page on the classic LRU: the first sets `PG_referenced`, the second activates the
/// page (`folio_mark_accessed()`).
pub const ACCESSES_LRU: usize = 2;
/// Accesses that saturate the access counter of MGLRU: one flag each for the first two accesses, then a
/// two-bit counter.
pub const ACCESSES_MGLRU: usize = 5;

/// Number of accesses that protect a page best on the machine at `root`; at most
/// [`crate::page_cache::MAX_ACCESSES`].
#[must_use]
pub fn accesses_to_activate(root: &Path) -> usize {
    if is_enabled(root) {
        ACCESSES_MGLRU
    } else {
        ACCESSES_LRU
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn lowest_bit_is_the_main_switch() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/kernel/mm/lru_gen");
        assert!(!is_enabled(root.path()));
        assert_eq!(accesses_to_activate(root.path()), ACCESSES_LRU);
        std::fs::create_dir_all(&folder).unwrap();
        for (text, want) in [("0x0007\n", true), ("0x0005\n", true), ("0x0006\n", false)] {
            std::fs::write(folder.join("enabled"), text).unwrap();
            assert_eq!(is_enabled(root.path()), want, "{text}");
            let expected = if want { ACCESSES_MGLRU } else { ACCESSES_LRU };
            assert_eq!(accesses_to_activate(root.path()), expected);
        }
    }
}
