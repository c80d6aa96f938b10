//! Memory whose accessed bits `MADV_COLD` does not clear: pages that are mapped more than once, and locked
//! mappings.
//!
//! If the user allows it, targets with much such memory are *walked* before a pass: the page tables are
//! copied, the frames of accessed pages are recorded, and `clear_refs` clears all accessed bits. A page was
//! accessed if any walked target accessed its frame. So a page that many processes map gets the same result
//! in each of them.
//!
//! All targets share one set of frames, one bit each, built anew for every pass. It takes 32 KiB for each GiB
//! of memory, twice that while a pass is prepared, whether three processes map the memory or three hundred.
//!
//! `clear_refs` also clears the young flags of folios, in which in-kernel DAMON records the bits it cleared.
//! A young folio was accessed since the last walk by any process that maps it.
//!
//! `clear_refs` holds the write lock of the address space, and every page fault of the target waits
//! meanwhile. So a target whose walk would take longer than the user allows is not walked at all, and a
//! target spends at most one part in [`REST`] of its time under a walk. Between walks its page tables are
//! read but its bits are kept, so its accesses since its last walk count in every pass until the next walk.
//! `clear_refs` flushes no TLB: a page that is accessed all the time can keep its TLB entry and look idle for
//! up to 100 ms. Passes are longer than that.

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

use super::table_part::{for_each_leaf, pages_of};

/// A target is walked if at least one part in this many of its resident memory is unknown. The share of
/// libraries is smaller.
const MIN_UNKNOWN_PART: u64 = 16;
/// Time between walks of a target, in multiples of the duration of a walk.
const REST: u64 = 100;
/// Cost of a walk for each page before any was measured, in picoseconds: the highest cost seen, 37 ms a GiB.
const INITIAL_PS_PER_LEAF: u64 = 141_000;
/// End of user address spaces, unless a program asks for more (5-level page tables).
pub(super) const ADDRESS_SPACE_END: u64 = 1 << 47;

/// Walks of shared and locked memory.
#[derive(Debug)]
pub(super) struct SharedWalk {
    /// Maximum duration of a walk.
    max_time: Nanos,
    /// Measured cost of a walk for each page, in picoseconds.
    ps_per_leaf: u64,
    /// Resident bytes and unknown bytes that the current pass found in targets that are not walked.
    unknown: BTreeMap<TargetId, (Bytes, Bytes)>,
    walked: BTreeMap<TargetId, WalkState>,
    /// Targets that must not be walked. The user is warned once for each.
    refused: BTreeSet<TargetId>,
    /// Targets still to be walked before the pass begins, the next one last.
    pending: Vec<TargetId>,
    /// Frames that any walked target accessed, for the current pass.
    accessed: FrameSet,
    /// The same for the pass that is being prepared. Kept if the preparation is interrupted, since those
    /// accessed bits are cleared already.
    next: FrameSet,
}

/// A target that is walked. Its frames are not stored here: hundreds of targets may map much memory.
#[derive(Debug, Clone, Copy, Default)]
struct WalkState {
    began: Nanos,
    took: Nanos,
    /// Whether the target was ever walked.
    was_walked: bool,
    /// Whether the target had not been walked when its bits were read last. Then the bits may be years old.
    has_old_bits: bool,
}

impl WalkState {
    const fn is_resting(&self, now: Nanos) -> bool {
        now.saturating_sub(self.began).0 < self.took.0.saturating_mul(REST)
    }
}

impl SharedWalk {
    /// No walk may take longer than `max_time`.
    pub(super) fn new(max_time: Nanos) -> Self {
        Self {
            max_time,
            ps_per_leaf: INITIAL_PS_PER_LEAF,
            unknown: BTreeMap::new(),
            walked: BTreeMap::new(),
            refused: BTreeSet::new(),
            pending: Vec::new(),
            accessed: FrameSet::default(),
            next: FrameSet::default(),
        }
    }

    /// Records how much of a chunk of a target that is not walked is unknown.
    pub(super) fn record_unknown(&mut self, id: TargetId, chunk: &ScanChunk) {
        let (present, unknown) = chunk.present_and_unknown();
        let sums = self.unknown.entry(id).or_default();
        sums.0 += present;
        sums.1 += unknown;
    }

