//! Draws pages from strata, reads and compresses them.

use std::collections::BTreeSet;

use thermo_engine::rng::Rng;
use thermo_kernel::clock;
use thermo_units::{Addr, AddrRange, Bytes, Nanos, PAGE_SIZE};
use zeroize::Zeroizing;

use crate::algorithm::{Algorithm, CompressError, Compressor};
use crate::estimate::{Common, Estimate, StratumValues, estimate};
use crate::reader::PageReader;
use crate::result::{Compressed, Compressibility, SampledStratum, StratumResult, UnreadPages, summarize};
use crate::zram::{Page, StoredPage, ZramModel, is_same_filled};

/// For each page wanted, this many pages are drawn at most: a range may hold pages that are not in memory.
const DRAWS_PER_PAGE: usize = 8;

/// Memory from which pages are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The process.
    pub pid: u32,
    /// Addresses; only whole pages are drawn.
    pub range: AddrRange,
}

/// Memory of one sort, such as anonymous memory idle for one to two minutes.
#[derive(Debug, Clone)]
pub struct Stratum<K> {
    /// What the caller calls it.
    pub key: K,
    /// Resident memory of this sort: its weight.
    pub bytes: Bytes,
    /// Where that memory is. Pages of these ranges that are not in memory are skipped.
    pub candidates: Vec<Candidate>,
}

/// How many pages to draw, and what to do with them.
#[derive(Debug, Clone)]
pub struct SampleSettings {
    /// Number of pages over all strata, in proportion to their bytes.
    pub nr_pages: usize,
    /// Fewest pages of a stratum with bytes; these may add to `nr_pages`.
    pub min_per_stratum: usize,
    /// The same seed draws the same pages.
    pub seed: u64,
    /// The algorithms to compare, each on the same pages.
    pub algorithms: Vec<Algorithm>,
    /// The device that would store the pages.
    pub zram: ZramModel,
}

impl Default for SampleSettings {
    /// 400 pages, at least 8 of each stratum, all algorithms, zram of Linux 6.3 or newer.
    fn default() -> Self {
        Self {
            nr_pages: 400,
            min_per_stratum: 8,
            seed: 0,
            algorithms: Algorithm::ALL.to_vec(),
            zram: ZramModel::default(),
        }
    }
}

impl SampleSettings {
    /// Pages to draw of a stratum. `total`: bytes of all strata.
    fn pages_of<K>(&self, stratum: &Stratum<K>, total: u64) -> usize {
        if stratum.bytes.0 == 0 {
            return 0;
        }
        let share = stratum.bytes.0 as f64 / total as f64 * self.nr_pages as f64;
        (share.round() as usize).max(self.min_per_stratum)
    }
}

/// The share of pages that have a property.
#[derive(Debug, Clone, PartialEq)]
pub struct ShareOf<K> {
    /// The key given by the caller.
    pub key: K,
    /// Number of pages drawn.
    pub nr_pages: u64,
    /// The share.
    pub share: Estimate,
}

/// Draws pages of `strata`, as [`sample`] does, and estimates the share of those with a property. `has`: the
/// property of the page at an address of a process; `None` if the page is not in memory or cannot be judged.
/// Strata of which no page was judged have no result.
pub fn sample_share<K: Clone>(
    strata: &[Stratum<K>],
    settings: &SampleSettings,
    mut has: impl FnMut(u32, Addr) -> Option<bool>,
) -> Vec<ShareOf<K>> {
    let mut rng = Rng::new(settings.seed);
    let total: u64 = strata.iter().map(|stratum| stratum.bytes.0).sum();
    let mut values_of = |stratum: &Stratum<K>| {
        let wanted = settings.pages_of(stratum, total);
        let mut draws = Draws::new(&stratum.candidates, wanted);
        let mut values = Vec::with_capacity(wanted);
        while values.len() < wanted {
            let Some((pid, addr)) = draws.next(&mut rng) else {
                break;
            };
            values.extend(has(pid, addr).map(share_of));
        }
        StratumValues {
            weight: stratum.bytes.0 as f64,
            population: stratum.bytes.0 as f64 / PAGE_SIZE as f64,
            values,
        }
    };
    let values: Vec<StratumValues> = strata.iter().map(&mut values_of).collect();
    let common = Common::new(&values);
    let share = |(stratum, values): (&Stratum<K>, &StratumValues)| {
        Some(ShareOf {
            key: stratum.key.clone(),
            nr_pages: values.values.len() as u64,
            share: estimate(std::slice::from_ref(values), common)?,
        })
    };
    strata.iter().zip(&values).filter_map(share).collect()
}

/// Samples `strata`, and estimates what zram would store. Each page is read once at most, then compressed
/// with every algorithm; the buffer is erased at the end, also after an error or panic.
///
/// # Errors
/// Fails if a compression library fails. Pages that cannot be read are counted in the result.
pub fn sample<K: Clone>(
    strata: &[Stratum<K>],
    reader: &mut impl PageReader,
    settings: &SampleSettings,
) -> Result<Compressibility<K>, CompressError> {
    let started = clock::thread_cpu();
    let mut sampler = Sampler::new(reader, settings)?;
    let total: u64 = strata.iter().map(|stratum| stratum.bytes.0).sum();
    let sampled = strata
        .iter()
        .map(|stratum| sampler.sample_stratum(stratum, total))
        .collect::<Result<Vec<_>, _>>()?;
    drop(sampler);
    let algorithms = &settings.algorithms;
    let each = strata
        .iter()
        .zip(&sampled)
        .map(|(stratum, sampled_stratum)| StratumResult {
            key: stratum.key.clone(),
            summary: summarize(std::slice::from_ref(sampled_stratum), &sampled, algorithms),
        });
    Ok(Compressibility {
        strata: each.collect(),
        total: summarize(&sampled, &sampled, algorithms),
        cpu: Nanos(clock::thread_cpu().0.saturating_sub(started.0)),
    })
}

