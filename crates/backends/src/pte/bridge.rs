//! Coalesces the pages whose accessed bits are cleared into ranges, over gaps of pages that need no clearing.
//!
//! A range costs as much as 100 to 200 pages while the target runs (`gap_cost.rs`), so a gap of up to that
//! many present pages is cleared together with the pages around it. Absent pages cost nothing. Four kinds of
//! gaps are never bridged: pages whose accessed bits are kept on purpose (spot checks), pages that the kernel
//! is known not to clear, huge pages, and places without a page-table page.
//!
//! A page in a gap loses an accessed bit that was set between the reading of its table and the clearing.
//! Scans read and clear in stripes to keep that time short.
//!
//! Where pages are absent there may be no mapping, and the kernel fails on a range that is not fully mapped.
//! Such gaps are bridged in a second step ([`ClearRanges::bridge_holes`]) within one mapping, and only where
//! that saves more than reading the list of mappings costs.

use thermo_pagetable::{Leaf, ones};
use thermo_units::{Addr, AddrRange};

use super::page_bits::PageBits;
use super::table_part::TablePart;

/// Reading the mappings of a process costs about as much as clearing this many ranges.
const MIN_BRIDGED_HOLES: usize = 16;

/// One range of a `process_madvise` call.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClearRange {
    pub(super) range: AddrRange,
    /// The leaves that map its ends. Their folios may reach beyond the range.
    pub(super) first: Leaf,
    pub(super) last: Leaf,
    /// Present small pages in the range.
    pub(super) pages: u64,
    /// Present pages in the gap before this range, if the gap was not bridged only because it has absent
    /// pages.
    mergeable_gap: Option<u64>,
}

/// A table with the pages to clear in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableToClear<'a> {
    pub(super) part: &'a TablePart<'a>,
    /// Accessed bits to clear.
    pub(super) clear: PageBits,
    /// Pages that must not be cleared.
    pub(super) excluded: PageBits,
}

/// The gap after the last page to clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gap {
    end: Addr,
    present: u64,
    has_holes: bool,
    has_excluded: bool,
}

/// The ranges to clear in a stripe, in the order of tables.
#[derive(Debug, Default)]
pub(super) struct ClearRanges {
    /// Maximum number of present pages in a gap that is bridged.
    pub(super) max_gap: u64,
    pub(super) ranges: Vec<ClearRange>,
    /// Whether a gap with present pages was bridged.
    pub(super) has_bridged: bool,
    open_gap: Option<Gap>,
}

impl ClearRanges {
    pub(super) fn new(max_gap: u64) -> Self {
        Self {
            max_gap,
            ..Self::default()
        }
    }

    /// Adds the pages of a table.
    pub(super) fn add(&mut self, to_clear: &TableToClear<'_>, within: AddrRange) {
        if to_clear.part.table.level > 0 {
            self.open_gap = None;
            return to_clear
                .part
                .for_each_entry(ones(to_clear.clear), within, &mut |at, leaf| {
                    self.add_huge(at, leaf)
                });
        }
        let base = to_clear.part.table.base;
        self.open_gap = self.open_gap.filter(|gap| gap.end == base);
        let mut next = 0;
        for nth in ones(to_clear.clear) {
            self.extend_gap(to_clear, next, nth);
            to_clear
                .part
                .for_each_entry(std::iter::once(nth), within, &mut |at, leaf| {
                    self.add_page(at, leaf)
                });
            next = nth + 1;
        }
        self.extend_gap(to_clear, next, 512);
    }

    /// Adds the entries `from..to` of a table, none of which is to be cleared, to the open gap.
    fn extend_gap(&mut self, to_clear: &TableToClear<'_>, from: usize, to: usize) {
        if let Some(gap) = &mut self.open_gap {
            let present = count(&to_clear.part.leaves.present, from, to);
            gap.present += present;
            gap.has_holes |= present < (to - from) as u64;
            gap.has_excluded |= count(&to_clear.excluded, from, to) > 0;
            gap.end = to_clear.part.table.range(to).start;
        }
    }

