//! The targets of a context and where their regions lie.

use crate::access_tables::AccessTables;
use crate::ops::TargetLayout;
use crate::region::Region;
use crate::scan::{Condensed, Cursor, PageStates};
use crate::target_id::TargetId;
use thermo_units::Bytes;
use thermo_units::{Addr, AddrRange, PAGE_SIZE};

/// One target with its regions.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) id: TargetId,
    pub(crate) pid: Option<u32>,
    /// What to monitor of it: ascending, disjoint, page-aligned.
    pub(crate) ranges: Vec<AddrRange>,
    /// Ascending, disjoint, page-aligned.
    pub(crate) regions: Vec<Region>,
    /// What is known page by page; empty while it is sampled.
    pub(crate) states: PageStates,
    /// Where its scan is.
    pub(crate) cursor: Cursor,
    /// What its regions are derived from.
    pub(crate) condensed: Condensed,
    /// The page-exact results of the last snapshot.
    pub(crate) tables: Option<AccessTables>,
    /// Resident bytes in regions that hold pages which are not alike.
    pub(crate) averaged: Bytes,
    /// How much of it is resident; none where that is not known.
    pub(crate) resident: Option<Bytes>,
    /// Whether its scan waits. See [`TargetLayout::defer_scan`].
    pub(crate) defer_scan: bool,
}

impl Target {
    /// A target of which nothing is known.
    pub(crate) fn new(layout: TargetLayout, regions: Vec<Region>) -> Self {
        let mut target = Self {
            id: layout.id,
            pid: layout.pid,
            ranges: Vec::new(),
            regions,
            states: PageStates::new(layout.is_new),
            cursor: Cursor::default(),
            condensed: Condensed::default(),
            tables: None,
            averaged: Bytes::ZERO,
            resident: None,
            defer_scan: false,
        };
        target.update(layout);
        target
    }

    /// Takes over what is known of it now. What becomes of its regions is the caller's.
    pub(crate) fn update(&mut self, layout: TargetLayout) {
        self.resident = layout.resident;
        self.defer_scan = layout.defer_scan;
        self.ranges = layout.ranges;
        self.states.set_backings(layout.backings);
    }

    /// What it counts for beside others: how much of it is resident, or else all that it maps.
    pub(crate) fn weight(&self) -> Bytes {
        let mapped = || self.ranges.iter().map(AddrRange::len).sum();
        self.resident.unwrap_or_else(mapped)
    }

    /// Forgets what is known page by page.
    pub(crate) fn forget_pages(&mut self) {
        self.states = PageStates::default();
        self.cursor = Cursor::default();
        self.condensed = Condensed::default();
        self.regions.iter_mut().for_each(|region| region.resident = None);
    }

    /// One with these regions and no place of its own, to be worked on.
    #[cfg(test)]
    pub(crate) fn of(regions: Vec<Region>) -> Self {
        let layout = TargetLayout::new(TargetId(0), None, Vec::new());
        Self::new(layout, regions)
    }

    /// Bytes its regions cover.
    pub(crate) fn len(&self) -> Bytes {
        self.regions.iter().map(Region::len).sum()
    }

    /// Makes the regions cover exactly `ranges` (`damon_set_regions()`): what lies outside is dropped, what is
    /// new gets regions that know nothing yet, what stays keeps its history.
    pub(crate) fn set_ranges(&mut self, ranges: &[AddrRange]) {
        let mut next = Vec::with_capacity(self.regions.len() + ranges.len());
        // Both ascend, and there may be a million of either.
        let mut regions = self.regions.as_slice();
        for range in ranges {
            regions = &regions[regions.partition_point(|region| region.range.end <= range.start)..];
            let mut covered = range.start;
            for region in regions.iter().take_while(|region| region.range.start < range.end) {
                let mut region = region.clone();
                // A region over two ranges is cut to each in turn.
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

/// Covers `start..end`, which no region covers: by stretching the last region of the same range to it when that
/// is its neighbour and the gap is at the range's end or beginning, by a new region otherwise.
///
/// The kernel stretches the first and last region of a range to its borders; a mapping that grows (a heap) thus
/// keeps its history instead of beginning a new region every update.
fn fill(regions: &mut Vec<Region>, start: Addr, end: Addr, range_start: Addr) {
    match regions.last_mut() {
        // Growth by less than the region itself: assume it is more of the same.
        Some(last)
            if last.range.end == start && last.range.start >= range_start && end - start <= last.len() =>
        {
            last.range.end = end;
        }
        _ => regions.push(Region::new(AddrRange { start, end })),
    }
}

/// First regions for `ranges`: pieces of about `sz` bytes, as even as whole pages allow.
pub(crate) fn lay_out(ranges: &[AddrRange], sz: Bytes) -> Vec<Region> {
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

    /// A target whose regions lie at `ranges`; each remembers its index as its age, so that history shows.
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
    fn first_regions_are_even_and_the_last_takes_the_rest() {
        let regions = lay_out(&pages(&[(0, 10)]), Bytes(3 * 4096));
        let lens: Vec<u64> = regions.iter().map(|r| r.len().0 / 4096).collect();
        assert_eq!(lens, [3, 3, 4]);
        assert_eq!(lay_out(&pages(&[(5, 6)]), Bytes(10 * 4096)).len(), 1);
    }

    #[test]
    fn the_same_ranges_change_nothing() {
        let mut target = target(&[(10, 20), (20, 30), (50, 60)]);
        target.set_ranges(&pages(&[(10, 30), (50, 60)]));
        assert_eq!(shape(&target), [(10, 20, 1), (20, 30, 2), (50, 60, 3)]);
    }

    #[test]
    fn what_is_unmapped_goes_and_what_stays_keeps_its_history() {
        let mut target = target(&[(10, 20), (20, 30), (50, 60)]);
        target.set_ranges(&pages(&[(15, 25)]));
        assert_eq!(shape(&target), [(15, 20, 1), (20, 25, 2)]);
    }

    #[test]
    fn a_little_growth_stretches_and_much_growth_is_new() {
        let mut grown = target(&[(10, 20)]);
        grown.set_ranges(&pages(&[(10, 25)]));
        assert_eq!(shape(&grown), [(10, 25, 1)]);
        let mut doubled = target(&[(10, 20)]);
        doubled.set_ranges(&pages(&[(5, 40)]));
        assert_eq!(shape(&doubled), [(5, 10, 0), (10, 20, 1), (20, 40, 0)]);
    }

    #[test]
    fn holes_between_regions_are_filled() {
        let mut target = target(&[(10, 12), (18, 20)]);
        target.set_ranges(&pages(&[(10, 20), (30, 40)]));
        assert_eq!(
            shape(&target),
            [(10, 12, 1), (12, 18, 0), (18, 20, 2), (30, 40, 0)]
        );
    }

    #[test]
    fn a_region_over_two_ranges_is_cut_to_both() {
        let mut target = target(&[(10, 40)]);
        target.set_ranges(&pages(&[(10, 20), (30, 40)]));
        assert_eq!(shape(&target), [(10, 20, 1), (30, 40, 1)]);
    }
}
