//! Net savings of paging out: decrease of the targets' resident memory, minus growth of zram and of the swap
//! cache. The swap cache holds the pages that a swap device did not take: they left the targets, but not
//! memory.
//!
//! All are measured between the first and the last reading of the session, over the targets that live at the
//! last reading: the memory of a process that ended was not saved by us. When all targets have ended, the
//! last reading with a living target counts. The numbers are the kernel's. So memory that targets allocate or
//! free themselves counts, and so do pages that other processes put into zram meanwhile.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;
use thermo_kernel::{meminfo, zram};
use thermo_recording::model::Record;
use thermo_units::Bytes;

/// Memory at the first and at the last reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetSavings {
    /// Resident memory of the targets at their first reading.
    pub rss_before: Bytes,
    /// Resident memory of the targets at the last reading.
    pub rss_after: Bytes,
    /// Memory that all zram devices used at the start of the session.
    pub zram_before: Bytes,
    /// Memory that all zram devices used at the last reading.
    pub zram_after: Bytes,
    /// The swap cache of the machine at the start of the session.
    pub swap_cache_before: Bytes,
    /// The swap cache at the last reading.
    pub swap_cache_after: Bytes,
}

impl NetSavings {
    /// Decrease of resident memory in bytes; negative when it grew.
    pub const fn rss_fell(&self) -> i64 {
        change(self.rss_after, self.rss_before)
    }

    /// Growth of zram in bytes; negative when it shrank.
    pub const fn zram_grew(&self) -> i64 {
        change(self.zram_before, self.zram_after)
    }

    /// Growth of the swap cache in bytes; negative when it shrank.
    pub const fn swap_cache_grew(&self) -> i64 {
        change(self.swap_cache_before, self.swap_cache_after)
    }

    /// Bytes saved; negative when more memory is used than before.
    pub const fn net(&self) -> i64 {
        let taken = self.zram_grew().saturating_add(self.swap_cache_grew());
        self.rss_fell().saturating_sub(taken)
    }

    /// One line of text.
    pub fn text(&self) -> String {
        let fell = self.rss_fell();
        let growth = |name: &str, bytes: i64| {
            let verb = if bytes < 0 { "shrank" } else { "grew" };
            format!(", {name} {verb} by {}", Bytes(bytes.unsigned_abs()))
        };
        let swap_cache = match self.swap_cache_grew() {
            0 => String::new(),
            bytes => growth("swap cache", bytes),
        };
        format!(
            "net saving {} (RSS {} by {}{}{swap_cache})\n",
            Bytes::signed(self.net()),
            if fell < 0 { "grew" } else { "fell" },
            Bytes(fell.unsigned_abs()),
            growth("zram", self.zram_grew()),
        )
    }
}

/// Adds `net_saved_bytes` and its parts to `totals`; null when nothing was measured.
pub fn add_savings_to_json(totals: &mut serde_json::Value, savings: Option<NetSavings>) {
    totals["net_saved_bytes"] = json!(savings.map(|savings| savings.net()));
    totals["rss_fell_bytes"] = json!(savings.map(|savings| savings.rss_fell()));
    totals["zram_grew_bytes"] = json!(savings.map(|savings| savings.zram_grew()));
    totals["swap_cache_grew_bytes"] = json!(savings.map(|savings| savings.swap_cache_grew()));
}

/// `b - a`.
const fn change(a: Bytes, b: Bytes) -> i64 {
    b.0.cast_signed().saturating_sub(a.0.cast_signed())
}

/// Measures savings while a session runs.
#[derive(Debug)]
pub struct SavingsMeter {
    zram_before: Bytes,
    swap_cache_before: Bytes,
    /// Resident memory of each living target at its first reading.
    first: BTreeMap<u32, u64>,
    last: Option<NetSavings>,
}

impl SavingsMeter {
    /// Reads the start values of zram and of the swap cache; `None` when one cannot be read.
    pub fn new(root: &Path) -> Option<Self> {
        let (zram_before, swap_cache_before) = outside(root)?;
        Some(Self {
            zram_before,
            swap_cache_before,
            first: BTreeMap::new(),
            last: None,
        })
    }