    fn add_page(&mut self, at: AddrRange, leaf: Leaf) {
        let gap = self.open_gap.replace(Gap {
            end: at.end,
            present: 0,
            has_holes: false,
            has_excluded: false,
        });
        let gap = gap.filter(|gap| !gap.has_excluded && gap.present <= self.max_gap && gap.end == at.start);
        match (self.ranges.last_mut(), gap) {
            (Some(last), Some(gap)) if !gap.has_holes => {
                self.has_bridged |= gap.present > 0;
                last.range.end = at.end;
                last.last = leaf;
                last.pages += gap.present + 1;
            }
            _ => self.ranges.push(ClearRange {
                range: at,
                first: leaf,
                last: leaf,
                pages: 1,
                mergeable_gap: gap
                    .filter(|gap| gap.has_holes && self.max_gap > 0)
                    .map(|gap| gap.present),
            }),
        }
    }

    /// Coalesces huge pages only with adjacent huge pages.
    fn add_huge(&mut self, at: AddrRange, leaf: Leaf) {
        match self.ranges.last_mut() {
            Some(last) if last.range.end == at.start && last.last.level == leaf.level => {
                last.range.end = at.end;
                last.last = leaf;
            }
            _ => self.ranges.push(ClearRange {
                range: at,
                first: leaf,
                last: leaf,
                pages: 0,
                mergeable_gap: None,
            }),
        }
    }

    /// Whether bridging absent pages would save more than reading the mappings costs.
    pub(super) fn is_worth_reading_mappings(&self) -> bool {
        let bridged = self.ranges.iter().filter(|range| range.mergeable_gap.is_some());
        bridged.count() >= MIN_BRIDGED_HOLES
    }

    /// Coalesces ranges that only absent pages keep apart, within one of `mappings` (ascending).
    pub(super) fn bridge_holes(&mut self, mappings: &[AddrRange]) {
        let is_in_one_mapping = |start: Addr, end: Addr| {
            let nth = mappings.partition_point(|mapping| mapping.end <= start);
            mappings
                .get(nth)
                .is_some_and(|mapping| mapping.start <= start && end <= mapping.end)
        };
        let mut has_bridged = false;
        self.ranges.dedup_by(|range, before| {
            let present = range
                .mergeable_gap
                .filter(|_| is_in_one_mapping(before.range.start, range.range.end));
            if let Some(present) = present {
                has_bridged |= present > 0;
                before.range.end = range.range.end;
                before.last = range.last;
                before.pages += present + range.pages;
            }
            present.is_some()
        });
        self.has_bridged |= has_bridged;
    }
}

