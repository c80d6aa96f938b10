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
    /// True while joint passes are being prepared.
    is_preparing: bool,
}

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
        // Among equal virtual times the first target wins; targets are ordered by id.
        let ready = (0..targets.len()).filter(|nth| is_ready(&targets[*nth]));
        let Some(nth) = ready.min_by_key(|nth| targets[*nth].cursor.virtual_time) else {
            let earliest = targets.iter().filter_map(next_pass).min();
            return ScanProgress::WaitUntil(earliest.unwrap_or(Nanos::MAX));
        };
        if targets[nth].cursor.at.is_none() {
            begin_pass(nth, now, targets, ops);
        }
        self.scan(&mut targets[nth], now, ops);
        self.last = Some(targets[nth].id);
        ScanProgress::Worked(None)
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
                (0..targets.len()).for_each(|nth| begin_pass(nth, now, targets, ops));
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
                return target.states.end_pass(now);
            };
            self.chunk.reset(range);
            target.states.mark_steadily_accessed(&mut self.chunk);
            let target_range = TargetRange {
                target: target.id,
                range,
            };
            let next = ops.scan(&target_range, &mut self.chunk).max(range.end);
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
        let total: u64 = targets.iter().map(|target| target.weight().0).sum();
        let count = targets.len() as f64;
        if let Some(target) = targets.iter_mut().find(|target| target.id == id) {
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

/// Begins a pass over the target with index `nth`. A target that is new or waited starts at the smallest
/// virtual time of the running passes.
fn begin_pass(nth: usize, now: Nanos, targets: &mut [Target], ops: &mut dyn Operations) {
    let running = targets.iter().filter(|target| target.cursor.at.is_some());
    let min_virtual_time = running.map(|target| target.cursor.virtual_time).min();
    let target = &mut targets[nth];
    let cursor = &mut target.cursor;
    if cursor.waits || cursor.began.is_none() {
        cursor.virtual_time = cursor.virtual_time.max(min_virtual_time.unwrap_or(0));
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
