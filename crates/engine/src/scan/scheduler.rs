//! The scan scheduler: chooses the target whose next chunk is scanned.
//!
//! Each target is scanned at its own pace; no pass waits for the pass of another target. Half of the budget
//! is divided evenly, half by resident bytes, so that passes over small targets are frequent and passes over
//! large ones as frequent as their share allows. Budget that small targets cannot use, because passes start
//! at most every `cursor::MIN_PASS_INTERVAL`, goes to the others.
//!
//! This is stride scheduling: the *virtual time* of a target advances by the cost of its chunks, divided by
//! its weight. The target with the smallest virtual time is next. The context enforces the total budget by
//! resting while in debt.
//!
//! With thousands of targets, the next ones are chosen some dozens at a time: to look at all targets for each
//! chunk would cost as much as the chunk.

use super::chunk::{Preparation, ScanChunk};
use crate::monitoring::Target;
use crate::ops::{Operations, TargetRange};
use crate::target_id::TargetId;
use thermo_units::Nanos;
use thermo_units::{Addr, AddrRange};

/// Maximum address space in one chunk: about a millisecond of work if all of it is resident and was accessed,
/// so that a budget of 1 % of a CPU is kept within a second. A multiple of the memory that a page-table page
/// maps.
const CHUNK: u64 = 64 << 20;
/// Maximum number of ranges in one step. Lets one step scan many small mappings.
const MAX_RANGES: usize = 32;

/// Result of [`Scheduler::scan_next`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ScanProgress {
    /// A chunk was scanned or a pass was prepared. May carry a warning for the user.
    Worked(Option<String>),
    /// No pass is due before this time.
    WaitUntil(Nanos),
}

/// Chooses the next target and scans it.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    chunk: ScanChunk,
    /// Target scanned in the last step, to be charged with its cost.
    last: Option<TargetId>,
    /// The next targets, in reverse order.
    queue: Vec<TargetId>,
    /// Virtual time of the target scanned last. Targets that are new or have waited begin there.
    virtual_time: u64,
    /// Weight of all targets; `None` after they have changed.
    total: Option<u64>,
    /// True while joint passes are being prepared.
    is_preparing: bool,
}

/// One in so many targets is chosen at a time, and one more.
const QUEUE_DIVISOR: usize = 64;

impl Scheduler {
    /// Scans the next chunk of the target with the smallest virtual time.
    pub(crate) fn scan_next(
        &mut self,
        now: Nanos,
        targets: &mut [Target],
        ops: &mut dyn Operations,
    ) -> ScanProgress {
        self.last = None;
        let is_joint = ops.scans_jointly();
        if is_joint && targets.iter().all(|target| target.cursor.at.is_none()) {
            return self.begin_joint_passes(now, targets, ops);
        }
        let is_ready = |target: &Target| {
            target.cursor.at.is_some() || !is_joint && next_pass(target).is_none_or(|start| start <= now)
        };
        if self.queue.is_empty() {
            let mut ready: Vec<(u64, TargetId)> = targets
                .iter()
                .filter(|target| is_ready(target))
                .map(|target| (target.cursor.virtual_time, target.id))
                .collect();
            // Among equal virtual times the first target wins.
            ready.sort_unstable();
            ready.truncate(targets.len() / QUEUE_DIVISOR + 1);
            self.queue.extend(ready.into_iter().rev().map(|(_, id)| id));
        }
        let Some(target) = self.queue.pop().and_then(|id| find(targets, id)) else {
            let earliest = targets.iter().filter_map(next_pass).min();
            return ScanProgress::WaitUntil(earliest.unwrap_or(Nanos::MAX));
        };
        if target.cursor.at.is_none() {
            begin_pass(target, self.virtual_time, now, ops);
        }
        self.virtual_time = target.cursor.virtual_time;
        self.scan(target, now, ops);
        self.last = Some(target.id);
        ScanProgress::Worked(None)
    }

    /// Targets have appeared, gone or changed their weight.
    pub(crate) fn targets_changed(&mut self) {
        self.queue.clear();
        self.total = None;
    }

