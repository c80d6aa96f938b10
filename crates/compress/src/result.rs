//! What a sample says about the compressibility of memory.

use std::collections::BTreeMap;

use thermo_units::{Bytes, Nanos};

use crate::algorithm::Algorithm;
use crate::estimate::{Common, Estimate, StratumValues, estimate};
use crate::reader::Unread;
use crate::zsmalloc::SizeClass;

/// Drawn pages that could not be read, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnreadPages {
    /// Pages not in memory.
    pub not_present: u64,
    /// Pages of processes that had ended.
    pub process_ended: u64,
    /// Pages that the kernel refused to read.
    pub refused: u64,
}

impl UnreadPages {
    pub(crate) const fn count(&mut self, reason: Unread) {
        match reason {
            Unread::NotPresent => self.not_present += 1,
            Unread::ProcessEnded => self.process_ended += 1,
            Unread::Refused => self.refused += 1,
        }
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            not_present: self.not_present + other.not_present,
            process_ended: self.process_ended + other.process_ended,
            refused: self.refused + other.refused,
        }
    }
}

/// The result for one algorithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AlgorithmResult {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Memory that zram would occupy, as a share of the memory before.
    pub stored: Estimate,
    /// Memory of zspages that are partly filled, if the pool holds just this memory: half a zspage for each
    /// size class in use. Add it once to the stored bytes. It is at most about 1.5 MiB for a whole device, so
    /// it matters for small ones.
    pub partly_filled: Bytes,
    /// Share of memory that would be stored raw.
    pub raw: Estimate,
    /// Mean CPU time for one page that is not same-filled, on the sampling thread; `None` without such a
    /// page.
    pub cpu_per_page: Option<Nanos>,
}

/// The result for a stratum or for all strata.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Memory of the strata.
    pub bytes: Bytes,
    /// Memory of the strata of which at least one page was read. The shares hold for this memory.
    pub bytes_sampled: Bytes,
    /// Number of pages read and compressed.
    pub nr_read: u64,
    /// Pages that were drawn and could not be read.
    pub unread: UnreadPages,
    /// Share of memory in same-filled pages; `None` if no page was read.
    pub same_filled: Option<Estimate>,
    /// One result for each algorithm asked for; empty if no page was read.
    pub algorithms: Vec<AlgorithmResult>,
}

/// The result for one stratum.
#[derive(Debug, Clone, PartialEq)]
pub struct StratumResult<K> {
    /// The key given by the caller.
    pub key: K,
    /// The result.
    pub summary: Summary,
}

/// The result of a sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Compressibility<K> {
    /// All strata together, weighted by their bytes.
    pub total: Summary,
    /// Each stratum, in the order given.
    pub strata: Vec<StratumResult<K>>,
    /// CPU time of the whole sample on the sampling thread: reading and all algorithms.
    pub cpu: Nanos,
}

/// What one algorithm did to the pages of one stratum.
#[derive(Debug, Clone, Default)]
pub(crate) struct Compressed {
    /// For each page read: the stored size as a share of the page.
    pub(crate) stored: Vec<f64>,
    /// For each page read: 1 if stored raw.
    pub(crate) raw: Vec<f64>,
    /// The size classes of the objects with their number, by size.
    pub(crate) classes: BTreeMap<usize, (SizeClass, u64)>,
    /// CPU time and number of compressions.
    pub(crate) cpu: Nanos,
    pub(crate) nr_compressed: u64,
}

/// The pages of one stratum.
#[derive(Debug, Clone)]
pub(crate) struct SampledStratum {
    pub(crate) bytes: Bytes,
    pub(crate) unread: UnreadPages,
    /// For each page read: 1 if same-filled.
    pub(crate) same_filled: Vec<f64>,
    /// By algorithm, in the order of the settings.
    pub(crate) compressed: Vec<Compressed>,
}

impl SampledStratum {
    fn values(&self, values: &[f64]) -> StratumValues {
        StratumValues {
            weight: self.bytes.0 as f64,
            population: self.bytes.0 as f64 / size_of::<crate::zram::Page>() as f64,
            values: values.to_vec(),
        }
    }
}

/// Sums up `part`, strata of `all`. All of them say how much pages of a stratum differ.
pub(crate) fn summarize(
    part: &[SampledStratum],
    all: &[SampledStratum],
    algorithms: &[Algorithm],
) -> Summary {
    let bytes = |strata: &mut dyn Iterator<Item = &SampledStratum>| Bytes(strata.map(|s| s.bytes.0).sum());
    let shares = |values: &dyn Fn(&SampledStratum) -> &[f64]| {
        let of = |strata: &[SampledStratum]| -> Vec<StratumValues> {
            strata
                .iter()
                .map(|stratum| stratum.values(values(stratum)))
                .collect()
        };
        estimate(&of(part), Common::new(&of(all)))
    };
    let result = |(nth, algorithm): (usize, &Algorithm)| {
        let cpu: u64 = part.iter().map(|stratum| stratum.compressed[nth].cpu.0).sum();
        let nr: u64 = part
            .iter()
            .map(|stratum| stratum.compressed[nth].nr_compressed)
            .sum();
        Some(AlgorithmResult {
            algorithm: *algorithm,
            stored: shares(&|stratum| &stratum.compressed[nth].stored)?,
            partly_filled: partly_filled(part, nth),
            raw: shares(&|stratum| &stratum.compressed[nth].raw)?,
            cpu_per_page: cpu.checked_div(nr).map(Nanos),
        })
    };
    Summary {
        bytes: bytes(&mut part.iter()),
        bytes_sampled: bytes(&mut part.iter().filter(|stratum| !stratum.same_filled.is_empty())),
        nr_read: part.iter().map(|stratum| stratum.same_filled.len() as u64).sum(),
        unread: part
            .iter()
            .fold(UnreadPages::default(), |sum, stratum| sum.plus(stratum.unread)),
        same_filled: shares(&|stratum| &stratum.same_filled),
        algorithms: algorithms.iter().enumerate().filter_map(result).collect(),
    }
}

/// Half a zspage for each class that algorithm `nth` uses. Few pages do not show every class; the number of
/// unseen ones follows from those seen once and twice (Chao 1984, bias-corrected). Raw pages fill their
/// zspages.
fn partly_filled(part: &[SampledStratum], nth: usize) -> Bytes {
    let mut classes = BTreeMap::<usize, (SizeClass, u64)>::new();
    for (size, (class, nr)) in part.iter().flat_map(|stratum| &stratum.compressed[nth].classes) {
        classes.entry(*size).or_insert((*class, 0)).1 += nr;
    }
    classes.retain(|_, (class, _)| class.objs_per_zspage > 1);
    let seen_times = |times| classes.values().filter(|(_, nr)| *nr == times).count() as f64;
    let (once, twice, seen) = (seen_times(1), seen_times(2), classes.len() as f64);
    if seen == 0.0 {
        return Bytes(0);
    }
    let unseen = once * (once - 1.0) / (2.0 * (twice + 1.0));
    let zspages: u64 = classes.values().map(|(class, _)| class.zspage_bytes().0).sum();
    Bytes((zspages as f64 / 2.0 * (seen + unseen) / seen) as u64)
}
