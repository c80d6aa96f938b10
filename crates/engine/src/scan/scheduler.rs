//! The scan scheduler: whose chunk is scanned next.
//!
//! Each target is scanned at its own pace; none waits for the pass of another. The budget is divided by weight: half of
//! it evenly, half by resident bytes, so that small targets are passed often, and large ones as often as their share
//! pays for. What small targets do not use, because passes come no more often than `cursor::SHORTEST_PASS`, goes to the
//! others.
//!
//! This is stride scheduling: a target's *virtual time* advances by what its chunks cost, divided by its weight, and the
//! target that is behind comes next. The budget as a whole is kept by the context, which rests while in debt.

use super::chunk::{Preparation, ScanChunk};
use crate::monitoring::Target;
use crate::ops::{Operations, TargetRange};
use crate::target_id::TargetId;
use thermo_units::Nanos;
use thermo_units::{Addr, AddrRange};

/// Most bytes of address space in one chunk: about a millisecond of work where all of it is resident and was accessed, so
/// that a budget of a hundredth of a CPU is kept within a second. A multiple of what a page-table page maps.
const CHUNK: u64 = 64 << 20;
/// Most ranges scanned in one step, so that hundreds of small mappings do not each cost one.
const MOST_RANGES: usize = 32;

/// What came of a turn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Something was scanned, or prepared; with a sentence the user should know, if there is one.
    Worked(Option<String>),
    /// Nothing is due before this moment.
    Wait(Nanos),
}

/// Chooses, and scans.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    chunk: ScanChunk,
    /// Whose chunk was scanned in the last turn: its cost is known after it.
    last: Option<TargetId>,
    /// Whether the preparation of joint passes is under way.
    is_preparing: bool,
}

impl Scheduler {
    /// Scans the next chunk of the target whose turn it is.
    pub(crate) fn turn(&mut self, now: Nanos, targets: &mut [Target], ops: &mut dyn Operations) -> Turn {
        self.last = None;
        let is_joint = ops.scans_jointly();
        if is_joint && targets.iter().all(|target| target.cursor.at.is_none()) {
            return self.begin_jointly(now, targets, ops);
        }
        let is_ready = |target: &Target| {
            target.cursor.at.is_some() || !is_joint && due(target).is_none_or(|due| due <= now)
        };
        // Of targets alike the first goes first: they are in the order of their ids.
        let ready = (0..targets.len()).filter(|nth| is_ready(&targets[*nth]));
        let Some(nth) = ready.min_by_key(|nth| targets[*nth].cursor.virtual_time) else {
            return Turn::Wait(targets.iter().filter_map(due).min().unwrap_or(Nanos::MAX));
        };
        if targets[nth].cursor.at.is_none() {
            begin_pass(nth, now, targets, ops);
        }
        self.scan(&mut targets[nth], now, ops);
        self.last = Some(targets[nth].id);
        Turn::Worked(None)
    }

    /// Begins a pass over all targets, where they have to be scanned together.
    fn begin_jointly(&mut self, now: Nanos, targets: &mut [Target], ops: &mut dyn Operations) -> Turn {
        let latest = targets.iter().filter_map(due).max();
        if let Some(due) = latest.filter(|due| !self.is_preparing && *due > now) {
            return Turn::Wait(due);
        }
        match ops.prepare_passes(!self.is_preparing) {
            Preparation::Part(warning) => {
                self.is_preparing = true;
                Turn::Worked(warning)
            }
            Preparation::Ready => {
                self.is_preparing = false;
                (0..targets.len()).for_each(|nth| begin_pass(nth, now, targets, ops));
                match targets.is_empty() {
                    true => Turn::Wait(Nanos::MAX),
                    false => Turn::Worked(None),
                }
            }
        }
    }

    /// Scans the next chunk of `target`, and ends its pass if that was the last.
    fn scan(&mut self, target: &mut Target, now: Nanos, ops: &mut dyn Operations) {
        let mut scanned = 0;
        for _ in 0..MOST_RANGES {
            let Some(range) = next_range(target) else {
                target.cursor.at = None;
                target.cursor.waits = due(target).is_some_and(|due| due > now);
                return target.states.end_pass(now);
            };
            self.chunk.reset(range);
            target.states.tell_steady(&mut self.chunk);
            let run = TargetRange {
                target: target.id,
                range,
            };
            let next = ops.scan(&run, &mut self.chunk).max(range.end);
            target.states.take_in(&self.chunk, now);
            target.states.forget(AddrRange {
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

    /// Books what the last turn has cost to the target whose turn it was.
    pub(crate) fn charge(&mut self, cost: Nanos, targets: &mut [Target]) {
        let Some(id) = self.last.take() else { return };
        let total: u64 = targets.iter().map(|target| target.weight().0).sum();
        let count = targets.len() as f64;
        if let Some(target) = targets.iter_mut().find(|target| target.id == id) {
            let part = target.weight().0 as f64 / total.max(1) as f64;
            let weight = 0.5 / count + 0.5 * part;
            let time = cost.0 as f64 / weight.max(f64::MIN_POSITIVE);
            target.cursor.virtual_time = target.cursor.virtual_time.saturating_add(time as u64);
        }
    }
}

/// When the next pass over `target` may begin; none: at once.
fn due(target: &Target) -> Option<Nanos> {
    target.cursor.due(target.defer_scan)
}

/// Begins a pass over the target at place `nth`.
fn begin_pass(nth: usize, now: Nanos, targets: &mut [Target], ops: &mut dyn Operations) {
    let under_way = targets.iter().filter(|target| target.cursor.at.is_some());
    let behind = under_way.map(|target| target.cursor.virtual_time).min();
    let target = &mut targets[nth];
    let cursor = &mut target.cursor;
    if cursor.waits || cursor.began.is_none() {
        cursor.virtual_time = cursor.virtual_time.max(behind.unwrap_or(0));
    }
    (cursor.at, cursor.began) = (Some(Addr(0)), Some(now));
    target.states.begin_pass(now);
    ops.begin_pass(target.id);
}

/// The next range of the pass under way: at most a chunk, which ends at a multiple of its size, so that it never divides
/// a page-table page.
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