    /// Prepares and begins passes over all targets, for operations that must scan them together.
    fn begin_joint_passes(
        &mut self,
        now: Nanos,
        targets: &mut [Target],
        ops: &mut dyn Operations,
    ) -> ScanProgress {
        let latest = targets.iter().filter_map(next_pass).max();
        if let Some(start) = latest.filter(|start| *start > now) {
            return ScanProgress::WaitUntil(start);
        }
        match ops.prepare_passes(!self.is_preparing) {
            Preparation::InProgress(warning) => {
                self.is_preparing = true;
                ScanProgress::Worked(warning)
            }
            Preparation::Ready => {
                self.is_preparing = false;
                let virtual_time = self.virtual_time;
                targets
                    .iter_mut()
                    .for_each(|target| begin_pass(target, virtual_time, now, ops));
                match targets.is_empty() {
                    true => ScanProgress::WaitUntil(Nanos::MAX),
                    false => ScanProgress::Worked(None),
                }
            }
        }
    }

    /// Scans the next chunk of `target`. Ends the pass after the last chunk.
    fn scan(&mut self, target: &mut Target, now: Nanos, ops: &mut dyn Operations) {
        let mut scanned = 0;
        for _ in 0..MAX_RANGES {
            let Some(range) = next_range(target) else {
                target.cursor.at = None;
                target.cursor.waits = next_pass(target).is_some_and(|start| start > now);
                target.aliases.end_pass();
                return target.states.end_pass(now);
            };
            self.chunk.reset(range);
            target.states.mark_steadily_accessed(&mut self.chunk);
            let target_range = TargetRange {
                target: target.id,
                range,
            };
            let next = ops.scan(&target_range, &mut self.chunk).max(range.end);
            target.aliases.remove_from(&mut self.chunk, &mut target.states);
            target.states.update(&self.chunk, now);
            target.states.set_absent(AddrRange {
                start: range.end,
                end: next,
            });
            target.cursor.at = Some(next);
            target.cursor.scanned += range.len();
            scanned += range.len().0;
            if scanned >= CHUNK {
                return;
            }
        }
    }

    /// Charges the cost of the last step to the target that was scanned.
    pub(crate) fn charge(&mut self, cost: Nanos, targets: &mut [Target]) {
        let Some(id) = self.last.take() else { return };
        let weights = || targets.iter().map(|target| target.weight().0).sum();
        let total = *self.total.get_or_insert_with(weights);
        let count = targets.len() as f64;
        if let Some(target) = find(targets, id) {
            let resident_share = target.weight().0 as f64 / total.max(1) as f64;
            let weight = 0.5 / count + 0.5 * resident_share;
            let time = cost.0 as f64 / weight.max(f64::MIN_POSITIVE);
            target.cursor.virtual_time = target.cursor.virtual_time.saturating_add(time as u64);
        }
    }
}

/// Earliest start of the next pass over `target`; `None` before its first pass.
fn next_pass(target: &Target) -> Option<Nanos> {
    target.cursor.next_pass()
}

/// Finds a target. They are ordered by id.
fn find(targets: &mut [Target], id: TargetId) -> Option<&mut Target> {
    let nth = targets.binary_search_by_key(&id, |target| target.id).ok()?;
    targets.get_mut(nth)
}

/// Begins a pass over the target. If it is new or waited, it starts at `virtual_time`.
fn begin_pass(target: &mut Target, virtual_time: u64, now: Nanos, ops: &mut dyn Operations) {
    let cursor = &mut target.cursor;
    if cursor.waits || cursor.began.is_none() {
        cursor.virtual_time = cursor.virtual_time.max(virtual_time);
    }
    (cursor.at, cursor.began) = (Some(Addr(0)), Some(now));
    target.states.begin_pass(now);
    ops.begin_pass(target.id);
}

/// The next range of the running pass: at most a chunk. It ends at a multiple of the chunk size or at the end
/// of the mapping, so that it never divides the pages of a page-table page.
fn next_range(target: &Target) -> Option<AddrRange> {
    let from = target.cursor.at?;
    let first = target.ranges.partition_point(|range| range.end <= from);
    let range = target.ranges.get(first)?;
    let start = range.start.max(from);
    let border = Addr((start.0 / CHUNK + 1) * CHUNK);
    Some(AddrRange {
        start,
        end: range.end.min(border),
    })
}

#[cfg(test)]
mod tests;
