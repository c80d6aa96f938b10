//! Tracker `smaps`: needs no privilege for processes of the same user, and is coarse.
//!
//! The kernel clears the accessed marks of a whole address space (`clear_refs`) and counts, per mapping, how many bytes
//! were touched since (`Referenced`); *which* pages they are it does not tell. So a probe is answered by chance: accessed
//! with probability `Referenced / size of its mapping`. Over many probes the bytes found accessed are those the kernel
//! counted, but a mapping with a hot corner looks lukewarm all over, and small differences are noise.
//!
//! `clear_refs` flushes no TLB, so that pages in use look idle for up to 100 ms; and both walks hold the lock of the
//! address space for 12–39 ms a GiB. A round of clearing and reading is therefore never shorter than
//! 100 ms, and fifty times what the walks of the last round took. With a shorter sampling interval, looks between are
//! answered by the last round; before the first is whole, nothing is known.
//!
//! For a large process the last round may be minutes old. What was mapped or made usable since, as heaps grow, is *unknown*
//! until the next. The plain list of mappings, which costs little, tells it from places where nothing can be touched,
//! which are idle. Mappings that the kernel does not count are always unknown: hugetlb pages and memory of devices.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use thermo_engine::TargetId;
use thermo_engine::ops::{Probe, Seen};
use thermo_engine::rng::Rng;
use thermo_kernel::clear_refs;
use thermo_kernel::clock;
use thermo_kernel::maps::{self, Mapping};
use thermo_kernel::smaps::{self, Vma};
use thermo_targets::Processes;
use thermo_units::{Addr, AddrRange, Nanos};

use crate::tracker::Tracker;

/// The shortest time between clearing and reading that tells anything.
const LEAST: Nanos = Nanos::millis(100);
/// Of the time between rounds, at most one part in so many is spent walking.
const WALK_SHARE: u64 = 50;

/// The tracker.
#[derive(Debug)]
pub struct Smaps {
    root: PathBuf,
    rng: Rng,
    least: Nanos,
    rounds: BTreeMap<TargetId, TargetState>,
}

/// What is known of one target.
#[derive(Debug, Default)]
struct TargetState {
    cleared_at: Option<Nanos>,
    walks: Nanos,
    touched: Option<Vec<Touched>>,
    usable: Usable,
}

/// A mapping, and how much of it was touched in the last whole round; `None` where that is not counted.
#[derive(Debug, Clone, Copy)]
struct Touched {
    range: AddrRange,
    referenced: Option<u64>,
}

/// Where memory of a target can be touched, as of a moment ago.
#[derive(Debug, Default)]
struct Usable {
    read_at: Option<Nanos>,
    took: Nanos,
    /// None when the list cannot be read.
    ranges: Option<Vec<AddrRange>>,
}

impl Smaps {
    /// Looks below `root`; `seed` names the chances it takes.
    #[must_use]
    pub fn new(root: &Path, seed: u64) -> Self {
        Self {
            root: root.to_owned(),
            rng: Rng::new(seed),
            least: LEAST,
            rounds: BTreeMap::new(),
        }
    }

    fn least_of(&self, round: &TargetState) -> Nanos {
        self.least.max(rest_of(round.walks))
    }

    fn begin(&mut self, id: TargetId, pid: u32) {
        let round = self.rounds.entry(id).or_default();
        if round.cleared_at.is_some() {
            return;
        }
        let before = clock::monotonic();
        let cleared = clear_refs::clear(&self.root, pid);
        let after = clock::monotonic();
        round.walks = after.saturating_sub(before);
        match cleared {
            Ok(()) => round.cleared_at = Some(after),
            Err(_) => round.fail(),
        }
    }

    fn end_if_due(&mut self, id: TargetId, pid: u32) {
        let now = clock::monotonic();
        let due = |round: &TargetState| {
            round
                .cleared_at
                .is_some_and(|at| now.saturating_sub(at) >= self.least_of(round))
        };
        if !self.rounds.get(&id).is_some_and(due) {
            return;
        }
        let vmas = smaps::read(&self.root, pid);
        let Some(round) = self.rounds.get_mut(&id) else {
            return;
        };
        round.cleared_at = None;
        round.walks = round.walks.saturating_add(clock::monotonic().saturating_sub(now));
        match vmas {
            Ok(vmas) => round.touched = Some(all_touched(&vmas)),
            Err(_) => round.fail(),
        }
    }

