//! Memory whose marks `MADV_COLD` leaves alone: pages that are mapped more than once, and locked mappings.
//!
//! For targets that have much of it, and only where the user consented, a round begins with a *walk*: the tables are
//! copied, the frames behind marked pages noted, and all marks taken off by `clear_refs`. A page was touched in a
//! round if its frame was by any of the targets that were walked: so a page that many processes map is judged by all
//! that they did with it, in each of them alike.
//!
//! The frames are noted in one set for all targets, a bit each, anew for every round: 32 KiB for each GiB of memory, twice
//! while a round is prepared, whether three processes map it or three hundred.
//!
//! `clear_refs` takes the marks of folios off as well, those by which in-kernel DAMON keeps account of the marks it took:
//! what is young was touched since the last walk, by whoever maps it.
//!
//! `clear_refs` holds the lock of the address space for writing, and every fault of the target waits meanwhile. So a
//! target whose walk would take longer than the user allows is not walked at all, and no target spends more than one
//! part in [`REST`] of its time under a walk. While it rests its tables are read, but its marks stay: what it touched
//! since its last walk counts in every round until the next. `clear_refs` flushes no TLB: a page that is used all the
//! time can keep an entry there, and look idle, for up to 100 ms; rounds are longer than that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use thermo_engine::TargetId;
use thermo_engine::scan::{Preparation, ScanChunk};
use thermo_kernel::clear_refs;
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::{ProcError, clock};
use thermo_pagetable::{Folios, Leaf, PageTables, WalkError};
use thermo_targets::{Process, Processes};
use thermo_units::{AddrRange, Bytes, Nanos};

use super::part::{each_leaf, pages_of};

/// A target is walked when at least one part in so many of what it has could not be told: libraries, which everybody
/// shares, are no reason.
const WORTH: u64 = 16;
/// Between walks of a target so many times as long passes as a walk takes.
const REST: u64 = 100;
/// What a walk takes for each page before any was measured, in picoseconds: the most that was seen, 37 ms a GiB.
const GUESSED_LEAF: u64 = 141_000;
/// Where address spaces of programs end, on every machine whose programs do not ask for more.
pub(super) const END: u64 = 1 << 47;

/// What is known of shared and locked memory.
#[derive(Debug)]
pub(super) struct Shared {
    /// No walk may take longer.
    longest: Nanos,
    /// What a walk takes for each page, in picoseconds.
    per_leaf: u64,
    /// What the round that is running found in targets that are not walked: bytes there, and of these unknown.
    found: BTreeMap<TargetId, (Bytes, Bytes)>,
    walked: BTreeMap<TargetId, Walked>,
    /// Those that may not be walked; each is told of once.
    refused: BTreeSet<TargetId>,
    /// Those that are still to be walked before the round begins, the next one last.
    left: Vec<TargetId>,
    /// The frames that any of them touched, for the round that is running.
    touched: Frames,
    /// The same for the round that is being prepared. Of a preparation that was broken off it stays: those marks are gone.
    next: Frames,
}

/// A target that is walked. There may be hundreds that map much: what each touched is not kept.
#[derive(Debug, Clone, Copy, Default)]
struct Walked {
    began: Nanos,
    took: Nanos,
    /// Whether it was ever walked, so that something is known of it.
    is_known: bool,
    /// Whether it was not when its marks were read last: they may be years old.
    has_old_marks: bool,
}

impl Walked {
    const fn rests(&self, now: Nanos) -> bool {
        now.saturating_sub(self.began).0 < self.took.0.saturating_mul(REST)
    }
}

impl Shared {
    /// Nothing known; no walk may take longer than `longest`.
    pub(super) fn new(longest: Nanos) -> Self {
        Self {
            longest,
            per_leaf: GUESSED_LEAF,
            found: BTreeMap::new(),
            walked: BTreeMap::new(),
            refused: BTreeSet::new(),
            left: Vec::new(),
            touched: Frames::default(),
            next: Frames::default(),
        }
    }

