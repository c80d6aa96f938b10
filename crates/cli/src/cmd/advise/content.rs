//! Samples pages: what they compress to, and whether one process alone maps them.
//!
//! It runs after the watching, so that reading the pages changes nothing that was watched.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use thermo_compress::{Candidate, ProcessReader, SampleSettings, Stratum as Memory, StratumResult};
use thermo_engine::SampledPage;
use thermo_engine::access_tables::{Backing, PageKind};
use thermo_kernel::maps;
use thermo_kernel::pagemap::Pagemap;
use thermo_recording::model::Snapshot;
use thermo_report::advice::{ContentSample, Interval, Stratum};
use thermo_units::{AddrRange, Bytes, PAGE_SIZE};

/// Backing and index of the idle age.
type Key = (Backing, usize);

/// What pages of the targets compress to, one result for each algorithm. Empty if no page could be read: the
/// targets have ended.
///
/// # Errors
/// A compression library fails.
pub(super) fn sample(strata: &[Memory<Key>], seed: u64) -> anyhow::Result<Vec<ContentSample>> {
    // Pages of files are not read: they need no swap.
    let swappable = strata.iter().filter(|stratum| stratum.key.0 != Backing::File);
    let strata: Vec<_> = swappable.cloned().collect();
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

/// The share of pages that one process alone maps, by backing and idle age. The kernel pages out no other
/// page (`MADV_PAGEOUT` in mm/madvise.c). Nothing is read of the pages.
pub(super) fn sample_exclusive(strata: &[Memory<Key>], seed: u64) -> Vec<Stratum> {
    let settings = SampleSettings {
        seed,
        ..SampleSettings::default()
    };
    let mut pagemaps: BTreeMap<u32, Option<Pagemap>> = BTreeMap::new();
    let shares = thermo_compress::sample_share(strata, &settings, |pid, addr| {
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

/// The memory of the last snapshot by backing and idle age, with the pages to sample it by.
pub(super) fn strata(last: &Snapshot, pages: &[SampledPage]) -> Vec<Memory<Key>> {
    let mut strata: BTreeMap<Key, (Bytes, Vec<Candidate>)> = BTreeMap::new();
    for target in &last.targets {
        let Some(pid) = target.pid else { continue };
        // A process that has ended has no mappings any more.
        let Ok(mappings) = maps::read(Path::new("/"), pid) else {
            continue;
        };
        let backings = thermo_targets::backings(&mappings);
        for page in pages.iter().filter(|page| page.target.0 == target.id) {
            let after = backings.partition_point(|(range, _)| range.end <= page.addr);
            let mapping = backings.get(after).filter(|(range, _)| range.start <= page.addr);
            if let Some((_, backing)) = mapping {
                let range = AddrRange::new(page.addr.0, page.addr.0 + PAGE_SIZE);
                let (_, candidates) = strata.entry((*backing, page.age)).or_default();
                candidates.push(Candidate { pid, range });
            }
        }
        let tables = target.tables.iter().flat_map(|tables| &tables.idle);
        for (kind, ages) in PageKind::ALL.iter().zip(tables) {
            for (age, size) in ages.iter().enumerate() {
                strata.entry((kind.backing, age)).or_default().0 += *size;
            }
        }
    }
    let stratum = |(key, (bytes, candidates))| Memory {
        key,
        bytes,
        candidates,
    };
    strata.into_iter().map(stratum).collect()
}
