//! Moves memory to other nodes (`move_pages(2)`).
//!
//! 1. Every page of a range is looked up in the pagemap. Its frame says on which node it is. Pages that are
//!    absent, on their node already, mapped by other processes too, or moved recently are skipped.
//! 2. The rest is moved in batches, a huge page by its first address. The kernel stops at a group of pages
//!    that it could not move completely, so what is left of a batch is tried again in smaller calls.
//! 3. The kernel is asked again where each page of the batch is. That, and not the result of the move, is
//!    what counts as changed.
//!
//! A node takes memory only down to its high watermark: below, the kernel would page out memory of others to
//! make room. A huge page of which only a part is in the range is moved whole by the kernel; only the part
//! counts.

mod calls;

use std::io;

use thermo_engine::ops::{Applied, Skip};
use thermo_engine::scheme::{Destination, node_of};
use thermo_kernel::clock;
use thermo_kernel::move_pages::MAX_PAGES;
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_kernel::refusal::{Call, Cause, Refusal};
use thermo_targets::Process;
use thermo_units::{Addr, AddrRange, Bytes, Nanos, PAGE_SIZE};

pub(super) use self::calls::MovePages;
use self::calls::{Kernel, living};
use super::dry_run::DryMoves;
use super::plan::{RangePlan, Task};
use super::range_ops;
use super::refused::{skip_for, skip_refused};
use super::state::Actor;
use super::touch::{is_huge, is_huge_page, steps};
use super::units::HUGE_PAGE;

const PAGES_PER_HUGE: usize = (HUGE_PAGE.0 / PAGE_SIZE) as usize;
/// The most bytes of one batch: about 0.1 s, so that a cancel takes effect soon.
const BATCH: Bytes = Bytes::mib(64);
/// The number of pages in the calls that try again what is left of a batch. The last ones find the page that
/// cannot be moved.
const CALLS: [usize; 4] = [MAX_PAGES, 256, 16, 1];

/// A page or a huge page to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unit {
    range: AddrRange,
    /// The node it is on; `None` if that is not known.
    on: Option<u32>,
    to: u32,
}

impl Actor {
    /// The parts of `range` that are not yet on their node and can be moved now.
    #[must_use]
    pub fn pending_migration(
        &self,
        process: &Process,
        destinations: &[Destination],
        range: AddrRange,
    ) -> Vec<AddrRange> {
        let mut pending = Vec::new();
        // A process that has ended has no memory to move.
        if let Ok(pagemap) = Pagemap::open(&self.root, process.pid) {
            let units = self.survey(
                (process, &pagemap),
                &[range],
                destinations,
                &mut Applied::default(),
            );
            units
                .iter()
                .for_each(|unit| unit.range.coalesce_into(&mut pending));
        }
        pending
    }

    /// Moves the kept memory of `plans` to its nodes.
    pub(super) fn migrate(&mut self, task: &Task<'_>, plans: Vec<RangePlan>) -> Vec<Applied> {
        self.journal
            .keep_only(|target| task.processes.contains_key(&target));
        let mut full = Vec::new();
        let mut move_kept = |RangePlan { mut applied, kept }: RangePlan| {
            if kept.is_empty() {
                return applied;
            }
            applied.changed = Some(Bytes::ZERO);
            let of = (task.process, task.pagemap);
            let units = self.survey(of, &kept, task.destinations, &mut applied);
            for batch in batches(&units) {
                self.move_batch(task.process, batch, &mut full, &mut applied);
            }
            applied
        };
        plans.into_iter().map(&mut move_kept).collect()
    }

    /// The units of `ranges` to move. The rest is counted in `applied`.
    fn survey(
        &self,
        (process, pagemap): (&Process, &Pagemap),
        ranges: &[AddrRange],
        destinations: &[Destination],
        applied: &mut Applied,
    ) -> Vec<Unit> {
        let now = clock::monotonic();
        let mut units = Vec::new();
        let mut pages = Vec::new();
        for step in steps(ranges) {
            // Unreadable memory counts as not present.
            if pagemap.read(step, &mut pages).is_err() {
                pages.clear();
            }
            let first = units.len();
            self.units_of(step, &pages, destinations, applied, &mut units);
            ask_for_nodes(&mut living(process, Kernel(process.pid)), &mut units[first..]);
        }
        units.retain(|unit| {
            let why = if unit.on == Some(unit.to) {
                Some(Skip::OnNode)
            } else if self.journal.is_cooling(process.id, unit.range.start, now) {
                Some(Skip::CoolDown)
            } else {
                None
            };
            why.into_iter()
                .for_each(|why| applied.skip(why, unit.range.len()));
            why.is_none()
        });
        units
    }