    fn answer(&mut self, pid: u32, probe: &Probe) -> Seen {
        let round = self.rounds.get_mut(&probe.target);
        let Some((touched, usable)) = round.and_then(TargetState::known) else {
            return Seen::Unknown;
        };
        let index = touched.partition_point(|one| one.range.end <= probe.addr);
        match touched.get(index).filter(|one| one.range.contains(probe.addr)) {
            Some(one) => one.seen(&mut self.rng),
            None => usable.seen(&self.root, pid, self.least, probe.addr),
        }
    }
}

impl TargetState {
    fn known(&mut self) -> Option<(&[Touched], &mut Usable)> {
        Some((self.touched.as_deref()?, &mut self.usable))
    }

    fn fail(&mut self) {
        self.touched = None;
        self.cleared_at = None;
    }
}

impl Touched {
    fn of(vma: &Vma) -> Self {
        Self {
            range: vma.mapping.range,
            referenced: vma.is_referenced_counted().then_some(vma.counts.referenced.0),
        }
    }

    fn seen(&self, rng: &mut Rng) -> Seen {
        match self.referenced {
            Some(referenced) if rng.below(self.range.len().0) < referenced => Seen::Accessed,
            Some(_) => Seen::Idle,
            None => Seen::Unknown,
        }
    }
}

impl Usable {
    /// What can be said of `addr`, where nothing could be touched when the last round ended.
    fn seen(&mut self, root: &Path, pid: u32, least: Nanos, addr: Addr) -> Seen {
        self.read_if_due(root, pid, least);
        let Some(ranges) = &self.ranges else {
            return Seen::Unknown;
        };
        let index = ranges.partition_point(|range| range.end <= addr);
        match ranges.get(index) {
            Some(range) if range.contains(addr) => Seen::Unknown,
            _ => Seen::Idle,
        }
    }

    fn read_if_due(&mut self, root: &Path, pid: u32, least: Nanos) {
        let now = clock::monotonic();
        let rest = least.max(rest_of(self.took));
        if self.read_at.is_some_and(|at| now.saturating_sub(at) < rest) {
            return;
        }
        let mappings = maps::read(root, pid);
        self.read_at = Some(clock::monotonic());
        self.took = clock::monotonic().saturating_sub(now);
        self.ranges = mappings.ok().map(|mappings| {
            let usable = mappings.iter().filter(|mapping| is_usable(mapping));
            usable.map(|mapping| mapping.range).collect()
        });
    }
}

/// How long to wait after what took so long.
const fn rest_of(took: Nanos) -> Nanos {
    Nanos(took.0.saturating_mul(WALK_SHARE))
}

fn all_touched(vmas: &[Vma]) -> Vec<Touched> {
    let usable = vmas.iter().filter(|vma| is_usable(&vma.mapping));
    usable.map(Touched::of).collect()
}

/// Programs reserve address space by mappings that nobody may touch, and make them usable bit by bit.
const fn is_usable(mapping: &Mapping) -> bool {
    let perms = mapping.perms;
    perms.read || perms.write || perms.exec
}

impl Tracker for Smaps {
    fn prepare(&mut self, processes: &Processes, probes: &[Probe]) {
        self.rounds.retain(|id, _| processes.contains_key(id));
        let asked: BTreeSet<TargetId> = probes.iter().map(|probe| probe.target).collect();
        for id in asked {
            if let Some(process) = processes.get(&id) {
                self.begin(id, process.pid);
            }
        }
    }

