//! MGLRU, the kernel's lists by generation (Documentation/admin-guide/mm/multigen_lru.rst).

use std::path::Path;

use crate::file;

/// True when the main switch of MGLRU is on; false on kernels without MGLRU.
#[must_use]
pub fn is_on(root: &Path) -> bool {
    let text = file::text(&root.join("sys/kernel/mm/lru_gen/enabled")).unwrap_or_default();
    let hex = text.trim().strip_prefix("0x");
    let bits = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok());
    bits.is_some_and(|bits| bits & 1 == 1)
}

/// Uses of a page that make it active: one sets the flag that says that it was used, one more moves it
/// (`folio_mark_accessed()`).
pub const USES_FOR_LISTS: usize = 2;
/// Uses that fill what counts them with generations: a flag each for the first two, and a number of two bits.
pub const USES_FOR_GENERATIONS: usize = 5;

/// How often a page has to be used to be kept, on the machine at `root`. No more than page cache can be in one go
/// ([`crate::page_cache::MOST_USES`]).
#[must_use]
pub fn uses(root: &Path) -> usize {
    if is_on(root) {
        USES_FOR_GENERATIONS
    } else {
        USES_FOR_LISTS
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
        assert!(!is_on(root.path()));
        assert_eq!(uses(root.path()), USES_FOR_LISTS);
        std::fs::create_dir_all(&folder).unwrap();
        for (text, want) in [("0x0007\n", true), ("0x0005\n", true), ("0x0006\n", false)] {
            std::fs::write(folder.join("enabled"), text).unwrap();
            assert_eq!(is_on(root.path()), want, "{text}");
            let expected = if want {
                USES_FOR_GENERATIONS
            } else {
                USES_FOR_LISTS
            };
            assert_eq!(uses(root.path()), expected);
        }
    }
}
