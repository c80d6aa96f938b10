//! Counts present and shared memory from the pagemap, page by page or from samples.

use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

use super::plan::RangePlan;
use super::range_ops;

/// Bytes per read when every page is counted.
const READ_SIZE: Bytes = Bytes::mib(16);
/// Size of a sample. A read costs as much as 30 more pages: many small samples are slow, few large ones
/// inaccurate.
const SAMPLE_SIZE: std::ops::RangeInclusive<Bytes> = Bytes::kib(16)..=Bytes::kib(64);
/// Number of samples, unless the size limits require another.
const NR_SAMPLES: u64 = 8;
/// Ranges with at most this gap share a read: reading the gap costs less than another call.
const MAX_GAP: Bytes = Bytes::kib(64);

/// Counts of memory; estimates where only samples were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PagemapStats {
    /// Bytes in memory.
    pub present: Bytes,
    /// Bytes in memory that other processes map too.
    pub shared: Bytes,
    /// Bytes in memory of files that only the process maps.
    pub file: Bytes,
}

impl PagemapStats {
    fn count(pages: &[Page]) -> Self {
        let (mut present, mut shared, mut file) = (0_u64, 0_u64, 0_u64);
        for page in pages.iter().filter(|page| page.is_present()) {
            present += 1;
            shared += u64::from(!page.is_exclusive());
            file += u64::from(page.is_exclusive() && page.is_file());
        }
        Self {
            present: Bytes(present * PAGE_SIZE),
            shared: Bytes(shared * PAGE_SIZE),
            file: Bytes(file * PAGE_SIZE),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.present += other.present;
        self.shared += other.shared;
        self.file += other.file;
    }

    /// Bytes that the kernel moves to swap: present, of no file, and not shared.
    pub(super) fn swappable(&self) -> Bytes {
        self.present.saturating_sub(self.shared + self.file)
    }
}

/// Counts every page of `ranges` up to `max` bytes in total. Larger memory is estimated from `max` bytes of
/// samples, evenly spaced and the same each time. Memory that cannot be read counts as not present.
pub(super) fn count_or_estimate(pagemap: &Pagemap, ranges: &[AddrRange], max: Bytes) -> PagemapStats {
    let total = range_ops::sum(ranges);
    let mut pages = Vec::new();
    let mut found = PagemapStats::default();
    let mut count = |range: AddrRange| {
        if pagemap.read(range, &mut pages).is_ok() {
            found.add(PagemapStats::count(&pages));
        }
    };
    if total <= max {
        range_ops::pieces(ranges, READ_SIZE).for_each(&mut count);
        return found;
    }
    let sample_size =
        Bytes(max.0 / NR_SAMPLES / PAGE_SIZE * PAGE_SIZE).clamp(*SAMPLE_SIZE.start(), *SAMPLE_SIZE.end());
    let nr_samples = (max.0 / sample_size.0).max(1);
    let mut sampled = Bytes::ZERO;
    for sample in samples(ranges, total, nr_samples, sample_size) {
        sampled += sample.len();
        count(sample);
    }
    let scaled = |found: Bytes| {
        let bytes = u128::from(found.0) * u128::from(total.0) / u128::from(sampled.0.max(1));
        // Estimates are whole pages too.
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX).min(total.0) / PAGE_SIZE * PAGE_SIZE)
    };
    PagemapStats {
        present: scaled(found.present),
        shared: scaled(found.shared),
        file: scaled(found.file),
    }
}

/// `nr` samples of `size` bytes (less in smaller ranges), each in the middle of an equal share of the memory.
fn samples(ranges: &[AddrRange], total: Bytes, nr: u64, size: Bytes) -> impl Iterator<Item = AddrRange> {
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
        let half = Bytes(size.0 / 2);
        let within = (middle - before).saturating_sub(half);
        let latest = range.len().saturating_sub(size);
        let start = (range.start + within.min(latest)).align_down().max(range.start);
        Some(AddrRange {
            start,
            end: range.end.min(start + size),
        })
    })
}

/// Counts every page of each of `ranges` (whole pages, ascending by start). Ranges near each other share a
/// read.
pub(super) fn count_each(pagemap: &Pagemap, ranges: &[AddrRange]) -> Vec<PagemapStats> {
    let mut found = Vec::with_capacity(ranges.len());
    let mut pages = Vec::new();
    let mut rest = ranges;
    while !rest.is_empty() {
        let (span, nr) = range_ops::near(rest, MAX_GAP, READ_SIZE);
        let (group, others) = rest.split_at(nr);
        rest = others;
        if span.len() > READ_SIZE {
            found.push(count_or_estimate(pagemap, group, span.len()));
            continue;
        }
        // Unreadable memory counts as not present.
        if pagemap.read(span, &mut pages).is_err() {
            pages.clear();
        }
        let nth_page = |addr: Addr| ((addr - span.start).0 / PAGE_SIZE) as usize;
        found.extend(group.iter().map(|range| {
            let end = nth_page(range.end).min(pages.len());
            PagemapStats::count(pages.get(nth_page(range.start)..end).unwrap_or_default())
        }));
    }
    found
}

