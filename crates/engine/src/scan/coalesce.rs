//! Coalesces runs of pages into a limited number of regions. Neighbouring runs that differ least are merged
//! first.

use super::page_states::StateRun;
use super::region_builder::{GapCost, RegionBuilder};
use crate::region::Region;
use thermo_units::{Bytes, Nanos};

/// Maximum number of runs in memory, as a multiple of the wanted regions. More runs are coalesced while they
/// are read, to limit memory for finely mixed targets.
const RUNS_PER_REGION: usize = 16;
/// Maximum number of runs in memory, of 112 bytes each, unless more than half as many regions are wanted.
const MAX_RUNS: usize = 1 << 17;

/// The runs of one target, coalesced to the maximum number that one snapshot may use.
#[derive(Debug, Clone, Default)]
pub(crate) struct CoalescedRuns {
    builders: Vec<RegionBuilder>,
    /// Time at which idle times were computed.
    at: Nanos,
}

impl CoalescedRuns {
    /// Coalesces `runs` (ascending) to at most `max` future regions, as of `now`. Ages are counted in
    /// `interval`.
    pub(crate) fn new(
        runs: impl Iterator<Item = StateRun>,
        max: usize,
        gaps: GapCost,
        now: Nanos,
        interval: Nanos,
    ) -> Self {
        let max = max.max(1);
        let max_runs = max
            .saturating_mul(RUNS_PER_REGION)
            .min(MAX_RUNS)
            .max(max.saturating_mul(2));
        let mut coalescer = Coalescer::new(gaps, interval);
        let mut read_tolerance = 0;
        for run in runs {
            coalescer.push(RegionBuilder::new(&run, now, interval), read_tolerance);
            if coalescer.builders.len() > max_runs {
                coalescer.reduce_to(max_runs / 2);
                read_tolerance = coalescer.tolerance;
            }
        }
        coalescer.reduce_to(max);
        Self {
            builders: coalescer.builders,
            at: now,
        }
    }
}

/// Returns for each target, in order, its regions as of `now` and the resident bytes in regions that merge
/// pages with different states. At most `max` regions over all targets, but at least one for each target with
/// runs.
///
/// Targets have no quota of regions. The merges with the lowest cost in bytes are made in all targets, so
/// targets with finely mixed access patterns get more regions.
pub(crate) fn coalesce_targets<'a>(
    targets: impl Iterator<Item = &'a CoalescedRuns>,
    max: usize,
    gaps: GapCost,
    now: Nanos,
    interval: Nanos,
) -> Vec<(Vec<Region>, Bytes)> {
    let mut coalescer = Coalescer::new(gaps, interval);
    let mut nr_targets = 0;
    for coalesced in targets {
        let elapsed = now.saturating_sub(coalesced.at);
        coalescer
            .builders
            .extend(coalesced.builders.iter().map(|builder| {
                let mut builder = *builder;
                builder.target = nr_targets;
                builder.add_idle_time(elapsed, interval);
                builder
            }));
        nr_targets += 1;
    }
    coalescer.reduce_to(max.max(1));
    let mut regions = vec![(Vec::new(), Bytes::ZERO); nr_targets];
    for builder in &coalescer.builders {
        let (regions, averaged) = &mut regions[builder.target];
        regions.push(builder.region(interval));
        *averaged += builder.averaged();
    }
    regions
}

/// Merges runs until few enough are left.
struct Coalescer {
    builders: Vec<RegionBuilder>,
    /// Maximum cost of a merge; see `RegionBuilder::merge_cost`.
    tolerance: u64,
    gaps: GapCost,
    interval: Nanos,
}

impl Coalescer {
    const fn new(gaps: GapCost, interval: Nanos) -> Self {
        Self {
            builders: Vec::new(),
            tolerance: 0,
            gaps,
            interval,
        }
    }

    /// Merges with increasing tolerance until at most `max` are left, or one per target.
    fn reduce_to(&mut self, max: usize) {
        while self.builders.len() > max {
            let before = self.builders.len();
            self.merge_pairs(before - max);
            if self.builders.len() == before && self.tolerance == u64::MAX {
                break;
            }
            // Increase the tolerance only when it merges less than 1/8.
            if (before - self.builders.len()) * 8 < before {
                self.tolerance = self.tolerance.saturating_mul(2).max(1024);
            }
        }
    }

