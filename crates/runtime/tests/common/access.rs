//! Access checks of targets: probes, scans, a context that scans, and shared memory.

use std::path::Path;

use thermo_actions::{Actor, PageoutLimits};
use thermo_backends::{PteTracker, Tracker as _};
use thermo_engine::budget::{CpuShare, MethodPolicy};
use thermo_engine::ops::{CheckResult, Probe};
use thermo_engine::scan::{ScanChunk, ScanResult};
use thermo_engine::{Attrs, Context, TargetId};
use thermo_kernel::maps;
use thermo_runtime::Vaddr;
use thermo_targets::{Processes, TargetSpec, TrackedProcesses};
use thermo_units::{Addr, AddrRange};

use super::Target;

/// A probe of target 0 without a result.
pub fn probe(addr: Addr) -> Probe {
    Probe {
        target: TargetId(0),
        addr,
        result: CheckResult::Unknown,
    }
}

/// Scans `range` of target 0.
pub fn scan(tracker: &mut PteTracker, processes: &Processes, range: AddrRange) -> ScanChunk {
    let mut chunk = ScanChunk::default();
    chunk.reset(range);
    let next = tracker.scan(&processes[&TargetId(0)], range, &mut chunk);
    assert_eq!(next, range.end);
    chunk
}

/// Number of pages of `range` with the result `seen`.
pub fn count(chunk: &ScanChunk, range: AddrRange, seen: ScanResult) -> usize {
    (range.start.0..range.end.0)
        .step_by(4096)
        .filter(|addr| chunk.get(Addr(*addr)) == seen)
        .count()
}

/// Number of pages of `range`.
pub fn pages(range: AddrRange) -> usize {
    usize::try_from(range.len().0 / 4096).unwrap()
}

/// A context that scans these processes without a CPU limit, and its operations.
pub fn scanning(pids: &[u32], tracker: PteTracker) -> (Context, Vaddr) {
    let spec = TargetSpec {
        pids: pids.to_vec(),
        ..TargetSpec::default()
    };
    let targets = TrackedProcesses::new(Path::new("/"), spec).unwrap();
    let actor = Actor::new(PageoutLimits::default(), false);
    let ops = Vaddr::new(Path::new("/"), targets, Box::new(tracker), actor);
    let context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(CpuShare(1_000_000), MethodPolicy::Scan);
    (context, ops)
}

/// The text of libc in the target, which other processes share. Prints the reason if there is none.
pub fn library(target: &Target) -> Option<AddrRange> {
    let mappings = maps::read(Path::new("/"), target.pid()).unwrap();
    let libc = mappings
        .iter()
        .find(|one| one.perms.exec && one.name.contains("/libc.so"));
    if libc.is_none() {
        eprintln!("SKIP: the test binary does not map a shared libc");
    }
    libc.map(|one| one.range)
}