    /// Adds the present units of `step`, whose `pages` were read, to `units`.
    fn units_of(
        &self,
        step: AddrRange,
        pages: &[Page],
        destinations: &[Destination],
        applied: &mut Applied,
        units: &mut Vec<Unit>,
    ) {
        let mut nth = 0;
        let nr_pages = (step.len().0 / PAGE_SIZE) as usize;
        while nth < nr_pages {
            let addr = step.start + Bytes(nth as u64 * PAGE_SIZE);
            let block = pages.get(nth..nth + PAGES_PER_HUGE).unwrap_or_default();
            let is_whole = addr.0.is_multiple_of(HUGE_PAGE.0)
                && is_huge_page(block, &|pfn| is_huge(self.frames.as_ref(), pfn));
            let nr = if is_whole { PAGES_PER_HUGE } else { 1 };
            nth += nr;
            let len = Bytes(nr as u64 * PAGE_SIZE);
            let Some(page) = pages.get(nth - nr).filter(|page| page.is_present()) else {
                applied.skip(Skip::NotPresent, len);
                continue;
            };
            if !page.is_exclusive() {
                applied.skip(Skip::Shared, len);
                continue;
            }
            let Some(to) = node_of(destinations, addr, len.0) else {
                applied.skip(Skip::Refused, len);
                continue;
            };
            units.push(Unit {
                range: AddrRange {
                    start: addr,
                    end: addr + len,
                },
                on: page.pfn().and_then(|pfn| self.nodes.of_frame(pfn)),
                to,
            });
        }
    }

    /// Moves one batch. `full` has the nodes that ran out of memory.
    fn move_batch(&mut self, process: &Process, batch: &[Unit], full: &mut Vec<u32>, applied: &mut Applied) {
        let mut skip_all = |why, units: &[Unit]| applied.skip(why, bytes(units));
        if let Some(why) = self.stop.reason(process.pid) {
            return skip_all(why, batch);
        }
        if !process.is_alive() {
            return skip_all(Skip::TargetGone, batch);
        }
        let (units, too_many) = self.fitting(batch, full);
        skip_all(Skip::NodeFull, &too_many);
        let results = match self.dry_run {
            true => move_units(&mut living(process, DryMoves::new(process.pid)), &units),
            false => move_units(&mut living(process, Kernel(process.pid)), &units),
        };
        // Otherwise the last answers may be those of a later process with the same number.
        if !process.is_alive() {
            return skip_all(Skip::TargetGone, &units);
        }
        let now = clock::monotonic();
        for (unit, result) in units.iter().zip(results) {
            match result {
                Ok(()) if self.dry_run => {
                    applied.applied += unit.range.len();
                    *self.promised.entry(unit.to).or_default() += unit.range.len();
                }
                Ok(()) => {
                    applied.applied += unit.range.len();
                    applied.changed = applied.changed.map(|changed| changed + unit.range.len());
                    applied.moved_back += self.count_move(process, unit, now);
                }
                Err(refusal) => {
                    skip_refused(applied, refusal, unit.range.len());
                    match skip_for(refusal.cause()) {
                        _ if self.dry_run => {}
                        Skip::NodeFull if !full.contains(&unit.to) => full.push(unit.to),
                        Skip::Busy | Skip::Shared => self.journal.failed(process.id, unit.range, now),
                        _ => {}
                    }
                }
            }
        }
    }

    fn count_move(&mut self, process: &Process, unit: &Unit, now: Nanos) -> Bytes {
        // Without a known origin nothing can be said about the way back.
        let from = unit.on.unwrap_or(u32::MAX);
        self.journal.moved(process.id, unit.range, (from, unit.to), now)
    }

    /// The units of `batch` for which their nodes have room, and the others.
    fn fitting(&self, batch: &[Unit], full: &mut Vec<u32>) -> (Vec<Unit>, Vec<Unit>) {
        let mut rooms: Vec<(u32, Bytes)> = Vec::new();
        batch.iter().partition(|unit| {
            if full.contains(&unit.to) {
                return false;
            }
            if !rooms.iter().any(|(nid, _)| *nid == unit.to) {
                let promised = self.promised.get(&unit.to).copied().unwrap_or_default();
                let room = self.nodes.room(&self.root, unit.to);
                rooms.push((unit.to, room.saturating_sub(promised)));
            }
            let room = rooms.iter_mut().find(|(nid, _)| *nid == unit.to);
            let fits = room.and_then(|(_, room)| {
                *room = Bytes(room.0.checked_sub(unit.range.len().0)?);
                Some(())
            });
            if fits.is_none() {
                full.push(unit.to);
            }
            fits.is_some()
        })
    }
}