    /// Walks the next pending target before a pass.
    pub(super) fn prepare(
        &mut self,
        tables: &mut PageTables,
        root: &Path,
        processes: &Processes,
        folios: Folios,
        first: bool,
    ) -> Preparation {
        if first {
            self.select_targets(processes);
        }
        while let Some(id) = self.pending.pop() {
            if let Some(process) = processes.get(&id) {
                return Preparation::InProgress(self.walk(tables, root, process, folios));
            }
        }
        self.begin_pass();
        Preparation::Ready
    }

    /// Stops walking a target, because it is sampled now: pages whose bits a walk cleared would look idle.
    pub(super) fn forget(&mut self, id: TargetId) {
        self.unknown.remove(&id);
        if self.walked.remove(&id).is_some() {
            self.pending.retain(|pending| *pending != id);
        }
    }

    fn begin_pass(&mut self) {
        self.accessed = std::mem::take(&mut self.next);
    }

    /// Adds the targets that need walks according to the last pass, and removes those that have ended.
    fn select_targets(&mut self, processes: &Processes) {
        self.walked.retain(|id, _| processes.contains_key(id));
        self.refused.retain(|id| processes.contains_key(id));
        for (id, (present, unknown)) in std::mem::take(&mut self.unknown) {
            let needs_walk = unknown > Bytes::ZERO && unknown.0 * MIN_UNKNOWN_PART >= present.0;
            if needs_walk && processes.contains_key(&id) && !self.refused.contains(&id) {
                self.walked.entry(id).or_default();
            }
        }
        self.pending = self.walked.keys().rev().copied().collect();
    }

    /// Records what `process` accessed and clears its bits, unless the last walk was too recent. Returns a
    /// warning if the target is not walked any more.
    fn walk(
        &mut self,
        tables: &mut PageTables,
        root: &Path,
        process: &Process,
        folios: Folios,
    ) -> Option<String> {
        let walked = self.walked.get_mut(&process.id)?;
        walked.has_old_bits = !walked.was_walked;
        let is_resting = walked.is_resting(clock::monotonic());
        let leaves = self.record_accesses(tables, process, folios).ok()?;
        if is_resting {
            return None;
        }
        self.clear(root, process, leaves)
    }

    /// Records the frames that `process` accessed. Returns the number of its leaves.
    fn record_accesses(
        &mut self,
        tables: &mut PageTables,
        process: &Process,
        folios: Folios,
    ) -> Result<u64, WalkError> {
        let mut leaves = 0;
        let all = AddrRange::new(0, ADDRESS_SPACE_END);
        for_each_leaf(tables, process.pid, all, folios, &mut |_, leaf| {
            leaves += 1;
            self.record(leaf);
        })?;
        Ok(leaves)
    }

    fn record(&mut self, leaf: Leaf) {
        if leaf.was_accessed() {
            self.next.insert(leaf.pfn, nr_frames(leaf));
        }
    }

    /// Clears the accessed bits of the `leaves` of `process`. If the target is given up instead, its recorded
    /// frames still count for other targets in this pass.
    fn clear(&mut self, root: &Path, process: &Process, leaves: u64) -> Option<String> {
        let estimate = Nanos(leaves.saturating_mul(self.ps_per_leaf) / 1000);
        if estimate > self.max_time {
            return Some(self.refuse(process, leaves, estimate));
        }
        let (cpu, began) = (clock::thread_cpu(), clock::monotonic());
        let cleared = process.is_alive().then(|| clear_refs::clear(root, process.pid));
        let walked = self.walked.get_mut(&process.id)?;
        walked.began = began;
        walked.took = clock::monotonic().saturating_sub(began);
        walked.was_walked = true;
        match cleared {
            Some(Ok(())) => {
                let cost = clock::thread_cpu().saturating_sub(cpu).0.saturating_mul(1000) / leaves.max(1);
                self.ps_per_leaf = (self.ps_per_leaf * 3 + cost) / 4;
                None
            }
            Some(Err(error)) if !error.is_gone() => Some(self.fail(process, &error)),
            _ => None,
        }
    }

    fn refuse(&mut self, process: &Process, leaves: u64, estimate: Nanos) -> String {
        self.give_up(process.id);
        format!(
            "walking the {leaves} pages of process {} would delay its page faults by about {estimate}, and --max-walk \
             allows {}: its shared and locked memory stays unknown",
            process.pid, self.max_time
        )
    }

