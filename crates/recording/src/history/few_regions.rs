//! Limits the number of regions of a target: joins neighbours that differ least.

use crate::model::Region;

/// Joins neighbours of `regions` until at most `max` are left. The cheapest pairs are joined: those with
/// little memory, and alike in access count and age. Totals do not come from regions, so only the picture
/// becomes coarser.
pub(super) fn limit(regions: &mut Vec<Region>, max: usize, max_nr_accesses: u32) {
    let Some(surplus) = regions
        .len()
        .checked_sub(max.max(1))
        .filter(|surplus| *surplus > 0)
    else {
        return;
    };
    let pairs = regions.iter().zip(regions.iter().skip(1));
    let mut costs: Vec<(u128, usize)> = pairs
        .map(|(left, right)| cost(left, right, max_nr_accesses))
        .zip(1..)
        .collect();
    costs.sort_unstable();
    let mut joins_left = vec![false; regions.len()];
    for (_, right) in costs.into_iter().take(surplus) {
        if let Some(joins) = joins_left.get_mut(right) {
            *joins = true;
        }
    }
    let mut joined: Vec<Region> = Vec::with_capacity(max);
    for (region, joins_left) in regions.iter().zip(joins_left) {
        match joined.last_mut() {
            Some(last) if joins_left => *last = join(last, region),
            _ => joined.push(*region),
        }
    }
    *regions = joined;
}

/// What is lost when both become one: bytes that get another value, times how different it is, and the gap
/// between.
fn cost(left: &Region, right: &Region, max_nr_accesses: u32) -> u128 {
    let permille =
        |region: &Region| u128::from(region.nr_accesses) * 1000 / u128::from(max_nr_accesses.max(1));
    let log_age = |region: &Region| u128::from(region.age.unwrap_or(0).saturating_add(1).ilog2());
    let unlike = permille(left).abs_diff(permille(right))
        + log_age(left).abs_diff(log_age(right)) * 50
        + u128::from(left.unknown != right.unknown) * 2000;
    let smaller = len(left).min(len(right));
    u128::from(smaller) * (unlike + 1) + u128::from(right.start.saturating_sub(left.end)) * 1000
}

/// One region over both, with the mean by length. A region that was accessed does not become idle.
fn join(left: &Region, right: &Region) -> Region {
    let (left_len, right_len) = (u128::from(len(left)), u128::from(len(right)));
    let all = (left_len + right_len).max(1);
    let mean = |left: u32, right: u32| {
        let sum = u128::from(left) * left_len + u128::from(right) * right_len;
        u32::try_from(sum.div_ceil(all)).unwrap_or(u32::MAX)
    };
    Region {
        start: left.start,
        end: right.end,
        nr_accesses: mean(left.nr_accesses, right.nr_accesses),
        age: left.age.zip(right.age).map(|(left, right)| mean(left, right)),
        unknown: if left_len >= right_len {
            left.unknown
        } else {
            right.unknown
        },
    }
}

const fn len(region: &Region) -> u64 {
    region.end.saturating_sub(region.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn region(start: u64, end: u64, nr_accesses: u32, age: u32) -> Region {
        Region {
            start: start * MIB,
            end: end * MIB,
            nr_accesses,
            age: Some(age),
            unknown: false,
        }
    }

    #[test]
    fn alike_and_small_neighbours_are_joined_first() {
        let all = vec![
            region(0, 100, 0, 500),
            region(100, 200, 0, 510),
            region(200, 201, 7, 0),
            region(201, 300, 10, 0),
            region(900, 1000, 10, 0),
        ];
        let limited = |max| {
            let mut regions = all.clone();
            limit(&mut regions, max, 20);
            regions
        };
        assert_eq!(limited(9), all);
        assert_eq!(limited(4)[0], region(0, 200, 0, 505), "alike");
        assert_eq!(
            limited(3),
            [
                region(0, 200, 0, 505),
                region(200, 300, 10, 0),
                region(900, 1000, 10, 0)
            ],
            "a small one"
        );
        let [one] = limited(1)[..] else {
            panic!("not one region")
        };
        assert_eq!((one.start, one.end), (0, 1000 * MIB));
        assert!(one.nr_accesses > 0, "what was accessed is not idle");
    }

    #[test]
    fn regions_stay_ascending_and_within_their_bounds() {
        let mut regions: Vec<Region> = (0..1000_u32)
            .map(|n| region(u64::from(n) * 3, u64::from(n) * 3 + 2, n * 7 % 21, n * 13 % 300))
            .collect();
        limit(&mut regions, 200, 20);
        assert_eq!(regions.len(), 200);
        assert!(regions.windows(2).all(|pair| pair[0].end <= pair[1].start));
        assert_eq!((regions[0].start, regions[199].end), (0, 2999 * MIB));
        assert!(regions.iter().all(|region| region.nr_accesses <= 20));
    }
}