/// Asks the kernel for the nodes of units whose frame is not known, which takes CAP_SYS_ADMIN.
fn ask_for_nodes(kernel: &mut dyn MovePages, units: &mut [Unit]) {
    let unknown: Vec<Addr> = units
        .iter()
        .filter(|unit| unit.on.is_none())
        .map(|unit| unit.range.start)
        .collect();
    let mut statuses = Vec::new();
    if unknown.is_empty() || kernel.query(&unknown, &mut statuses).is_err() {
        return;
    }
    let unknown = units.iter_mut().filter(|unit| unit.on.is_none());
    for (unit, status) in unknown.zip(statuses) {
        unit.on = status.node();
    }
}

/// Moves `units`. One result each: on its node now, or why not.
fn move_units(kernel: &mut dyn MovePages, units: &[Unit]) -> Vec<Result<(), Refusal>> {
    // `None`: not decided yet.
    let mut results: Vec<Option<Result<(), Refusal>>> = vec![None; units.len()];
    for call in CALLS {
        let open: Vec<usize> = (0..units.len()).filter(|nth| results[*nth].is_none()).collect();
        for chunk in open.chunks(call) {
            let of_all = move_chunk(kernel, units, chunk, &mut results);
            if let Some(why) = of_all {
                results
                    .iter_mut()
                    .filter(|result| result.is_none())
                    .for_each(|open| *open = Some(Err(why)));
                break;
            }
        }
    }
    let busy = Refusal {
        call: Call::PageStatus,
        errno: libc::EBUSY,
    };
    let result = |result: Option<_>| result.unwrap_or(Err(busy));
    results.into_iter().map(result).collect()
}

/// Moves the units at the indices `chunk` by one call, and decides what it can. Returns a reason that holds
/// for all units that are not decided.
fn move_chunk(
    kernel: &mut dyn MovePages,
    units: &[Unit],
    chunk: &[usize],
    results: &mut [Option<Result<(), Refusal>>],
) -> Option<Refusal> {
    let pages: Vec<Addr> = chunk.iter().map(|nth| units[*nth].range.start).collect();
    let nodes: Vec<u32> = chunk.iter().map(|nth| units[*nth].to).collect();
    let (mut moved, mut now) = (Vec::new(), Vec::new());
    let error = kernel.move_pages(&pages, &nodes, &mut moved).err();
    let refusal = |error: &io::Error| Refusal::new(Call::MovePages, error);
    let is_interrupted = |error: &io::Error| error.kind() == io::ErrorKind::Interrupted;
    let of_all = error.filter(|error| !is_interrupted(error)).as_ref().map(refusal);
    if let Err(error) = kernel.query(&pages, &mut now) {
        return Some(of_all.unwrap_or_else(|| refusal(&error)));
    }
    for ((nth, to), (moved, now)) in chunk.iter().zip(&nodes).zip(moved.iter().zip(&now)) {
        results[*nth] = match (now.node(), moved.errno().or_else(|| now.errno())) {
            (Some(node), _) if node == *to => Some(Ok(())),
            (_, Some(errno)) => {
                let call = Call::PageStatus;
                let refusal = Refusal { call, errno };
                // A busy page is tried again.
                (refusal.cause() != Cause::Busy).then_some(Err(refusal))
            }
            _ => None,
        };
    }
    of_all
}

/// `units` in batches.
fn batches(units: &[Unit]) -> impl Iterator<Item = &[Unit]> {
    let mut rest = units;
    std::iter::from_fn(move || {
        let mut sum = Bytes::ZERO;
        let fits = rest.iter().take(MAX_PAGES).take_while(|unit| {
            sum += unit.range.len();
            sum <= BATCH
        });
        let (batch, others) = rest.split_at_checked(fits.count())?;
        rest = others;
        (!batch.is_empty()).then_some(batch)
    })
}

fn bytes(units: &[Unit]) -> Bytes {
    let ranges: Vec<AddrRange> = units.iter().map(|unit| unit.range).collect();
    range_ops::sum(&ranges)
}

#[cfg(test)]
mod tests;
