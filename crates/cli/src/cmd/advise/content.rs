//! Samples pages: what they compress to, and whether one process alone maps them.
//!
//! It runs after the watching, so that reading the pages changes nothing that was watched.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use thermo_compress::{Candidate, ProcessReader, SampleSettings, Stratum as Memory, StratumResult};
use thermo_engine::access_tables::{Backing, PageKind, age_bucket};
use thermo_kernel::maps;
use thermo_kernel::pagemap::Pagemap;
use thermo_recording::model::{Region, Snapshot};
use thermo_report::advice::{ContentSample, Interval, Stratum};
use thermo_units::{AddrRange, Bytes, Nanos};

/// Backing and index of the idle age.
type Key = (Backing, usize);

/// What pages of the targets compress to, one result for each algorithm. Empty if no page could be read: the
/// targets have ended.
///
/// # Errors
/// A compression library fails.
pub(super) fn sample(last: &Snapshot, seed: u64) -> anyhow::Result<Vec<ContentSample>> {
    // Pages of files are not read: they need no swap.
    let strata = strata(last, |backing| backing != Backing::File);
    let settings = SampleSettings {
        seed,
        ..SampleSettings::default()
    };
    let found = thermo_compress::sample(&strata, &mut ProcessReader::new(), &settings)
        .context("cannot compress sampled pages")?;
    if found.total.nr_read == 0 {
        return Ok(Vec::new());
    }
    let sample = |algorithm: &thermo_compress::AlgorithmResult| ContentSample {
        algorithm: algorithm.algorithm.name().to_owned(),
        strata: found
            .strata
            .iter()
            .filter_map(|stratum| for_algorithm(stratum, algorithm.algorithm))
            .collect(),
        compress: algorithm.cpu_per_page.unwrap_or_default(),
    };
    Ok(found.total.algorithms.iter().map(sample).collect())
}

/// The result of one stratum for one algorithm; `None` if no page of it was read.
fn for_algorithm(stratum: &StratumResult<Key>, algorithm: thermo_compress::Algorithm) -> Option<Stratum> {
    let mut all = stratum.summary.algorithms.iter();
    let stored = all.find(|result| result.algorithm == algorithm)?.stored;
    let (backing, age) = stratum.key;
    Some(Stratum {
        backing,
        age,
        pages: stratum.summary.nr_read,
        share: Interval {
            low: stored.low,
            mid: stored.mean,
            high: stored.high,
        },
    })
}

/// The share of pages that one process alone maps, by backing and idle age. The kernel pages out no other page
/// (`MADV_PAGEOUT` in mm/madvise.c). Nothing is read of the pages.
pub(super) fn sample_exclusive(last: &Snapshot, seed: u64) -> Vec<Stratum> {
    let settings = SampleSettings {
        seed,
        ..SampleSettings::default()
    };
    let mut pagemaps: BTreeMap<u32, Option<Pagemap>> = BTreeMap::new();
    let shares = thermo_compress::sample_share(&strata(last, |_| true), &settings, |pid, addr| {
        // A process that has ended has no pages to judge.
        let open = || Pagemap::open(Path::new("/"), pid).ok();
        let pagemap = pagemaps.entry(pid).or_insert_with(open).as_ref()?;
        let page = pagemap.page(addr).ok()?;
        page.is_present().then(|| page.is_exclusive())
    });
    let stratum = |found: thermo_compress::ShareOf<Key>| Stratum {
        backing: found.key.0,
        age: found.key.1,
        pages: found.nr_pages,
        share: Interval {
            low: found.share.low,
            mid: found.share.mean,
            high: found.share.high,
        },
    };
    shares.into_iter().map(stratum).collect()
}

/// Memory by backing and idle age, of the backings that `is_wanted`.
fn strata(last: &Snapshot, is_wanted: impl Fn(Backing) -> bool) -> Vec<Memory<Key>> {
    let mut candidates: BTreeMap<Key, Vec<Candidate>> = BTreeMap::new();
    let mut bytes: BTreeMap<Key, Bytes> = BTreeMap::new();
    for target in &last.targets {
        let Some(pid) = target.pid else { continue };
        // A process that has ended has no mappings any more.
        let Ok(mappings) = maps::read(Path::new("/"), pid) else {
            continue;
        };
        let backings = thermo_targets::backings(&mappings);
        for region in target.regions.iter().filter(|region| !region.unknown) {
            let age = idle_age(region, last.aggr_ns);
            for (backing, range) in parts(region, &backings).filter(|(backing, _)| is_wanted(*backing)) {
                let found = candidates.entry((backing, age)).or_default();
                found.push(Candidate { pid, range });
            }
        }
        let tables = target.tables.as_deref();
        for (kind, ages) in PageKind::ALL
            .iter()
            .zip(tables.iter().flat_map(|tables| &tables.idle))
        {
            for (age, size) in ages.iter().enumerate() {
                *bytes.entry((kind.backing, age)).or_default() += *size;
            }
        }
    }
    let stratum = |(key, candidates)| Memory {
        key,
        bytes: bytes.get(&key).copied().unwrap_or_default(),
        candidates,
    };
    candidates.into_iter().map(stratum).collect()
}

fn idle_age(region: &Region, aggr_ns: u64) -> usize {
    if region.nr_accesses > 0 {
        return 0;
    }
    age_bucket(Nanos(u64::from(region.age).saturating_mul(aggr_ns)))
}

/// The parts of `region` in each mapping.
fn parts<'a>(
    region: &Region,
    backings: &'a [(AddrRange, Backing)],
) -> impl Iterator<Item = (Backing, AddrRange)> + 'a {
    let region = AddrRange::new(region.start, region.end);
    let first = backings.partition_point(|(range, _)| range.end <= region.start);
    let overlapping = backings.iter().skip(first);
    overlapping.map_while(move |(range, backing)| Some((*backing, range.intersection(&region)?)))
}
