//! One process of any size: what is touched follows from where it lies, so that no page takes memory here.
//!
//! Everything was touched once before it is looked at, and the hot parts are touched all the time. Looking costs what
//! it is told to cost. For growth: what a budget buys on a TiB, which no test machine has.

use std::collections::BTreeMap;

use thermo_engine::ops::{Applied, Outcome, Probe, Request, Seen, TargetRange};
use thermo_engine::scan::ScanChunk;
use thermo_engine::scheme::SystemMetric;
use thermo_engine::{Operations, OpsError, TargetId, TargetLayout};
use thermo_units::{Addr, AddrRange, Bytes, Nanos, PAGE_SIZE};

use crate::Simulated;

/// What looking at page tables costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookingCost {
    /// A probe: its mark taken off, and looked for.
    pub probe: Nanos,
    /// Reading the entries of a GiB.
    pub gib: Nanos,
    /// Taking the mark off one leaf.
    pub mark: Nanos,
}

/// The machine.
#[derive(Debug)]
pub struct Expanse {
    range: AddrRange,
    hot: Vec<AddrRange>,
    leaf: Bytes,
    cost: LookingCost,
    /// What was scanned: ends by their beginnings, disjoint. Accessed bits of the past are cleared there.
    scanned: BTreeMap<u64, u64>,
    spent: Nanos,
}

impl Expanse {
    /// A process that maps `range` by leaves of `leaf` bytes (4 KiB or 2 MiB), of which it uses `hot` (ascending,
    /// disjoint). All are multiples of `leaf`.
    #[must_use]
    pub const fn new(range: AddrRange, hot: Vec<AddrRange>, leaf: Bytes, cost: LookingCost) -> Self {
        Self {
            range,
            hot,
            leaf,
            cost,
            scanned: BTreeMap::new(),
            spent: Nanos::ZERO,
        }
    }

    /// What is hot.
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

    /// Notes that all marks of `range` are off; sweeps go on where they stopped.
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

impl Simulated for Expanse {
    fn spent_monitoring(&self) -> Nanos {
        self.spent
    }
}

impl Operations for Expanse {
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
            probe.seen = if self.is_hot(probe.addr) {
                Seen::Accessed
            } else {
                Seen::Idle
            };
        }
    }

    fn can_scan(&self) -> bool {
        true
    }

    fn scan(&mut self, run: &TargetRange, chunk: &mut ScanChunk) -> Addr {
        let next = run.range.end;
        let Some(there) = run.range.intersection(&self.range) else {
            return next;
        };
        let mut marked = 0;
        for start in (there.start.0..there.end.0).step_by(usize::try_from(self.leaf.0).unwrap_or(4096)) {
            let is_marked = self.is_hot(Addr(start)) || !self.was_scanned(Addr(start));
            marked += u64::from(is_marked);
            let end = there.end.0.min(start + self.leaf.0);
            (start..end)
                .step_by(PAGE_SIZE as usize)
                .for_each(|page| chunk.set(Addr(page), is_marked));
        }
        self.note_scanned(there);
        let gib = u128::from(self.cost.gib.0) * u128::from(there.len().0) / u128::from(Bytes::gib(1).0);
        let read = Nanos(u64::try_from(gib).unwrap_or(u64::MAX));
        self.spent += read + self.cost.mark * marked;
        next
    }

    fn any_target_left(&mut self) -> bool {
        true
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        Ok(Outcome {
            runs: vec![Applied::default(); request.runs.len()],
            ..Outcome::default()
        })
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        Err(OpsError::Unsupported {
            what: format!("{metric:?}"),
            why: "this simulated machine has none".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_engine::scan::PageSeen;

    const COST: LookingCost = LookingCost {
        probe: Nanos(2000),
        gib: Nanos::millis(1),
        mark: Nanos(100),
    };

    fn pages(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE)
    }

    fn seen(machine: &mut Expanse, range: AddrRange, addr: Addr) -> PageSeen {
        let mut chunk = ScanChunk::default();
        chunk.reset(range);
        let target = TargetId(0);
        machine.scan(&TargetRange { target, range }, &mut chunk);
        chunk.get(addr)
    }

    #[test]
    fn everything_is_marked_until_it_was_scanned_and_the_hot_part_stays_so() {
        let mut machine = Expanse::new(pages(0, 1000), vec![pages(10, 20)], Bytes(PAGE_SIZE), COST);
        assert_eq!(
            seen(&mut machine, pages(0, 500), Addr(30 << 12)),
            PageSeen::Accessed
        );
        assert_eq!(machine.spent, Nanos(500 * 100 + 1_000_000 * 500 / (1 << 18)));
        assert_eq!(seen(&mut machine, pages(0, 600), Addr(30 << 12)), PageSeen::Idle);
        assert_eq!(
            seen(&mut machine, pages(0, 600), Addr(10 << 12)),
            PageSeen::Accessed
        );
        assert_eq!(seen(&mut machine, pages(0, 600), Addr(599 << 12)), PageSeen::Idle);
        assert_eq!(
            seen(&mut machine, pages(600, 2000), Addr(999 << 12)),
            PageSeen::Accessed
        );
        assert_eq!(
            seen(&mut machine, pages(600, 2000), Addr(1000 << 12)),
            PageSeen::Absent
        );
        assert_eq!(machine.scanned.len(), 1, "what lies side by side is one");
    }
}
