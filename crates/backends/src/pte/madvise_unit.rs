//! The smallest range around a page that can be advised without splitting a huge page or folio.

use thermo_kernel::kpageflags::{Flags, PageFrames};
use thermo_pagetable::Leaf;
use thermo_units::{Addr, AddrRange};

/// The memory that shares its page-table entry or its folio with `addr`. If less were advised the kernel
/// would split it. `flags` are those of its frame. `None` for pages that cannot be advised (1 GiB).
pub(crate) fn madvise_unit(
    addr: Addr,
    leaf: Leaf,
    flags: Flags,
    frames: Option<&PageFrames>,
) -> Option<AddrRange> {
    match leaf.level {
        0 => {
            let page = addr.align_down().0;
            let (before, after) = frames.map_or((0, 0), |frames| folio_extent(leaf.pfn, flags, frames));
            Some(AddrRange::new(
                page.saturating_sub(before << 12),
                page + ((after + 1) << 12),
            ))
        }
        1 => {
            let base = addr.0 & !(leaf.len().0 - 1);
            Some(AddrRange::new(base, base + leaf.len().0))
        }
        _ => None,
    }
}

/// Number of pages of the same folio before and after frame `pfn`. If a large folio is mapped page by page,
/// it is contiguous in virtual memory as in physical memory. The length of a folio is a power of two and the
/// folio starts at a multiple of its length, so few flags have to be read.
fn folio_extent(pfn: u64, page_flags: Flags, frames: &PageFrames) -> (u64, u64) {
    // The largest folio that is mapped page by page: 2 MiB.
    const MAX_ORDER: u32 = 9;
    if !page_flags.is_compound_head() && !page_flags.is_compound_tail() {
        return (0, 0);
    }
    let flags = |pfn| frames.flags(pfn).unwrap_or_default();
    let starts = (0..=MAX_ORDER).map(|order| pfn >> order << order);
    let Some(head) = starts.into_iter().find(|start| flags(*start).is_compound_head()) else {
        return (0, 0);
    };
    let ends = (1..=MAX_ORDER)
        .map(|order| head + (1 << order))
        .filter(|end| *end > pfn);
    let end = ends.into_iter().find(|end| !flags(*end).is_compound_tail());
    (pfn - head, end.map_or(0, |end| end - 1 - pfn))
}

/// An accessed leaf, for tests.
#[cfg(test)]
pub(super) fn accessed_leaf(level: u8, pfn: u64) -> Leaf {
    Leaf {
        level,
        accessed: true,
        pfn,
        ..Leaf::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn huge_page_is_one_unit() {
        let huge = madvise_unit(
            Addr(0x7f00_0023_4567),
            accessed_leaf(1, 0x40000),
            Flags::default(),
            None,
        );
        assert_eq!(huge, Some(AddrRange::new(0x7f00_0020_0000, 0x7f00_0040_0000)));
        assert_eq!(
            madvise_unit(
                Addr(0x7f00_0023_4567),
                accessed_leaf(2, 0x40000),
                Flags::default(),
                None
            ),
            None
        );
        let page = madvise_unit(Addr(0x1234), accessed_leaf(0, 7), Flags::default(), None);
        assert_eq!(page, Some(AddrRange::new(0x1000, 0x2000)));
    }

    #[test]
    fn large_folio_is_one_unit_from_any_page() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let (head, tail) = (1_u64 << 15, 1_u64 << 16);
        // Two single pages, a folio of two, a folio of four, a single page.
        let words: Vec<u8> = [0, 0, head, tail, head, tail, tail, tail, 0]
            .into_iter()
            .flat_map(u64::to_ne_bytes)
            .collect();
        for name in ["kpageflags", "kpagecount"] {
            std::fs::write(root.path().join("proc").join(name), &words).unwrap();
        }
        let frames = PageFrames::open(root.path()).unwrap();
        for (pfn, pages) in [
            (1, 1..2),
            (2, 2..4),
            (3, 2..4),
            (4, 4..8),
            (5, 4..8),
            (7, 4..8),
            (8, 8..9),
        ] {
            let at = 0x10000 + pfn * 4096;
            let range = AddrRange::new(0x10000 + pages.start * 4096, 0x10000 + pages.end * 4096);
            assert_eq!(
                madvise_unit(
                    Addr(at),
                    accessed_leaf(0, pfn),
                    frames.flags(pfn).unwrap(),
                    Some(&frames)
                ),
                Some(range),
                "{pfn}"
            );
        }
    }
}
