//! Which swap the advice needs, and what the present set-up lacks.

use std::collections::BTreeMap;

use serde::Serialize;
use thermo_units::Bytes;

use super::content::Compression;

/// A slow algorithm is advised if it stores this share less than the best fast one.
const WORTH_SLOW: f64 = 0.85;
/// An algorithm that takes up to this many times the time of the fastest is fast, too. lz4 and lzo-rle take
/// about the same time, zstd twice to four times as long.
const FAST: f64 = 1.5;
/// A zram disk counts uncompressed bytes. What leaves varies, so that it gets half as much again.
const ZRAM_ROOM: f64 = 1.5;
const ZRAM_STEP: u64 = 64 << 20;

/// The swap of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SwapFacts {
    /// Devices and files in use.
    pub areas: Vec<SwapArea>,
    /// Whether zswap is enabled.
    pub zswap: bool,
    /// `vm.page-cluster`: a fault reads two to this power pages.
    pub page_cluster: u32,
    /// Whether the kernel has zram.
    pub has_zram: bool,
    /// Algorithms that the kernel offers for zram; empty if that is not known.
    pub algorithms: Vec<String>,
}

/// A swap device or file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapArea {
    /// Its path.
    pub path: String,
    /// Bytes that are free.
    pub free: Bytes,
    /// Whether it is a zram device.
    pub is_zram: bool,
}

/// The advice about swap.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SwapAdvice {
    /// Size of the zram disk to add; 0: none.
    pub zram_bytes: u64,
    /// The algorithm to use; `None` if nothing was sampled.
    pub algorithm: Option<String>,
    /// Stored size as a share of the memory's size, for each algorithm.
    pub ratio: BTreeMap<String, f64>,
    /// The interval of the advised algorithm's ratio.
    pub ratio_low: Option<f64>,
    /// Its upper end.
    pub ratio_high: Option<f64>,
    /// CPU time to compress a page in nanoseconds, for each algorithm.
    pub compress_ns: BTreeMap<String, u64>,
    /// What to do, as a sentence.
    pub why: String,
    /// What the present set-up lacks, as sentences.
    pub lacks: Vec<String>,
}

/// The algorithm to use, of those that the kernel offers: a slow one only if it stores much less.
pub(super) fn choose<'a>(all: &'a [Compression], offered: &[String]) -> Option<&'a Compression> {
    let is_offered = |one: &&Compression| offered.is_empty() || offered.contains(&one.algorithm);
    let by_share = |a: &&Compression, b: &&Compression| a.share.mid.total_cmp(&b.share.mid);
    let best = all.iter().filter(is_offered).min_by(by_share)?;
    let fastest = all.iter().filter(is_offered).map(|one| one.compress_ns).min()?;
    let is_fast = |one: &&Compression| one.compress_ns as f64 <= fastest as f64 * FAST;
    let fast = all.iter().filter(is_offered).filter(is_fast).min_by(by_share);
    match fast {
        Some(fast) if best.share.mid > fast.share.mid * WORTH_SLOW => Some(fast),
        _ => Some(best),
    }
}

/// The advice for `needed` bytes that leave to swap.
pub(super) fn advice(facts: &SwapFacts, all: &[Compression], needed: u64) -> SwapAdvice {
    let chosen = choose(all, &facts.algorithms);
    let algorithm = chosen.map(|chosen| chosen.algorithm.clone());
    let (zram_bytes, why) = size_and_reason(facts, algorithm.as_deref(), needed);
    SwapAdvice {
        zram_bytes,
        ratio: all
            .iter()
            .map(|one| (one.algorithm.clone(), one.share.mid))
            .collect(),
        ratio_low: chosen.map(|chosen| chosen.share.low),
        ratio_high: chosen.map(|chosen| chosen.share.high),
        compress_ns: all
            .iter()
            .map(|one| (one.algorithm.clone(), one.compress_ns))
            .collect(),
        algorithm,
        why,
        lacks: lacks(facts, needed),
    }
}

