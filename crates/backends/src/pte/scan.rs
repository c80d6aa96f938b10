//! Every page of a range at once: its tables copied out, the marks that are set taken off in as few calls as
//! their runs allow, and the tables read again to see which marks stayed.

use std::array;
use std::ops::ControlFlow;

use thermo_engine::TargetId;
use thermo_engine::scan::ScanChunk;
use thermo_kernel::clock;
use thermo_pagetable::{Folios, Leaf, WalkError};
use thermo_targets::Process;
use thermo_units::{Addr, AddrRange};

use super::bridge::{Marked, Ranges, Stretch};
use super::part::{Part, each_part, each_part_until};
use super::state::PteTracker;
use super::stripe::Stripe;
use super::table::{CHUNK, Pages, STRIPE, is_set};
use super::target_scan::TargetScan;
use super::{leaf, shared};
#[cfg(doc)]
use crate::tracker::Tracker;

/// How far is looked for the next page behind a chunk without any.
const FARTHEST: u64 = 8 << 40;

impl PteTracker {
    /// Reads the accessed bits of all pages of `range` into `chunk` and clears them, as a part of a pass that
    /// [`Tracker::begin_pass`] began.
    ///
    /// Cleared are pages whose bit is set, or whose folio is young where that is asked (`folio_young.rs`), and those in small
    /// gaps between them (`bridge.rs`): all others keep their place on the kernel's LRU lists. Not cleared are pages whose bit
    /// stayed set when they were advised lately (`uncleared_cache.rs`), and most pages of steady memory, as `chunk` says
    /// (`spot_check.rs`). A bit that is still set afterwards is of a page that is accessed all the time, or of one that the kernel
    /// passes over (mapped more than once, on no list, locked): the latter are unknown.
    ///
    /// Returns how far it got: behind the end of `range` when nothing is mapped up to there.
    pub(super) fn scan_pages(&mut self, process: &Process, range: AddrRange, chunk: &mut ScanChunk) -> Addr {
        let mut scan = self.take_scan(process.id);
        let scanned = self.scan_range(process, &mut scan, range, chunk);
        let next = match scanned {
            Some(()) => {
                scan.chunks.extend(chunks_of(range));
                match chunk.is_empty() {
                    true => self.next_mapped(process, range.end),
                    false => range.end,
                }
            }
            None => {
                chunk.reset(range);
                range.end
            }
        };
        self.scans.insert(process.id, scan);
        next
    }

    /// The state of a target, to be put back.
    fn take_scan(&mut self, id: TargetId) -> TargetScan {
        let known = self.scans.remove(&id);
        known.unwrap_or_else(|| TargetScan::new(id, self.first_gap_cost.clone()))
    }

    /// Scans `range`. None: the process is gone, or its number was given to another process in the meantime.
    fn scan_range(
        &mut self,
        process: &Process,
        scan: &mut TargetScan,
        range: AddrRange,
        chunk: &mut ScanChunk,
    ) -> Option<()> {
        if let Some(shared) = &self.shared {
            let answered = shared.answer(&mut self.tables, self.frames.as_ref(), process, range, chunk);
            if let Some(answered) = answered {
                return answered.ok().filter(|()| process.is_alive());
            }
        }
        let mut rest = range;
        while !rest.is_empty() {
            let end = Addr((rest.start.0 / scan.stripe + 1).saturating_mul(scan.stripe)).min(rest.end);
            let has_bridged = self.scan_stripe(process, scan, AddrRange { end, ..rest }, chunk)?;
            rest.start = end;
            scan.stripe = if has_bridged {
                STRIPE
            } else {
                (scan.stripe * 2).min(CHUNK)
            };
        }
        if let Some(shared) = &mut self.shared {
            shared.found(process.id, chunk);
        }
        Some(())
    }

    /// Reads a stripe, which lies in one chunk, and clears its accessed bits. Returns whether gaps were bridged; none as
    /// [`PteTracker::scan_range`].
    fn scan_stripe(
        &mut self,
        process: &Process,
        scan: &mut TargetScan,
        range: AddrRange,
        chunk: &mut ScanChunk,
    ) -> Option<bool> {
        self.lists.follow(&self.root);
        let mut stripe = self.read_stripe(process, scan, range, chunk)?;
        if stripe.ranges.stretches.is_empty() {
            return process.is_alive().then_some(false);
        }
        if stripe.ranges.are_worth_mappings() {
            stripe.ranges.bridge_holes(self.mappings_of(process, scan));
        }
        self.lists.raise(process);
        let is_alive = self.clear_stripe(process, scan, &stripe.ranges, chunk);
        if !is_alive || !process.is_alive() {
            return None;
        }
        self.read_back_stripe(process, scan, &stripe, chunk)?;
        self.lists.restore(process);
        Some(stripe.ranges.has_bridged)
    }

