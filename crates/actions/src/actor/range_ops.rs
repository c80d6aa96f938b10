//! Operations on sorted address ranges: subtract, split, align.

use smallvec::SmallVec;
use thermo_units::{Addr, AddrRange, Bytes};

/// The ranges of one plan. A single range needs no allocation.
pub(super) type Ranges = SmallVec<[AddrRange; 1]>;

/// The parts of `ranges` outside of all `holes`. Both are ascending; `ranges` are disjoint.
pub(super) fn without(ranges: &[AddrRange], holes: &[AddrRange]) -> Vec<AddrRange> {
    let mut rest = Vec::with_capacity(ranges.len() + holes.len());
    for range in ranges {
        let mut from = range.start;
        let first = holes.partition_point(|hole| hole.end <= range.start);
        for hole in holes[first..].iter().take_while(|hole| hole.start < range.end) {
            let end = hole.start.max(from);
            AddrRange { start: from, end }.coalesce_into(&mut rest);
            from = from.max(hole.end);
        }
        let (start, end) = (from.min(range.end), range.end);
        AddrRange { start, end }.coalesce_into(&mut rest);
    }
    rest
}

/// Splits `ranges` into pieces of at most `max` bytes.
pub(super) fn cut(ranges: &[AddrRange], max: Bytes) -> Vec<AddrRange> {
    pieces(ranges, max).collect()
}

/// Iterator version of [`cut`].
pub(super) fn pieces(ranges: &[AddrRange], max: Bytes) -> impl Iterator<Item = AddrRange> {
    ranges.iter().flat_map(move |range| {
        let starts = (range.start.0..range.end.0).step_by(max.0 as usize);
        starts.map(move |start| AddrRange::new(start, range.end.0.min(start.saturating_add(max.0))))
    })
}

/// The whole units of `unit` bytes (a power of two), aligned to their size, in `ranges`.
pub(super) fn aligned_units(ranges: &[AddrRange], unit: Bytes) -> Vec<AddrRange> {
    let units = ranges.iter().flat_map(|range| {
        let first = range.start.0.next_multiple_of(unit.0);
        (first..range.end.0)
            .step_by(unit.0 as usize)
            .filter_map(move |start| {
                let whole = AddrRange {
                    start: Addr(start),
                    end: Addr(start) + unit,
                };
                (whole.end <= range.end).then_some(whole)
            })
    });
    units.collect()
}

/// The leading `ranges` (ascending by start) with gaps of at most `gap` that fit in `max` bytes: their common
/// span, and their number. The first range is always included.
pub(super) fn near(ranges: &[AddrRange], gap: Bytes, max: Bytes) -> (AddrRange, usize) {
    let mut span = ranges.first().copied().unwrap_or_default();
    let more = ranges.iter().skip(1).take_while(|range| {
        let end = span.end.max(range.end);
        let is_near = range.start <= span.end + gap && end - span.start <= max;
        if is_near {
            span.end = end;
        }
        is_near
    });
    let nr = ranges.len().min(1 + more.count());
    (span, nr)
}

/// The total size of `ranges`.
pub(super) fn sum(ranges: &[AddrRange]) -> Bytes {
    ranges.iter().map(AddrRange::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(pairs: &[(u64, u64)]) -> Vec<AddrRange> {
        pairs
            .iter()
            .map(|(start, end)| AddrRange::new(*start, *end))
            .collect()
    }

    #[test]
    fn without_subtracts_holes() {
        let whole = ranges(&[(0, 10), (20, 30)]);
        for (holes, rest) in [
            (vec![], vec![(0, 10), (20, 30)]),
            (vec![(2, 4)], vec![(0, 2), (4, 10), (20, 30)]),
            (vec![(0, 10)], vec![(20, 30)]),
            (vec![(8, 22)], vec![(0, 8), (22, 30)]),
            (vec![(0, 40)], vec![]),
            (vec![(1, 2), (2, 3), (28, 35)], vec![(0, 1), (3, 10), (20, 28)]),
            // Holes may overlap, e.g. a huge page and its pages.
            (vec![(1, 9), (2, 3)], vec![(0, 1), (9, 10), (20, 30)]),
        ] {
            assert_eq!(without(&whole, &ranges(&holes)), ranges(&rest), "{holes:?}");
        }
    }

    #[test]
    fn near_stops_at_gap_and_size() {
        let all = ranges(&[(0, 10), (2, 3), (12, 14), (17, 20)]);
        let near = |from: usize, gap, max| {
            let (span, nr) = near(&all[from..], Bytes(gap), Bytes(max));
            (span.start.0, span.end.0, nr)
        };
        assert_eq!(near(0, 2, 100), (0, 14, 3));
        assert_eq!(near(0, 3, 100), (0, 20, 4));
        assert_eq!(near(0, 3, 14), (0, 14, 3));
        assert_eq!(near(0, 3, 1), (0, 10, 1), "the first, however large");
        assert_eq!(near(3, 3, 1), (17, 20, 1));
        assert_eq!(near(4, 3, 1), (0, 0, 0));
    }

    #[test]
    fn cut_and_aligned_units_split_ranges() {
        assert_eq!(
            cut(&ranges(&[(1, 8)]), Bytes(3)),
            ranges(&[(1, 4), (4, 7), (7, 8)])
        );
        assert_eq!(
            aligned_units(&ranges(&[(1, 12), (16, 24)]), Bytes(4)),
            ranges(&[(4, 8), (8, 12), (16, 20), (20, 24)])
        );
        assert_eq!(aligned_units(&ranges(&[(1, 7)]), Bytes(4)), []);
        assert_eq!(sum(&ranges(&[(1, 8), (9, 10)])), Bytes(8));
    }
}
