//! The targets of a context and their regions.

use std::sync::Arc;

use crate::access_tables::AccessTables;
use crate::ops::TargetLayout;
use crate::region::Region;
use crate::scan::{Aliases, CoalescedRuns, Cursor, PageStates};
use crate::target_id::TargetId;
use thermo_units::Bytes;
use thermo_units::{Addr, AddrRange, PAGE_SIZE};

/// One target with its regions.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) id: TargetId,
    pub(crate) pid: Option<u32>,
    /// Monitored address ranges: ascending, disjoint, page-aligned.
    pub(crate) ranges: Arc<[AddrRange]>,
    /// Regions: ascending, disjoint, page-aligned.
    pub(crate) regions: Vec<Region>,
    /// Page states of full scans; empty while the target is sampled.
    pub(crate) states: PageStates,
    /// Memory that is mapped more than once.
    pub(crate) aliases: Aliases,
    /// Position of the scan.
    pub(crate) cursor: Cursor,
    /// What its regions are derived from.
    pub(crate) coalesced: CoalescedRuns,
    /// The page-exact results of the last snapshot.
    pub(crate) tables: Option<AccessTables>,
    /// Resident bytes in regions that average differing pages.
    pub(crate) averaged: Bytes,
    /// Resident bytes, hugetlb pages included; `None` if unknown.
    pub(crate) resident: Option<Bytes>,
    /// Bytes in hugetlb pages.
    pub(crate) hugetlb: Bytes,
}

impl Target {
    /// A target without page states.
    pub(crate) fn new(layout: TargetLayout, regions: Vec<Region>) -> Self {
        let mut target = Self {
            id: layout.id,
            pid: layout.pid,
            ranges: Arc::default(),
            regions,
            states: PageStates::new(layout.is_new),
            aliases: Aliases::default(),
            cursor: Cursor::default(),
            coalesced: CoalescedRuns::default(),
            tables: None,
            averaged: Bytes::ZERO,
            resident: None,
            hugetlb: Bytes::ZERO,
        };
        target.update(layout);
        target
    }

    /// Takes over a new layout. The caller updates the regions.
    pub(crate) fn update(&mut self, layout: TargetLayout) {
        self.resident = layout.resident;
        self.hugetlb = layout.hugetlb;
        self.ranges = layout.ranges;
        self.states.set_backings(layout.backings);
        self.aliases.set(layout.aliases);
    }

    /// Weight among targets: resident bytes, or mapped bytes if those are unknown.
    pub(crate) fn weight(&self) -> Bytes {
        let mapped = || self.ranges.iter().map(AddrRange::len).sum();
        self.resident.unwrap_or_else(mapped)
    }

    /// Drops the page states and everything derived from them.
    pub(crate) fn clear_page_states(&mut self) {
        self.states = PageStates::default();
        self.cursor = Cursor::default();
        self.coalesced = CoalescedRuns::default();
        self.regions.iter_mut().for_each(|region| region.resident = None);
    }

    /// A target with these regions and no address ranges, for tests.
    #[cfg(test)]
    pub(crate) fn with_regions(regions: Vec<Region>) -> Self {
        let layout = TargetLayout::new(TargetId(0), None, Vec::new());
        Self::new(layout, regions)
    }

    /// Bytes covered by the regions.
    pub(crate) fn len(&self) -> Bytes {
        self.regions.iter().map(Region::len).sum()
    }

    /// Makes the regions cover exactly `ranges` (`damon_set_regions()`). Memory outside `ranges` is dropped.
    /// New memory gets new regions. All other memory keeps its access counts and ages.
    pub(crate) fn set_ranges(&mut self, ranges: &[AddrRange]) {
        let mut next = Vec::with_capacity(self.regions.len() + ranges.len());
        // Both lists are ascending and may have a million entries, so one pass handles both.
        let mut regions = self.regions.as_slice();
        for range in ranges {
            regions = &regions[regions.partition_point(|region| region.range.end <= range.start)..];
            let mut covered = range.start;
            for region in regions.iter().take_while(|region| region.range.start < range.end) {
                let mut region = region.clone();
                // A region across two ranges becomes one region in each.
                region.range.start = region.range.start.max(range.start);
                region.range.end = region.range.end.min(range.end);
                if region.range.start > covered {
                    fill(&mut next, covered, region.range.start, range.start);
                }
                covered = region.range.end;
                next.push(region);
            }
            if covered < range.end {
                fill(&mut next, covered, range.end, range.start);
            }
        }
        self.regions = next;
    }
}

