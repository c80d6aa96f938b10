//! Sets of bytes as lists of ranges: ascending, disjoint, not adjacent.

use thermo_units::{Addr, AddrRange, PAGE_SIZE};

/// The union of `ranges`.
pub(super) fn union(mut ranges: Vec<AddrRange>) -> Vec<AddrRange> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    let mut out: Vec<AddrRange> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

/// Number of bytes in a set.
pub(super) fn length(ranges: &[AddrRange]) -> u64 {
    ranges.iter().map(|range| range.len().0).sum()
}

/// Number of bytes in both sets.
pub(super) fn overlap(a: &[AddrRange], b: &[AddrRange]) -> u64 {
    let (mut sum, mut i, mut j) = (0, 0, 0);
    while let (Some(first), Some(second)) = (a.get(i), b.get(j)) {
        sum += first.intersection(second).map_or(0, |both| both.len().0);
        if first.end <= second.end {
            i += 1;
        } else {
            j += 1;
        }
    }
    sum
}

/// Jaccard similarity: the intersection divided by the union, 0 to 1. Two empty sets have 1.
pub(super) fn similarity(a: &[AddrRange], b: &[AddrRange]) -> f64 {
    let both = overlap(a, b);
    let either = length(a) + length(b) - both;
    if either == 0 {
        1.0
    } else {
        both as f64 / either as f64
    }
}

/// The bytes in `a` that are not in `b`.
pub(super) fn difference(a: &[AddrRange], b: &[AddrRange]) -> Vec<AddrRange> {
    let mut out = Vec::new();
    let mut first = 0;
    for range in a {
        while b.get(first).is_some_and(|cut| cut.end <= range.start) {
            first += 1;
        }
        let mut from = range.start;
        for cut in b[first..].iter().take_while(|cut| cut.start < range.end) {
            out.push(AddrRange {
                start: from,
                end: cut.start.max(from),
            });
            from = from.max(cut.end);
        }
        out.push(AddrRange {
            start: from.min(range.end),
            end: range.end,
        });
    }
    out.retain(|range| !range.is_empty());
    out
}

/// Mean distance in pages of the borders of `truth` from the nearest border of `found`. The distance is at
/// most the length of the range.
pub(super) fn edge_error_pages(found: &[AddrRange], truth: &[AddrRange]) -> Option<f64> {
    let mut borders: Vec<Addr> = found.iter().flat_map(|range| [range.start, range.end]).collect();
    borders.sort_unstable();
    let nearest = |addr: Addr| {
        let at = borders.partition_point(|border| *border < addr);
        let around = borders[at.saturating_sub(1)..].iter().take(2);
        around.map(|border| border.0.abs_diff(addr.0)).min()
    };
    let distances = |range: &AddrRange| {
        let max = range.len().0;
        [range.start, range.end].map(|addr| nearest(addr).unwrap_or(max).min(max) / PAGE_SIZE)
    };
    let all: Vec<u64> = truth.iter().flat_map(distances).collect();
    (!all.is_empty()).then(|| all.iter().sum::<u64>() as f64 / all.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(list: &[(u64, u64)]) -> Vec<AddrRange> {
        list.iter()
            .map(|(start, end)| AddrRange::new(start * 4096, end * 4096))
            .collect()
    }

    #[test]
    fn set_operations_match_expected_ranges() {
        let (a, b) = (pages(&[(0, 10), (20, 30)]), pages(&[(5, 25), (28, 40)]));
        assert_eq!(union([a.clone(), b.clone()].concat()), pages(&[(0, 40)]));
        assert_eq!(union(pages(&[(3, 4), (1, 2), (2, 3), (9, 9)])), pages(&[(1, 4)]));
        assert_eq!(overlap(&a, &b), (5 + 5 + 2) * 4096);
        assert_eq!(difference(&a, &b), pages(&[(0, 5), (25, 28)]));
        assert_eq!(difference(&b, &a), pages(&[(10, 20), (30, 40)]));
        assert_eq!(difference(&a, &[]), a);
        assert_eq!(similarity(&a, &a), 1.0);
        assert_eq!(similarity(&a, &[]), 0.0);
        assert_eq!(similarity(&[], &[]), 1.0);
        assert_eq!(similarity(&pages(&[(0, 10)]), &pages(&[(5, 15)])), 1.0 / 3.0);
    }

    #[test]
    fn edge_error_uses_nearest_found_border() {
        let truth = pages(&[(100, 200)]);
        for (found, expected) in [
            (&[(100, 200)][..], 0.0),
            (&[(98, 206)], 4.0),
            (&[(98, 150), (150, 201)], 1.5),
            (&[], 100.0),
            (&[(9000, 9001)], 100.0),
        ] {
            assert_eq!(
                edge_error_pages(&pages(found), &truth),
                Some(expected),
                "{found:?}"
            );
        }
        assert_eq!(edge_error_pages(&truth, &[]), None);
    }
}
