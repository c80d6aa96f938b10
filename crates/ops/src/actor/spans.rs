//! Ranges in order: joining pages to ranges, taking ranges out of ranges, cutting them to the size of a call.

use thermo_core::{Addr, AddrRange, Bytes};

/// Adds `range` behind the last of `ranges`, joined to it where they touch.
pub(super) fn push(ranges: &mut Vec<AddrRange>, range: AddrRange) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ if range.is_empty() => {}
        _ => ranges.push(range),
    }
}

/// What of `ranges` lies in none of `holes`. Both ascending, `ranges` disjoint.
pub(super) fn without(ranges: &[AddrRange], holes: &[AddrRange]) -> Vec<AddrRange> {
    let mut rest = Vec::with_capacity(ranges.len() + holes.len());
    for range in ranges {
        let mut from = range.start;
        let first = holes.partition_point(|hole| hole.end <= range.start);
        for hole in holes[first..].iter().take_while(|hole| hole.start < range.end) {
            push(
                &mut rest,
                AddrRange {
                    start: from,
                    end: hole.start.max(from),
                },
            );
            from = from.max(hole.end);
        }
        push(
            &mut rest,
            AddrRange {
                start: from.min(range.end),
                end: range.end,
            },
        );
    }
    rest
}

/// The same memory in pieces of at most `most` bytes.
pub(super) fn cut(ranges: &[AddrRange], most: Bytes) -> Vec<AddrRange> {
    let pieces = ranges.iter().flat_map(|range| {
        let starts = (range.start.0..range.end.0).step_by(most.0 as usize);
        starts.map(|start| AddrRange::new(start, range.end.0.min(start.saturating_add(most.0))))
    });
    pieces.collect()
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

/// How many bytes they hold together.
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
    fn holes_are_taken_out() {
        let whole = ranges(&[(0, 10), (20, 30)]);
        for (holes, rest) in [
            (vec![], vec![(0, 10), (20, 30)]),
            (vec![(2, 4)], vec![(0, 2), (4, 10), (20, 30)]),
            (vec![(0, 10)], vec![(20, 30)]),
            (vec![(8, 22)], vec![(0, 8), (22, 30)]),
            (vec![(0, 40)], vec![]),
            (vec![(1, 2), (2, 3), (28, 35)], vec![(0, 1), (3, 10), (20, 28)]),
            // Holes may overlap: huge pages and pages of them.
            (vec![(1, 9), (2, 3)], vec![(0, 1), (9, 10), (20, 30)]),
        ] {
            assert_eq!(without(&whole, &ranges(&holes)), ranges(&rest), "{holes:?}");
        }
    }

    #[test]
    fn pieces_and_units() {
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
