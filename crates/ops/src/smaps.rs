//! Tracker `smaps`: needs no privilege for processes of the same user, and is coarse.
//!
//! The kernel clears the accessed marks of a whole address space (`clear_refs`) and counts, per mapping, how many bytes
//! were touched since (`Referenced`); *which* pages they are it does not tell. So a probe is answered by chance: accessed
//! with probability `Referenced / size of its mapping`. Over many probes the bytes found accessed are those the kernel
//! counted, but a mapping with a hot corner looks lukewarm all over, and small differences are noise.
//!
//! `clear_refs` flushes no TLB, so that pages in use look idle for up to 100 ms; and both walks hold the lock of the
//! address space for 12–39 ms a GiB. A round of clearing and reading is therefore never shorter than
//! [`Tracker::least_sample`]: 100 ms, and fifty times what the walks of the last round took. With a shorter sampling
//! interval, looks between are answered by the last round; before the first is whole, nothing is known.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use thermo_core::ops::{Probe, Seen};
use thermo_core::rng::Rng;
use thermo_core::{Addr, AddrRange, Nanos, TargetId};
use thermo_sys::clear_refs::{self, Marks};
use thermo_sys::smaps::{self, Vma};
use thermo_sys::{ProcError, clock};

use crate::process::Processes;
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
    rounds: BTreeMap<TargetId, Round>,
}

/// What is known of one target.
#[derive(Debug, Default)]
struct Round {
    cleared_at: Option<Nanos>,
    walks: Nanos,
    touched: Option<Vec<Touched>>,
    trouble: Option<String>,
}

/// A mapping, and how much of it was touched in the last whole round.
#[derive(Debug, Clone, Copy)]
struct Touched {
    range: AddrRange,
    referenced: u64,
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

    /// Why nothing can be told of a target, if so.
    #[must_use]
    pub fn trouble(&self, id: TargetId) -> Option<&str> {
        self.rounds.get(&id)?.trouble.as_deref()
    }

    fn least_of(&self, round: &Round) -> Nanos {
        self.least.max(Nanos(round.walks.0.saturating_mul(WALK_SHARE)))
    }

    fn begin(&mut self, id: TargetId, pid: u32) {
        let round = self.rounds.entry(id).or_default();
        if round.cleared_at.is_some() {
            return;
        }
        let before = clock::monotonic();
        let cleared = clear_refs::clear(&self.root, pid, Marks::All);
        let after = clock::monotonic();
        round.walks = after.saturating_sub(before);
        match cleared {
            Ok(()) => round.cleared_at = Some(after),
            Err(err) => round.fail(pid, &err),
        }
    }

    fn end_if_due(&mut self, id: TargetId, pid: u32) {
        let now = clock::monotonic();
        let due = |round: &Round| {
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
            Ok(vmas) => round.touched = Some(vmas.iter().map(touched).collect()),
            Err(err) => round.fail(pid, &err),
        }
    }

    fn answer(&mut self, id: TargetId, addr: Addr) -> Seen {
        let Some(touched) = self.rounds.get(&id).and_then(|round| round.touched.as_ref()) else {
            return Seen::Unknown;
        };
        let index = touched.partition_point(|one| one.range.end <= addr);
        match touched.get(index).filter(|one| one.range.contains(addr)) {
            Some(one) if self.rng.below(one.range.len().0) < one.referenced => Seen::Accessed,
            _ => Seen::Idle,
        }
    }
}

impl Round {
    fn fail(&mut self, pid: u32, err: &ProcError) {
        self.touched = None;
        self.cleared_at = None;
        if !err.is_gone() {
            self.trouble = Some(format!("tracker smaps cannot see process {pid}: {err}"));
        }
    }
}

fn touched(vma: &Vma) -> Touched {
    Touched {
        range: vma.mapping.range,
        referenced: vma.counts.referenced.0,
    }
}

impl Tracker for Smaps {
    fn name(&self) -> &'static str {
        "smaps"
    }

    fn least_sample(&self) -> Nanos {
        self.rounds
            .values()
            .map(|round| self.least_of(round))
            .max()
            .unwrap_or(self.least)
    }

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
            probe.seen = self.answer(probe.target, probe.addr);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::process::Process;

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
        assert_eq!(tracker.trouble(ID), None);
        assert_eq!(tracker.least_sample(), Nanos::secs(3600));
    }

    #[test]
    fn what_may_not_be_cleared_is_unknown_and_said() {
        let (root, processes) = machine(TEXT);
        let pid = std::process::id();
        std::fs::remove_file(root.path().join(format!("proc/{pid}/clear_refs"))).unwrap();
        let mut tracker = patient(root.path(), Nanos::ZERO);
        let mut probes = probes([0x10000].into_iter());
        tracker.prepare(&processes, &probes);
        tracker.check(&processes, &mut probes);
        assert_eq!(probes[0].seen, Seen::Unknown);
        assert!(tracker.trouble(ID).unwrap().contains("clear_refs"));
    }
}