    fn check(&mut self, processes: &Processes, probes: &mut [Probe]) {
        let asked: BTreeSet<TargetId> = probes.iter().map(|probe| probe.target).collect();
        for id in asked {
            if let Some(process) = processes.get(&id) {
                self.end_if_due(id, process.pid);
            }
        }
        for probe in probes {
            let process = processes.get(&probe.target);
            probe.seen = process.map_or(Seen::Unknown, |process| self.answer(process.pid, probe));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_targets::Process;

    const ID: TargetId = TargetId(0);

    /// A machine on which this very process has the mappings of `text`.
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
                seen: Seen::Unknown,
            })
            .collect()
    }

    fn patient(root: &Path, least: Nanos) -> Smaps {
        Smaps {
            least,
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
    fn probes_are_answered_in_proportion_to_what_was_referenced() {
        let (root, processes) = machine(TEXT);
        // One probe a page and fifty rounds: what the walks took does not matter, as a round is due at once.
        let mut tracker = patient(root.path(), Nanos::ZERO);
        let mut probes = probes((0x10..0x210).map(|page| page << 12));
        let mut counts = [0_u32; 3];
        for _ in 0..50 {
            tracker.prepare(&processes, &probes);
            tracker.rounds.get_mut(&ID).unwrap().walks = Nanos::ZERO;
            tracker.check(&processes, &mut probes);
            for probe in probes.iter().filter(|probe| probe.seen == Seen::Accessed) {
                counts[match probe.addr.0 {
                    ..0x20000 => 0,
                    0x20000..0x120000 => 1,
                    _ => 2,
                }] += 1;
            }
        }
        // All of 16 pages; a quarter of 256 (3200 of 12,800 expected, seeded); none of a hole or an idle mapping.
        assert_eq!((counts[0], counts[2]), (50 * 16, 0));
        assert!((2900..3500).contains(&counts[1]), "{counts:?}");
    }

    #[test]
    fn before_the_first_round_is_whole_nothing_is_known() {
        let (root, processes) = machine(TEXT);
        let mut tracker = patient(root.path(), Nanos::secs(3600));
        let mut probes = probes([0x10000].into_iter());
        tracker.prepare(&processes, &probes);
        tracker.check(&processes, &mut probes);
        assert_eq!(probes[0].seen, Seen::Unknown);
    }

    #[test]
    fn what_may_not_be_cleared_is_unknown() {
        let (root, processes) = machine(TEXT);
        let pid = std::process::id();
        std::fs::remove_file(root.path().join(format!("proc/{pid}/clear_refs"))).unwrap();
        let mut tracker = patient(root.path(), Nanos::ZERO);
        let mut probes = probes([0x10000].into_iter());
        tracker.prepare(&processes, &probes);
        tracker.check(&processes, &mut probes);
        assert_eq!(probes[0].seen, Seen::Unknown);
    }

    /// What one round says of probes at `addrs`.
    fn one_round(root: &Path, processes: &Processes, addrs: &[u64]) -> Vec<Seen> {
        let mut tracker = patient(root, Nanos::ZERO);
        let mut probes = probes(addrs.iter().copied());
        tracker.prepare(processes, &probes);
        tracker.rounds.get_mut(&ID).unwrap().walks = Nanos::ZERO;
        tracker.check(processes, &mut probes);
        probes.iter().map(|probe| probe.seen).collect()
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
    fn what_was_mapped_or_made_usable_since_is_unknown_and_what_is_not_there_idle() {
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
        let (idle, unknown) = (Seen::Idle, Seen::Unknown);
        // The old part of a heap, what it grew by, behind it; a new mapping; a reservation's part in use, the rest; nothing.
        let expected = [idle, unknown, unknown, idle, unknown, unknown, idle, idle];
        assert_eq!(one_round(root.path(), &processes, &addrs), expected);
    }

    #[test]
    fn where_the_list_of_mappings_cannot_be_read_holes_are_unknown() {
        let (root, processes) = machine(RESERVED);
        let seen = one_round(root.path(), &processes, &[0x10000, 0x20000, 0x400000, 0x600000]);
        assert_eq!(seen, [Seen::Idle, Seen::Unknown, Seen::Unknown, Seen::Unknown]);
    }

    #[test]
    fn the_list_of_mappings_is_read_again_but_not_at_every_look() {
        let (root, _) = machine(RESERVED);
        let (mut usable, pid) = (Usable::default(), std::process::id());
        let seen = |usable: &mut Usable, least| usable.seen(root.path(), pid, least, Addr(0x20000));
        write_maps(root.path(), "10000-20000 rw-p 00000000 00:00 0 \n");
        assert_eq!(seen(&mut usable, Nanos::ZERO), Seen::Idle);
        write_maps(root.path(), "10000-30000 rw-p 00000000 00:00 0 \n");
        assert_eq!(seen(&mut usable, Nanos::secs(3600)), Seen::Idle);
        usable.took = Nanos::ZERO;
        assert_eq!(seen(&mut usable, Nanos::ZERO), Seen::Unknown);
    }

    #[test]
    fn mappings_that_are_not_counted_are_unknown() {
        let (root, processes) = machine(
            "200000-600000 rw-s 00000000 00:10 7 /dev/hugepages/x\nReferenced: 0 kB\nVmFlags: rd wr sh mr mw me ms de ht sd\n\
             700000-701000 rw-s 00000000 00:06 3 /dev/mem\nReferenced: 0 kB\nVmFlags: rd wr sh mr mw me ms pf io dc de dd\n\
             800000-801000 rw-p 00000000 00:00 0 \nReferenced: 0 kB\nVmFlags: rd wr mr mw me ac sd\n",
        );
        let seen = one_round(root.path(), &processes, &[0x200000, 0x700000, 0x800000]);
        assert_eq!(seen, [Seen::Unknown, Seen::Unknown, Seen::Idle]);
    }
}
