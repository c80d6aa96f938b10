//! Tracker `smaps`: needs no privilege for processes of the same user, and is coarse.
//!
//! The kernel clears the accessed bits of a whole address space (`clear_refs`) and counts, per mapping, how
//! many bytes were accessed since (`Referenced`), but not *which* pages. So a probe is answered at random:
//! accessed with probability `Referenced / size of its mapping`. Over many probes the bytes found accessed
//! are those that the kernel counted. But a mapping with a hot part looks warm everywhere, and small
//! differences are noise.
//!
//! `clear_refs` flushes no TLB, so pages in use look idle for up to 100 ms. Clearing and reading hold the
//! lock of the address space for 12 to 39 ms a GiB. So a round of clearing and reading takes at least 100 ms,
//! and at least fifty times as long as clearing and reading took in the last round. With a shorter sampling
//! interval, checks in between are answered from the last round. Before the first round is complete, all
//! probes are unknown.
//!
//! For a large process the last round may be minutes old. Memory that was mapped or made accessible since,
//! e.g. by a growing heap, is *unknown* until the next round. The list of mappings, which is cheap to read,
//! distinguishes it from addresses that cannot be accessed, which are idle. Mappings that the kernel does not
//! count are always unknown: hugetlb pages and device memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use thermo_engine::TargetId;
use thermo_engine::ops::{CheckResult, Probe};
use thermo_engine::rng::Rng;
use thermo_kernel::clear_refs;
use thermo_kernel::clock;
use thermo_kernel::maps::{self, Mapping};
use thermo_kernel::smaps::{self, Vma};
use thermo_targets::Processes;
use thermo_units::{Addr, AddrRange, Nanos};

use crate::tracker::Tracker;

/// Minimum time between clearing and reading.
const MIN_ROUND: Nanos = Nanos::millis(100);
/// At most one part in this many of the time is spent clearing and reading.
const WALK_SHARE: u64 = 50;

/// Tracker `smaps`.
#[derive(Debug)]
pub struct Smaps {
    root: PathBuf,
    rng: Rng,
    min_round: Nanos,
    targets: BTreeMap<TargetId, TargetState>,
}

/// State of one target.
#[derive(Debug, Default)]
struct TargetState {
    cleared_at: Option<Nanos>,
    walk_time: Nanos,
    accessed: Option<Vec<MappingAccesses>>,
    accessible: Accessible,
}

/// A mapping, and the bytes of it that were accessed in the last complete round; `None` if the kernel does
/// not count them.
#[derive(Debug, Clone, Copy)]
struct MappingAccesses {
    range: AddrRange,
    referenced: Option<u64>,
}

/// Address ranges of a target that can be accessed, as of a recent reading.
#[derive(Debug, Default)]
struct Accessible {
    read_at: Option<Nanos>,
    took: Nanos,
    /// `None` if the list cannot be read.
    ranges: Option<Vec<AddrRange>>,
}

impl Smaps {
    /// Reads below `root`; `seed` makes the random answers reproducible.
    #[must_use]
    pub fn new(root: &Path, seed: u64) -> Self {
        Self {
            root: root.to_owned(),
            rng: Rng::new(seed),
            min_round: MIN_ROUND,
            targets: BTreeMap::new(),
        }
    }

    fn min_round_of(&self, state: &TargetState) -> Nanos {
        self.min_round.max(min_pause(state.walk_time))
    }

    fn begin_round(&mut self, id: TargetId, pid: u32) {
        let state = self.targets.entry(id).or_default();
        if state.cleared_at.is_some() {
            return;
        }
        let before = clock::monotonic();
        let cleared = clear_refs::clear(&self.root, pid);
        let after = clock::monotonic();
        state.walk_time = after.saturating_sub(before);
        match cleared {
            Ok(()) => state.cleared_at = Some(after),
            Err(_) => state.fail(),
        }
    }

