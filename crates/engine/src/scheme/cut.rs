//! Cutting regions.

use crate::region::Region;
use thermo_units::Addr;

/// Cuts `regions` at each of `points` that lies inside one; the points may come in any order and twice.
pub(super) fn cut_at(regions: &mut Vec<Region>, mut points: Vec<Addr>) {
    points.sort_unstable();
    points.retain(|at| {
        let next = regions.partition_point(|region| region.range.start < *at);
        next > 0 && *at < regions[next - 1].range.end
    });
    points.dedup();
    if points.is_empty() {
        return;
    }
    let mut cut = Vec::with_capacity(regions.len() + points.len());
    let mut points = points.into_iter().peekable();
    for mut region in regions.drain(..) {
        while let Some(at) = points.next_if(|at| *at < region.range.end) {
            let right = region.split_off(at);
            cut.push(std::mem::replace(&mut region, right));
        }
        cut.push(region);
    }
    *regions = cut;
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::AddrRange;

    #[test]
    fn only_points_inside_a_region_cut_it() {
        let page = |n: u64| Addr(n << 12);
        let region = |a: u64, b: u64| Region {
            age: 7,
            ..Region::new(AddrRange {
                start: page(a),
                end: page(b),
            })
        };
        let mut regions = vec![region(1, 4), region(4, 5), region(8, 12)];
        cut_at(
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
