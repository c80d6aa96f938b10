//! What becomes of memory that was paged out: still out, back in memory after some time, or freed.
//!
//! One page of each mebibyte that was paged out is looked up again, after 5 s and then at growing times, at
//! least each minute. It stands for the rest. With more than [`MAX_SAMPLES`] pages, each second one is
//! dropped and the others count double. A page without an entry in swap was freed if it had one before; pages
//! of files have none and count as out while they are not present.

use std::collections::BTreeMap;
use std::path::Path;

use thermo_engine::TargetId;
use thermo_kernel::clock;
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_targets::Processes;
use thermo_units::{Addr, AddrRange, Bytes, Nanos, PAGE_SIZE};

use super::range_ops;

/// Bytes that one page stands for at first.
const SPACING: Bytes = Bytes::mib(1);
/// Maximum number of pages that are looked up again.
const MAX_SAMPLES: usize = 8192;
/// Time until a page is looked up for the first time.
const FIRST_CHECK: Nanos = Nanos::secs(5);
/// Longest time between two looks at a page.
const MAX_PAUSE: Nanos = Nanos::secs(60);
/// Pages in a row among which a page that is out is searched.
const SEARCHED: u64 = 64;

/// What became of the memory of a target that was paged out. All but `still_out` and `in_swap` are sums since
/// the last call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Returns {
    /// Bytes that came back within a minute.
    pub within_1min: Bytes,
    /// Bytes that came back after a minute and within ten.
    pub within_10min: Bytes,
    /// Bytes that came back after ten minutes and within an hour.
    pub within_1h: Bytes,
    /// Bytes that came back after more than an hour.
    pub later: Bytes,
    /// Bytes that the process freed while they were out.
    pub freed: Bytes,
    /// Bytes that are out now.
    pub still_out: Bytes,
    /// The part of `still_out` that is in swap.
    pub in_swap: Bytes,
}

impl Returns {
    /// All bytes that came back.
    #[must_use]
    pub fn back(&self) -> Bytes {
        self.within_1min + self.within_10min + self.within_1h + self.later
    }

    fn add_back(&mut self, age: Nanos, bytes: Bytes) {
        let sum = match age {
            age if age <= Nanos::secs(60) => &mut self.within_1min,
            age if age <= Nanos::secs(600) => &mut self.within_10min,
            age if age <= Nanos::secs(3600) => &mut self.within_1h,
            _ => &mut self.later,
        };
        *sum += bytes;
    }
}

/// A page that was paged out.
#[derive(Debug, Clone, Copy)]
struct Sample {
    target: TargetId,
    page: Addr,
    is_swapped: bool,
    /// Bytes that it stands for.
    weight: Bytes,
    when: Nanos,
    last_check: Nanos,
    next_check: Nanos,
}

/// The pages that are looked up again.
#[derive(Debug)]
pub(super) struct ReturnSamples {
    samples: Vec<Sample>,
    spacing: Bytes,
    /// Bytes of each target that were paged out since its last sample.
    pending: BTreeMap<TargetId, Bytes>,
    /// Number of samples so far, from which the place of the next follows.
    drawn: u64,
}

impl Default for ReturnSamples {
    fn default() -> Self {
        Self {
            samples: Vec::new(),
            spacing: SPACING,
            pending: BTreeMap::new(),
            drawn: 0,
        }
    }
}

impl ReturnSamples {
    /// Records that `out` bytes of `ranges` were just paged out.
    pub(super) fn record(&mut self, pagemap: &Pagemap, target: TargetId, ranges: &[AddrRange], out: Bytes) {
        let pending = self.pending.entry(target).or_default();
        *pending += out;
        let wanted = pending.0 / self.spacing.0;
        if wanted == 0 || out == Bytes::ZERO {
            return;
        }
        let now = clock::monotonic();
        let mut found = Vec::new();
        for nth in 0..wanted {
            self.drawn = self.drawn.wrapping_add(1);
            let place = place(ranges, (nth, wanted), self.drawn);
            found.extend(place.and_then(|range| out_page(pagemap, range)));
        }
        // Where no page was found the next one stands for these bytes, too.
        let Some(weight) = pending.0.checked_div(found.len() as u64) else {
            return;
        };
        *pending = Bytes::ZERO;
        self.samples
            .extend(found.into_iter().map(|(page, is_swapped)| Sample {
                target,
                page,
                is_swapped,
                weight: Bytes(weight),
                when: now,
                last_check: now,
                next_check: now.saturating_add(FIRST_CHECK),
            }));
        while self.samples.len() > MAX_SAMPLES {
            self.thin_out();
        }
    }

