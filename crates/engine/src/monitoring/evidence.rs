//! The end of an aggregation: regions that turn out not to be accessed alike are cut where their looks say.
//!
//! DAMON keeps only how many looks hit, and finds the border between hot and cold memory by splitting at random,
//! aggregation after aggregation. But each look was at a known page: when those in the left part of a region hit
//! and those in the right part missed, the border lies between them, and both parts can be told apart in the very
//! aggregation that saw it. It costs no look more. Random splits go on: they find what few looks cannot show.
//!
//! A cut is made where two rates explain the looks better than one, by the likelihood ratio. Whether that is
//! more than chance is asked strictly ([`Evidence::LEAST_GAIN`]): memory that is accessed alike, but seldom
//! enough for looks to miss it, must stay one region.

use super::target::Target;
use crate::ops::{Probe, Seen};
use crate::region::Region;
use thermo_units::{Addr, PAGE_SIZE};

/// The looks of the aggregation that is running.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// Looks of one sampling interval after the other, each with one for every region in their order.
    looks: Vec<Look>,
    /// Looks in one sampling interval: the number of regions.
    stride: usize,
    /// Sampling intervals that passed in this aggregation.
    passed: u64,
    /// One sampling interval in so many is kept.
    every: u64,
}

/// Where a look was, and in the lowest two bits, which no page uses, what it saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Look(u64);

impl Look {
    const HIT: u64 = 1;
    const UNKNOWN: u64 = 2;

    const fn new(probe: &Probe) -> Self {
        Self(match probe.seen {
            Seen::Accessed => probe.addr.0 | Self::HIT,
            Seen::Idle => probe.addr.0,
            Seen::Unknown => probe.addr.0 | Self::UNKNOWN,
        })
    }

    const fn addr(self) -> Addr {
        Addr(self.0 & !(PAGE_SIZE - 1))
    }

    const fn hit(self) -> bool {
        self.0 & Self::HIT != 0
    }

    const fn known(self) -> bool {
        self.0 & Self::UNKNOWN == 0
    }
}

impl Evidence {
    /// What a cut must explain better, in units of the log likelihood. Looks at memory that is accessed alike
    /// reach it by chance once in a hundred regions, and merging joins those parts again.
    const LEAST_GAIN: f64 = 6.0;

    /// Sampling intervals whose looks are kept, at most: memory stays small when an aggregation has thousands.
    const MOST_KEPT: u64 = 40;

    /// Forgets all looks; the aggregation that begins has `samples` sampling intervals.
    pub(crate) fn begin(&mut self, samples: u64) {
        self.looks.clear();
        self.passed = 0;
        self.every = samples.div_ceil(Self::MOST_KEPT).max(1);
    }

    /// Keeps the looks of a sampling interval. Where the number of regions has changed, those before tell
    /// nothing any more.
    pub(crate) fn note(&mut self, probes: &[Probe]) {
        if probes.len() != self.stride {
            self.looks.clear();
            self.stride = probes.len();
        }
        if self.passed.is_multiple_of(self.every.max(1)) {
            self.looks.extend(probes.iter().map(Look::new));
        }
        self.passed += 1;
    }

    /// Cuts the regions of `targets` where the looks say, as long as there are fewer than `max_nr_regions`.
    /// Each part counts the hits of its own looks, scaled to all `nr_looks` of the aggregation.
    pub(crate) fn cut(&self, targets: &mut [Target], max_nr_regions: usize, nr_looks: u32) {
        let count: usize = targets.iter().map(|t| t.regions.len()).sum();
        if self.stride == 0 || count != self.stride {
            return;
        }
        let mut room = max_nr_regions.saturating_sub(count);
        let mut nth = 0;
        for target in targets.iter_mut() {
            let mut cut = Vec::with_capacity(target.regions.len());
            for region in std::mem::take(&mut target.regions) {
                if (1..nr_looks).contains(&region.nr_accesses) && room > 0 {
                    let before = cut.len();
                    cut_region(region, &self.looks_at(nth), nr_looks, room, &mut cut);
                    room -= cut.len() - before - 1;
                } else {
                    cut.push(region);
                }
                nth += 1;
            }
            target.regions = cut;
        }
    }

    /// The looks at the `nth` region of all that could tell, ascending.
    fn looks_at(&self, nth: usize) -> Vec<Look> {
        let column = self.looks.iter().skip(nth).step_by(self.stride);
        let mut looks: Vec<Look> = column.copied().filter(|look| look.known()).collect();
        looks.sort_unstable();
        looks
    }
}

/// Puts `region` into `out`, in at most `room` parts more than one.
fn cut_region(mut region: Region, looks: &[Look], nr_looks: u32, room: usize, out: &mut Vec<Region>) {
    let inside = looks.iter().all(|look| region.range.contains(look.addr()));
    let border = if room > 0 && inside { border(looks) } else { None };
    let Some(left_looks) = border else {
        out.push(region);
        return;
    };
    let (left, right) = looks.split_at(left_looks);
    let at = between(left[left.len() - 1].addr(), right[0].addr());
    let mut right_region = region.split_off(at);
    recount(&mut region, left, nr_looks);
    recount(&mut right_region, right, nr_looks);
    let before = out.len();
    cut_region(region, left, nr_looks, room - 1, out);
    let used = out.len() - before;
    cut_region(right_region, right, nr_looks, room - used, out);
}

/// A page border in the middle between a page on the left side and one on the right.
fn between(last_left: Addr, first_right: Addr) -> Addr {
    let after = last_left.0 + PAGE_SIZE;
    Addr(after + (first_right.0 - after) / 2 / PAGE_SIZE * PAGE_SIZE)
}

