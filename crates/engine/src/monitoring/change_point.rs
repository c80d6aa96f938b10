//! Splits at change points: at the end of an aggregation, a region is split where its access checks show two
//! different access rates.
//!
//! DAMON keeps only the number of access checks that found an access. It finds the boundary between hot and
//! cold memory with random splits over many aggregations. But each access check was made at a known page. If
//! the checks in the left part of a region found accesses and those in the right part did not, the boundary
//! lies between them, and the region can be split in the same aggregation. No further access checks are
//! needed. Random splits continue, because few checks cannot show a small difference.
//!
//! A region is split where two rates explain its checks better than one rate, by the likelihood ratio. The
//! threshold is strict ([`CheckLog::MIN_GAIN`]): memory with one low access rate must stay one region.

use super::target::Target;
use crate::ops::{CheckResult, Probe};
use crate::region::Region;
use thermo_units::{Addr, PAGE_SIZE};

/// The access checks of the current aggregation.
#[derive(Debug, Default)]
pub(crate) struct CheckLog {
    /// Checks of one sampling interval after the other. Each interval has one check for each region, in
    /// order.
    checks: Vec<Check>,
    /// Number of regions, which is the number of checks in one sampling interval.
    nr_regions: usize,
    /// Sampling intervals of this aggregation so far.
    passed: u64,
    /// One of this many sampling intervals is kept.
    keep_every: u64,
}

/// Address and result of an access check. The result is in the two lowest bits, which are 0 in page
/// addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Check(u64);

impl Check {
    const ACCESSED: u64 = 1;
    const UNKNOWN: u64 = 2;

    const fn new(probe: &Probe) -> Self {
        Self(match probe.result {
            CheckResult::Accessed => probe.addr.0 | Self::ACCESSED,
            CheckResult::Idle => probe.addr.0,
            CheckResult::Unknown => probe.addr.0 | Self::UNKNOWN,
        })
    }

    const fn addr(self) -> Addr {
        Addr(self.0 & !(PAGE_SIZE - 1))
    }

    const fn is_accessed(self) -> bool {
        self.0 & Self::ACCESSED != 0
    }

    const fn is_known(self) -> bool {
        self.0 & Self::UNKNOWN == 0
    }
}

impl CheckLog {
    /// Minimum gain in log likelihood for a split. In memory with one access rate, about one region in a
    /// hundred reaches it by chance; such parts are merged again.
    const MIN_GAIN: f64 = 6.0;

    /// Maximum number of sampling intervals kept. It bounds the memory for aggregations of thousands of
    /// intervals.
    const MAX_KEPT: u64 = 40;

    /// Drops all checks. The new aggregation has `samples` sampling intervals.
    pub(crate) fn begin(&mut self, samples: u64) {
        self.checks.clear();
        self.passed = 0;
        self.keep_every = samples.div_ceil(Self::MAX_KEPT).max(1);
    }

    /// Adds the checks of a sampling interval. If the number of regions has changed, earlier checks are
    /// dropped.
    pub(crate) fn record(&mut self, probes: &[Probe]) {
        if probes.len() != self.nr_regions {
            self.checks.clear();
            self.nr_regions = probes.len();
        }
        if self.passed.is_multiple_of(self.keep_every.max(1)) {
            self.checks.extend(probes.iter().map(Check::new));
        }
        self.passed += 1;
    }

    /// Splits the regions of `targets` at change points, up to `max_nr_regions` regions. Each part gets the
    /// access count of its own checks, scaled to the `nr_checks` of the aggregation.
    pub(crate) fn split_regions(&self, targets: &mut [Target], max_nr_regions: usize, nr_checks: u32) {
        let count: usize = targets.iter().map(|t| t.regions.len()).sum();
        if self.nr_regions == 0 || count != self.nr_regions {
            return;
        }
        let mut max_splits = max_nr_regions.saturating_sub(count);
        let mut nth = 0;
        for target in targets.iter_mut() {
            let mut parts = Vec::with_capacity(target.regions.len());
            for region in std::mem::take(&mut target.regions) {
                if (1..nr_checks).contains(&region.nr_accesses) && max_splits > 0 {
                    let before = parts.len();
                    split_region(region, &self.known_checks(nth), nr_checks, max_splits, &mut parts);
                    max_splits -= parts.len() - before - 1;
                } else {
                    parts.push(region);
                }
                nth += 1;
            }
            target.regions = parts;
        }
    }