fn size_and_reason(facts: &SwapFacts, algorithm: Option<&str>, needed: u64) -> (u64, String) {
    let free = |is_zram: bool| -> u64 {
        let areas = facts.areas.iter().filter(|area| area.is_zram == is_zram);
        areas.map(|area| area.free.0).sum()
    };
    if needed == 0 {
        return (0, "no swap is needed: nothing would go there.".to_owned());
    }
    if free(true) >= needed {
        return (
            0,
            format!("the zram swap has room: {} are free.", Bytes(free(true))),
        );
    }
    if facts.zswap && free(false) >= needed {
        return (
            0,
            format!("zswap before a disk has room: {} are free.", Bytes(free(false))),
        );
    }
    let sized = (needed as f64 * ZRAM_ROOM) as u64;
    let zram = sized.max(1).next_multiple_of(ZRAM_STEP);
    let with = algorithm
        .map(|algorithm| format!(" with {algorithm}"))
        .unwrap_or_default();
    if !facts.has_zram {
        return (
            0,
            format!("this kernel has no zram; a swap of {} is needed.", Bytes(zram)),
        );
    }
    (zram, format!("add a zram disk of {}{with}.", Bytes(zram)))
}

fn lacks(facts: &SwapFacts, needed: u64) -> Vec<String> {
    let mut lacks = Vec::new();
    if facts.areas.is_empty() && needed > 0 {
        lacks.push("there is no swap: only pages of files can leave.".to_owned());
    }
    let has_zram = facts.areas.iter().any(|area| area.is_zram);
    let disk = facts.areas.iter().find(|area| !area.is_zram);
    if let Some(disk) = disk.filter(|_| !facts.zswap && !has_zram) {
        lacks.push(format!(
            "{} is on a disk, and a page from there takes about a hundred times as long as one from zram: add zram, \
             or enable zswap (/sys/module/zswap/parameters/enabled).",
            disk.path
        ));
    }
    if has_zram && facts.page_cluster > 0 {
        lacks.push(format!(
            "vm.page-cluster is {}: a fault decompresses {} pages, and one is enough with zram (sysctl \
             vm.page-cluster=0).",
            facts.page_cluster,
            1_u64 << facts.page_cluster.min(16)
        ));
    }
    lacks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Interval;

    fn compression(algorithm: &str, share: f64, compress_ns: u64) -> Compression {
        Compression {
            algorithm: algorithm.to_owned(),
            share: Interval::exact(share),
            compress_ns,
        }
    }

    #[test]
    fn slow_algorithm_must_store_much_less() {
        let lz4 = || compression("lz4", 0.4, 2000);
        let name = |all: &[Compression], offered: &[&str]| {
            let offered: Vec<String> = offered.iter().map(|&name| name.to_owned()).collect();
            choose(all, &offered).map(|chosen| chosen.algorithm.clone())
        };
        assert_eq!(
            name(&[lz4(), compression("zstd", 0.38, 20_000)], &[]).as_deref(),
            Some("lz4")
        );
        let much_less = [lz4(), compression("zstd", 0.3, 20_000)];
        assert_eq!(name(&much_less, &[]).as_deref(), Some("zstd"));
        assert_eq!(name(&much_less, &["lz4", "lzo-rle"]).as_deref(), Some("lz4"));
        assert_eq!(name(&[], &[]), None);
    }

    #[test]
    fn swap_is_added_only_where_room_is_missing() {
        let area = |is_zram, free| SwapArea {
            path: "/dev/sda2".to_owned(),
            free,
            is_zram,
        };
        let facts = |areas: Vec<SwapArea>| SwapFacts {
            areas,
            has_zram: true,
            ..SwapFacts::default()
        };
        let mib = 1 << 20;
        let none = advice(&facts(Vec::new()), &[], 100 * mib);
        assert_eq!(none.zram_bytes, 192 * mib);
        assert!(none.lacks[0].starts_with("there is no swap"), "{none:?}");
        let zram = advice(&facts(vec![area(true, Bytes::mib(200))]), &[], 100 * mib);
        assert_eq!((zram.zram_bytes, zram.lacks.len()), (0, 0));
        let disk = advice(&facts(vec![area(false, Bytes::mib(200))]), &[], 100 * mib);
        assert!(
            disk.zram_bytes > 0 && disk.lacks[0].contains("/dev/sda2"),
            "{disk:?}"
        );
        assert_eq!(advice(&facts(Vec::new()), &[], 0).zram_bytes, 0);
    }
}
