//! Memory whose marks `MADV_COLD` leaves alone: pages that are mapped more than once, and locked mappings.
//!
//! For targets that have much of it, and only where the user consented, a round begins with a *walk*: the tables are
//! copied, the frames behind marked pages noted, and all marks taken off by `clear_refs`. A page was touched in a
//! round if its frame was by any of the targets that were walked: so a page that many processes map is judged by all
//! that they did with it, in each of them alike.
//!
//! `clear_refs` takes the marks of folios off as well, those by which in-kernel DAMON keeps account of the marks it took:
//! what is young was touched since the last walk, by whoever maps it.
//!
//! `clear_refs` holds the lock of the address space for writing, and every fault of the target waits meanwhile. So a
//! target whose walk would take longer than the user allows is not walked at all, and no target spends more than one
//! part in [`REST`] of its time under a walk. It flushes no TLB: a page that is used all the time can keep an
//! entry there, and look idle, for up to 100 ms; rounds are longer than that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use thermo_bpf::{Folios, Leaf, PageTables, WalkError};
use thermo_core::sweep::{Piece, Preparation};
use thermo_core::{AddrRange, Bytes, Nanos, TargetId};
use thermo_sys::clear_refs::{self, Marks};
use thermo_sys::kpageflags::PageFrames;
use thermo_sys::{ProcError, clock};

use super::sweep::{each_leaf, each_page};
use crate::process::{Process, Processes};

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
    /// The frames that any of them touched.
    touched: Frames,
}

/// A target that is walked.
#[derive(Debug, Default)]
struct Walked {
    /// What it touched before its last walk: first frame and number of frames of each leaf.
    frames: Vec<(u64, u64)>,
    began: Nanos,
    took: Nanos,
    /// How often it was walked. The marks the first walk finds may be years old.
    walks: u64,
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
        }
    }

    /// Notes what a look at a piece of a target that is not walked found.
    pub(super) fn found(&mut self, id: TargetId, piece: &Piece) {
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
        self.touched.clear();
        let frames = self.walked.values().flat_map(|walked| &walked.frames);
        frames.for_each(|(first, count)| self.touched.insert(*first, *count));
        Preparation::Ready
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

    /// Notes what `process` touched and takes its marks off. Returns why not, if the user should know.
    fn walk(
        &mut self,
        tables: &mut PageTables,
        root: &Path,
        process: &Process,
        folios: Folios,
    ) -> Option<String> {
        let walked = self.walked.get_mut(&process.id)?;
        let now = clock::monotonic();
        if now.saturating_sub(walked.began) < walked.took * REST {
            return None;
        }
        walked.frames.clear();
        let leaves = read(tables, process, folios, &mut walked.frames).ok()?;
        let estimate = Nanos(leaves.saturating_mul(self.per_leaf) / 1000);
        if estimate > self.longest {
            return Some(self.refuse(process, leaves, estimate));
        }
        let (cpu, began) = (clock::thread_cpu(), clock::monotonic());
        let cleared = process
            .is_alive()
            .then(|| clear_refs::clear(root, process.pid, Marks::All));
        walked.began = began;
        walked.took = clock::monotonic().saturating_sub(began);
        walked.walks += 1;
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

    /// Whether a target is walked, so that walks answer for it.
    pub(super) fn answers_for(&self, id: TargetId) -> bool {
        self.walked.get(&id).is_some_and(|walked| walked.walks > 0)
    }

    /// Answers for the pages of `range` of a target that is walked; `None` for others.
    pub(super) fn answer(
        &self,
        tables: &mut PageTables,
        frames: Option<&PageFrames>,
        process: &Process,
        range: AddrRange,
        piece: &mut Piece,
    ) -> Option<Result<(), WalkError>> {
        let walked = self.walked.get(&process.id).filter(|walked| walked.walks > 0)?;
        Some(each_leaf(
            tables,
            process.pid,
            range,
            Folios::Unasked,
            &mut |at, leaf| {
                let touched = self.touched.any(leaf.pfn, nr_frames(leaf));
                let untold = touched && walked.walks == 1 || is_hugetlb(leaf, frames);
                each_page(at, |addr| match untold {
                    true => piece.set_unknown(addr),
                    false => piece.set(addr, touched),
                });
            },
        ))
    }
}

/// Reads which frames `process` touched; returns how many leaves it has.
fn read(
    tables: &mut PageTables,
    process: &Process,
    folios: Folios,
    touched: &mut Vec<(u64, u64)>,
) -> Result<u64, WalkError> {
    let mut leaves = 0;
    let all = AddrRange::new(0, END);
    each_leaf(tables, process.pid, all, folios, &mut |_, leaf| {
        leaves += 1;
        if leaf.is_touched() {
            touched.push((leaf.pfn, nr_frames(leaf)));
        }
    })?;
    Ok(leaves)
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
    fn clear(&mut self) {
        self.parts.iter_mut().flatten().for_each(|part| part.fill(0));
    }

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
    use super::*;
    use thermo_core::Addr;

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
        frames.clear();
        assert!(!frames.any(0, 6 * PART));
    }

    #[test]
    fn only_targets_with_much_that_is_unknown_are_walked() {
        let processes: Processes = [0, 1, 2]
            .map(TargetId)
            .map(|id| (id, Process::open(id, std::process::id()).unwrap()))
            .into();
        let mut shared = Shared::new(Nanos::millis(100));
        let found = |shared: &mut Shared, id, present, unknown| {
            let mut piece = Piece::default();
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
