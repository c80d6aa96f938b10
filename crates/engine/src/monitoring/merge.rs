//! The end of an aggregation: regions age, and adjacent regions with similar access counts are merged.

use super::target::Target;
use crate::region::Region;
use thermo_units::Bytes;

/// Limits of merging.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MergeLimits {
    /// Maximum number of regions after merging.
    pub(crate) max_nr_regions: usize,
    /// Maximum of `nr_accesses`, and so of the difference between two regions.
    pub(crate) max_nr_accesses: u32,
    /// Maximum size of a merged region. It keeps the minimum number of regions possible.
    pub(crate) sz_limit: Bytes,
}

/// Ages all regions, then merges adjacent regions whose access counts differ by at most a tenth of the
/// highest count. While more than `max_nr_regions` remain, merging is repeated with larger differences, and
/// at last also between known and unknown regions.
pub(crate) fn merge_and_age(targets: &mut [Target], limits: MergeLimits) {
    let highest = targets
        .iter()
        .flat_map(|t| &t.regions)
        .map(|r| r.nr_accesses)
        .max()
        .unwrap_or(0);
    let (mut threshold, mut keep_unknown_apart) = (highest / 10, true);
    for region in targets.iter_mut().flat_map(|t| &mut t.regions) {
        update_age(region, threshold);
    }
    loop {
        for target in targets.iter_mut() {
            merge(
                &mut target.regions,
                threshold,
                keep_unknown_apart,
                limits.sz_limit,
            );
        }
        let count: usize = targets.iter().map(|t| t.regions.len()).sum();
        if count <= limits.max_nr_regions || !keep_unknown_apart {
            return;
        }
        keep_unknown_apart = threshold < limits.max_nr_accesses;
        threshold = if threshold >= limits.max_nr_accesses / 2 {
            limits.max_nr_accesses
        } else {
            (threshold * 2).max(1)
        };
    }
}

/// Adds 1 to the age of a region if its access count changed by at most `threshold`. Otherwise, or if the
/// count changed from or to 0, the age becomes 0 (Linux 6.18).
fn update_age(region: &mut Region, threshold: u32) {
    let changed = region.nr_accesses.abs_diff(region.last_nr_accesses) > threshold
        || (region.nr_accesses == 0) != (region.last_nr_accesses == 0);
    region.age = if changed { 0 } else { region.age.saturating_add(1) };
}

/// Merges each region of a target into the region before it where allowed. Without `keep_unknown_apart`, an
/// idle region merged from known and unknown ones is unknown, so that no scheme treats the unknown part as
/// cold.
fn merge(regions: &mut Vec<Region>, threshold: u32, keep_unknown_apart: bool, sz_limit: Bytes) {
    regions.dedup_by(|region, before| {
        let mergeable = before.range.end == region.range.start
            && (before.unknown == region.unknown || !keep_unknown_apart)
            && before.nr_accesses.abs_diff(region.nr_accesses) <= threshold
            && before.len() + region.len() <= sz_limit;
        if mergeable {
            before.merge(region);
            before.unknown = (before.unknown || region.unknown) && before.nr_accesses == 0;
        }
        mergeable
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::AddrRange;

    /// Adjacent regions of `(pages, nr_accesses, last_nr_accesses, age)`.
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
        Target::with_regions(regions)
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
    fn age_grows_unless_access_count_changed() {
        // The highest count is 20, so the threshold is 2. The size limit of one page prevents merging.
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
        // Unchanged: 5. Changed by 3 > 2: 0. Changed by 2 from or to 0: 0. Still never accessed: 5.
        let ages: Vec<u32> = target.regions.iter().map(|r| r.age).collect();
        assert_eq!(ages, [5, 0, 0, 0, 5]);
    }

    #[test]
    fn similar_regions_merge_to_weighted_means() {
        // Threshold 2. 10 and 12 merge to (10*1 + 12*3)/4 = 11 with age (3*1 + 7*3)/4 = 6. 20 is not merged.
        let mut target = target(&[(1, 10, 10, 2), (3, 12, 12, 6), (2, 20, 20, 0)]);
        merge_and_age(std::slice::from_mut(&mut target), LIMITS);
        assert_eq!(rows(&target), [(4, 11, 6), (2, 20, 1)]);
        assert_eq!(target.regions[0].nr_accesses_bp, 110_000);
        assert_eq!(target.regions[0].last_nr_accesses, 10);
    }

    #[test]
    fn size_limit_holds_above_max_nr_regions() {
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
    fn excess_regions_merge_and_age_once() {
        let mut target = target(&[(1, 20, 20, 0), (1, 0, 0, 0), (1, 20, 20, 0), (1, 0, 0, 0)]);
        merge_and_age(
            std::slice::from_mut(&mut target),
            MergeLimits {
                max_nr_regions: 1,
                ..LIMITS
            },
        );
        // (20+0)/2 = 10, (10*2+20)/3 = 13, (13*3+0)/4 = 9. All ages grow by 1.
        assert_eq!(rows(&target), [(4, 9, 1)]);
    }

    #[test]
    fn gaps_and_unknown_regions_prevent_merging() {
        let mut target = target(&[(1, 0, 0, 0), (1, 0, 0, 0), (1, 0, 0, 0)]);
        target.regions[1].unknown = true;
        target.regions[2].range = AddrRange::new(0x10_0000, 0x10_1000);
        merge_and_age(std::slice::from_mut(&mut target), LIMITS);
        assert_eq!(target.regions.len(), 3);
    }

    #[test]
    fn excess_unknown_regions_merge() {
        let mut target = target(&[(1, 0, 0, 0), (1, 0, 0, 0), (1, 0, 0, 0), (1, 20, 20, 0)]);
        target.regions[1].unknown = true;
        let limits = MergeLimits {
            max_nr_regions: 2,
            sz_limit: Bytes(3 * 4096),
            ..LIMITS
        };
        merge_and_age(std::slice::from_mut(&mut target), limits);
        // Known regions merged first, at any difference.
        assert_eq!(rows(&target), [(2, 0, 1), (2, 10, 1)]);
        assert!(target.regions[0].unknown && !target.regions[1].unknown);
    }
}