/// Counts every kept page of each of `plans`.
pub(super) fn count_plans(pagemap: &Pagemap, plans: &[RangePlan]) -> Vec<PagemapStats> {
    let kept = KeptRanges::new(plans);
    kept.sum_by_plan(plans.len(), &count_each(pagemap, &kept.ranges))
}

/// The kept ranges of all plans, ascending, and the index of each range's plan.
struct KeptRanges {
    ranges: Vec<AddrRange>,
    owners: Vec<usize>,
}

impl KeptRanges {
    fn new(plans: &[RangePlan]) -> Self {
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

    /// Sums the counts of the ranges for each plan.
    fn sum_by_plan(&self, nr_plans: usize, found: &[PagemapStats]) -> Vec<PagemapStats> {
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
    fn kept_ranges_are_sorted_and_summed_by_plan() {
        let plans = [plan(4, 5), plan(0, 0), plan(1, 3)];
        let kept = KeptRanges::new(&plans);
        assert_eq!(kept.owners, [2, 0]);
        let found = |mib| PagemapStats {
            present: Bytes::mib(mib),
            ..PagemapStats::default()
        };
        let sums = kept.sum_by_plan(3, &[found(2), found(1)]);
        assert_eq!(sums, [found(1), found(0), found(2)]);
    }

    #[test]
    fn estimate_is_whole_pages() {
        let map = pagemap(4096, |n| if n % 3 == 0 { PRESENT } else { 0 });
        for pages in [17, 100, 1000, 4095] {
            let found = count_or_estimate(&map, &[AddrRange::new(0, pages * PAGE_SIZE)], Bytes::kib(128));
            assert!(found.present > Bytes::ZERO, "{pages} pages");
            assert_eq!(found.present.0 % PAGE_SIZE, 0, "{pages} pages");
            assert_eq!(found.shared, found.present, "{pages} pages");
        }
    }

    #[test]
    fn samples_are_evenly_spaced_within_ranges() {
        let ranges = [
            AddrRange::new(0, 8 << 20),
            AddrRange::new(1 << 30, (1 << 30) + (8 << 20)),
        ];
        let found: Vec<AddrRange> = samples(&ranges, Bytes::mib(16), 4, Bytes::kib(64)).collect();
        let at = |mib: u64| (mib << 20) - (32 << 10);
        let starts = [at(2), at(6), at(1024 + 2), at(1024 + 6)];
        assert_eq!(
            found,
            starts.map(|start| AddrRange::new(start, start + (64 << 10)))
        );
        // Ranges smaller than a sample, and fewer samples than ranges.
        let pages: Vec<AddrRange> = (0..100)
            .map(|n| AddrRange::new(n << 20, (n << 20) + 4096))
            .collect();
        let found: Vec<AddrRange> = samples(&pages, Bytes(100 * 4096), 4, Bytes::kib(16)).collect();
        assert_eq!(found.len(), 4);
        assert!(found.iter().all(|sample| pages.contains(sample)), "{found:?}");
        assert_eq!(samples(&[], Bytes::ZERO, 4, Bytes::kib(16)).count(), 0);
    }

    #[test]
    fn count_each_counts_every_range() {
        let page = |n: u64| {
            if n < 5000 {
                PRESENT | (u64::from(n.is_multiple_of(2)) << 56)
            } else {
                0
            }
        };
        let map = pagemap(8192, page);
        let pages = |from: u64, to: u64| AddrRange::new(from << 12, to << 12);
        // Adjacent, nested, near and distant ranges, one larger than a read, and one beyond the end of the
        // pagemap.
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
        let found = count_each(&map, &ranges);
        let present: Vec<u64> = found.iter().map(|found| found.present.0 >> 12).collect();
        let shared: Vec<u64> = found.iter().map(|found| found.shared.0 >> 12).collect();
        assert_eq!(present, [1, 3, 1, 10, 4979, 100, 2, 0, 0]);
        assert_eq!(shared, [0, 2, 0, 5, 2489, 50, 1, 0, 0]);
        assert_eq!(count_each(&map, &[]), []);
    }

    #[test]
    fn estimate_matches_count_for_uniform_memory() {
        // Every second page is present, every fourth shared.
        let page = |n: u64| {
            if n % 2 == 1 {
                0
            } else {
                PRESENT | if n.is_multiple_of(4) { 0 } else { EXCLUSIVE }
            }
        };
        let map = pagemap(4096, page);
        let all = [AddrRange::new(0, 6 << 20), AddrRange::new(8 << 20, 16 << 20)];
        for max in [Bytes::mib(64), Bytes::mib(14), Bytes::mib(3), Bytes(1)] {
            let found = count_or_estimate(&map, &all, max);
            assert_eq!(found.present, Bytes::mib(7), "reading at most {max}");
            assert_eq!(found.shared, Bytes::kib(3584), "reading at most {max}");
        }
        assert_eq!(
            count_or_estimate(&map, &[], Bytes::mib(1)),
            PagemapStats::default()
        );
        assert_eq!(
            count_or_estimate(&map, &[AddrRange::new(1 << 40, 2 << 40)], Bytes::mib(1)),
            PagemapStats::default()
        );
    }
}