    /// Notes what a look at a piece of a target that is not walked found.
    pub(super) fn found(&mut self, id: TargetId, piece: &ScanChunk) {
        let (present, unknown) = piece.present_and_unknown();
        let sums = self.found.entry(id).or_default();
        sums.0 += present;
        sums.1 += unknown;
    }

    /// Walks the next target that has to be before a round.
    pub(super) fn prepare(
        &mut self,
        tables: &mut PageTables,
        root: &Path,
        processes: &Processes,
        folios: Folios,
        first: bool,
    ) -> Preparation {
        if first {
            self.choose(processes);
        }
        while let Some(id) = self.left.pop() {
            if let Some(process) = processes.get(&id) {
                return Preparation::Part(self.walk(tables, root, process, folios));
            }
        }
        self.begin_round();
        Preparation::Ready
    }

    /// Does not walk a target any more: it is sampled, and whose marks a walk took would look idle.
    pub(super) fn forget(&mut self, id: TargetId) {
        self.found.remove(&id);
        if self.walked.remove(&id).is_some() {
            self.left.retain(|left| *left != id);
        }
    }

    fn begin_round(&mut self) {
        self.touched = std::mem::take(&mut self.next);
    }

    /// Takes up the targets that need walks by what the last round found, and lets go of those that are gone.
    fn choose(&mut self, processes: &Processes) {
        self.walked.retain(|id, _| processes.contains_key(id));
        self.refused.retain(|id| processes.contains_key(id));
        for (id, (present, unknown)) in std::mem::take(&mut self.found) {
            let worth = unknown > Bytes::ZERO && unknown.0 * WORTH >= present.0;
            if worth && processes.contains_key(&id) && !self.refused.contains(&id) {
                self.walked.entry(id).or_default();
            }
        }
        self.left = self.walked.keys().rev().copied().collect();
    }

    /// Notes what `process` touched and takes its marks off, unless it rests. Returns why not, if the user should know.
    fn walk(
        &mut self,
        tables: &mut PageTables,
        root: &Path,
        process: &Process,
        folios: Folios,
    ) -> Option<String> {
        let walked = self.walked.get_mut(&process.id)?;
        walked.has_old_marks = !walked.is_known;
        let rests = walked.rests(clock::monotonic());
        let leaves = self.read(tables, process, folios).ok()?;
        if rests {
            return None;
        }
        self.take_off(root, process, leaves)
    }

    /// Notes which frames `process` touched; returns how many leaves it has.
    fn read(&mut self, tables: &mut PageTables, process: &Process, folios: Folios) -> Result<u64, WalkError> {
        let mut leaves = 0;
        let all = AddrRange::new(0, END);
        each_leaf(tables, process.pid, all, folios, &mut |_, leaf| {
            leaves += 1;
            self.note(leaf);
        })?;
        Ok(leaves)
    }

    fn note(&mut self, leaf: Leaf) {
        if leaf.is_touched() {
            self.next.insert(leaf.pfn, nr_frames(leaf));
        }
    }

    /// Takes the marks off the `leaves` of `process`. What was noted of one that is given up instead counts for those it
    /// shares memory with, in this one round.
    fn take_off(&mut self, root: &Path, process: &Process, leaves: u64) -> Option<String> {
        let estimate = Nanos(leaves.saturating_mul(self.per_leaf) / 1000);
        if estimate > self.longest {
            return Some(self.refuse(process, leaves, estimate));
        }
        let (cpu, began) = (clock::thread_cpu(), clock::monotonic());
        let cleared = process.is_alive().then(|| clear_refs::clear(root, process.pid));
        let walked = self.walked.get_mut(&process.id)?;
        walked.began = began;
        walked.took = clock::monotonic().saturating_sub(began);
        walked.is_known = true;
        match cleared {
            Some(Ok(())) => {
                let cost = clock::thread_cpu().saturating_sub(cpu).0.saturating_mul(1000) / leaves.max(1);
                self.per_leaf = (self.per_leaf * 3 + cost) / 4;
                None
            }
            Some(Err(error)) if !error.is_gone() => Some(self.fail(process, &error)),
            _ => None,
        }
    }

