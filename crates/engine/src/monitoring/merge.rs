//! The end of an aggregation: regions age, and neighbours that are accessed alike become one.

use super::target::Target;
use crate::region::Region;
use thermo_units::Bytes;

/// How far merging may go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MergeLimits {
    /// The most regions there may be afterwards.
    pub(crate) max_nr_regions: usize,
    /// The most `nr_accesses` can be: the largest difference there is.
    pub(crate) max_nr_accesses: u32,
    /// No region grows past this by merging, so that the least number of regions stays possible.
    pub(crate) sz_limit: Bytes,
}

/// Ages every region of targets, then merges neighbours whose access counts differ by at most a tenth of the largest
/// count; when that leaves more than `max_nr_regions`, again with ever larger differences, and in the end whether
/// something is known of them or not.
pub(crate) fn merge_and_age(targets: &mut [Target], limits: MergeLimits) {
    let highest = targets
        .iter()
        .flat_map(|t| &t.regions)
        .map(|r| r.nr_accesses)
        .max()
        .unwrap_or(0);
    let (mut threshold, mut apart) = (highest / 10, true);
    for region in targets.iter_mut().flat_map(|t| &mut t.regions) {
        grow_older(region, threshold);
    }
    loop {
        for target in targets.iter_mut() {
            merge(&mut target.regions, threshold, apart, limits.sz_limit);
        }
        let count: usize = targets.iter().map(|t| t.regions.len()).sum();
        if count <= limits.max_nr_regions || !apart {
            return;
        }
        apart = threshold < limits.max_nr_accesses;
        threshold = if threshold >= limits.max_nr_accesses / 2 {
            limits.max_nr_accesses
        } else {
            (threshold * 2).max(1)
        };
    }
}

/// A region whose count hardly changed is one aggregation older; one that changed, or went from never accessed
/// to accessed or back, begins anew (Linux 6.18).
fn grow_older(region: &mut Region, threshold: u32) {
    let changed = region.nr_accesses.abs_diff(region.last_nr_accesses) > threshold
        || (region.nr_accesses == 0) != (region.last_nr_accesses == 0);
    region.age = if changed { 0 } else { region.age.saturating_add(1) };
}

/// One pass over the regions of a target, each joined to the one before it where allowed. Known and unknown ones stay
/// `apart`, or else what is joined is unknown: no scheme is to take the unknown part for cold.
fn merge(regions: &mut Vec<Region>, threshold: u32, apart: bool, sz_limit: Bytes) {
    regions.dedup_by(|region, before| {
        let alike = before.range.end == region.range.start
            && (before.unknown == region.unknown || !apart)
            && before.nr_accesses.abs_diff(region.nr_accesses) <= threshold
            && before.len() + region.len() <= sz_limit;
        if alike {
            before.merge(region);
            before.unknown = (before.unknown || region.unknown) && before.nr_accesses == 0;
        }
        alike
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::AddrRange;

    /// Regions of `(pages, nr_accesses, last_nr_accesses, age)` one after the other.
    fn target(rows: &[(u64, u32, u32, u32)]) -> Target {
        let mut start = 0;
        let regions = rows
            .iter()
            .map(|&(pages, nr_accesses, last_nr_accesses, age)| {
                let range = AddrRange::new(start, start + pages * 4096);
                start = range.end.0;
                Region {
                    nr_accesses,
                    last_nr_accesses,
                    age,
                    ..Region::new(range)
                }
            })
            .collect();
        Target::of(regions)
    }

    fn rows(target: &Target) -> Vec<(u64, u32, u32)> {
        target
            .regions
            .iter()
            .map(|r| (r.len().0 / 4096, r.nr_accesses, r.age))
            .collect()
    }

    const LIMITS: MergeLimits = MergeLimits {
        max_nr_regions: 100,
        max_nr_accesses: 20,
        sz_limit: Bytes::MAX,
    };

    #[test]
    fn ages_by_the_rules() {
        // Highest count 20, so the threshold is 2. Sizes differ so that nothing but neighbours merge; the size
        // limit of one page keeps all apart.
        let mut target = target(&[
            (1, 20, 20, 4),
            (1, 10, 13, 4),
            (1, 2, 0, 4),
            (1, 0, 2, 4),
            (1, 0, 0, 4),
        ]);
        merge_and_age(
            std::slice::from_mut(&mut target),
            MergeLimits {
                sz_limit: Bytes(4096),
                ..LIMITS
            },
        );
        // same: older; changed by 3 > 2: young; 0 -> 2 and 2 -> 0: young though within 2; never accessed: older.
        let ages: Vec<u32> = target.regions.iter().map(|r| r.age).collect();
        assert_eq!(ages, [5, 0, 0, 0, 5]);
    }

    #[test]
    fn merges_what_is_alike_with_means_by_size() {
        // Threshold 2. (10 and 12) merge to (10*1 + 12*3)/4 = 11 with age (3*1 + 7*3)/4 = 6; 20 stays apart.
        let mut target = target(&[(1, 10, 10, 2), (3, 12, 12, 6), (2, 20, 20, 0)]);
        merge_and_age(std::slice::from_mut(&mut target), LIMITS);
        assert_eq!(rows(&target), [(4, 11, 6), (2, 20, 1)]);
        assert_eq!(target.regions[0].nr_accesses_bp, 110_000);
        assert_eq!(target.regions[0].last_nr_accesses, 10);
    }

    #[test]
    fn the_size_limit_holds_even_when_there_are_too_many() {
        let mut target = target(&[(2, 0, 0, 0); 6]);
        let limits = MergeLimits {
            max_nr_regions: 3,
            sz_limit: Bytes(4 * 4096),
            ..LIMITS
        };
        merge_and_age(std::slice::from_mut(&mut target), limits);
        assert_eq!(rows(&target), [(4, 0, 1); 3]);
    }

    #[test]
    fn too_many_regions_merge_by_larger_differences_and_age_once() {
        let mut target = target(&[(1, 20, 20, 0), (1, 0, 0, 0), (1, 20, 20, 0), (1, 0, 0, 0)]);
        merge_and_age(
            std::slice::from_mut(&mut target),
            MergeLimits {
                max_nr_regions: 1,
                ..LIMITS
            },
        );
        // ((20+0)/2 = 10, (10*2+20)/3 = 13, (13*3+0)/4 = 9), everything one aggregation older, once.
        assert_eq!(rows(&target), [(4, 9, 1)]);
    }

    #[test]
    fn a_gap_parts_and_so_does_not_knowing() {
        let mut target = target(&[(1, 0, 0, 0), (1, 0, 0, 0), (1, 0, 0, 0)]);
        target.regions[1].unknown = true;
        target.regions[2].range = AddrRange::new(0x10_0000, 0x10_1000);
        merge_and_age(std::slice::from_mut(&mut target), LIMITS);
        assert_eq!(target.regions.len(), 3);
    }

    #[test]
    fn not_knowing_parts_no_longer_when_there_are_too_many() {
        let mut target = target(&[(1, 0, 0, 0), (1, 0, 0, 0), (1, 0, 0, 0), (1, 20, 20, 0)]);
        target.regions[1].unknown = true;
        let limits = MergeLimits {
            max_nr_regions: 2,
            sz_limit: Bytes(3 * 4096),
            ..LIMITS
        };
        merge_and_age(std::slice::from_mut(&mut target), limits);
        // Those that are known joined first, however they differ.
        assert_eq!(rows(&target), [(2, 0, 1), (2, 10, 1)]);
        assert!(target.regions[0].unknown && !target.regions[1].unknown);
    }
}