/// Number of bits of `from..to` that are set.
fn count(bits: &PageBits, from: usize, to: usize) -> u64 {
    let below = |word: usize, entry: usize| match entry.saturating_sub(word * 64) {
        few @ 0..64 => (1_u64 << few) - 1,
        _ => u64::MAX,
    };
    let words = from / 64..to.div_ceil(64);
    words
        .map(|word| u64::from((bits[word] & below(word, to) & !below(word, from)).count_ones()))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_pagetable::{Arch, Layout, Table};

    use crate::pte::page_bits::{PageBits, TABLE_SIZE, is_set};

    const ALL: AddrRange = AddrRange::new(0, 1 << 30);

    fn pages(nths: impl IntoIterator<Item = usize>) -> PageBits {
        let mut pages = [0; 8];
        nths.into_iter()
            .for_each(|nth| pages[nth / 64] |= 1 << (nth % 64));
        pages
    }

    /// Adds a table with entries `present`, of which `clear` are to be cleared and `excluded` must not be.
    fn add(
        ranges: &mut ClearRanges,
        (level, nth): (u8, u64),
        present: PageBits,
        clear: PageBits,
        excluded: PageBits,
    ) {
        let layout = Layout::new(Arch::X86_64, 4, 64 << 30);
        let huge = if level > 0 { 1 << 7 } else { 0 };
        let entries = std::array::from_fn(|nth| {
            if is_set(&present, nth) {
                ((nth as u64 + 512) << 21) | 1 | huge
            } else {
                0
            }
        });
        let table = Table {
            base: Addr(nth * TABLE_SIZE),
            level,
            entries: &entries,
            young: &[0; 8],
        };
        let part = TablePart {
            table: &table,
            layout: &layout,
            leaves: table.leaves(&layout),
        };
        ranges.add(
            &TableToClear {
                part: &part,
                clear,
                excluded,
            },
            ALL,
        );
    }

    /// First page, page after the last one, and number of present pages, of each range.
    fn list(ranges: &ClearRanges) -> Vec<(u64, u64, u64)> {
        let page = |addr: Addr| addr.0 >> 12;
        let ranges = ranges.ranges.iter();
        ranges
            .map(|one| (page(one.range.start), page(one.range.end), one.pages))
            .collect()
    }

    #[test]
    fn gaps_are_bridged_up_to_the_limit() {
        for (gap, expected) in [
            (0, vec![(10, 12, 2), (15, 16, 1), (20, 21, 1), (300, 301, 1)]),
            (3, vec![(10, 16, 6), (20, 21, 1), (300, 301, 1)]),
            (4, vec![(10, 21, 11), (300, 301, 1)]),
            (279, vec![(10, 301, 291)]),
        ] {
            let mut ranges = ClearRanges::new(gap);
            add(
                &mut ranges,
                (0, 0),
                [u64::MAX; 8],
                pages([10, 11, 15, 20, 300]),
                [0; 8],
            );
            assert_eq!(list(&ranges), expected, "{gap}");
            assert_eq!(ranges.has_bridged, gap > 0);
        }
    }

    #[test]
    fn barred_pages_are_not_bridged() {
        let mut ranges = ClearRanges::new(100);
        add(
            &mut ranges,
            (0, 0),
            [u64::MAX; 8],
            pages([10, 12, 14]),
            pages([13]),
        );
        assert_eq!(list(&ranges), [(10, 13, 3), (14, 15, 1)]);
        ranges.bridge_holes(&[ALL]);
        assert_eq!(ranges.ranges.len(), 2);
    }

    #[test]
    fn only_neighbouring_tables_are_bridged() {
        let mut ranges = ClearRanges::new(10);
        for nth in [0, 1, 3] {
            add(&mut ranges, (0, nth), [u64::MAX; 8], pages([4, 510]), [0; 8]);
        }
        let expected = [
            (4, 5, 1),
            (510, 517, 7),
            (1022, 1023, 1),
            (1540, 1541, 1),
            (2046, 2047, 1),
        ];
        assert_eq!(list(&ranges), expected);
    }

    #[test]
    fn holes_are_bridged_within_a_mapping() {
        let present = pages((0..512).filter(|nth| !(20..400).contains(nth)));
        let mut ranges = ClearRanges::new(10);
        add(&mut ranges, (0, 0), present, pages([18, 402, 500, 510]), [0; 8]);
        let apart = [(18, 19, 1), (402, 403, 1), (500, 511, 11)];
        assert_eq!(list(&ranges), apart);
        assert!(!ranges.is_worth_reading_mappings());
        // The kernel fails on a range that spans two mappings with a hole between them.
        ranges.bridge_holes(&[AddrRange::new(0, 100 << 12), AddrRange::new(200 << 12, 512 << 12)]);
        assert_eq!(list(&ranges), apart);
        ranges.bridge_holes(&[ALL]);
        assert_eq!(list(&ranges), [(18, 403, 5), (500, 511, 11)]);
    }

    #[test]
    fn huge_pages_coalesce_only_with_neighbours() {
        let mut ranges = ClearRanges::new(511);
        add(&mut ranges, (1, 0), pages(0..8), pages([1, 2, 5]), [0; 8]);
        // A table of small pages after a table of huge pages.
        add(&mut ranges, (0, 9), [u64::MAX; 8], pages([0]), [0; 8]);
        let expected = [(512, 1536, 0), (2560, 3072, 0), (4608, 4609, 1)];
        assert_eq!(list(&ranges), expected);
    }

    #[test]
    fn count_counts_set_bits_of_range() {
        let bits = pages([0, 63, 64, 127, 128, 511]);
        for (from, to, expected) in [
            (0, 512, 6),
            (1, 511, 4),
            (64, 64, 0),
            (63, 65, 2),
            (65, 127, 0),
            (500, 512, 1),
        ] {
            assert_eq!(count(&bits, from, to), expected, "{from}..{to}");
        }
    }
}