    fn refuse(&mut self, process: &Process, leaves: u64, estimate: Nanos) -> String {
        self.give_up(process.id);
        format!(
            "taking the marks off the {leaves} pages of process {} would hold up its faults for about {estimate}, and \
             --max-walk allows {}: what it shares or locks stays unknown",
            process.pid, self.longest
        )
    }

    fn fail(&mut self, process: &Process, error: &ProcError) -> String {
        self.give_up(process.id);
        format!(
            "what process {} shares or locks stays unknown: {error}",
            process.pid
        )
    }

    fn give_up(&mut self, id: TargetId) {
        self.walked.remove(&id);
        self.refused.insert(id);
    }

    /// Answers for the pages of `range` of a target that is walked; `None` for others.
    pub(super) fn answer(
        &self,
        tables: &mut PageTables,
        frames: Option<&PageFrames>,
        process: &Process,
        range: AddrRange,
        piece: &mut ScanChunk,
    ) -> Option<Result<(), WalkError>> {
        let walked = self.walked.get(&process.id).filter(|walked| walked.is_known)?;
        Some(each_leaf(
            tables,
            process.pid,
            range,
            Folios::Unasked,
            &mut |at, leaf| {
                let touched = self.touched.any(leaf.pfn, nr_frames(leaf));
                let untold = touched && walked.has_old_marks || is_hugetlb(leaf, frames);
                pages_of(at).for_each(|addr| match untold {
                    true => piece.set_unknown(addr),
                    false => piece.set(addr, touched),
                });
            },
        ))
    }
}

const fn nr_frames(leaf: Leaf) -> u64 {
    leaf.len().0 / 4096
}

/// Pages of hugetlb keep their marks whatever is done.
fn is_hugetlb(leaf: Leaf, frames: Option<&PageFrames>) -> bool {
    leaf.level > 0
        && frames
            .and_then(|frames| frames.flags(leaf.pfn).ok())
            .is_some_and(|flags| flags.is_hugetlb())
}

/// Frames in one part of a set.
const PART: u64 = 1 << 15;

/// A set of frames: a bit each, in parts that are there where they are needed.
#[derive(Debug, Default)]
struct Frames {
    parts: Vec<Option<Box<[u64; 512]>>>,
}

impl Frames {
    /// Adds `count` frames from `first` on.
    fn insert(&mut self, first: u64, count: u64) {
        for pfn in first..first.saturating_add(count) {
            let Ok(nth) = usize::try_from(pfn / PART) else {
                return;
            };
            if self.parts.len() <= nth {
                self.parts.resize(nth + 1, None);
            }
            let part = self.parts[nth].get_or_insert_with(|| Box::new([0; 512]));
            part[(pfn % PART / 64) as usize] |= 1 << (pfn % 64);
        }
    }