    fn fail(&mut self, process: &Process, error: &ProcError) -> String {
        self.give_up(process.id);
        format!(
            "the shared and locked memory of process {} stays unknown: {error}",
            process.pid
        )
    }

    fn give_up(&mut self, id: TargetId) {
        self.walked.remove(&id);
        self.refused.insert(id);
    }

    /// Fills `chunk` with the pages of `range` of a walked target; `None` for other targets.
    pub(super) fn fill_chunk(
        &self,
        tables: &mut PageTables,
        frames: Option<&PageFrames>,
        process: &Process,
        range: AddrRange,
        chunk: &mut ScanChunk,
    ) -> Option<Result<(), WalkError>> {
        let walked = self.walked.get(&process.id).filter(|walked| walked.was_walked)?;
        Some(for_each_leaf(
            tables,
            process.pid,
            range,
            Folios::None,
            &mut |at, leaf| {
                let accessed = self.accessed.any(leaf.pfn, nr_frames(leaf));
                let is_unknown = accessed && walked.has_old_bits || is_hugetlb(leaf, frames);
                pages_of(at).for_each(|addr| match is_unknown {
                    true => chunk.set_unknown(addr),
                    false => chunk.set(addr, accessed),
                });
            },
        ))
    }
}

const fn nr_frames(leaf: Leaf) -> u64 {
    leaf.len().0 / 4096
}

/// The bits of hugetlb pages cannot be cleared.
fn is_hugetlb(leaf: Leaf, frames: Option<&PageFrames>) -> bool {
    leaf.level > 0
        && frames
            .and_then(|frames| frames.flags(leaf.pfn).ok())
            .is_some_and(|flags| flags.is_hugetlb())
}

/// Frames in one block of a set.
const BLOCK_FRAMES: u64 = 1 << 15;

/// A set of frames, one bit each, in blocks that are allocated on demand.
#[derive(Debug, Default)]
struct FrameSet {
    blocks: Vec<Option<Box<[u64; 512]>>>,
}

impl FrameSet {
    /// Adds `count` frames from `first` on.
    fn insert(&mut self, first: u64, count: u64) {
        for pfn in first..first.saturating_add(count) {
            let Ok(nth) = usize::try_from(pfn / BLOCK_FRAMES) else {
                return;
            };
            if self.blocks.len() <= nth {
                self.blocks.resize(nth + 1, None);
            }
            let block = self.blocks[nth].get_or_insert_with(|| Box::new([0; 512]));
            block[(pfn % BLOCK_FRAMES / 64) as usize] |= 1 << (pfn % 64);
        }
    }

