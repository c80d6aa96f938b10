//! Runs of pages become regions: exact where there is room for it, joined where they differ least otherwise.

use super::heat::{Run, State};
use super::{MAX_NR_ACCESSES, PER_ROUND, WINDOW};
use crate::addr::AddrRange;
use crate::region::Region;
use crate::units::{Bytes, Nanos};

/// How many runs are held before they are joined, as a multiple of the regions wanted: bounds the memory that
/// finely mixed targets need.
const HELD: usize = 16;

/// A piece of memory on its way to become a region.
#[derive(Debug, Clone, Copy)]
struct Draft {
    range: AddrRange,
    /// Bytes in it that are there.
    present: u64,
    unknown: u64,
    /// Sum over its judged bytes of the rounds they were touched in.
    touched: u128,
    /// Sum over its judged bytes of how long they have been idle.
    idle: u128,
    /// How hot it is; see [`Draft::rate`].
    score: u64,
}

/// The regions of a target: at most `most`, from its `runs` (ascending), as of `now`; a round takes `interval`.
pub(crate) fn regions_of(
    runs: impl Iterator<Item = Run>,
    most: usize,
    now: Nanos,
    interval: Nanos,
) -> Vec<Region> {
    let most = most.max(1);
    let held = most.saturating_mul(HELD);
    let mut drafts: Vec<Draft> = Vec::new();
    let mut tolerance = 0;
    for run in runs {
        push(&mut drafts, Draft::new(&run, now, interval), tolerance, interval);
        if drafts.len() > held {
            tolerance = join_until(&mut drafts, held / 2, tolerance, interval);
        }
    }
    join_until(&mut drafts, most, tolerance, interval);
    drafts.iter().map(|draft| draft.region(interval)).collect()
}

/// Joins with ever larger tolerance until only `most` are left; returns the tolerance that took.
fn join_until(drafts: &mut Vec<Draft>, most: usize, mut tolerance: u64, interval: Nanos) -> u64 {
    while drafts.len() > most {
        let before = drafts.len();
        join_pairs(drafts, before - most, tolerance, interval);
        // More pairs of the same tolerance, while that gets somewhere.
        if (before - drafts.len()) * 8 < before {
            tolerance = tolerance.saturating_mul(2).max(1024);
        }
    }
    tolerance
}

/// Joins neighbours within `tolerance`, `excess` times at most and none twice: what was joined a moment ago is
/// between its parts and near to everything, so that all would become one.
fn join_pairs(drafts: &mut Vec<Draft>, mut excess: usize, tolerance: u64, interval: Nanos) {
    let mut last_is_joined = false;
    drafts.dedup_by(|draft, last| {
        let join = excess > 0 && !last_is_joined && last.cost_of_joining(draft, interval) <= tolerance;
        if join {
            last.join(draft, interval);
            excess -= 1;
        }
        last_is_joined = join;
        join
    });
}

/// Appends `draft`, or joins it to the last one where that puts at most `tolerance` bytes' worth into the wrong
/// place.
fn push(drafts: &mut Vec<Draft>, draft: Draft, tolerance: u64, interval: Nanos) {
    match drafts.last_mut() {
        Some(last) if last.cost_of_joining(&draft, interval) <= tolerance => last.join(&draft, interval),
        _ => drafts.push(draft),
    }
}

impl Draft {
    fn new(run: &Run, now: Nanos, interval: Nanos) -> Self {
        let len = run.range.len().0;
        let mut draft = Self {
            range: run.range,
            present: len,
            unknown: 0,
            touched: 0,
            idle: 0,
            score: 0,
        };
        match run.state {
            State::Touched(rounds) => draft.touched = u128::from(rounds) * u128::from(len),
            State::Idle(since) => draft.idle = u128::from(now.saturating_sub(since).0) * u128::from(len),
            State::Unknown => draft.unknown = len,
        }
        draft.score = draft.rate(interval);
        draft
    }

    fn judged(&self) -> u64 {
        self.present - self.unknown
    }

    /// One number for how hot it is: above [`WINDOW`] by the rounds it was touched in, below it the colder the
    /// longer it has been idle, each doubling of the time one step. In hundredths.
    fn rate(&self, interval: Nanos) -> u64 {
        let judged = u128::from(self.judged().max(1));
        let window = u64::from(WINDOW) * 100;
        if self.touched > 0 {
            return window + u64::try_from(self.touched * 100 / judged).unwrap_or(0);
        }
        let rounds = self.idle_time().0 / interval.0.max(1);
        window - (log2_hundredths(rounds.max(1)) / 2).min(window)
    }

