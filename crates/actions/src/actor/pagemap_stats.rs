//! How much of some memory is there: counted from the pagemap, whole or in samples.

use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

use super::plan::RangePlan;
use super::spans;

/// What is read at once of memory that is looked at whole.
const WHOLE: Bytes = Bytes::mib(16);
/// What is looked at in one place where memory is looked at in samples, and in how many places if they can be so large.
/// A look costs as much as reading 30 pages more: many small ones cost much, few large ones tell little.
const CHUNK: std::ops::RangeInclusive<Bytes> = Bytes::kib(16)..=Bytes::kib(64);
const PLACES: u64 = 8;
/// Ranges no farther apart are read in one go: reading what is between costs less than another call.
const GAP: Bytes = Bytes::kib(64);

/// What was found; estimates where the memory was larger than what was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PagemapStats {
    /// In memory.
    pub present: Bytes,
    /// In memory and mapped by others too.
    pub shared: Bytes,
}

impl PagemapStats {
    fn count(pages: &[Page]) -> Self {
        let (mut present, mut shared) = (0_u64, 0_u64);
        for page in pages.iter().filter(|page| page.is_present()) {
            present += 1;
            shared += u64::from(!page.is_exclusive());
        }
        Self {
            present: Bytes(present * PAGE_SIZE),
            shared: Bytes(shared * PAGE_SIZE),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.present += other.present;
        self.shared += other.shared;
    }
}

/// Looks at `ranges`: at all of them up to `most` bytes, and beyond that in places evenly spread over them, the same
/// ones each time. Nothing is present where the process does not let itself be read any more.
pub(super) fn survey(pagemap: &Pagemap, ranges: &[AddrRange], most: Bytes) -> PagemapStats {
    let total = spans::sum(ranges);
    let mut pages = Vec::new();
    let mut found = PagemapStats::default();
    let mut look = |at: AddrRange| {
        if pagemap.read(at, &mut pages).is_ok() {
            found.add(PagemapStats::count(&pages));
        }
    };
    if total <= most {
        spans::pieces(ranges, WHOLE).for_each(&mut look);
        return found;
    }
    let chunk = Bytes(most.0 / PLACES / PAGE_SIZE * PAGE_SIZE).clamp(*CHUNK.start(), *CHUNK.end());
    let nr_places = (most.0 / chunk.0).max(1);
    let mut looked = Bytes::ZERO;
    for place in places(ranges, total, nr_places, chunk) {
        looked += place.len();
        look(place);
    }
    let scaled = |found: Bytes| {
        let bytes = u128::from(found.0) * u128::from(total.0) / u128::from(looked.0.max(1));
        // Pages are there whole or not at all, also in an estimate.
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX).min(total.0) / PAGE_SIZE * PAGE_SIZE)
    };
    PagemapStats {
        present: scaled(found.present),
        shared: scaled(found.shared),
    }
}

/// `nr` places of `chunk` bytes, or what their range has, each in the middle of what it stands for.
fn places(ranges: &[AddrRange], total: Bytes, nr: u64, chunk: Bytes) -> impl Iterator<Item = AddrRange> {
    let mut before = Bytes::ZERO;
    let mut rest = ranges.iter();
    let mut range = rest.next();
    (0..nr).filter_map(move |nth| {
        let middle = u128::from(total.0) * u128::from(2 * nth + 1) / u128::from(2 * nr);
        let middle = Bytes(u64::try_from(middle).unwrap_or(u64::MAX));
        while range.is_some_and(|range| before + range.len() <= middle) {
            before += range?.len();
            range = rest.next();
        }
        let range = range?;
        let half = Bytes(chunk.0 / 2);
        let within = (middle - before).saturating_sub(half);
        let latest = range.len().saturating_sub(chunk);
        let start = (range.start + within.min(latest)).align_down().max(range.start);
        Some(AddrRange {
            start,
            end: range.end.min(start + chunk),
        })
    })
}

/// Looks at every page of each of `ranges` (of whole pages, ascending by where they begin); what lies near each other is
/// read in one go.
pub(super) fn survey_each(pagemap: &Pagemap, ranges: &[AddrRange]) -> Vec<PagemapStats> {
    let mut found = Vec::with_capacity(ranges.len());
    let mut pages = Vec::new();
    let mut rest = ranges;
    while !rest.is_empty() {
        let (span, nr) = spans::near(rest, GAP, WHOLE);
        let (together, others) = rest.split_at(nr);
        rest = others;
        if span.len() > WHOLE {
            found.push(survey(pagemap, together, span.len()));
            continue;
        }
        // What cannot be read is not there.
        if pagemap.read(span, &mut pages).is_err() {
            pages.clear();
        }
        let nth_page = |addr: Addr| ((addr - span.start).0 / PAGE_SIZE) as usize;
        found.extend(together.iter().map(|range| {
            let end = nth_page(range.end).min(pages.len());
            PagemapStats::count(pages.get(nth_page(range.start)..end).unwrap_or_default())
        }));
    }
    found
}

/// Every page of what each of `plans` keeps.
pub(super) fn survey_plans(pagemap: &Pagemap, plans: &[RangePlan]) -> Vec<PagemapStats> {
    let pieces = Pieces::of(plans);
    pieces.of_plans(plans.len(), &survey_each(pagemap, &pieces.ranges))
}

/// All that plans keep, ascending, and the plan each range is of.
struct Pieces {
    ranges: Vec<AddrRange>,
    owners: Vec<usize>,
}

impl Pieces {
    fn of(plans: &[RangePlan]) -> Self {
        let mut all: Vec<(AddrRange, usize)> = Vec::with_capacity(plans.len());
        for (nth, plan) in plans.iter().enumerate() {
            all.extend(plan.kept.iter().map(|range| (*range, nth)));
        }
        if !all.is_sorted() {
            all.sort_unstable();
        }
        let (ranges, owners) = all.into_iter().unzip();
        Self { ranges, owners }
    }