/// Gives a part the count its own looks make.
fn recount(region: &mut Region, looks: &[Look], nr_looks: u32) {
    let hits = looks.iter().filter(|look| look.hit()).count() as u64;
    let scaled = (hits * u64::from(nr_looks)).div_ceil(looks.len() as u64);
    region.nr_accesses = u32::try_from(scaled).unwrap_or(u32::MAX);
    region.nr_accesses_bp = scaled * 10_000;
}

/// How many of the ascending `looks` lie left of the best cut, if one is better than chance. Looks at the same
/// page stay together.
fn border(looks: &[Look]) -> Option<usize> {
    let all = looks.len();
    let all_hits = looks.iter().filter(|look| look.hit()).count();
    if all_hits == 0 || all_hits == all {
        return None;
    }
    let whole = log_likelihood(all_hits, all);
    let mut left_hits = 0;
    let mut best = (Evidence::LEAST_GAIN, None);
    for (nth, pair) in looks.windows(2).enumerate() {
        left_hits += usize::from(pair[0].hit());
        let left = nth + 1;
        if pair[0].addr() == pair[1].addr() {
            continue;
        }
        let gain = log_likelihood(left_hits, left) + log_likelihood(all_hits - left_hits, all - left) - whole;
        if gain > best.0 {
            best = (gain, Some(left));
        }
    }
    best.1
}

/// Logarithm of how likely it is to see `hits` of `looks` where that is the rate.
fn log_likelihood(hits: usize, looks: usize) -> f64 {
    let term = |part: usize| match part {
        0 => 0.0,
        part => part as f64 * (part as f64 / looks as f64).ln(),
    };
    term(hits) + term(looks - hits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::TargetLayout;
    use crate::rng::Rng;
    use crate::target_id::TargetId;
    use thermo_units::AddrRange;

    const PAGES: u64 = 1000;

    /// A region of 1000 pages whose page `p` is accessed in `rate(p)` of all looks, after `nr_looks` looks.
    fn looked_at(nr_looks: u32, seed: u64, rate: impl Fn(u64) -> f64) -> (Evidence, Target) {
        let mut rng = Rng::new(seed);
        let mut region = Region::new(AddrRange::new(0, PAGES * PAGE_SIZE));
        let mut evidence = Evidence::default();
        evidence.begin(u64::from(nr_looks));
        for _ in 0..nr_looks {
            let page = rng.below(PAGES);
            let hit = (rng.below(1000) as f64) < rate(page) * 1000.0;
            region.count_look(hit, nr_looks);
            evidence.note(&[Probe {
                target: TargetId(0),
                addr: Addr(page * PAGE_SIZE),
                seen: if hit { Seen::Accessed } else { Seen::Idle },
            }]);
        }
        let layout = TargetLayout::new(TargetId(0), None, Vec::new());
        (evidence, Target::new(layout, vec![region]))
    }

    fn shape(target: &Target) -> Vec<(u64, u32)> {
        let pages = |r: &Region| r.len().0 / PAGE_SIZE;
        target.regions.iter().map(|r| (pages(r), r.nr_accesses)).collect()
    }

    #[test]
    fn a_hot_band_is_cut_out_in_one_aggregation() {
        let (evidence, mut target) = looked_at(40, 3, |page| f64::from(u8::from((300..700).contains(&page))));
        evidence.cut(std::slice::from_mut(&mut target), 10, 40);
        let parts = shape(&target);
        assert_eq!(parts.len(), 3, "{parts:?}");
        assert_eq!(parts.iter().map(|part| part.1).collect::<Vec<_>>(), [0, 40, 0]);
        assert_eq!(parts.iter().map(|part| part.0).sum::<u64>(), PAGES);
        assert!(parts[1].0.abs_diff(400) < 100, "{parts:?}");
    }

    #[test]
    fn the_number_of_regions_stays_within_its_bound() {
        let (evidence, mut target) = looked_at(40, 3, |page| f64::from(u8::from((300..700).contains(&page))));
        evidence.cut(std::slice::from_mut(&mut target), 2, 40);
        assert_eq!(target.regions.len(), 2);
    }

    #[test]
    fn what_is_accessed_alike_is_rarely_cut() {
        for rate in [0.1, 0.5, 0.95] {
            let cut = (0..1000)
                .filter(|&seed| {
                    let (evidence, mut target) = looked_at(20, seed, |_| rate);
                    evidence.cut(std::slice::from_mut(&mut target), 10, 20);
                    target.regions.len() > 1
                })
                .count();
            assert!(cut <= 15, "{cut} of 1000 at {rate}");
        }
    }

    #[test]
    fn looks_before_a_change_of_regions_do_not_count() {
        let (mut evidence, mut target) = looked_at(40, 3, |page| f64::from(u8::from(page < 500)));
        let right = target.regions[0].split_off(Addr(600 * PAGE_SIZE));
        target.regions.push(right);
        evidence.cut(std::slice::from_mut(&mut target), 10, 40);
        assert_eq!(target.regions.len(), 2);
        let looks = target.regions.iter().map(|region| Probe {
            target: TargetId(0),
            addr: region.range.start,
            seen: Seen::Accessed,
        });
        evidence.note(&looks.collect::<Vec<_>>());
        assert_eq!(evidence.looks.len(), 2);
    }

    #[test]
    fn a_long_aggregation_keeps_a_bounded_number_of_looks() {
        let (evidence, _) = looked_at(4000, 1, |_| 0.5);
        assert_eq!(evidence.looks.len(), 40);
    }
}