    /// Whether any of `count` frames from `first` on is in it.
    fn any(&self, first: u64, count: u64) -> bool {
        let has = |pfn: u64| {
            let part = usize::try_from(pfn / PART)
                .ok()
                .and_then(|nth| self.parts.get(nth));
            part.and_then(Option::as_ref)
                .is_some_and(|part| part[(pfn % PART / 64) as usize] >> (pfn % 64) & 1 == 1)
        };
        (first..first.saturating_add(count)).any(has)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::super::leaf::marked;
    use super::*;
    use thermo_units::Addr;

    #[test]
    fn a_set_of_frames_knows_single_ones_and_runs() {
        let mut frames = Frames::default();
        frames.insert(7, 1);
        frames.insert(PART - 1, 2);
        frames.insert(5 * PART, 512);
        for (pfn, count, expected) in [
            (7, 1, true),
            (6, 1, false),
            (0, 512, true),
            (PART, 1, true),
            (PART + 1, 1, false),
            (5 * PART + 511, 1, true),
            (5 * PART + 512, 512, false),
            (1 << 60, 1, false),
        ] {
            assert_eq!(frames.any(pfn, count), expected, "{pfn}");
        }
    }

    #[test]
    fn a_frame_is_touched_in_the_round_that_found_it_so_by_whoever_maps_it() {
        let mut shared = Shared::new(Nanos::millis(100));
        let idle = Leaf {
            accessed: false,
            ..marked(0, 6)
        };
        for leaf in [marked(0, 5), idle, marked(1, 1024)] {
            shared.note(leaf);
        }
        // The round before goes by what it knows until the next is prepared.
        assert!(!shared.touched.any(5, 1));
        shared.begin_round();
        for (pfn, expected) in [(5, true), (6, false), (1023, false), (1024, true), (1535, true)] {
            assert_eq!(shared.touched.any(pfn, 1), expected, "{pfn}");
        }
        shared.note(marked(0, 6));
        assert!(shared.touched.any(5, 1) && !shared.touched.any(6, 1));
        shared.begin_round();
        assert!(!shared.touched.any(5, 1) && shared.touched.any(6, 1));
    }

    #[test]
    fn three_hundred_targets_take_no_more_memory_than_one_and_give_it_back() {
        let kept = |shared: &Shared| {
            let parts = [&shared.touched, &shared.next].map(|frames| frames.parts.iter().flatten().count());
            parts.iter().sum::<usize>()
        };
        let mut shared = Shared::new(Nanos::millis(100));
        // All of them map the same 64 MiB, scattered over four parts.
        for target in 0..300 {
            (0..4 * PART)
                .step_by(8)
                .for_each(|pfn| shared.note(marked(0, pfn)));
            assert_eq!(kept(&shared), 4, "{target}");
        }
        shared.begin_round();
        assert_eq!(kept(&shared), 4);
        shared.note(marked(0, 9 * PART));
        shared.begin_round();
        assert_eq!(kept(&shared), 1);
        shared.begin_round();
        assert_eq!(kept(&shared), 0);
    }

    #[test]
    fn a_target_rests_a_hundred_times_as_long_as_its_walk_took() {
        let walked = Walked {
            began: Nanos::secs(10),
            took: Nanos::millis(30),
            ..Walked::default()
        };
        assert!(walked.rests(Nanos::secs(12)) && !walked.rests(Nanos::secs(13)));
        assert!(!Walked::default().rests(Nanos::ZERO), "who was never walked");
    }

    #[test]
    fn only_targets_with_much_that_is_unknown_are_walked() {
        let processes: Processes = [0, 1, 2]
            .map(TargetId)
            .map(|id| (id, Process::open(id, std::process::id()).unwrap()))
            .into();
        let mut shared = Shared::new(Nanos::millis(100));
        let found = |shared: &mut Shared, id, present, unknown| {
            let mut piece = ScanChunk::default();
            piece.reset(AddrRange::new(0, present * 4096));
            (0..present).for_each(|page| piece.set(Addr(page * 4096), false));
            (0..unknown).for_each(|page| piece.set_unknown(Addr(page * 4096)));
            shared.found(TargetId(id), &piece);
        };
        for (id, present, unknown) in [(0, 1000, 10), (1, 1000, 100), (2, 5, 0), (9, 10, 10)] {
            found(&mut shared, id, present, unknown);
        }
        shared.choose(&processes);
        assert_eq!(shared.left, [TargetId(1)]);
        // Once it is walked it stays so: what it shares is unknown no more. One that was given up is not tried again.
        shared.give_up(TargetId(0));
        found(&mut shared, 0, 10, 10);
        found(&mut shared, 2, 16, 1);
        shared.choose(&processes);
        assert_eq!(shared.left, [TargetId(2), TargetId(1)]);
        shared.choose(&Processes::new());
        assert!(shared.left.is_empty() && shared.refused.is_empty());
    }

    #[test]
    fn a_walk_that_would_take_too_long_is_refused_in_a_sentence() {
        let process = Process::open(TargetId(3), std::process::id()).unwrap();
        let mut shared = Shared::new(Nanos::millis(50));
        shared.walked.entry(TargetId(3)).or_default();
        let told = shared.refuse(&process, 1 << 20, Nanos::millis(148));
        assert!(
            told.contains("148 ms") && told.contains("--max-walk allows 50"),
            "{told}"
        );
        assert!(shared.walked.is_empty() && shared.refused.contains(&TargetId(3)));
    }
}
