//! Which addresses of a process are worth monitoring.

use thermo_units::AddrRange;

/// The three-regions rule (`__damon_va_three_regions()`): an address space is a few mapped areas with two huge
/// gaps between them (heap | mmap area | stack). The two largest gaps are left out, everything between is
/// monitored, unmapped holes included.
///
/// `mappings` must be ascending and disjoint. Three ranges, their borders aligned up to pages; none when there
/// are fewer than two gaps, as in a process that is only just starting.
#[must_use]
pub fn three_regions(mappings: &[AddrRange]) -> Vec<AddrRange> {
    let mut largest = [AddrRange::default(); 2];
    for pair in mappings.windows(2) {
        let gap = AddrRange {
            start: pair[0].end,
            end: pair[1].start,
        };
        // Strictly larger: of equal gaps the lower one is kept, as in the kernel.
        if gap.len() > largest[0].len() {
            largest = [gap, largest[0]];
        } else if gap.len() > largest[1].len() {
            largest[1] = gap;
        }
    }
    let (Some(first), Some(last)) = (mappings.first(), mappings.last()) else {
        return Vec::new();
    };
    if largest[1].is_empty() {
        return Vec::new();
    }
    largest.sort_unstable();
    let [low, high] = largest;
    [
        (first.start, low.start),
        (low.end, high.start),
        (high.end, last.end),
    ]
    .into_iter()
    .map(|(start, end)| AddrRange {
        start: start.align_up(),
        end: end.align_up(),
    })
    .filter(|range| !range.is_empty())
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Page numbers, so that tables read easily.
    fn pages(ranges: &[(u64, u64)]) -> Vec<AddrRange> {
        ranges
            .iter()
            .map(|(start, end)| AddrRange::new(start * 4096, end * 4096))
            .collect()
    }

    #[test]
    fn the_two_largest_gaps_are_left_out() {
        // Gaps: 5, 25, 1, 80, 1. The largest two, 25 and 80, part the three areas.
        let mappings = pages(&[(10, 20), (25, 30), (55, 60), (61, 70), (150, 160), (161, 165)]);
        assert_eq!(three_regions(&mappings), pages(&[(10, 30), (55, 70), (150, 165)]));
    }

    #[test]
    fn of_equal_gaps_the_lower_ones_count() {
        let mappings = pages(&[(0, 1), (3, 4), (6, 7), (9, 10)]);
        assert_eq!(three_regions(&mappings), pages(&[(0, 1), (3, 4), (6, 10)]));
    }

    #[test]
    fn fewer_than_two_gaps_say_nothing_yet() {
        assert!(three_regions(&[]).is_empty());
        assert!(three_regions(&pages(&[(1, 2)])).is_empty());
        assert!(three_regions(&pages(&[(1, 2), (5, 6)])).is_empty());
        assert!(three_regions(&pages(&[(1, 2), (2, 3), (9, 10)])).is_empty());
    }
}