    /// Looks up the pages that are due. Pages of targets that have ended are forgotten.
    pub(super) fn check(
        &mut self,
        root: &Path,
        processes: &Processes,
        now: Nanos,
    ) -> Vec<(TargetId, Returns)> {
        let mut pagemaps: BTreeMap<TargetId, Option<Pagemap>> = BTreeMap::new();
        let living: BTreeMap<TargetId, u32> = processes
            .iter()
            .filter(|(_, process)| process.is_alive())
            .map(|(target, process)| (*target, process.pid))
            .collect();
        let mut returns: BTreeMap<TargetId, Returns> = BTreeMap::new();
        self.pending.retain(|target, _| processes.contains_key(target));
        self.samples.retain_mut(|sample| {
            let Some(pid) = living.get(&sample.target) else {
                return false;
            };
            let sums = returns.entry(sample.target).or_default();
            if sample.next_check <= now {
                let pagemap = pagemaps
                    .entry(sample.target)
                    .or_insert_with(|| Pagemap::open(root, *pid).ok());
                // A pagemap that cannot be read says nothing: the page is looked up again later.
                let page = pagemap
                    .as_ref()
                    .and_then(|pagemap| pagemap.page(sample.page).ok());
                if page.is_some_and(|page| !sample.is_out(page, now, sums)) {
                    return false;
                }
                let age = now.saturating_sub(sample.when);
                sample.last_check = now;
                sample.next_check = now.saturating_add(Nanos(age.0 / 2).clamp(FIRST_CHECK, MAX_PAUSE));
            }
            sums.still_out += sample.weight;
            if sample.is_swapped {
                sums.in_swap += sample.weight;
            }
            true
        });
        returns.into_iter().collect()
    }

    fn thin_out(&mut self) {
        let mut nth = 0_usize;
        self.samples.retain_mut(|sample| {
            nth += 1;
            sample.weight += sample.weight;
            nth % 2 == 1
        });
        self.spacing += self.spacing;
    }
}

impl Sample {
    /// Whether the page is still out; otherwise adds it to `sums`.
    fn is_out(&self, page: Page, now: Nanos, sums: &mut Returns) -> bool {
        if page.is_present() {
            // It came back somewhere between the last check and now: in the middle, on average.
            let middle = self.last_check.0 / 2 + now.0 / 2;
            sums.add_back(Nanos(middle).saturating_sub(self.when), self.weight);
            return false;
        }
        if self.is_swapped && !page.is_swapped() {
            sums.freed += self.weight;
            return false;
        }
        true
    }
}

/// The pages to search for the `nth` of `count` samples, spread over `ranges`; `drawn` varies the place.
fn place(ranges: &[AddrRange], (nth, count): (u64, u64), drawn: u64) -> Option<AddrRange> {
    let total = range_ops::sum(ranges).0 / PAGE_SIZE;
    let part = (total / count).max(1);
    // The fractional part of multiples of the golden ratio is spread evenly.
    let within = drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15) % part;
    let mut page = (nth * part + within).min(total.checked_sub(1)?);
    for range in ranges {
        let pages = range.len().0 / PAGE_SIZE;
        if page < pages {
            let start = range.start.0 + page * PAGE_SIZE;
            let end = range.end.0.min(start + SEARCHED * PAGE_SIZE);
            return Some(AddrRange::new(start, end));
        }
        page -= pages;
    }
    None
}

