//! Coalesces runs of pages into regions: exact where there is room for it, merged where they differ least otherwise.

use super::page_states::StateRun;
use super::region_builder::{GapCost, RegionBuilder};
use crate::region::Region;
use thermo_units::{Bytes, Nanos};

/// How many runs are held before they are merged, as a multiple of the regions wanted: bounds the memory that
/// finely mixed targets need.
const HELD: usize = 16;
/// But no more than these, of 112 bytes each, where so many are not wanted.
const MOST_HELD: usize = 1 << 17;

/// The runs of one target, coalesced as far as no snapshot of it has room for more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Condensed {
    builders: Vec<RegionBuilder>,
    /// When they were built.
    at: Nanos,
}

impl Condensed {
    /// At most `most` regions-to-be of `runs` (ascending), as of `now`; ages are counted in `interval`.
    pub(crate) fn of(
        runs: impl Iterator<Item = StateRun>,
        most: usize,
        gaps: GapCost,
        now: Nanos,
        interval: Nanos,
    ) -> Self {
        let most = most.max(1);
        let held = most
            .saturating_mul(HELD)
            .min(MOST_HELD)
            .max(most.saturating_mul(2));
        let mut coalescing = Coalescing::new(gaps, interval);
        let mut while_coming = 0;
        for run in runs {
            coalescing.push(RegionBuilder::new(&run, now, interval), while_coming);
            if coalescing.builders.len() > held {
                coalescing.until(held / 2);
                while_coming = coalescing.tolerance;
            }
        }
        coalescing.until(most);
        Self {
            builders: coalescing.builders,
            at: now,
        }
    }
}

/// The regions of targets, for each in turn, and how many of their resident bytes lie in regions that hold pages which
/// are not alike. At most `most` regions over all targets, as far as none of them has to be left out, as of `now`.
///
/// No target has a share of its own: merged is what misleads least wherever it lies, so that regions go where heat is
/// mixed, and bytes are what weighs.
pub(crate) fn regions_of<'a>(
    targets: impl Iterator<Item = &'a Condensed>,
    most: usize,
    gaps: GapCost,
    now: Nanos,
    interval: Nanos,
) -> Vec<(Vec<Region>, Bytes)> {
    let mut coalescing = Coalescing::new(gaps, interval);
    let mut nr_targets = 0;
    for condensed in targets {
        let older_by = now.saturating_sub(condensed.at);
        coalescing
            .builders
            .extend(condensed.builders.iter().map(|builder| {
                let mut builder = *builder;
                builder.target = nr_targets;
                builder.grow_older(older_by, interval);
                builder
            }));
        nr_targets += 1;
    }
    coalescing.until(most.max(1));
    let mut regions = vec![(Vec::new(), Bytes::ZERO); nr_targets];
    for builder in &coalescing.builders {
        let (regions, averaged) = &mut regions[builder.target];
        regions.push(builder.region(interval));
        *averaged += builder.averaged();
    }
    regions
}

/// Runs that are being coalesced.
struct Coalescing {
    builders: Vec<RegionBuilder>,
    /// Bytes' worth of heat that a merge may tell wrongly.
    tolerance: u64,
    gaps: GapCost,
    interval: Nanos,
}

impl Coalescing {
    const fn new(gaps: GapCost, interval: Nanos) -> Self {
        Self {
            builders: Vec::new(),
            tolerance: 0,
            gaps,
            interval,
        }
    }

    /// Merges with ever larger tolerance until only `most` are left, or one of each target.
    fn until(&mut self, most: usize) {
        while self.builders.len() > most {
            let before = self.builders.len();
            self.join_pairs(before - most);
            if self.builders.len() == before && self.tolerance == u64::MAX {
                break;
            }
            // More pairs of the same tolerance, while that gets somewhere.
            if (before - self.builders.len()) * 8 < before {
                self.tolerance = self.tolerance.saturating_mul(2).max(1024);
            }
        }
    }

    /// Merges neighbours within the tolerance, `excess` times at most and none twice: what was merged a moment ago is
    /// between its parts and near to everything, so that all would become one.
    fn join_pairs(&mut self, mut excess: usize) {
        let (tolerance, gaps, interval) = (self.tolerance, self.gaps, self.interval);
        let mut last_is_joined = false;
        self.builders.dedup_by(|builder, last| {
            let join = excess > 0 && !last_is_joined && last.can_join(builder, tolerance, gaps, interval);
            if join {
                last.join(builder, interval);
                excess -= 1;
            }
            last_is_joined = join;
            join
        });
    }