    fn end_round_if_due(&mut self, id: TargetId, pid: u32) {
        let now = clock::monotonic();
        let due = |state: &TargetState| {
            state
                .cleared_at
                .is_some_and(|at| now.saturating_sub(at) >= self.min_round_of(state))
        };
        if !self.targets.get(&id).is_some_and(due) {
            return;
        }
        let vmas = smaps::read(&self.root, pid);
        let Some(state) = self.targets.get_mut(&id) else {
            return;
        };
        state.cleared_at = None;
        state.walk_time = state
            .walk_time
            .saturating_add(clock::monotonic().saturating_sub(now));
        match vmas {
            Ok(vmas) => state.accessed = Some(accessed_mappings(&vmas)),
            Err(_) => state.fail(),
        }
    }

    fn answer(&mut self, pid: u32, probe: &Probe) -> CheckResult {
        let state = self.targets.get_mut(&probe.target);
        let Some((accessed, accessible)) = state.and_then(TargetState::known) else {
            return CheckResult::Unknown;
        };
        let index = accessed.partition_point(|one| one.range.end <= probe.addr);
        match accessed.get(index).filter(|one| one.range.contains(probe.addr)) {
            Some(one) => one.seen(&mut self.rng),
            None => accessible.seen(&self.root, pid, self.min_round, probe.addr),
        }
    }
}

impl TargetState {
    fn known(&mut self) -> Option<(&[MappingAccesses], &mut Accessible)> {
        Some((self.accessed.as_deref()?, &mut self.accessible))
    }

    fn fail(&mut self) {
        self.accessed = None;
        self.cleared_at = None;
    }
}

impl MappingAccesses {
    fn of(vma: &Vma) -> Self {
        Self {
            range: vma.mapping.range,
            referenced: vma.has_referenced_count().then_some(vma.counts.referenced.0),
        }
    }

    fn seen(&self, rng: &mut Rng) -> CheckResult {
        match self.referenced {
            Some(referenced) if rng.below(self.range.len().0) < referenced => CheckResult::Accessed,
            Some(_) => CheckResult::Idle,
            None => CheckResult::Unknown,
        }
    }
}

impl Accessible {
    /// The result for `addr`, which was in no accessible mapping when the last round ended.
    fn seen(&mut self, root: &Path, pid: u32, min_round: Nanos, addr: Addr) -> CheckResult {
        self.read_if_due(root, pid, min_round);
        let Some(ranges) = &self.ranges else {
            return CheckResult::Unknown;
        };
        let index = ranges.partition_point(|range| range.end <= addr);
        match ranges.get(index) {
            Some(range) if range.contains(addr) => CheckResult::Unknown,
            _ => CheckResult::Idle,
        }
    }

    fn read_if_due(&mut self, root: &Path, pid: u32, min_round: Nanos) {
        let now = clock::monotonic();
        let pause = min_round.max(min_pause(self.took));
        if self.read_at.is_some_and(|at| now.saturating_sub(at) < pause) {
            return;
        }
        let mappings = maps::read(root, pid);
        self.read_at = Some(clock::monotonic());
        self.took = clock::monotonic().saturating_sub(now);
        self.ranges = mappings.ok().map(|mappings| {
            let accessible = mappings.iter().filter(|mapping| is_accessible(mapping));
            accessible.map(|mapping| mapping.range).collect()
        });
    }
}

/// Minimum pause after clearing or reading that took `took`.
const fn min_pause(took: Nanos) -> Nanos {
    Nanos(took.0.saturating_mul(WALK_SHARE))
}

fn accessed_mappings(vmas: &[Vma]) -> Vec<MappingAccesses> {
    let accessible = vmas.iter().filter(|vma| is_accessible(&vma.mapping));
    accessible.map(MappingAccesses::of).collect()
}

/// Programs reserve address space by mappings without permissions, and make them accessible in steps.
const fn is_accessible(mapping: &Mapping) -> bool {
    let perms = mapping.perms;
    perms.read || perms.write || perms.exec
}