/// A page of `range` that is out, and whether it is in swap. Pages in swap come first: others may never have
/// been present.
fn out_page(pagemap: &Pagemap, range: AddrRange) -> Option<(Addr, bool)> {
    let mut pages = Vec::new();
    pagemap.read(range, &mut pages).ok()?;
    let at = |nth: usize| Addr(range.start.0 + nth as u64 * PAGE_SIZE);
    let swapped = pages.iter().position(|page| page.is_swapped());
    swapped.map(|nth| (at(nth), true)).or_else(|| {
        let absent = pages.iter().position(|page| !page.is_present());
        absent.map(|nth| (at(nth), false))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    use super::*;
    use thermo_targets::Process;

    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const TARGET: TargetId = TargetId(3);

    /// A machine in which this process has the pagemap of the test.
    struct Machine {
        root: tempfile::TempDir,
        processes: Processes,
        pagemap: File,
    }

    impl Machine {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let pid = std::process::id();
            let folder = root.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&folder).unwrap();
            let pagemap = File::options()
                .create(true)
                .truncate(true)
                .write(true)
                .open(folder.join("pagemap"))
                .unwrap();
            let processes = Processes::from([(TARGET, Process::open(TARGET, pid).unwrap())]);
            Self {
                root,
                processes,
                pagemap,
            }
        }

        fn set(&self, pages: std::ops::Range<u64>, bits: u64) {
            for page in pages {
                self.pagemap.write_all_at(&bits.to_ne_bytes(), page * 8).unwrap();
            }
        }

        fn open(&self) -> Pagemap {
            Pagemap::open(self.root.path(), std::process::id()).unwrap()
        }

        fn check(&self, samples: &mut ReturnSamples, after: Nanos) -> Returns {
            let now = clock::monotonic().saturating_add(after);
            let found = samples.check(self.root.path(), &self.processes, now);
            found.first().map(|(_, returns)| *returns).unwrap_or_default()
        }
    }

    fn range(pages: u64) -> AddrRange {
        AddrRange::new(0, pages * PAGE_SIZE)
    }

    #[test]
    fn pages_are_followed_until_they_return() {
        let machine = Machine::new();
        machine.set(0..2048, SWAPPED);
        let mut samples = ReturnSamples::default();
        samples.record(&machine.open(), TARGET, &[range(2048)], Bytes::mib(8));
        let found = machine.check(&mut samples, Nanos::ZERO);
        assert_eq!((found.still_out, found.in_swap), (Bytes::mib(8), Bytes::mib(8)));
        machine.set(0..1024, PRESENT);
        let found = machine.check(&mut samples, Nanos::secs(30));
        assert_eq!(
            (found.within_1min, found.still_out),
            (Bytes::mib(4), Bytes::mib(4))
        );
        machine.set(1024..1536, 0);
        machine.set(1536..2048, PRESENT);
        let found = machine.check(&mut samples, Nanos::secs(500));
        assert_eq!((found.within_10min, found.freed), (Bytes::mib(2), Bytes::mib(2)));
        assert_eq!((found.back(), found.still_out), (Bytes::mib(2), Bytes::ZERO));
    }

    #[test]
    fn small_pieces_add_up_to_a_sample() {
        let machine = Machine::new();
        machine.set(0..256, SWAPPED);
        let mut samples = ReturnSamples::default();
        for nth in 0..256 {
            let page = AddrRange::new(nth * PAGE_SIZE, (nth + 1) * PAGE_SIZE);
            samples.record(&machine.open(), TARGET, &[page], Bytes(PAGE_SIZE));
        }
        let found = machine.check(&mut samples, Nanos::ZERO);
        assert_eq!(found.still_out, Bytes::mib(1));
    }

    #[test]
    fn number_of_samples_is_bounded_and_sums_stay() {
        let machine = Machine::new();
        machine.set(0..256, SWAPPED);
        let mut samples = ReturnSamples::default();
        let total = Bytes::mib(3 * MAX_SAMPLES as u64);
        samples.record(&machine.open(), TARGET, &[range(256)], total);
        assert!(samples.samples.len() <= MAX_SAMPLES);
        let found = machine.check(&mut samples, Nanos::ZERO);
        assert_eq!(found.still_out, total);
    }

    #[test]
    fn pages_of_files_are_out_while_absent() {
        let machine = Machine::new();
        machine.set(0..256, 0);
        let mut samples = ReturnSamples::default();
        samples.record(&machine.open(), TARGET, &[range(256)], Bytes::mib(1));
        let found = machine.check(&mut samples, Nanos::secs(3700));
        assert_eq!((found.still_out, found.in_swap), (Bytes::mib(1), Bytes::ZERO));
        machine.set(0..256, PRESENT);
        let found = machine.check(&mut samples, Nanos::secs(3 * 3700));
        assert_eq!(found.later, Bytes::mib(1));
    }

    #[test]
    fn targets_that_ended_are_forgotten() {
        let mut machine = Machine::new();
        machine.set(0..256, SWAPPED);
        let mut samples = ReturnSamples::default();
        samples.record(&machine.open(), TARGET, &[range(256)], Bytes::mib(1));
        machine.processes.clear();
        assert_eq!(machine.check(&mut samples, Nanos::secs(9)), Returns::default());
        assert!(samples.samples.is_empty() && samples.pending.is_empty());
    }
}