    /// Whether any of `count` frames from `first` on is in the set.
    fn any(&self, first: u64, count: u64) -> bool {
        let has = |pfn: u64| {
            let block = usize::try_from(pfn / BLOCK_FRAMES)
                .ok()
                .and_then(|nth| self.blocks.get(nth));
            block
                .and_then(Option::as_ref)
                .is_some_and(|block| block[(pfn % BLOCK_FRAMES / 64) as usize] >> (pfn % 64) & 1 == 1)
        };
        (first..first.saturating_add(count)).any(has)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::super::madvise_unit::accessed_leaf;
    use super::*;
    use thermo_units::Addr;

    #[test]
    fn frame_set_finds_single_frames_and_ranges() {
        let mut frames = FrameSet::default();
        frames.insert(7, 1);
        frames.insert(BLOCK_FRAMES - 1, 2);
        frames.insert(5 * BLOCK_FRAMES, 512);
        for (pfn, count, expected) in [
            (7, 1, true),
            (6, 1, false),
            (0, 512, true),
            (BLOCK_FRAMES, 1, true),
            (BLOCK_FRAMES + 1, 1, false),
            (5 * BLOCK_FRAMES + 511, 1, true),
            (5 * BLOCK_FRAMES + 512, 512, false),
            (1 << 60, 1, false),
        ] {
            assert_eq!(frames.any(pfn, count), expected, "{pfn}");
        }
    }

    #[test]
    fn frame_counts_as_accessed_for_one_pass() {
        let mut walk = SharedWalk::new(Nanos::millis(100));
        let idle = Leaf {
            accessed: false,
            ..accessed_leaf(0, 6)
        };
        for leaf in [accessed_leaf(0, 5), idle, accessed_leaf(1, 1024)] {
            walk.record(leaf);
        }
        // The current pass uses its own set until the next pass begins.
        assert!(!walk.accessed.any(5, 1));
        walk.begin_pass();
        for (pfn, expected) in [(5, true), (6, false), (1023, false), (1024, true), (1535, true)] {
            assert_eq!(walk.accessed.any(pfn, 1), expected, "{pfn}");
        }
        walk.record(accessed_leaf(0, 6));
        assert!(walk.accessed.any(5, 1) && !walk.accessed.any(6, 1));
        walk.begin_pass();
        assert!(!walk.accessed.any(5, 1) && walk.accessed.any(6, 1));
    }

    #[test]
    fn frame_set_memory_does_not_grow_with_targets() {
        let kept = |walk: &SharedWalk| {
            let blocks = [&walk.accessed, &walk.next].map(|frames| frames.blocks.iter().flatten().count());
            blocks.iter().sum::<usize>()
        };
        let mut walk = SharedWalk::new(Nanos::millis(100));
        // All targets map the same 64 MiB, scattered over four blocks.
        for target in 0..300 {
            (0..4 * BLOCK_FRAMES)
                .step_by(8)
                .for_each(|pfn| walk.record(accessed_leaf(0, pfn)));
            assert_eq!(kept(&walk), 4, "{target}");
        }
        walk.begin_pass();
        assert_eq!(kept(&walk), 4);
        walk.record(accessed_leaf(0, 9 * BLOCK_FRAMES));
        walk.begin_pass();
        assert_eq!(kept(&walk), 1);
        walk.begin_pass();
        assert_eq!(kept(&walk), 0);
    }

    #[test]
    fn target_rests_100_times_duration_of_walk() {
        let walked = WalkState {
            began: Nanos::secs(10),
            took: Nanos::millis(30),
            ..WalkState::default()
        };
        assert!(walked.is_resting(Nanos::secs(12)) && !walked.is_resting(Nanos::secs(13)));
        assert!(
            !WalkState::default().is_resting(Nanos::ZERO),
            "a target that was never walked"
        );
    }

    #[test]
    fn only_targets_with_much_unknown_memory_are_walked() {
        let processes: Processes = [0, 1, 2]
            .map(TargetId)
            .map(|id| (id, Process::open(id, std::process::id()).unwrap()))
            .into();
        let mut walk = SharedWalk::new(Nanos::millis(100));
        let found = |walk: &mut SharedWalk, id, present, unknown| {
            let mut chunk = ScanChunk::default();
            chunk.reset(AddrRange::new(0, present * 4096));
            (0..present).for_each(|page| chunk.set(Addr(page * 4096), false));
            (0..unknown).for_each(|page| chunk.set_unknown(Addr(page * 4096)));
            walk.record_unknown(TargetId(id), &chunk);
        };
        for (id, present, unknown) in [(0, 1000, 10), (1, 1000, 100), (2, 5, 0), (9, 10, 10)] {
            found(&mut walk, id, present, unknown);
        }
        walk.select_targets(&processes);
        assert_eq!(walk.pending, [TargetId(1)]);
        // A walked target stays walked: its shared memory is no longer unknown. A target that was given up is
        // not walked again.
        walk.give_up(TargetId(0));
        found(&mut walk, 0, 10, 10);
        found(&mut walk, 2, 16, 1);
        walk.select_targets(&processes);
        assert_eq!(walk.pending, [TargetId(2), TargetId(1)]);
        walk.select_targets(&Processes::new());
        assert!(walk.pending.is_empty() && walk.refused.is_empty());
    }

    #[test]
    fn walk_is_refused_if_estimate_exceeds_limit() {
        let process = Process::open(TargetId(3), std::process::id()).unwrap();
        let mut walk = SharedWalk::new(Nanos::millis(50));
        walk.walked.entry(TargetId(3)).or_default();
        let message = walk.refuse(&process, 1 << 20, Nanos::millis(148));
        assert!(
            message.contains("148 ms") && message.contains("--max-walk allows 50"),
            "{message}"
        );
        assert!(walk.walked.is_empty() && walk.refused.contains(&TargetId(3)));
    }
}