    /// How long its judged pages have been idle, in the mean.
    fn idle_time(&self) -> Nanos {
        let mean = self.idle / u128::from(self.judged().max(1));
        Nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// True when both were never touched in the window and have been idle for about as long: within an eighth,
    /// or within what two rounds can tell apart.
    fn is_as_idle(&self, next: &Self, interval: Nanos) -> bool {
        let (a, b) = (self.idle_time().0, next.idle_time().0);
        let close = a.abs_diff(b) <= (a.max(b) / 8).max(interval.0.saturating_mul(2));
        self.touched == 0 && next.touched == 0 && close
    }

    /// How many bytes' worth of heat would be told wrongly if both were one region, holes between them
    /// included. Zero for neighbours that are alike.
    fn cost_of_joining(&self, next: &Self, interval: Nanos) -> u64 {
        let hole = (next.range.start - self.range.end).0;
        let unlike = match (self.unknown * 2 > self.present, next.unknown * 2 > next.present) {
            (false, false) if self.is_as_idle(next, interval) => 0,
            (false, false) => self.score.abs_diff(next.score),
            (true, true) => 0,
            // As far apart as can be: nobody should take the unknown for anything else.
            _ => u64::from(WINDOW) * 200,
        };
        let smaller = self.present.min(next.present);
        // A hole is told as present, which is wrong whatever the heat.
        (smaller / 100)
            .saturating_mul(unlike)
            .saturating_add(hole.saturating_mul(4))
    }

    fn join(&mut self, next: &Self, interval: Nanos) {
        self.range.end = next.range.end;
        self.present += next.present;
        self.unknown += next.unknown;
        self.touched += next.touched;
        self.idle += next.idle;
        self.score = self.rate(interval);
    }

    fn region(&self, interval: Nanos) -> Region {
        let judged = u128::from(self.judged().max(1));
        let nr_accesses = self.touched * u128::from(PER_ROUND) / judged;
        // Rarely touched is not never touched: at least one look saw something.
        let least = u128::from(self.touched > 0);
        let nr_accesses = u32::try_from(nr_accesses.max(least)).unwrap_or(MAX_NR_ACCESSES);
        let age = self.idle / judged / u128::from(interval.0.max(1));
        Region {
            nr_accesses,
            nr_accesses_bp: u64::from(nr_accesses) * 10_000,
            age: if self.touched > 0 {
                0
            } else {
                u32::try_from(age).unwrap_or(u32::MAX)
            },
            unknown: self.unknown * 2 > self.present,
            resident: Some(Bytes(self.present)),
            ..Region::new(self.range)
        }
    }
}

/// The logarithm to base two of `n`, at least 1, in hundredths; between powers of two along a line.
fn log2_hundredths(n: u64) -> u64 {
    let whole = u64::from(n.ilog2());
    let beyond = u128::from(n) * 100 / (1 << whole) - 100;
    whole * 100 + u64::try_from(beyond).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: Nanos = Nanos::secs(1);

    fn run(start: u64, end: u64, state: State) -> Run {
        Run {
            range: AddrRange::new(start * 4096, end * 4096),
            state,
        }
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
            run(10, 12, State::Touched(7)),
            run(12, 14, State::Touched(2)),
            run(500, 510, State::Unknown),
        ];
        let regions = regions_of(runs.into_iter(), 10, Nanos::secs(100), SEC);
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
        let regions = regions_of(pass.chain(later), 1000, Nanos::secs(120), SEC);
        assert_eq!(shape(&regions), [(0, 100, 0, 115), (100, 200, 0, 60)]);
    }

    #[test]
    fn logarithms_are_in_hundredths() {
        assert_eq!([1, 2, 3, 4, 1024].map(log2_hundredths), [0, 100, 150, 200, 1000]);
    }

    #[test]
    fn runs_that_are_alike_are_one_whatever_the_chunk() {
        let runs = [run(0, 512, State::Touched(7)), run(512, 600, State::Touched(7))];
        assert_eq!(
            shape(&regions_of(runs.into_iter(), 10, SEC, SEC)),
            [(0, 600, 70, 0)]
        );
    }

    #[test]
    fn without_room_the_least_difference_goes_first() {
        // A large cold part with one hot page in it, and a large hot part: the single page is given up.
        let runs = [
            run(0, 1000, State::Idle(Nanos(0))),
            run(1000, 1001, State::Touched(1)),
            run(1001, 2000, State::Idle(Nanos(0))),
            run(2000, 3000, State::Touched(7)),
        ];
        let regions = regions_of(runs.into_iter(), 2, Nanos::secs(100), SEC);
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
                State::Touched(1 + (nth as u32 / 50) * 6),
            )
        });
        let regions = regions_of(runs, 50, SEC, SEC);
        assert!(regions.len() <= 50);
        let present: u64 = regions.iter().filter_map(|r| r.resident).map(|b| b.0).sum();
        assert_eq!(present, 100 * 500 * 4096);
    }

    #[test]
    fn finely_mixed_memory_is_bounded() {
        let runs = (0..100_000).map(|page| {
            let state = if page % 2 == 0 {
                State::Touched(7)
            } else {
                State::Idle(Nanos(0))
            };
            run(page, page + 1, state)
        });
        let regions = regions_of(runs, 100, Nanos::secs(50), SEC);
        assert!(regions.len() <= 100);
        let covered: u64 = regions.iter().map(|r| r.len().0).sum();
        assert_eq!(covered, 100_000 * 4096);
    }

    #[test]
    fn numbers_of_any_size_end() {
        let far = [0, 1 << 63].map(|page_border| Run {
            range: AddrRange::new(page_border, page_border + 4096),
            state: State::Touched(1),
        });
        assert_eq!(regions_of(far.into_iter(), usize::MAX, SEC, SEC).len(), 2);
        assert_eq!(regions_of(far.into_iter(), 1, SEC, SEC).len(), 1);
    }

    #[test]
    fn a_few_too_many_do_not_blur_the_rest() {
        let runs = (0..1024).map(|nth| {
            let state = if nth % 2 == 0 {
                State::Touched(7)
            } else {
                State::Idle(Nanos(0))
            };
            run(nth * 100, nth * 100 + 100, state)
        });
        let regions = regions_of(runs, 1000, Nanos::secs(50), SEC);
        assert_eq!(regions.len(), 1000);
        let exact = regions.iter().filter(|r| r.len().0 == 100 * 4096).count();
        assert_eq!(exact, 976, "24 pairs were joined");
    }
}
