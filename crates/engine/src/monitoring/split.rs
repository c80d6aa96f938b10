//! The start of an aggregation: regions are split at random, so that differences inside them can be measured.

use super::target::Target;
use crate::region::Region;
use crate::rng::Rng;
use thermo_units::{Addr, PAGE_SIZE};

/// Splits regions at random. Keeps the last number of regions, to detect that splitting in two has no effect.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    last_nr_regions: usize,
}

impl Splitter {
    /// Splits each region in two, or in three if the number of regions did not change since the last call and
    /// is below a third of `max_nr_regions`. Does nothing if there are more than half of `max_nr_regions`.
    pub(crate) fn split(&mut self, targets: &mut [Target], max_nr_regions: usize, rng: &mut Rng) {
        let count: usize = targets.iter().map(|t| t.regions.len()).sum();
        if count > max_nr_regions / 2 {
            return;
        }
        let pieces = if count == self.last_nr_regions && count < max_nr_regions / 3 {
            3
        } else {
            2
        };
        for target in targets.iter_mut() {
            let regions = std::mem::take(&mut target.regions);
            target.regions = regions
                .into_iter()
                .flat_map(|region| split_region(region, pieces, rng))
                .collect();
        }
        self.last_nr_regions = count;
    }
}

/// The pieces of `region`, ascending. Each split is at a random tenth of the remaining left part.
fn split_region(mut region: Region, pieces: usize, rng: &mut Rng) -> impl Iterator<Item = Region> + use<> {
    let mut right_parts = Vec::with_capacity(pieces - 1);
    while right_parts.len() + 1 < pieces && region.len().0 > 2 * PAGE_SIZE {
        let tenths = 1 + rng.below(9);
        let left = Addr(region.len().0 / 10 * tenths).align_down().0;
        if left == 0 || left >= region.len().0 {
            break;
        }
        right_parts.push(region.split_off(Addr(region.range.start.0 + left)));
    }
    std::iter::once(region).chain(right_parts.into_iter().rev())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::AddrRange;

    fn target(pages: &[u64]) -> Target {
        let mut start = 0;
        let regions = pages
            .iter()
            .map(|pages| {
                let range = AddrRange::new(start, start + pages * 4096);
                start = range.end.0;
                Region {
                    age: 7,
                    nr_accesses_bp: 30_000,
                    last_nr_accesses: 3,
                    ..Region::new(range)
                }
            })
            .collect();
        Target::with_regions(regions)
    }

    #[test]
    fn pieces_cover_region_and_inherit_counts() {
        let mut targets = [target(&[100])];
        Splitter::default().split(&mut targets, 10, &mut Rng::new(1));
        let regions = &targets[0].regions;
        assert_eq!(regions.len(), 2);
        assert_eq!(regions[0].range.end, regions[1].range.start);
        assert_eq!(
            (regions[0].range.start, regions[1].range.end),
            (Addr(0), Addr(100 * 4096))
        );
        assert!(
            regions
                .iter()
                .all(|r| r.age == 7 && r.last_nr_accesses == 3 && r.nr_accesses_bp == 30_000)
        );
    }

    #[test]
    fn two_page_region_is_not_split() {
        let mut targets = [target(&[1, 2])];
        Splitter::default().split(&mut targets, 10, &mut Rng::new(1));
        assert_eq!(targets[0].regions.len(), 2);
    }

    #[test]
    fn unchanged_number_of_regions_splits_in_three() {
        let mut splitter = Splitter::default();
        let mut targets = [target(&[100, 100])];
        splitter.split(&mut targets, 20, &mut Rng::new(1));
        assert_eq!(targets[0].regions.len(), 4);
        let mut targets = [target(&[100, 100])];
        splitter.split(&mut targets, 20, &mut Rng::new(1));
        assert_eq!(targets[0].regions.len(), 6);
        let mut targets = [target(&[100; 11])];
        splitter.split(&mut targets, 20, &mut Rng::new(1));
        assert_eq!(targets[0].regions.len(), 11);
    }
}
