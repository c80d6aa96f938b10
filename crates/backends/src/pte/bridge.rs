//! Joining the pages whose accessed bits are to be cleared to ranges, over gaps of pages that need not be cleared.
//!
//! A range costs as much as 100 to 200 pages when the target runs (`gap_cost.rs`), so a gap of up to so many present pages
//! is cleared with the pages around it; absent pages cost nothing. Never bridged are pages whose accessed bits are left on
//! purpose (spot checks) or that the kernel is known not to clear, huge pages, and places without a page-table page.
//!
//! A page in a gap loses an accessed bit that was set between the reading of its table and the clearing. Scans read and
//! clear in stripes to keep that time short.
//!
//! Where pages are absent there may be no mapping, and the kernel fails a range that has a hole. So such gaps are bridged
//! in a second step ([`Ranges::bridge_holes`]) within one mapping, and only where that saves more than reading the list of
//! mappings costs.

use thermo_pagetable::{Leaf, ones};
use thermo_units::{Addr, AddrRange};

use super::part::Part;
use super::table::Pages;

/// Reading the mappings of a process costs about as much as clearing this many ranges.
const WORTH_MAPPINGS: usize = 16;

/// Neighbouring memory to be cleared by one range of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    pub(super) range: AddrRange,
    /// The leaves that map its ends: their folios may reach beyond.
    pub(super) first: Leaf,
    pub(super) last: Leaf,
    /// Small pages present in it.
    pub(super) pages: u64,
    /// Present pages between the stretch before and this one, when only absent pages kept them apart.
    holes_before: Option<u64>,
}

/// The pages of a table to clear, and those around them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marked<'a> {
    pub(super) part: &'a Part<'a>,
    /// Accessed bits to clear.
    pub(super) clear: Pages,
    /// Pages that must not be touched.
    pub(super) barred: Pages,
}

/// What lies behind the last page to clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gap {
    end: Addr,
    present: u64,
    has_holes: bool,
    is_barred: bool,
}

/// The ranges of a stripe, in the order of tables.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// Gaps of up to so many present pages are bridged.
    pub(super) gap: u64,
    pub(super) stretches: Vec<Stretch>,
    /// Whether a gap with present pages was bridged.
    pub(super) has_bridged: bool,
    behind: Option<Gap>,
}

impl Ranges {
    pub(super) fn new(gap: u64) -> Self {
        Self {
            gap,
            ..Self::default()
        }
    }

    /// Adds the pages of a table.
    pub(super) fn add(&mut self, marked: &Marked<'_>, within: AddrRange) {
        if marked.part.table.level > 0 {
            self.behind = None;
            return marked.part.each_of(ones(marked.clear), within, &mut |at, leaf| {
                self.add_huge(at, leaf)
            });
        }
        let base = marked.part.table.base;
        self.behind = self.behind.filter(|gap| gap.end == base);
        let mut next = 0;
        for nth in ones(marked.clear) {
            self.widen(marked, next, nth);
            marked
                .part
                .each_of(std::iter::once(nth), within, &mut |at, leaf| {
                    self.add_page(at, leaf)
                });
            next = nth + 1;
        }
        self.widen(marked, next, 512);
    }

    /// Adds the entries `from..to` of a table, none of which is to be cleared, to what lies behind the last page.
    fn widen(&mut self, marked: &Marked<'_>, from: usize, to: usize) {
        if let Some(gap) = &mut self.behind {
            let present = count(&marked.part.leaves.there, from, to);
            gap.present += present;
            gap.has_holes |= present < (to - from) as u64;
            gap.is_barred |= count(&marked.barred, from, to) > 0;
            gap.end = marked.part.table.range(to).start;
        }
    }

    fn add_page(&mut self, at: AddrRange, leaf: Leaf) {
        let gap = self.behind.replace(Gap {
            end: at.end,
            present: 0,
            has_holes: false,
            is_barred: false,
        });
        let gap = gap.filter(|gap| !gap.is_barred && gap.present <= self.gap && gap.end == at.start);
        match (self.stretches.last_mut(), gap) {
            (Some(last), Some(gap)) if !gap.has_holes => {
                self.has_bridged |= gap.present > 0;
                last.range.end = at.end;
                last.last = leaf;
                last.pages += gap.present + 1;
            }
            _ => self.stretches.push(Stretch {
                range: at,
                first: leaf,
                last: leaf,
                pages: 1,
                holes_before: gap
                    .filter(|gap| gap.has_holes && self.gap > 0)
                    .map(|gap| gap.present),
            }),
        }
    }

    /// Huge pages are joined with their neighbours alone.
    fn add_huge(&mut self, at: AddrRange, leaf: Leaf) {
        match self.stretches.last_mut() {
            Some(last) if last.range.end == at.start && last.last.level == leaf.level => {
                last.range.end = at.end;
                last.last = leaf;
            }
            _ => self.stretches.push(Stretch {
                range: at,
                first: leaf,
                last: leaf,
                pages: 0,
                holes_before: None,
            }),
        }
    }