impl Tracker for Smaps {
    fn prepare(&mut self, processes: &Processes, probes: &[Probe]) {
        self.targets.retain(|id, _| processes.contains_key(id));
        let targets: BTreeSet<TargetId> = probes.iter().map(|probe| probe.target).collect();
        for id in targets {
            if let Some(process) = processes.get(&id) {
                self.begin_round(id, process.pid);
            }
        }
    }

    fn check(&mut self, processes: &Processes, probes: &mut [Probe]) {
        let targets: BTreeSet<TargetId> = probes.iter().map(|probe| probe.target).collect();
        for id in targets {
            if let Some(process) = processes.get(&id) {
                self.end_round_if_due(id, process.pid);
            }
        }
        for probe in probes {
            let process = processes.get(&probe.target);
            probe.result = process.map_or(CheckResult::Unknown, |process| self.answer(process.pid, probe));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_targets::Process;

    const ID: TargetId = TargetId(0);

    /// A fake root on which this process has the mappings of `text`.
    fn machine(text: &str) -> (tempfile::TempDir, Processes) {
        let pid = std::process::id();
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join(format!("proc/{pid}"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("smaps"), text).unwrap();
        std::fs::write(dir.join("clear_refs"), "").unwrap();
        (root, Processes::from([(ID, Process::open(ID, pid).unwrap())]))
    }

    fn probes(addrs: impl Iterator<Item = u64>) -> Vec<Probe> {
        addrs
            .map(|addr| Probe {
                target: ID,
                addr: Addr(addr),
                result: CheckResult::Unknown,
            })
            .collect()
    }

    fn tracker_with(root: &Path, min_round: Nanos) -> Smaps {
        Smaps {
            min_round,
            ..Smaps::new(root, 1)
        }
    }

    const TEXT: &str = "\
10000-20000 rw-p 00000000 00:00 0 
Referenced:           64 kB
20000-120000 rw-p 00000000 00:00 0 
Referenced:          256 kB
200000-210000 rw-p 00000000 00:00 0 
Referenced:            0 kB
";

    #[test]
    fn accessed_probes_match_referenced_share() {
        let (root, processes) = machine(TEXT);
        // One probe a page and fifty rounds. Each round is due at once: the time of the walks is reset.
        let mut tracker = tracker_with(root.path(), Nanos::ZERO);
        let mut probes = probes((0x10..0x210).map(|page| page << 12));
        let mut counts = [0_u32; 3];
        for _ in 0..50 {
            tracker.prepare(&processes, &probes);
            tracker.targets.get_mut(&ID).unwrap().walk_time = Nanos::ZERO;
            tracker.check(&processes, &mut probes);
            for probe in probes
                .iter()
                .filter(|probe| probe.result == CheckResult::Accessed)
            {
                counts[match probe.addr.0 {
                    ..0x20000 => 0,
                    0x20000..0x120000 => 1,
                    _ => 2,
                }] += 1;
            }
        }
        // All of 16 pages; a quarter of 256 (3200 of 12,800 expected, seeded); none of a hole or an idle
        // mapping.
        assert_eq!((counts[0], counts[2]), (50 * 16, 0));
        assert!((2900..3500).contains(&counts[1]), "{counts:?}");
    }

    #[test]
    fn probes_are_unknown_before_first_round_ends() {
        let (root, processes) = machine(TEXT);
        let mut tracker = tracker_with(root.path(), Nanos::secs(3600));
        let mut probes = probes([0x10000].into_iter());
        tracker.prepare(&processes, &probes);
        tracker.check(&processes, &mut probes);
        assert_eq!(probes[0].result, CheckResult::Unknown);
    }

    #[test]
    fn probes_are_unknown_if_clear_refs_fails() {
        let (root, processes) = machine(TEXT);
        let pid = std::process::id();
        std::fs::remove_file(root.path().join(format!("proc/{pid}/clear_refs"))).unwrap();
        let mut tracker = tracker_with(root.path(), Nanos::ZERO);
        let mut probes = probes([0x10000].into_iter());
        tracker.prepare(&processes, &probes);
        tracker.check(&processes, &mut probes);
        assert_eq!(probes[0].result, CheckResult::Unknown);
    }

    /// The results of one round for probes at `addrs`.
    fn one_round(root: &Path, processes: &Processes, addrs: &[u64]) -> Vec<CheckResult> {
        let mut tracker = tracker_with(root, Nanos::ZERO);
        let mut probes = probes(addrs.iter().copied());
        tracker.prepare(processes, &probes);
        tracker.targets.get_mut(&ID).unwrap().walk_time = Nanos::ZERO;
        tracker.check(processes, &mut probes);
        probes.iter().map(|probe| probe.result).collect()
    }

    fn write_maps(root: &Path, text: &str) {
        std::fs::write(root.join(format!("proc/{}/maps", std::process::id())), text).unwrap();
    }

    const RESERVED: &str = "\
10000-20000 rw-p 00000000 00:00 0 
Referenced:            0 kB
400000-500000 ---p 00000000 00:00 0 
Referenced:            0 kB
";

    #[test]
    fn new_mappings_are_unknown_and_holes_idle() {
        let (root, processes) = machine(RESERVED);
        write_maps(
            root.path(),
            "10000-30000 rw-p 00000000 00:00 0 \n\
             200000-210000 r--s 00000000 00:01 9 /dev/shm/x\n\
             400000-410000 rw-p 00000000 00:00 0 \n\
             410000-500000 ---p 00000000 00:00 0 \n",
        );
        let addrs = [
            0x1f000, 0x20000, 0x2f000, 0x30000, 0x20f000, 0x40f000, 0x410000, 0x600000,
        ];
        let (idle, unknown) = (CheckResult::Idle, CheckResult::Unknown);
        // The old part of a heap, its growth (two probes), behind it; a new mapping; the used part of a
        // reservation, its rest; a hole.
        let expected = [idle, unknown, unknown, idle, unknown, unknown, idle, idle];
        assert_eq!(one_round(root.path(), &processes, &addrs), expected);
    }

    #[test]
    fn holes_are_unknown_without_maps() {
        let (root, processes) = machine(RESERVED);
        let seen = one_round(root.path(), &processes, &[0x10000, 0x20000, 0x400000, 0x600000]);
        assert_eq!(
            seen,
            [
                CheckResult::Idle,
                CheckResult::Unknown,
                CheckResult::Unknown,
                CheckResult::Unknown
            ]
        );
    }

    #[test]
    fn maps_are_reread_at_intervals() {
        let (root, _) = machine(RESERVED);
        let (mut accessible, pid) = (Accessible::default(), std::process::id());
        let seen = |accessible: &mut Accessible, min_round| {
            accessible.seen(root.path(), pid, min_round, Addr(0x20000))
        };
        write_maps(root.path(), "10000-20000 rw-p 00000000 00:00 0 \n");
        assert_eq!(seen(&mut accessible, Nanos::ZERO), CheckResult::Idle);
        write_maps(root.path(), "10000-30000 rw-p 00000000 00:00 0 \n");
        assert_eq!(seen(&mut accessible, Nanos::secs(3600)), CheckResult::Idle);
        accessible.took = Nanos::ZERO;
        assert_eq!(seen(&mut accessible, Nanos::ZERO), CheckResult::Unknown);
    }

    #[test]
    fn uncounted_mappings_are_unknown() {
        let (root, processes) = machine(
            "200000-600000 rw-s 00000000 00:10 7 /dev/hugepages/x\nReferenced: 0 kB\nVmFlags: rd wr sh mr mw me ms de ht sd\n\
             700000-701000 rw-s 00000000 00:06 3 /dev/mem\nReferenced: 0 kB\nVmFlags: rd wr sh mr mw me ms pf io dc de dd\n\
             800000-801000 rw-p 00000000 00:00 0 \nReferenced: 0 kB\nVmFlags: rd wr mr mw me ac sd\n",
        );
        let seen = one_round(root.path(), &processes, &[0x200000, 0x700000, 0x800000]);
        assert_eq!(
            seen,
            [CheckResult::Unknown, CheckResult::Unknown, CheckResult::Idle]
        );
    }
}