    /// The checks of the `nth` region whose result is known, by address.
    fn known_checks(&self, nth: usize) -> Vec<Check> {
        let of_region = self.checks.iter().skip(nth).step_by(self.nr_regions);
        let mut checks: Vec<Check> = of_region.copied().filter(|check| check.is_known()).collect();
        checks.sort_unstable();
        checks
    }
}

/// Splits `region` at most `max_splits` times and appends the parts to `parts`.
fn split_region(
    mut region: Region,
    checks: &[Check],
    nr_checks: u32,
    max_splits: usize,
    parts: &mut Vec<Region>,
) {
    let all_inside = checks.iter().all(|check| region.range.contains(check.addr()));
    let change_point = if max_splits > 0 && all_inside {
        change_point(checks)
    } else {
        None
    };
    let Some(nr_left) = change_point else {
        parts.push(region);
        return;
    };
    let (left, right) = checks.split_at(nr_left);
    let mut right_region = region.split_off(boundary(left[left.len() - 1].addr(), right[0].addr()));
    set_access_count(&mut region, left, nr_checks);
    set_access_count(&mut right_region, right, nr_checks);
    let before = parts.len();
    split_region(region, left, nr_checks, max_splits - 1, parts);
    let used = parts.len() - before;
    split_region(right_region, right, nr_checks, max_splits - used, parts);
}

/// The page boundary in the middle between the last page of the left part and the first page of the right
/// part.
fn boundary(last_left: Addr, first_right: Addr) -> Addr {
    let after = last_left.0 + PAGE_SIZE;
    Addr(after + (first_right.0 - after) / 2 / PAGE_SIZE * PAGE_SIZE)
}

/// Sets the access count of a part from its own checks.
fn set_access_count(region: &mut Region, checks: &[Check], nr_checks: u32) {
    let accesses = checks.iter().filter(|check| check.is_accessed()).count() as u64;
    let scaled = (accesses * u64::from(nr_checks)).div_ceil(checks.len() as u64);
    region.nr_accesses = u32::try_from(scaled).unwrap_or(u32::MAX);
    region.nr_accesses_bp = scaled * 10_000;
}

/// The number of `checks` (by address) left of the best change point, or `None` if no gain reaches
/// [`CheckLog::MIN_GAIN`]. Checks at the same page stay together.
fn change_point(checks: &[Check]) -> Option<usize> {
    let all = checks.len();
    let all_accesses = checks.iter().filter(|check| check.is_accessed()).count();
    if all_accesses == 0 || all_accesses == all {
        return None;
    }
    let whole = log_likelihood(all_accesses, all);
    let mut left_accesses = 0;
    let mut best = (CheckLog::MIN_GAIN, None);
    for (nth, pair) in checks.windows(2).enumerate() {
        left_accesses += usize::from(pair[0].is_accessed());
        let left = nth + 1;
        if pair[0].addr() == pair[1].addr() {
            continue;
        }
        let gain = log_likelihood(left_accesses, left)
            + log_likelihood(all_accesses - left_accesses, all - left)
            - whole;
        if gain > best.0 {
            best = (gain, Some(left));
        }
    }
    best.1
}

