//! One process of any size. Accesses are computed from addresses, so pages take no memory.
//!
//! Before monitoring starts, every page was accessed once; hot pages are accessed all the time. The costs of
//! monitoring are given. This machine shows what a CPU budget achieves on targets up to a TiB, which no test
//! machine has.

use std::collections::BTreeMap;

use thermo_engine::ops::{Applied, CheckResult, Outcome, Probe, Request, TargetRange};
use thermo_engine::scan::ScanChunk;
use thermo_engine::scheme::SystemMetric;
use thermo_engine::{Operations, OpsError, TargetId, TargetLayout};
use thermo_units::{Addr, AddrRange, Bytes, Nanos, PAGE_SIZE};

use crate::SimulatedMachine;

/// Costs of monitoring, as CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MonitoringCost {
    /// A probe: clear an accessed bit and check it later.
    pub probe: Nanos,
    /// Read the page-table entries of 1 GiB.
    pub read_gib: Nanos,
    /// Clear the accessed bit of one leaf entry.
    pub clear_bit: Nanos,
}

/// A machine with a single synthetic process.
#[derive(Debug)]
pub struct SyntheticProcess {
    range: AddrRange,
    hot: Vec<AddrRange>,
    leaf: Bytes,
    cost: MonitoringCost,
    /// Scanned memory: ends by starts, disjoint. Accessed bits from before the scan are cleared there.
    scanned: BTreeMap<u64, u64>,
    spent: Nanos,
}

impl SyntheticProcess {
    /// A process that maps `range` with leaf entries of `leaf` bytes (4 KiB or 2 MiB) and accesses `hot`
    /// (ascending, disjoint) all the time. All addresses are multiples of `leaf`.
    #[must_use]
    pub const fn new(range: AddrRange, hot: Vec<AddrRange>, leaf: Bytes, cost: MonitoringCost) -> Self {
        Self {
            range,
            hot,
            leaf,
            cost,
            scanned: BTreeMap::new(),
            spent: Nanos::ZERO,
        }
    }

    /// The hot ranges.
    #[must_use]
    pub fn hot(&self) -> &[AddrRange] {
        &self.hot
    }

    fn is_hot(&self, addr: Addr) -> bool {
        let next = self.hot.partition_point(|hot| hot.end <= addr);
        self.hot.get(next).is_some_and(|hot| hot.contains(addr))
    }

    fn was_scanned(&self, addr: Addr) -> bool {
        self.scanned
            .range(..=addr.0)
            .next_back()
            .is_some_and(|(_, end)| addr.0 < *end)
    }

    /// Records that the accessed bits of `range` are cleared. Scans are sequential, so at most one earlier
    /// range is merged.
    fn note_scanned(&mut self, range: AddrRange) {
        let before = self.scanned.range(..=range.start.0).next_back();
        let start = match before {
            Some((start, end)) if *end >= range.start.0 => *start,
            _ => range.start.0,
        };
        let end = self.scanned.get(&start).copied().unwrap_or(0).max(range.end.0);
        self.scanned.insert(start, end);
    }
}

impl SimulatedMachine for SyntheticProcess {
    fn spent_monitoring(&self) -> Nanos {
        self.spent
    }
}

impl Operations for SyntheticProcess {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        let layout = TargetLayout::new(TargetId(0), None, vec![self.range]);
        Ok(vec![TargetLayout {
            resident: Some(self.range.len()),
            ..layout
        }])
    }

    fn prepare_access_checks(&mut self, probes: &[Probe]) {
        self.spent += self.cost.probe * probes.len() as u64;
    }

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        for probe in probes {
            probe.result = if self.is_hot(probe.addr) {
                CheckResult::Accessed
            } else {
                CheckResult::Idle
            };
        }
    }

    fn can_scan(&self) -> bool {
        true
    }

    fn scan(&mut self, run: &TargetRange, chunk: &mut ScanChunk) -> Addr {
        let next = run.range.end;
        let Some(mapped) = run.range.intersection(&self.range) else {
            return next;
        };
        let mut nr_accessed = 0;
        for start in (mapped.start.0..mapped.end.0).step_by(usize::try_from(self.leaf.0).unwrap_or(4096)) {
            let is_accessed = self.is_hot(Addr(start)) || !self.was_scanned(Addr(start));
            nr_accessed += u64::from(is_accessed);
            let end = mapped.end.0.min(start + self.leaf.0);
            (start..end)
                .step_by(PAGE_SIZE as usize)
                .for_each(|page| chunk.set(Addr(page), is_accessed));
        }
        self.note_scanned(mapped);
        let read =
            u128::from(self.cost.read_gib.0) * u128::from(mapped.len().0) / u128::from(Bytes::gib(1).0);
        let read = Nanos(u64::try_from(read).unwrap_or(u64::MAX));
        self.spent += read + self.cost.clear_bit * nr_accessed;
        next
    }

    fn any_target_left(&mut self) -> bool {
        true
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        Ok(Outcome {
            results: vec![Applied::default(); request.ranges.len()],
            ..Outcome::default()
        })
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        Err(OpsError::Unsupported {
            what: format!("{metric:?}"),
            why: "this simulated machine has no metrics".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_engine::scan::ScanResult;

    const COST: MonitoringCost = MonitoringCost {
        probe: Nanos(2000),
        read_gib: Nanos::millis(1),
        clear_bit: Nanos(100),
    };

    fn pages(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE)
    }

    fn seen(machine: &mut SyntheticProcess, range: AddrRange, addr: Addr) -> ScanResult {
        let mut chunk = ScanChunk::default();
        chunk.reset(range);
        let target = TargetId(0);
        machine.scan(&TargetRange { target, range }, &mut chunk);
        chunk.get(addr)
    }

    #[test]
    fn scan_finds_all_pages_first_then_only_hot_ones() {
        let mut machine = SyntheticProcess::new(pages(0, 1000), vec![pages(10, 20)], Bytes(PAGE_SIZE), COST);
        assert_eq!(
            seen(&mut machine, pages(0, 500), Addr(30 << 12)),
            ScanResult::Accessed
        );
        assert_eq!(machine.spent, Nanos(500 * 100 + 1_000_000 * 500 / (1 << 18)));
        assert_eq!(
            seen(&mut machine, pages(0, 600), Addr(30 << 12)),
            ScanResult::Idle
        );
        assert_eq!(
            seen(&mut machine, pages(0, 600), Addr(10 << 12)),
            ScanResult::Accessed
        );
        assert_eq!(
            seen(&mut machine, pages(0, 600), Addr(599 << 12)),
            ScanResult::Idle
        );
        assert_eq!(
            seen(&mut machine, pages(600, 2000), Addr(999 << 12)),
            ScanResult::Accessed
        );
        assert_eq!(
            seen(&mut machine, pages(600, 2000), Addr(1000 << 12)),
            ScanResult::Absent
        );
        assert_eq!(machine.scanned.len(), 1, "adjacent ranges are merged");
    }
}