struct Sampler<'a, R> {
    reader: &'a mut R,
    settings: &'a SampleSettings,
    rng: Rng,
    compressors: Vec<Compressor>,
    page: Zeroizing<Page>,
}

impl<'a, R: PageReader> Sampler<'a, R> {
    fn new(reader: &'a mut R, settings: &'a SampleSettings) -> Result<Self, CompressError> {
        let compressors = settings
            .algorithms
            .iter()
            .map(|algorithm| Compressor::new(*algorithm));
        Ok(Self {
            reader,
            settings,
            rng: Rng::new(settings.seed),
            compressors: compressors.collect::<Result<_, _>>()?,
            page: Zeroizing::new([0; size_of::<Page>()]),
        })
    }

    fn sample_stratum<K>(
        &mut self,
        stratum: &Stratum<K>,
        total: u64,
    ) -> Result<SampledStratum, CompressError> {
        let wanted = self.settings.pages_of(stratum, total);
        let mut sampled = SampledStratum {
            bytes: stratum.bytes,
            unread: UnreadPages::default(),
            same_filled: Vec::new(),
            compressed: vec![Compressed::default(); self.compressors.len()],
        };
        let mut draws = Draws::new(&stratum.candidates, wanted);
        while sampled.same_filled.len() < wanted {
            let Some((pid, addr)) = draws.next(&mut self.rng) else {
                break;
            };
            match self.reader.read(pid, addr, &mut self.page) {
                Ok(()) => self.compress_into(&mut sampled)?,
                Err(reason) => sampled.unread.count(reason),
            }
        }
        Ok(sampled)
    }

    /// Compresses the page in the buffer with each algorithm.
    fn compress_into(&mut self, sampled: &mut SampledStratum) -> Result<(), CompressError> {
        let zram = &self.settings.zram;
        let is_same = is_same_filled(&self.page);
        sampled.same_filled.push(share_of(is_same));
        for (compressor, result) in self.compressors.iter_mut().zip(&mut sampled.compressed) {
            let stored = if is_same {
                StoredPage::SameFilled
            } else {
                let started = clock::thread_cpu();
                let len = compressor.compressed_len(&self.page)?;
                result.cpu.0 += clock::thread_cpu().0.saturating_sub(started.0);
                result.nr_compressed += 1;
                zram.stored(len)
            };
            result.stored.push(zram.bytes(stored) / size_of::<Page>() as f64);
            result.raw.push(share_of(stored == StoredPage::Raw));
            if let Some(len) = stored.object_len() {
                let class = zram.classes.class_of(len);
                result.classes.entry(class.size).or_insert((class, 0)).1 += 1;
            }
        }
        Ok(())
    }
}

fn share_of(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

/// Random pages of a stratum, each at most once.
struct Draws {
    pages: PagesOf,
    drawn: BTreeSet<u64>,
    /// Number of pages to draw at most.
    max: u64,
}

impl Draws {
    /// Draws for `wanted` pages of `candidates`.
    fn new(candidates: &[Candidate], wanted: usize) -> Self {
        let pages = PagesOf::new(candidates);
        let max = pages.nr.min((wanted * DRAWS_PER_PAGE) as u64);
        Self {
            pages,
            drawn: BTreeSet::new(),
            max,
        }
    }

    /// The process and address of the next page; `None` at the end.
    fn next(&mut self, rng: &mut Rng) -> Option<(u32, Addr)> {
        while (self.drawn.len() as u64) < self.max {
            let nth = rng.below(self.pages.nr);
            if self.drawn.insert(nth) {
                return self.pages.nth(nth);
            }
        }
        None
    }
}

/// The whole pages of candidates, numbered.
struct PagesOf {
    /// The number of the first page, the process and the address of each range.
    ranges: Vec<(u64, u32, Addr)>,
    nr: u64,
}

impl PagesOf {
    fn new(candidates: &[Candidate]) -> Self {
        let (mut ranges, mut nr) = (Vec::with_capacity(candidates.len()), 0);
        for Candidate { pid, range } in candidates {
            let (start, end) = (range.start.align_up(), range.end.align_down());
            let pages = end.0.saturating_sub(start.0) / PAGE_SIZE;
            if pages > 0 {
                ranges.push((nr, *pid, start));
                nr += pages;
            }
        }
        Self { ranges, nr }
    }

    /// The process and address of a page below `nr`.
    fn nth(&self, nth: u64) -> Option<(u32, Addr)> {
        let after = self.ranges.partition_point(|(first, ..)| *first <= nth);
        let (first, pid, start) = *self.ranges.get(after.checked_sub(1)?)?;
        Some((pid, Addr(start.0 + (nth - first) * PAGE_SIZE)))
    }
}

#[cfg(test)]
mod tests;