    /// Merges neighbours within the tolerance, at most `excess` times and each at most once. A merged pair
    /// has a mean score that is close to everything, so merging it again at once would soon merge all.
    fn merge_pairs(&mut self, mut excess: usize) {
        let (tolerance, gaps, interval) = (self.tolerance, self.gaps, self.interval);
        let mut last_is_merged = false;
        self.builders.dedup_by(|builder, last| {
            let merges = excess > 0 && !last_is_merged && last.can_merge(builder, tolerance, gaps, interval);
            if merges {
                last.merge(builder, interval);
                excess -= 1;
            }
            last_is_merged = merges;
            merges
        });
    }

    /// Appends `builder`, or merges it with the last one if that costs at most `tolerance`.
    fn push(&mut self, builder: RegionBuilder, tolerance: u64) {
        match self.builders.last_mut() {
            Some(last) if last.can_merge(&builder, tolerance, self.gaps, self.interval) => {
                last.merge(&builder, self.interval);
            }
            _ => self.builders.push(builder),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::super::MAX_NR_ACCESSES;
    use super::super::page_states::State;
    use super::*;

    use thermo_units::AddrRange;

    const SEC: Nanos = Nanos::secs(1);

    fn run(start: u64, end: u64, state: State) -> StateRun {
        StateRun {
            range: AddrRange::new(start * 4096, end * 4096),
            state,
        }
    }

    /// Regions of each target with these runs.
    fn coalesce_all<R: Iterator<Item = StateRun>>(
        runs: impl Iterator<Item = R>,
        max: usize,
        gaps: GapCost,
        now: Nanos,
        interval: Nanos,
    ) -> Vec<Vec<Region>> {
        let coalesced: Vec<CoalescedRuns> = runs
            .map(|runs| CoalescedRuns::new(runs, max, gaps, now, interval))
            .collect();
        let regions = coalesce_targets(coalesced.iter(), max, gaps, now, interval);
        regions.into_iter().map(|(regions, _)| regions).collect()
    }

    /// Regions of a single target, with a snapshot interval of one second.
    fn coalesce_one(runs: impl IntoIterator<Item = StateRun>, max: usize, now: Nanos) -> Vec<Region> {
        coalesce_all(iter::once(runs.into_iter()), max, GapCost::ByAccesses, now, SEC).remove(0)
    }

    fn shape(regions: &[Region]) -> Vec<(u64, u64, u32, u32)> {
        regions
            .iter()
            .map(|r| (r.range.start.0 / 4096, r.range.end.0 / 4096, r.nr_accesses, r.age))
            .collect()
    }

    #[test]
    fn each_run_becomes_region_within_limit() {
        let runs = [
            run(0, 10, State::Idle(Nanos::secs(40))),
            run(10, 12, State::Accessed(7)),
            run(12, 14, State::Accessed(2)),
            run(500, 510, State::Unknown),
        ];
        let regions = coalesce_one(runs, 10, Nanos::secs(100));
        assert_eq!(
            shape(&regions),
            [(0, 10, 0, 60), (10, 12, 70, 0), (12, 14, 20, 0), (500, 510, 0, 0)]
        );
        assert!(regions[3].unknown && !regions[0].unknown);
    }

    #[test]
    fn similar_idle_times_share_a_region() {
        // A slow pass found each tenth idle a second later than the previous one.
        let pass = (0..10).map(|nth| run(nth * 10, nth * 10 + 10, State::Idle(Nanos::secs(nth))));
        let later = [run(100, 200, State::Idle(Nanos::secs(60)))];
        let regions = coalesce_one(pass.chain(later), 1000, Nanos::secs(120));
        assert_eq!(shape(&regions), [(0, 100, 0, 115), (100, 200, 0, 60)]);
    }

    #[test]
    fn very_different_idle_times_stay_separate() {
        let interval = Nanos::millis(125);
        let (now, hours, minutes) = (Nanos::secs(100_000), Nanos::secs(36_000), Nanos::secs(2_400));
        let runs = [
            run(0, 1000, State::Idle(now - hours)),
            run(1000, 2000, State::Idle(now - minutes)),
        ];
        let regions = coalesce_all(
            iter::once(runs.into_iter()),
            100,
            GapCost::ByAccesses,
            now,
            interval,
        );
        let ages: Vec<u64> = regions[0]
            .iter()
            .map(|region| u64::from(region.age) / 8)
            .collect();
        assert_eq!(ages, [36_000, 2_400]);
    }

    #[test]
    fn adjacent_runs_in_same_state_merge() {
        let runs = [run(0, 512, State::Accessed(7)), run(512, 600, State::Accessed(7))];
        assert_eq!(shape(&coalesce_one(runs, 10, SEC)), [(0, 600, 70, 0)]);
    }

    #[test]
    fn smallest_difference_is_merged_first() {
        // A large idle part with one accessed page in it, and a large accessed part: the single page is
        // merged.
        let runs = [
            run(0, 1000, State::Idle(Nanos(0))),
            run(1000, 1001, State::Accessed(1)),
            run(1001, 2000, State::Idle(Nanos(0))),
            run(2000, 3000, State::Accessed(7)),
        ];
        let regions = coalesce_one(runs, 2, Nanos::secs(100));
        assert_eq!(regions.len(), 2);
        assert_eq!(
            (regions[0].range.end.0 / 4096, regions[1].nr_accesses),
            (2000, 70)
        );
        assert_eq!(
            regions[0].nr_accesses, 1,
            "a rarely accessed region must differ from an idle one"
        );
    }

    #[test]
    fn gaps_are_merged_last() {
        let runs = (0..100).map(|nth| {
            run(
                nth * 1000,
                nth * 1000 + 500,
                State::Accessed(1 + (nth as u32 / 50) * 6),
            )
        });
        let regions = coalesce_one(runs, 50, SEC);
        assert!(regions.len() <= 50);
        let present: u64 = regions.iter().filter_map(|r| r.resident).map(|b| b.0).sum();
        assert_eq!(present, 100 * 500 * 4096);
    }

    #[test]
    fn finely_mixed_memory_keeps_region_limit() {
        let runs = (0..100_000).map(|page| {
            let state = if page % 2 == 0 {
                State::Accessed(7)
            } else {
                State::Idle(Nanos(0))
            };
            run(page, page + 1, state)
        });
        let regions = coalesce_one(runs, 100, Nanos::secs(50));
        assert!(regions.len() <= 100);
        let covered: u64 = regions.iter().map(|r| r.len().0).sum();
        assert_eq!(covered, 100_000 * 4096);
    }

    #[test]
    fn coalescing_ends_for_extreme_numbers() {
        let far = [0, 1 << 63].map(|page_border| StateRun {
            range: AddrRange::new(page_border, page_border + 4096),
            state: State::Accessed(1),
        });
        assert_eq!(coalesce_one(far, usize::MAX, SEC).len(), 2);
        assert_eq!(coalesce_one(far, 1, SEC).len(), 1);
    }

    #[test]
    fn small_excess_merges_only_few_runs() {
        let runs = (0..1024).map(|nth| {
            let state = if nth % 2 == 0 {
                State::Accessed(7)
            } else {
                State::Idle(Nanos(0))
            };
            run(nth * 100, nth * 100 + 100, state)
        });
        let regions = coalesce_one(runs, 1000, Nanos::secs(50));
        assert_eq!(regions.len(), 1000);
        let exact = regions.iter().filter(|r| r.len().0 == 100 * 4096).count();
        assert_eq!(exact, 976, "24 pairs were merged");
    }

    /// A small process, in pages: binary, heap, libraries, an anonymous mapping between them of which 1/8 is
    /// accessed in every pass, and a stack.
    fn process() -> Vec<StateRun> {
        let idle = State::Idle(Nanos(0));
        let library = |nth: u64| run(1_000_000 + nth * 400, 1_000_010 + nth * 400, idle);
        let mut runs = vec![run(10, 30, idle), run(5000, 5050, State::Accessed(1))];
        runs.extend((0..4).map(library));
        runs.extend([
            run(1_002_000, 1_002_896, idle),
            run(1_002_896, 1_003_024, State::Accessed(7)),
        ]);
        runs.extend((10..14).map(library));
        runs.push(run(4_000_000, 4_000_020, State::Accessed(2)));
        runs
    }

    #[test]
    fn hot_memory_of_many_processes_keeps_own_regions() {
        let regions = coalesce_all(
            (0..200).map(|_| process().into_iter()),
            1000,
            GapCost::ByAccesses,
            Nanos::secs(60),
            SEC,
        );
        assert!(regions.iter().map(Vec::len).sum::<usize>() <= 1000);
        let hot = AddrRange::new(1_002_896 * 4096, 1_003_024 * 4096);
        for (nth, regions) in regions.iter().enumerate() {
            let found = regions
                .iter()
                .find(|region| region.nr_accesses > MAX_NR_ACCESSES / 2);
            assert_eq!(found.map(|region| region.range), Some(hot), "of process {nth}");
        }
    }

    #[test]
    fn mixed_targets_get_more_regions() {
        let plain = [run(0, 100_000, State::Idle(Nanos(0)))];
        let mixed = (0..20).map(|nth| match nth % 2 {
            0 => run(nth * 100, nth * 100 + 100, State::Accessed(7)),
            _ => run(nth * 100, nth * 100 + 100, State::Idle(Nanos(0))),
        });
        let runs = [plain.to_vec(), Vec::new(), mixed.collect()].map(Vec::into_iter);
        let regions = coalesce_all(runs.into_iter(), 21, GapCost::ByAccesses, Nanos::secs(50), SEC);
        assert_eq!(regions.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 20]);
    }

    #[test]
    fn regions_never_span_two_targets() {
        let runs = (0..5).map(|_| [run(7, 9, State::Accessed(7))].into_iter());
        let regions = coalesce_all(runs, 2, GapCost::ByAccesses, Nanos::secs(50), SEC);
        assert!(regions.iter().all(|regions| shape(regions) == [(7, 9, 70, 0)]));
    }

    #[test]
    fn idle_gap_is_merged_before_accessed_gap() {
        let runs = [
            run(0, 10, State::Accessed(7)),
            run(1000, 1010, State::Accessed(7)),
            run(2000, 2010, State::Idle(Nanos(0))),
            run(3000, 3010, State::Idle(Nanos(0))),
        ];
        let regions = coalesce_one(runs, 3, Nanos::secs(50));
        assert_eq!(
            shape(&regions),
            [(0, 10, 70, 0), (1000, 1010, 70, 0), (2000, 3010, 0, 50)]
        );
    }

    #[test]
    fn unknown_memory_stays_separate_from_long_idle() {
        let runs = [run(0, 10, State::Idle(Nanos(0))), run(10, 20, State::Unknown)];
        let regions = coalesce_one(runs, 10, Nanos::secs(1_000_000));
        assert_eq!(regions.len(), 2);
        assert!(!regions[0].unknown && regions[1].unknown);
    }

    #[test]
    fn gap_cost_by_bytes_avoids_gaps() {
        let runs = || {
            [
                run(0, 10, State::Idle(Nanos(0))),
                run(1000, 1010, State::Idle(Nanos(0))),
                run(1010, 1011, State::Accessed(7)),
            ]
        };
        let starts = |gaps| {
            let regions = coalesce_all(iter::once(runs().into_iter()), 2, gaps, Nanos::secs(50), SEC);
            regions[0]
                .iter()
                .map(|region| region.range.start.0 / 4096)
                .collect::<Vec<_>>()
        };
        assert_eq!(starts(GapCost::ByAccesses), [0, 1010]);
        assert_eq!(starts(GapCost::ByBytes), [0, 1000]);
    }

    #[test]
    fn gaps_of_terabytes_are_merged_last() {
        let runs = [
            run(1, 2, State::Idle(Nanos(0))),
            run(1 << 34, (1 << 34) + 1, State::Idle(Nanos(0))),
            run((1 << 34) + 5, (1 << 34) + 6, State::Accessed(7)),
        ];
        let regions = coalesce_one(runs, 2, Nanos::secs(50));
        assert_eq!(regions[0].range, AddrRange::new(4096, 8192));
    }

    #[test]
    fn regions_do_not_depend_on_target_order() {
        let mixed = |pages: u64| {
            (0..pages).map(|page| match page % 2 {
                0 => run(page, page + 1, State::Accessed(7)),
                _ => run(page, page + 1, State::Idle(Nanos(0))),
            })
        };
        let plain = || {
            [
                run(0, 1000, State::Idle(Nanos(0))),
                run(1000, 1500, State::Accessed(7)),
                run(1500, 3000, State::Idle(Nanos(0))),
            ]
        };
        let of = |targets: [Vec<StateRun>; 2]| {
            let runs = targets.map(Vec::into_iter).into_iter();
            coalesce_all(runs, 20, GapCost::ByAccesses, Nanos::secs(50), SEC)
        };
        let first = of([plain().to_vec(), mixed(5000).collect()]);
        let last = of([mixed(5000).collect(), plain().to_vec()]);
        assert_eq!(shape(&first[0]), shape(&last[1]));
        assert_eq!(first[0].len(), 3);
    }
}