    /// Takes the footprints of the living targets, and reads zram.
    pub fn measure(&mut self, root: &Path, records: &[Record]) {
        let now: BTreeMap<u32, u64> = records.iter().filter_map(target_rss).collect();
        let first = |(target, rss): (&u32, &u64)| (*target, self.first.get(target).copied().unwrap_or(*rss));
        // Values of targets that ended are dropped: a session may see any number of targets.
        self.first = now.iter().map(first).collect();
        // Targets that ended freed their part of zram, so a reading without targets does not count.
        if let Some((zram_after, swap_cache_after)) = (!now.is_empty()).then(|| outside(root)).flatten() {
            self.last = Some(NetSavings {
                rss_before: Bytes(self.first.values().sum()),
                rss_after: Bytes(now.values().sum()),
                zram_before: self.zram_before,
                zram_after,
                swap_cache_before: self.swap_cache_before,
                swap_cache_after,
            });
        }
    }

    /// The savings until the last reading with a living target; `None` without such a reading.
    pub const fn savings(&self) -> Option<NetSavings> {
        self.last
    }
}

/// Memory of all zram devices, and the swap cache.
fn outside(root: &Path) -> Option<(Bytes, Bytes)> {
    let zram = zram::mem_used(root).ok()?;
    Some((zram, meminfo::read(root).ok()?.swap_cached))
}

fn target_rss(record: &Record) -> Option<(u32, u64)> {
    match record {
        Record::Footprint(footprint) => Some((footprint.target, footprint.rss)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_recording::model::Footprint;

    fn set_zram_used(root: &Path, bytes: u64) {
        let device = root.join("sys/block/zram1");
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("mm_stat"), format!("0 0 {bytes} 0 0 0 0 0 0\n")).unwrap();
        set_swap_cached(root, 0);
    }

    fn set_swap_cached(root: &Path, kib: u64) {
        std::fs::create_dir_all(root.join("proc")).unwrap();
        let text = format!("MemTotal: 100 kB\nSwapCached: {kib} kB\n");
        std::fs::write(root.join("proc/meminfo"), text).unwrap();
    }

    fn footprints(rss: &[(u32, u64)]) -> Vec<Record> {
        let one = |(target, rss): &(u32, u64)| {
            Record::Footprint(Footprint {
                time_ns: 0,
                target: *target,
                vsz: 0,
                rss: *rss,
                swap: 0,
            })
        };
        rss.iter().map(one).collect()
    }

    #[test]
    fn savings_exclude_zram_growth_and_ended_targets() {
        let root = tempfile::tempdir().unwrap();
        set_zram_used(root.path(), 1 << 20);
        let mut meter = SavingsMeter::new(root.path()).unwrap();
        assert_eq!(meter.savings(), None);
        meter.measure(root.path(), &footprints(&[(0, 100 << 20), (1, 50 << 20)]));
        set_zram_used(root.path(), 11 << 20);
        meter.measure(root.path(), &footprints(&[(0, 60 << 20)]));
        assert_eq!(meter.first.len(), 1, "the target that ended is dropped");
        // All have ended: the last reading with a target counts.
        set_zram_used(root.path(), 0);
        meter.measure(root.path(), &[]);
        let savings = meter.savings().unwrap();
        assert_eq!(
            savings.text(),
            "net saving 30.0 MiB (RSS fell by 40.0 MiB, zram grew by 10.0 MiB)\n"
        );
        let mut totals = json!({});
        add_savings_to_json(&mut totals, Some(savings));
        assert_eq!(totals["net_saved_bytes"], 30 << 20);
    }

    #[test]
    fn memory_in_the_swap_cache_is_not_saved() {
        let root = tempfile::tempdir().unwrap();
        set_zram_used(root.path(), 0);
        let mut meter = SavingsMeter::new(root.path()).unwrap();
        meter.measure(root.path(), &footprints(&[(0, 100 << 20)]));
        set_zram_used(root.path(), 23 << 20);
        set_swap_cached(root.path(), 24 << 10);
        meter.measure(root.path(), &footprints(&[(0, 46 << 20)]));
        assert_eq!(
            meter.savings().unwrap().text(),
            "net saving 7.00 MiB (RSS fell by 54.0 MiB, zram grew by 23.0 MiB, swap cache grew by 24.0 MiB)\n"
        );
    }

    #[test]
    fn losses_are_negative_savings() {
        let savings = NetSavings {
            rss_before: Bytes::mib(10),
            rss_after: Bytes::mib(16),
            zram_before: Bytes::mib(3),
            zram_after: Bytes::mib(1),
            swap_cache_before: Bytes::ZERO,
            swap_cache_after: Bytes::ZERO,
        };
        assert_eq!(
            savings.text(),
            "net saving -4.00 MiB (RSS grew by 6.00 MiB, zram shrank by 2.00 MiB)\n"
        );
    }
}