    /// Appends `builder`, or merges it with the last one where that puts at most `tolerance` bytes' worth into the wrong
    /// place.
    fn push(&mut self, builder: RegionBuilder, tolerance: u64) {
        match self.builders.last_mut() {
            Some(last) if last.can_join(&builder, tolerance, self.gaps, self.interval) => {
                last.join(&builder, self.interval);
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

    /// Of targets with these runs.
    fn coalesced<R: Iterator<Item = StateRun>>(
        runs: impl Iterator<Item = R>,
        most: usize,
        gaps: GapCost,
        now: Nanos,
        interval: Nanos,
    ) -> Vec<Vec<Region>> {
        let condensed: Vec<Condensed> = runs
            .map(|runs| Condensed::of(runs, most, gaps, now, interval))
            .collect();
        let regions = regions_of(condensed.iter(), most, gaps, now, interval);
        regions.into_iter().map(|(regions, _)| regions).collect()
    }

    /// Of a target by itself, in snapshots of a second.
    fn of_one(runs: impl IntoIterator<Item = StateRun>, most: usize, now: Nanos) -> Vec<Region> {
        coalesced(iter::once(runs.into_iter()), most, GapCost::ByHeat, now, SEC).remove(0)
    }

    fn shape(regions: &[Region]) -> Vec<(u64, u64, u32, u32)> {
        regions
            .iter()
            .map(|r| (r.range.start.0 / 4096, r.range.end.0 / 4096, r.nr_accesses, r.age))
            .collect()
    }

    #[test]
    fn with_room_every_run_is_a_region() {
        let runs = [
            run(0, 10, State::Idle(Nanos::secs(40))),
            run(10, 12, State::Accessed(7)),
            run(12, 14, State::Accessed(2)),
            run(500, 510, State::Unknown),
        ];
        let regions = of_one(runs, 10, Nanos::secs(100));
        assert_eq!(
            shape(&regions),
            [(0, 10, 0, 60), (10, 12, 70, 0), (12, 14, 20, 0), (500, 510, 0, 0)]
        );
        assert!(regions[3].unknown && !regions[0].unknown);
    }

    #[test]
    fn idle_for_about_as_long_is_one_region_and_twice_as_long_another() {
        // Touched by one slow pass: each tenth a second later than the one before.
        let pass = (0..10).map(|nth| run(nth * 10, nth * 10 + 10, State::Idle(Nanos::secs(nth))));
        let later = [run(100, 200, State::Idle(Nanos::secs(60)))];
        let regions = of_one(pass.chain(later), 1000, Nanos::secs(120));
        assert_eq!(shape(&regions), [(0, 100, 0, 115), (100, 200, 0, 60)]);
    }

    #[test]
    fn ten_hours_and_forty_minutes_are_never_the_same() {
        let interval = Nanos::millis(125);
        let (now, hours, minutes) = (Nanos::secs(100_000), Nanos::secs(36_000), Nanos::secs(2_400));
        let runs = [
            run(0, 1000, State::Idle(now - hours)),
            run(1000, 2000, State::Idle(now - minutes)),
        ];
        let regions = coalesced(iter::once(runs.into_iter()), 100, GapCost::ByHeat, now, interval);
        let ages: Vec<u64> = regions[0]
            .iter()
            .map(|region| u64::from(region.age) / 8)
            .collect();
        assert_eq!(ages, [36_000, 2_400]);
    }

    #[test]
    fn runs_that_are_alike_are_one_whatever_the_chunk() {
        let runs = [run(0, 512, State::Accessed(7)), run(512, 600, State::Accessed(7))];
        assert_eq!(shape(&of_one(runs, 10, SEC)), [(0, 600, 70, 0)]);
    }

    #[test]
    fn without_room_the_least_difference_goes_first() {
        // A large cold part with one hot page in it, and a large hot part: the single page is given up.
        let runs = [
            run(0, 1000, State::Idle(Nanos(0))),
            run(1000, 1001, State::Accessed(1)),
            run(1001, 2000, State::Idle(Nanos(0))),
            run(2000, 3000, State::Accessed(7)),
        ];
        let regions = of_one(runs, 2, Nanos::secs(100));
        assert_eq!(regions.len(), 2);
        assert_eq!(
            (regions[0].range.end.0 / 4096, regions[1].nr_accesses),
            (2000, 70)
        );
        assert_eq!(
            regions[0].nr_accesses, 1,
            "a page was touched: rarely is not never"
        );
    }

    #[test]
    fn holes_are_bridged_last() {
        let runs = (0..100).map(|nth| {
            run(
                nth * 1000,
                nth * 1000 + 500,
                State::Accessed(1 + (nth as u32 / 50) * 6),
            )
        });
        let regions = of_one(runs, 50, SEC);
        assert!(regions.len() <= 50);
        let present: u64 = regions.iter().filter_map(|r| r.resident).map(|b| b.0).sum();
        assert_eq!(present, 100 * 500 * 4096);
    }

    #[test]
    fn finely_mixed_memory_is_bounded() {
        let runs = (0..100_000).map(|page| {
            let state = if page % 2 == 0 {
                State::Accessed(7)
            } else {
                State::Idle(Nanos(0))
            };
            run(page, page + 1, state)
        });
        let regions = of_one(runs, 100, Nanos::secs(50));
        assert!(regions.len() <= 100);
        let covered: u64 = regions.iter().map(|r| r.len().0).sum();
        assert_eq!(covered, 100_000 * 4096);
    }

    #[test]
    fn numbers_of_any_size_end() {
        let far = [0, 1 << 63].map(|page_border| StateRun {
            range: AddrRange::new(page_border, page_border + 4096),
            state: State::Accessed(1),
        });
        assert_eq!(of_one(far, usize::MAX, SEC).len(), 2);
        assert_eq!(of_one(far, 1, SEC).len(), 1);
    }

    #[test]
    fn a_few_too_many_do_not_blur_the_rest() {
        let runs = (0..1024).map(|nth| {
            let state = if nth % 2 == 0 {
                State::Accessed(7)
            } else {
                State::Idle(Nanos(0))
            };
            run(nth * 100, nth * 100 + 100, state)
        });
        let regions = of_one(runs, 1000, Nanos::secs(50));
        assert_eq!(regions.len(), 1000);
        let exact = regions.iter().filter(|r| r.len().0 == 100 * 4096).count();
        assert_eq!(exact, 976, "24 pairs were joined");
    }

    /// A small process: binary and heap, libraries with idle memory of its own among them, of which an eighth is
    /// hot, and a stack; far apart from each other, as pages.
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
    fn what_is_hot_in_each_of_many_processes_is_found_though_regions_are_few() {
        let regions = coalesced(
            (0..200).map(|_| process().into_iter()),
            1000,
            GapCost::ByHeat,
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
    fn regions_go_where_heat_is_mixed() {
        let plain = [run(0, 100_000, State::Idle(Nanos(0)))];
        let mixed = (0..20).map(|nth| match nth % 2 {
            0 => run(nth * 100, nth * 100 + 100, State::Accessed(7)),
            _ => run(nth * 100, nth * 100 + 100, State::Idle(Nanos(0))),
        });
        let runs = [plain.to_vec(), Vec::new(), mixed.collect()].map(Vec::into_iter);
        let regions = coalesced(runs.into_iter(), 21, GapCost::ByHeat, Nanos::secs(50), SEC);
        assert_eq!(regions.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 20]);
    }

    #[test]
    fn no_target_is_joined_with_another() {
        let runs = (0..5).map(|_| [run(7, 9, State::Accessed(7))].into_iter());
        let regions = coalesced(runs, 2, GapCost::ByHeat, Nanos::secs(50), SEC);
        assert!(regions.iter().all(|regions| shape(regions) == [(7, 9, 70, 0)]));
    }

    #[test]
    fn a_hole_is_not_told_hot_where_there_is_another_way() {
        let runs = [
            run(0, 10, State::Accessed(7)),
            run(1000, 1010, State::Accessed(7)),
            run(2000, 2010, State::Idle(Nanos(0))),
            run(3000, 3010, State::Idle(Nanos(0))),
        ];
        let regions = of_one(runs, 3, Nanos::secs(50));
        assert_eq!(
            shape(&regions),
            [(0, 10, 70, 0), (1000, 1010, 70, 0), (2000, 3010, 0, 50)]
        );
    }

    #[test]
    fn the_unknown_is_told_apart_from_what_has_been_idle_for_days() {
        let runs = [run(0, 10, State::Idle(Nanos(0))), run(10, 20, State::Unknown)];
        let regions = of_one(runs, 10, Nanos::secs(1_000_000));
        assert_eq!(regions.len(), 2);
        assert!(!regions[0].unknown && regions[1].unknown);
    }

    #[test]
    fn schemes_are_told_of_no_hole_while_there_is_another_way() {
        let runs = || {
            [
                run(0, 10, State::Idle(Nanos(0))),
                run(1000, 1010, State::Idle(Nanos(0))),
                run(1010, 1011, State::Accessed(7)),
            ]
        };
        let told = |holes| {
            let regions = coalesced(iter::once(runs().into_iter()), 2, holes, Nanos::secs(50), SEC);
            regions[0]
                .iter()
                .map(|region| region.range.start.0 / 4096)
                .collect::<Vec<_>>()
        };
        assert_eq!(told(GapCost::ByHeat), [0, 1010]);
        assert_eq!(told(GapCost::ByBytes), [0, 1000]);
    }

    #[test]
    fn holes_of_terabytes_are_counted_like_others() {
        let runs = [
            run(1, 2, State::Idle(Nanos(0))),
            run(1 << 34, (1 << 34) + 1, State::Idle(Nanos(0))),
            run((1 << 34) + 5, (1 << 34) + 6, State::Accessed(7)),
        ];
        let regions = of_one(runs, 2, Nanos::secs(50));
        assert_eq!(regions[0].range, AddrRange::new(4096, 8192));
    }

    #[test]
    fn what_a_target_looks_like_does_not_depend_on_those_before_it() {
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
            coalesced(runs, 20, GapCost::ByHeat, Nanos::secs(50), SEC)
        };
        let first = of([plain().to_vec(), mixed(5000).collect()]);
        let last = of([mixed(5000).collect(), plain().to_vec()]);
        assert_eq!(shape(&first[0]), shape(&last[1]));
        assert_eq!(first[0].len(), 3);
    }
}
