//! Chooses the address ranges of a process to monitor.

use thermo_units::AddrRange;

/// Returns the three regions of an address space, as the kernel's `__damon_va_three_regions()` does: heap,
/// mmap area and stack, separated by the two largest gaps. Smaller unmapped gaps are part of a region.
///
/// `mappings` must be ascending and disjoint. The borders are aligned up to pages. The result is empty if
/// there are fewer than two gaps, as in a process that is just starting.
#[must_use]
pub fn three_regions(mappings: &[AddrRange]) -> Vec<AddrRange> {
    let mut largest = [AddrRange::default(); 2];
    for pair in mappings.windows(2) {
        let gap = AddrRange {
            start: pair[0].end,
            end: pair[1].start,
        };
        // Strictly larger: among equal gaps the lower one wins, as in the kernel.
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

    /// Ranges given in page numbers.
    fn pages(ranges: &[(u64, u64)]) -> Vec<AddrRange> {
        ranges
            .iter()
            .map(|(start, end)| AddrRange::new(start * 4096, end * 4096))
            .collect()
    }

    #[test]
    fn three_regions_exclude_the_two_largest_gaps() {
        // Gaps: 5, 25, 1, 80, 1. The two largest, 25 and 80, separate the three regions.
        let mappings = pages(&[(10, 20), (25, 30), (55, 60), (61, 70), (150, 160), (161, 165)]);
        assert_eq!(three_regions(&mappings), pages(&[(10, 30), (55, 70), (150, 165)]));
    }

    #[test]
    fn three_regions_prefer_lower_gaps_of_equal_size() {
        let mappings = pages(&[(0, 1), (3, 4), (6, 7), (9, 10)]);
        assert_eq!(three_regions(&mappings), pages(&[(0, 1), (3, 4), (6, 10)]));
    }

    #[test]
    fn three_regions_are_empty_with_fewer_than_two_gaps() {
        assert!(three_regions(&[]).is_empty());
        assert!(three_regions(&pages(&[(1, 2)])).is_empty());
        assert!(three_regions(&pages(&[(1, 2), (5, 6)])).is_empty());
        assert!(three_regions(&pages(&[(1, 2), (2, 3), (9, 10)])).is_empty());
    }
}