    /// Whether bridging absent pages would save enough.
    pub(super) fn are_worth_mappings(&self) -> bool {
        let bridged = self
            .stretches
            .iter()
            .filter(|stretch| stretch.holes_before.is_some());
        bridged.count() >= WORTH_MAPPINGS
    }

    /// Joins what absent pages keep apart within one of `mappings`, which ascend.
    pub(super) fn bridge_holes(&mut self, mappings: &[AddrRange]) {
        let is_of_one = |start: Addr, end: Addr| {
            let nth = mappings.partition_point(|mapping| mapping.end <= start);
            mappings
                .get(nth)
                .is_some_and(|mapping| mapping.start <= start && end <= mapping.end)
        };
        let mut has_bridged = false;
        self.stretches.dedup_by(|stretch, before| {
            let joins = stretch
                .holes_before
                .filter(|_| is_of_one(before.range.start, stretch.range.end));
            if let Some(present) = joins {
                has_bridged |= present > 0;
                before.range.end = stretch.range.end;
                before.last = stretch.last;
                before.pages += present + stretch.pages;
            }
            joins.is_some()
        });
        self.has_bridged |= has_bridged;
    }
}

/// How many of the entries `from..to` are set in `bits`.
fn count(bits: &Pages, from: usize, to: usize) -> u64 {
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

    use crate::pte::table::{Pages, TABLE, is_set};

    const ALL: AddrRange = AddrRange::new(0, 1 << 30);

    fn pages(of: impl IntoIterator<Item = usize>) -> Pages {
        let mut pages = [0; 8];
        of.into_iter().for_each(|nth| pages[nth / 64] |= 1 << (nth % 64));
        pages
    }

    /// Adds a table whose entries `present` are there, of which `clear` are to be cleared and `barred` not to be touched.
    fn add(ranges: &mut Ranges, (level, nth): (u8, u64), present: Pages, clear: Pages, barred: Pages) {
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
            base: Addr(nth * TABLE),
            level,
            entries: &entries,
            young: &[0; 8],
        };
        let part = Part {
            table: &table,
            layout: &layout,
            leaves: table.leaves(&layout),
        };
        ranges.add(
            &Marked {
                part: &part,
                clear,
                barred,
            },
            ALL,
        );
    }

    /// First page, page behind the last one and pages that are there, of each range.
    fn found(ranges: &Ranges) -> Vec<(u64, u64, u64)> {
        let page = |addr: Addr| addr.0 >> 12;
        let stretches = ranges.stretches.iter();
        stretches
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
            let mut ranges = Ranges::new(gap);
            add(
                &mut ranges,
                (0, 0),
                [u64::MAX; 8],
                pages([10, 11, 15, 20, 300]),
                [0; 8],
            );
            assert_eq!(found(&ranges), expected, "{gap}");
            assert_eq!(ranges.has_bridged, gap > 0);
        }
    }

    #[test]
    fn barred_pages_are_not_bridged() {
        let mut ranges = Ranges::new(100);
        add(
            &mut ranges,
            (0, 0),
            [u64::MAX; 8],
            pages([10, 12, 14]),
            pages([13]),
        );
        assert_eq!(found(&ranges), [(10, 13, 3), (14, 15, 1)]);
        ranges.bridge_holes(&[ALL]);
        assert_eq!(ranges.stretches.len(), 2);
    }

    #[test]
    fn neighbouring_tables_are_bridged_and_others_are_not() {
        let mut ranges = Ranges::new(10);
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
        assert_eq!(found(&ranges), expected);
    }

    #[test]
    fn absent_pages_cost_nothing_within_a_mapping() {
        let present = pages((0..512).filter(|nth| !(20..400).contains(nth)));
        let mut ranges = Ranges::new(10);
        add(&mut ranges, (0, 0), present, pages([18, 402, 500, 510]), [0; 8]);
        let apart = [(18, 19, 1), (402, 403, 1), (500, 511, 11)];
        assert_eq!(found(&ranges), apart);
        assert!(!ranges.are_worth_mappings());
        // The kernel refuses a range with a hole between mappings.
        ranges.bridge_holes(&[AddrRange::new(0, 100 << 12), AddrRange::new(200 << 12, 512 << 12)]);
        assert_eq!(found(&ranges), apart);
        ranges.bridge_holes(&[ALL]);
        assert_eq!(found(&ranges), [(18, 403, 5), (500, 511, 11)]);
    }

    #[test]
    fn huge_pages_are_joined_with_neighbours_alone() {
        let mut ranges = Ranges::new(511);
        add(&mut ranges, (1, 0), pages(0..8), pages([1, 2, 5]), [0; 8]);
        // A table of small pages behind a huge one, which comes later.
        add(&mut ranges, (0, 9), [u64::MAX; 8], pages([0]), [0; 8]);
        let expected = [(512, 1536, 0), (2560, 3072, 0), (4608, 4609, 1)];
        assert_eq!(found(&ranges), expected);
    }

    #[test]
    fn entries_are_counted_between_two() {
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