    /// What was found in each range, summed up for each of the plans.
    fn of_plans(&self, nr_plans: usize, found: &[PagemapStats]) -> Vec<PagemapStats> {
        let mut sums = vec![PagemapStats::default(); nr_plans];
        for (owner, found) in self.owners.iter().zip(found) {
            sums[*owner].add(*found);
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use thermo_engine::ops::Applied;

    use super::*;
    use crate::fake::pagemap;

    const PRESENT: u64 = 1 << 63;
    const EXCLUSIVE: u64 = 1 << 56;

    fn plan(from: u64, to: u64) -> RangePlan {
        let range = AddrRange::new(from << 20, to << 20);
        RangePlan {
            applied: Applied::default(),
            kept: Some(range)
                .filter(|range| !range.is_empty())
                .into_iter()
                .collect(),
        }
    }

    #[test]
    fn pieces_come_in_order_and_go_back_to_their_plans() {
        let plans = [plan(4, 5), plan(0, 0), plan(1, 3)];
        let pieces = Pieces::of(&plans);
        assert_eq!(pieces.owners, [2, 0]);
        let found = |mib| PagemapStats {
            present: Bytes::mib(mib),
            shared: Bytes::ZERO,
        };
        let of_plans = pieces.of_plans(3, &[found(2), found(1)]);
        assert_eq!(of_plans, [found(1), found(0), found(2)]);
    }

    #[test]
    fn an_estimate_is_of_whole_pages() {
        let map = pagemap(4096, |n| if n % 3 == 0 { PRESENT } else { 0 });
        for pages in [17, 100, 1000, 4095] {
            let found = survey(&map, &[AddrRange::new(0, pages * PAGE_SIZE)], Bytes::kib(128));
            assert!(found.present > Bytes::ZERO, "{pages} pages");
            assert_eq!(found.present.0 % PAGE_SIZE, 0, "{pages} pages");
            assert_eq!(found.shared, found.present, "{pages} pages");
        }
    }

    #[test]
    fn places_are_spread_and_lie_in_the_ranges() {
        let ranges = [
            AddrRange::new(0, 8 << 20),
            AddrRange::new(1 << 30, (1 << 30) + (8 << 20)),
        ];
        let found: Vec<AddrRange> = places(&ranges, Bytes::mib(16), 4, Bytes::kib(64)).collect();
        let at = |mib: u64| (mib << 20) - (32 << 10);
        let starts = [at(2), at(6), at(1024 + 2), at(1024 + 6)];
        assert_eq!(
            found,
            starts.map(|start| AddrRange::new(start, start + (64 << 10)))
        );
        // Ranges smaller than a place, and one place for many.
        let pages: Vec<AddrRange> = (0..100)
            .map(|n| AddrRange::new(n << 20, (n << 20) + 4096))
            .collect();
        let found: Vec<AddrRange> = places(&pages, Bytes(100 * 4096), 4, Bytes::kib(16)).collect();
        assert_eq!(found.len(), 4);
        assert!(found.iter().all(|place| pages.contains(place)), "{found:?}");
        assert_eq!(places(&[], Bytes::ZERO, 4, Bytes::kib(16)).count(), 0);
    }

    #[test]
    fn each_range_is_counted_by_itself() {
        let page = |n: u64| {
            if n < 5000 {
                PRESENT | (u64::from(n.is_multiple_of(2)) << 56)
            } else {
                0
            }
        };
        let map = pagemap(8192, page);
        let pages = |from: u64, to: u64| AddrRange::new(from << 12, to << 12);
        // Neighbours, one within another, near and far ones, one larger than is read at once, and one that reaches beyond
        // what there is.
        let ranges = [
            pages(0, 1),
            pages(1, 4),
            pages(2, 3),
            pages(10, 20),
            pages(20, 4999),
            pages(300, 400),
            pages(4998, 5002),
            pages(8190, 9000),
            pages(1 << 30, (1 << 30) + 1),
        ];
        let found = survey_each(&map, &ranges);
        let present: Vec<u64> = found.iter().map(|found| found.present.0 >> 12).collect();
        let shared: Vec<u64> = found.iter().map(|found| found.shared.0 >> 12).collect();
        assert_eq!(present, [1, 3, 1, 10, 4979, 100, 2, 0, 0]);
        assert_eq!(shared, [0, 2, 0, 5, 2489, 50, 1, 0, 0]);
        assert_eq!(survey_each(&map, &[]), []);
    }

    #[test]
    fn small_memory_is_counted_and_large_memory_estimated() {
        // Every second page is there, every fourth shared.
        let page = |n: u64| {
            if n % 2 == 1 {
                0
            } else {
                PRESENT | if n.is_multiple_of(4) { 0 } else { EXCLUSIVE }
            }
        };
        let map = pagemap(4096, page);
        let all = [AddrRange::new(0, 6 << 20), AddrRange::new(8 << 20, 16 << 20)];
        for most in [Bytes::mib(64), Bytes::mib(14), Bytes::mib(3), Bytes(1)] {
            let found = survey(&map, &all, most);
            assert_eq!(found.present, Bytes::mib(7), "looking at {most}");
            assert_eq!(found.shared, Bytes::kib(3584), "looking at {most}");
        }
        assert_eq!(survey(&map, &[], Bytes::mib(1)), PagemapStats::default());
        assert_eq!(
            survey(&map, &[AddrRange::new(1 << 40, 2 << 40)], Bytes::mib(1)),
            PagemapStats::default()
        );
    }
}