/// Covers the gap `start..end`: extends the adjacent region on the left if it lies in the same range and is
/// at least as long as the gap, or else adds a new region.
///
/// The kernel extends the first and last region of a range to the ends of the range. A growing mapping (a
/// heap) thus keeps its history and does not get a new region at every update.
fn fill(regions: &mut Vec<Region>, start: Addr, end: Addr, range_start: Addr) {
    match regions.last_mut() {
        // The mapping grew by at most the size of the region: assume the same access pattern.
        Some(last)
            if last.range.end == start && last.range.start >= range_start && end - start <= last.len() =>
        {
            last.range.end = end;
        }
        _ => regions.push(Region::new(AddrRange { start, end })),
    }
}

/// Initial regions for `ranges`: equal pieces of about `sz` bytes, in whole pages.
pub(crate) fn initial_regions(ranges: &[AddrRange], sz: Bytes) -> Vec<Region> {
    let mut regions = Vec::new();
    for range in ranges {
        let pieces = (range.len().0 / sz.0.max(PAGE_SIZE)).max(1);
        let piece = Addr(range.len().0 / pieces).align_down().0.max(PAGE_SIZE);
        for nth in 0..pieces {
            let start = range.start.0 + nth * piece;
            let end = if nth + 1 == pieces {
                range.end.0
            } else {
                start + piece
            };
            regions.push(Region::new(AddrRange::new(start, end)));
        }
    }
    regions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(ranges: &[(u64, u64)]) -> Vec<AddrRange> {
        ranges
            .iter()
            .map(|(start, end)| AddrRange::new(start * 4096, end * 4096))
            .collect()
    }

    /// A target with one region for each of `ranges`. The age of a region is its index + 1, to identify it
    /// later.
    fn target(ranges: &[(u64, u64)]) -> Target {
        let aged = |(age, range): (usize, AddrRange)| Region {
            age: u32::try_from(age + 1).unwrap_or(0),
            ..Region::new(range)
        };
        let layout = TargetLayout::new(TargetId(0), None, pages(ranges));
        let regions = layout.ranges.iter().copied().enumerate().map(aged).collect();
        Target::new(layout, regions)
    }

    fn shape(target: &Target) -> Vec<(u64, u64, u32)> {
        target
            .regions
            .iter()
            .map(|r| (r.range.start.0 / 4096, r.range.end.0 / 4096, r.age))
            .collect()
    }

    #[test]
    fn initial_regions_are_even_except_the_last() {
        let regions = initial_regions(&pages(&[(0, 10)]), Bytes(3 * 4096));
        let lens: Vec<u64> = regions.iter().map(|r| r.len().0 / 4096).collect();
        assert_eq!(lens, [3, 3, 4]);
        assert_eq!(initial_regions(&pages(&[(5, 6)]), Bytes(10 * 4096)).len(), 1);
    }

    #[test]
    fn set_ranges_keeps_regions_of_same_ranges() {
        let mut target = target(&[(10, 20), (20, 30), (50, 60)]);
        target.set_ranges(&pages(&[(10, 30), (50, 60)]));
        assert_eq!(shape(&target), [(10, 20, 1), (20, 30, 2), (50, 60, 3)]);
    }

    #[test]
    fn set_ranges_drops_unmapped_and_keeps_history() {
        let mut target = target(&[(10, 20), (20, 30), (50, 60)]);
        target.set_ranges(&pages(&[(15, 25)]));
        assert_eq!(shape(&target), [(15, 20, 1), (20, 25, 2)]);
    }

    #[test]
    fn set_ranges_extends_region_for_small_growth() {
        let mut grown = target(&[(10, 20)]);
        grown.set_ranges(&pages(&[(10, 25)]));
        assert_eq!(shape(&grown), [(10, 25, 1)]);
        let mut doubled = target(&[(10, 20)]);
        doubled.set_ranges(&pages(&[(5, 40)]));
        assert_eq!(shape(&doubled), [(5, 10, 0), (10, 20, 1), (20, 40, 0)]);
    }

    #[test]
    fn set_ranges_fills_gaps_between_regions() {
        let mut target = target(&[(10, 12), (18, 20)]);
        target.set_ranges(&pages(&[(10, 20), (30, 40)]));
        assert_eq!(
            shape(&target),
            [(10, 12, 1), (12, 18, 0), (18, 20, 2), (30, 40, 0)]
        );
    }

    #[test]
    fn set_ranges_splits_region_across_two_ranges() {
        let mut target = target(&[(10, 40)]);
        target.set_ranges(&pages(&[(10, 20), (30, 40)]));
        assert_eq!(shape(&target), [(10, 20, 1), (30, 40, 1)]);
    }
}