    /// Books what is accessed, and finds the ranges to clear.
    fn read_stripe(
        &mut self,
        process: &Process,
        scan: &mut TargetScan,
        range: AddrRange,
        chunk: &mut ScanChunk,
    ) -> Option<Stripe> {
        // The kernel's lists are to stay as they are: pages in gaps would be deactivated.
        let keeps_lists = self.lists.are_kept();
        let gap = if keeps_lists { 0 } else { scan.gap_cost.next_gap() };
        let mut stripe = Stripe {
            ranges: Ranges::new(gap),
            folios: scan.young.asks(range.start.0 / CHUNK),
            ..Stripe::default()
        };
        let mut uncleared = scan.uncleared.within(range);
        let folios = stripe.folios;
        let looked = &mut |part: &Part<'_>| {
            let accessed = scan.young.accessed(&part.leaves, folios);
            let verdict = scan
                .spots
                .judge(&part.marks(&accessed), |range| chunk.is_steady(range));
            book(chunk, part, range, &verdict.touched);
            let left = uncleared.of(part);
            // Folios that are young since long ago are cleared like the others.
            let leaves = part.leaves.without(&verdict.left);
            for nth in leaves.each_touched().filter(|nth| is_set(&left, *nth)) {
                chunk.set_unknown(part.table.range(nth).start);
            }
            let leaves = leaves.without(&left);
            if keeps_lists {
                part.each_of(leaves.each_touched(), range, &mut |at, leaf| {
                    self.lists.note(at.start, leaf, self.frames.as_ref());
                });
            }
            let clear = leaves.touched();
            let barred = array::from_fn(|nth| verdict.left[nth] | left[nth]);
            stripe.ranges.add(&Marked { part, clear, barred }, range);
            if clear != [0; 8] {
                stripe.cleared.push(((part.table.level, part.table.base), clear));
            }
        };
        let read = each_part(&mut self.tables, process.pid, range, folios, looked);
        read.is_ok().then_some(stripe)
    }

    /// Clears what was found, and learns what that costs. False: the process is gone.
    fn clear_stripe(
        &mut self,
        process: &Process,
        scan: &mut TargetScan,
        found: &Ranges,
        chunk: &mut ScanChunk,
    ) -> bool {
        let stretches = &found.stretches;
        let ranges: Vec<AddrRange> = stretches
            .iter()
            .map(|stretch| self.whole_folios(stretch))
            .collect();
        let began = clock::thread_cpu();
        let (is_alive, is_refused) = self.clear_marks(process, scan, &ranges, chunk);
        let took = clock::thread_cpu().saturating_sub(began);
        let (ranges, pages) = (
            ranges.len() as u64,
            stretches.iter().map(|stretch| stretch.pages).sum(),
        );
        self.stats.add(ranges, pages, took);
        if !is_refused && stretches.iter().all(|stretch| stretch.pages > 0) {
            scan.gap_cost.record(ranges, pages, took);
        }
        is_alive
    }

    /// Where the first page at or behind `from` is, or how far it is known that there is none.
    fn next_mapped(&mut self, process: &Process, from: Addr) -> Addr {
        let limit = Addr(from.0.saturating_add(FARTHEST).min(shared::END)).max(from);
        let mut window = AddrRange {
            start: from,
            end: Addr(from.0.saturating_add(CHUNK)).min(limit),
        };
        while !window.is_empty() {
            let mut first: Option<Addr> = None;
            let lowest = &mut |part: &Part<'_>| {
                let Some(nth) = part.leaves.each().next() else {
                    return ControlFlow::Continue(());
                };
                let at = part.table.range(nth).start.max(window.start);
                first = Some(first.map_or(at, |first| first.min(at)));
                ControlFlow::Break(())
            };
            let read = each_part_until(&mut self.tables, process.pid, window, Folios::Unasked, lowest);
            match (read, first) {
                (Ok(()), Some(first)) => return first,
                (Ok(()), None) => {}
                (Err(_), _) => return from,
            }
            // Ever wider, so that a hole takes few calls and a dense place beyond it is not read for nothing.
            window = AddrRange {
                start: window.end,
                end: Addr(window.end.0.saturating_add(window.len().0.saturating_mul(8))).min(limit),
            };
        }
        limit
    }

    /// Appends the leaves of `range` that were accessed since a pass cleared them.
    pub(super) fn touched_since_swept(
        &mut self,
        process: &Process,
        range: AddrRange,
        touched: &mut Vec<AddrRange>,
    ) -> Result<(), WalkError> {
        let Some(scan) = self.scans.get(&process.id) else {
            return Ok(());
        };
        for chunk in chunks_of(range).filter(|chunk| scan.chunks.contains(chunk)) {
            let within = AddrRange::new(chunk * CHUNK, (chunk + 1) * CHUNK).intersection(&range);
            let within = within.unwrap_or_default();
            let folios = scan.young.asks(chunk);
            each_part(&mut self.tables, process.pid, within, folios, &mut |part| {
                part.each_of(part.leaves.each_touched(), within, &mut |at, _| touched.push(at));
            })?;
        }
        Ok(())
    }

    /// The run, stretched to the folios its ends lie in, which advising a part of would split.
    fn whole_folios(&self, run: &Stretch) -> AddrRange {
        let whole = |at: Addr, leaf: Leaf| {
            let flags = self
                .frames
                .as_ref()
                .and_then(|frames| frames.flags(leaf.pfn).ok());
            leaf::piece(at, leaf, flags.unwrap_or_default(), self.frames.as_ref())
        };
        let first = whole(run.range.start, run.first).unwrap_or(run.range);
        let last = whole(Addr(run.range.end.0 - 1), run.last).unwrap_or(run.range);
        AddrRange {
            start: first.start.min(run.range.start),
            end: last.end.max(run.range.end),
        }
    }
}

fn chunks_of(range: AddrRange) -> impl Iterator<Item = u64> {
    range.start.0 / CHUNK..range.end.0.div_ceil(CHUNK)
}

/// Books the pages of `range` that `part` maps, of which those leaves `touched` have been.
fn book(chunk: &mut ScanChunk, part: &Part<'_>, range: AddrRange, touched: &Pages) {
    let Part { table, leaves, .. } = part;
    if table.level == 0 {
        for (nth, (there, touched)) in leaves.there.iter().zip(touched).enumerate() {
            chunk.set_pages(table.range(nth * 64).start, *there, *touched);
        }
        return;
    }
    for nth in leaves.each() {
        let at = table.range(nth).intersection(&range).unwrap_or_default();
        chunk.set_range(at, touched[nth / 64] >> (nth % 64) & 1 == 1);
        chunk.set_huge(at);
    }
}
