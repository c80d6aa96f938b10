//! Monitoring targets: probes, scans, a context that scans, and memory that others map, too.

use std::path::Path;

use thermo_actions::{Actor, PageoutLimits};
use thermo_backends::{PteTracker, Tracker as _};
use thermo_engine::budget::{CpuShare, MethodPolicy};
use thermo_engine::ops::{Probe, Seen};
use thermo_engine::scan::{PageSeen, ScanChunk};
use thermo_engine::{Attrs, Context, TargetId};
use thermo_kernel::maps;
use thermo_runtime::Vaddr;
use thermo_targets::{Processes, TargetSpec, TrackedProcesses};
use thermo_units::{Addr, AddrRange};

use super::Target;

/// A probe of target 0 of which nothing is known yet.
pub fn probe(addr: Addr) -> Probe {
    Probe {
        target: TargetId(0),
        addr,
        seen: Seen::Unknown,
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

/// How many pages of `range` were seen so.
pub fn count(piece: &ScanChunk, range: AddrRange, seen: PageSeen) -> usize {
    (range.start.0..range.end.0)
        .step_by(4096)
        .filter(|addr| piece.get(Addr(*addr)) == seen)
        .count()
}

/// How many pages `range` has.
pub fn pages(range: AddrRange) -> usize {
    usize::try_from(range.len().0 / 4096).unwrap()
}

/// A context on these processes that scans without a limit, and what it works on.
pub fn scanning(pids: &[u32], tracker: PteTracker) -> (Context, Vaddr) {
    let spec = TargetSpec {
        pids: pids.to_vec(),
        ..TargetSpec::default()
    };
    let members = TrackedProcesses::new(Path::new("/"), spec).unwrap();
    let actor = Actor::new(PageoutLimits::default(), false);
    let ops = Vaddr::new(Path::new("/"), members, Box::new(tracker), actor);
    let context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(CpuShare(1_000_000), MethodPolicy::Scan);
    (context, ops)
}

/// Where the target maps a library that others map, too; says why there is none otherwise.
pub fn library(target: &Target) -> Option<AddrRange> {
    let mappings = maps::read(Path::new("/"), target.pid()).unwrap();
    let libc = mappings
        .iter()
        .find(|one| one.perms.exec && one.name.contains("/libc.so"));
    if libc.is_none() {
        eprintln!("SKIP: the test binary has no libc that it shares with others");
    }
    libc.map(|one| one.range)
}