/// Log likelihood of `accesses` in `checks` at the rate `accesses / checks`.
fn log_likelihood(accesses: usize, checks: usize) -> f64 {
    let term = |part: usize| match part {
        0 => 0.0,
        part => part as f64 * (part as f64 / checks as f64).ln(),
    };
    term(accesses) + term(checks - accesses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::TargetLayout;
    use crate::rng::Rng;
    use crate::target_id::TargetId;
    use thermo_units::AddrRange;

    const PAGES: u64 = 1000;

    /// A region of 1000 pages after `nr_checks` access checks. A check of page `p` finds an access with
    /// probability `rate(p)`.
    fn checked(nr_checks: u32, seed: u64, rate: impl Fn(u64) -> f64) -> (CheckLog, Target) {
        let mut rng = Rng::new(seed);
        let mut region = Region::new(AddrRange::new(0, PAGES * PAGE_SIZE));
        let mut log = CheckLog::default();
        log.begin(u64::from(nr_checks));
        for _ in 0..nr_checks {
            let page = rng.below(PAGES);
            let accessed = (rng.below(1000) as f64) < rate(page) * 1000.0;
            region.count_access_check(accessed, nr_checks);
            log.record(&[Probe {
                target: TargetId(0),
                addr: Addr(page * PAGE_SIZE),
                result: if accessed {
                    CheckResult::Accessed
                } else {
                    CheckResult::Idle
                },
            }]);
        }
        let layout = TargetLayout::new(TargetId(0), None, Vec::new());
        (log, Target::new(layout, vec![region]))
    }

    fn shape(target: &Target) -> Vec<(u64, u32)> {
        let pages = |r: &Region| r.len().0 / PAGE_SIZE;
        target.regions.iter().map(|r| (pages(r), r.nr_accesses)).collect()
    }

    #[test]
    fn hot_band_is_split_out_in_one_aggregation() {
        let (log, mut target) = checked(40, 3, |page| f64::from(u8::from((300..700).contains(&page))));
        log.split_regions(std::slice::from_mut(&mut target), 10, 40);
        let parts = shape(&target);
        assert_eq!(parts.len(), 3, "{parts:?}");
        assert_eq!(parts.iter().map(|part| part.1).collect::<Vec<_>>(), [0, 40, 0]);
        assert_eq!(parts.iter().map(|part| part.0).sum::<u64>(), PAGES);
        assert!(parts[1].0.abs_diff(400) < 100, "{parts:?}");
    }

    #[test]
    fn split_respects_max_nr_regions() {
        let (log, mut target) = checked(40, 3, |page| f64::from(u8::from((300..700).contains(&page))));
        log.split_regions(std::slice::from_mut(&mut target), 2, 40);
        assert_eq!(target.regions.len(), 2);
    }

    #[test]
    fn uniform_region_is_rarely_split() {
        for rate in [0.1, 0.5, 0.95] {
            let split = (0..1000)
                .filter(|&seed| {
                    let (log, mut target) = checked(20, seed, |_| rate);
                    log.split_regions(std::slice::from_mut(&mut target), 10, 20);
                    target.regions.len() > 1
                })
                .count();
            assert!(split <= 15, "{split} of 1000 at {rate}");
        }
    }

    #[test]
    fn checks_are_dropped_when_regions_change() {
        let (mut log, mut target) = checked(40, 3, |page| f64::from(u8::from(page < 500)));
        let right = target.regions[0].split_off(Addr(600 * PAGE_SIZE));
        target.regions.push(right);
        log.split_regions(std::slice::from_mut(&mut target), 10, 40);
        assert_eq!(target.regions.len(), 2);
        let probes = target.regions.iter().map(|region| Probe {
            target: TargetId(0),
            addr: region.range.start,
            result: CheckResult::Accessed,
        });
        log.record(&probes.collect::<Vec<_>>());
        assert_eq!(log.checks.len(), 2);
    }

    #[test]
    fn long_aggregation_keeps_bounded_checks() {
        let (log, _) = checked(4000, 1, |_| 0.5);
        assert_eq!(log.checks.len(), 40);
    }
}
