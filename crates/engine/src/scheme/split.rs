//! Splitting regions at given addresses.

use crate::region::Region;
use thermo_units::Addr;

/// Splits `regions` at each of `points` that lies inside a region. Points may be unsorted and repeated.
pub(super) fn split_at(regions: &mut Vec<Region>, mut points: Vec<Addr>) {
    points.sort_unstable();
    points.retain(|at| {
        let next = regions.partition_point(|region| region.range.start < *at);
        next > 0 && *at < regions[next - 1].range.end
    });
    points.dedup();
    if points.is_empty() {
        return;
    }
    let mut split = Vec::with_capacity(regions.len() + points.len());
    let mut points = points.into_iter().peekable();
    for mut region in regions.drain(..) {
        while let Some(at) = points.next_if(|at| *at < region.range.end) {
            let right = region.split_off(at);
            split.push(std::mem::replace(&mut region, right));
        }
        split.push(region);
    }
    *regions = split;
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::AddrRange;

    #[test]
    fn regions_split_only_at_points_inside() {
        let page = |n: u64| Addr(n << 12);
        let region = |a: u64, b: u64| Region {
            age: 7,
            ..Region::new(AddrRange {
                start: page(a),
                end: page(b),
            })
        };
        let mut regions = vec![region(1, 4), region(4, 5), region(8, 12)];
        split_at(
            &mut regions,
            [10, 9, 4, 2, 1, 6, 8, 12, 0, 20, 2].map(page).to_vec(),
        );
        assert_eq!(
            regions,
            [
                region(1, 2),
                region(2, 4),
                region(4, 5),
                region(8, 9),
                region(9, 10),
                region(10, 12)
            ]
        );
    }
}
