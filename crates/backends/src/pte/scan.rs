//! Scans every page of a range: copies its tables, clears the accessed bits that are set with as few calls as
//! possible, and reads the tables again to find bits that are still set.

use std::array;
use std::ops::ControlFlow;

use thermo_engine::TargetId;
use thermo_engine::scan::ScanChunk;
use thermo_kernel::clock;
use thermo_pagetable::{Folios, Leaf, WalkError};
use thermo_targets::Process;
use thermo_units::{Addr, AddrRange};

use super::bridge::{ClearRange, ClearRanges, TableToClear};
use super::madvise_unit::madvise_unit;
use super::page_bits::{CHUNK_SIZE, MIN_STRIPE, PageBits, is_set};
use super::shared_walk;
use super::state::PteTracker;
use super::stripe::Stripe;
use super::table_part::{TablePart, for_each_table, for_each_table_until};
use super::target_scan::TargetScan;
#[cfg(doc)]
use crate::tracker::Tracker;

/// How far behind an empty chunk the next present page is searched.
const MAX_LOOKAHEAD: u64 = 8 << 40;

impl PteTracker {
    /// Reads the accessed bits of all pages of `range` into `chunk` and clears them, as part of a pass that
    /// [`Tracker::begin_pass`] began.
    ///
    /// Cleared are the pages whose bit is set, the pages whose folio is young where that is checked
    /// (`folio_young.rs`), and the pages in small gaps between them (`bridge.rs`). All other pages keep their
    /// position on the kernel's LRU lists. Two kinds of pages are not cleared: pages whose bit was still set
    /// after a recent `MADV_COLD` (`uncleared_cache.rs`), and most pages of steady memory, as `chunk` says
    /// (`spot_check.rs`). If a bit is still set afterwards, the page is accessed all the time, or the kernel
    /// skipped the page (mapped more than once, on no LRU list, locked). Skipped pages are unknown.
    ///
    /// Returns how far the scan got: behind the end of `range` if nothing is mapped up to there.
    pub(super) fn scan_pages(&mut self, process: &Process, range: AddrRange, chunk: &mut ScanChunk) -> Addr {
        let mut scan = self.take_scan_state(process.id);
        let scanned = self.scan_range(process, &mut scan, range, chunk);
        let next = match scanned {
            Some(()) => {
                scan.chunks.extend(chunks_of(range));
                match chunk.is_empty() {
                    true => self.next_present(process, range.end),
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

    /// Removes the scan state of a target from the map. The caller puts the state back.
    fn take_scan_state(&mut self, id: TargetId) -> TargetScan {
        let known = self.scans.remove(&id);
        known.unwrap_or_else(|| TargetScan::new(id, self.first_gap_cost.clone()))
    }

    /// Scans `range`. `None`: the process has ended, or another process has its pid now.
    fn scan_range(
        &mut self,
        process: &Process,
        scan: &mut TargetScan,
        range: AddrRange,
        chunk: &mut ScanChunk,
    ) -> Option<()> {
        if let Some(shared_walk) = &self.shared_walk {
            let answered =
                shared_walk.fill_chunk(&mut self.tables, self.frames.as_ref(), process, range, chunk);
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
                MIN_STRIPE
            } else {
                (scan.stripe * 2).min(CHUNK_SIZE)
            };
        }
        if let Some(shared_walk) = &mut self.shared_walk {
            shared_walk.record_unknown(process.id, chunk);
        }
        Some(())
    }

    /// Reads a stripe, which lies in one chunk, and clears its accessed bits. Returns whether gaps were
    /// bridged; `None` as in [`PteTracker::scan_range`].
    fn scan_stripe(
        &mut self,
        process: &Process,
        scan: &mut TargetScan,
        range: AddrRange,
        chunk: &mut ScanChunk,
    ) -> Option<bool> {
        self.lru_restore.update(&self.root);
        let mut stripe = self.read_stripe(process, scan, range, chunk)?;
        if stripe.to_clear.ranges.is_empty() {
            return process.is_alive().then_some(false);
        }
        if stripe.to_clear.is_worth_reading_mappings() {
            stripe.to_clear.bridge_holes(self.mappings_of(process, scan));
        }
        self.lru_restore.before_clear(process);
        let is_alive = self.clear_stripe(process, scan, &stripe.to_clear, chunk);
        if !is_alive || !process.is_alive() {
            return None;
        }
        self.read_back_stripe(process, scan, &stripe, chunk)?;
        self.lru_restore.after_clear(process);
        Some(stripe.to_clear.has_bridged)
    }

    /// Records in `chunk` which pages were accessed, and finds the ranges to clear.
    fn read_stripe(
        &mut self,
        process: &Process,
        scan: &mut TargetScan,
        range: AddrRange,
        chunk: &mut ScanChunk,
    ) -> Option<Stripe> {
        // Clearing a gap would deactivate its pages, so nothing is bridged while LRU positions are restored.
        let restores_lru = self.lru_restore.restores_positions();
        let gap = if restores_lru { 0 } else { scan.gap_cost.next_gap() };
        let mut stripe = Stripe {
            to_clear: ClearRanges::new(gap),
            folios: scan.folio_young.folios_in(range.start.0 / CHUNK_SIZE),
            ..Stripe::default()
        };
        let mut uncleared = scan.uncleared.in_range(range);
        let folios = stripe.folios;
        let on_table = &mut |part: &TablePart<'_>| {
            let accessed = scan.folio_young.accessed(&part.leaves, folios);
            let verdict = scan
                .spot_check
                .evaluate(&part.pages(&accessed), |range| chunk.is_steadily_accessed(range));
            record_pages(chunk, part, range, &verdict.accessed);
            let uncleared_pages = uncleared.in_table(part);
            // Folios with an old young flag are cleared like the others.
            let leaves = part.leaves.without(&verdict.kept);
            for nth in leaves
                .accessed_entries()
                .filter(|nth| is_set(&uncleared_pages, *nth))
            {
                chunk.set_unknown(part.table.range(nth).start);
            }
            let leaves = leaves.without(&uncleared_pages);
            if restores_lru {
                part.for_each_entry(leaves.accessed_entries(), range, &mut |at, leaf| {
                    self.lru_restore.note(at.start, leaf, self.frames.as_ref());
                });
            }
            let clear = leaves.accessed_or_young();
            let excluded = array::from_fn(|nth| verdict.kept[nth] | uncleared_pages[nth]);
            stripe.to_clear.add(
                &TableToClear {
                    part,
                    clear,
                    excluded,
                },
                range,
            );
            if clear != [0; 8] {
                stripe.cleared.push(((part.table.level, part.table.base), clear));
            }
        };
        let read = for_each_table(&mut self.tables, process.pid, range, folios, on_table);
        read.is_ok().then_some(stripe)
    }

    /// Clears the ranges and updates the estimate of costs. False: the process has ended.
    fn clear_stripe(
        &mut self,
        process: &Process,
        scan: &mut TargetScan,
        to_clear: &ClearRanges,
        chunk: &mut ScanChunk,
    ) -> bool {
        let to_clear = &to_clear.ranges;
        let ranges: Vec<AddrRange> = to_clear.iter().map(|range| self.whole_folios(range)).collect();
        let began = clock::thread_cpu();
        let (is_alive, is_refused) = self.clear_ranges(process, scan, &ranges, chunk);
        let took = clock::thread_cpu().saturating_sub(began);
        let (ranges, pages) = (
            ranges.len() as u64,
            to_clear.iter().map(|range| range.pages).sum(),
        );
        self.stats.add(ranges, pages, took);
        if !is_refused && to_clear.iter().all(|range| range.pages > 0) {
            scan.gap_cost.record(ranges, pages, took);
        }
        is_alive
    }

    /// Address of the first present page at or behind `from`, or the end of the searched range if there is
    /// none.
    fn next_present(&mut self, process: &Process, from: Addr) -> Addr {
        let limit = Addr(
            from.0
                .saturating_add(MAX_LOOKAHEAD)
                .min(shared_walk::ADDRESS_SPACE_END),
        )
        .max(from);
        let mut window = AddrRange {
            start: from,
            end: Addr(from.0.saturating_add(CHUNK_SIZE)).min(limit),
        };
        while !window.is_empty() {
            let mut first: Option<Addr> = None;
            let lowest = &mut |part: &TablePart<'_>| {
                let Some(nth) = part.leaves.entries().next() else {
                    return ControlFlow::Continue(());
                };
                let at = part.table.range(nth).start.max(window.start);
                first = Some(first.map_or(at, |first| first.min(at)));
                ControlFlow::Break(())
            };
            let read = for_each_table_until(&mut self.tables, process.pid, window, Folios::None, lowest);
            match (read, first) {
                (Ok(()), Some(first)) => return first,
                (Ok(()), None) => {}
                (Err(_), _) => return from,
            }
            // Widen the window, so that a hole takes few calls and a dense place behind the hole is not read
            // for nothing.
            window = AddrRange {
                start: window.end,
                end: Addr(window.end.0.saturating_add(window.len().0.saturating_mul(8))).min(limit),
            };
        }
        limit
    }

    /// Appends the leaves of `range` that were accessed since a pass cleared them.
    pub(super) fn accessed_since_scan(
        &mut self,
        process: &Process,
        range: AddrRange,
        accessed: &mut Vec<AddrRange>,
    ) -> Result<(), WalkError> {
        let Some(scan) = self.scans.get(&process.id) else {
            return Ok(());
        };
        for chunk in chunks_of(range).filter(|chunk| scan.chunks.contains(chunk)) {
            let within = AddrRange::new(chunk * CHUNK_SIZE, (chunk + 1) * CHUNK_SIZE).intersection(&range);
            let within = within.unwrap_or_default();
            let folios = scan.folio_young.folios_in(chunk);
            for_each_table(&mut self.tables, process.pid, within, folios, &mut |part| {
                part.for_each_entry(part.leaves.accessed_entries(), within, &mut |at, _| {
                    accessed.push(at)
                });
            })?;
        }
        Ok(())
    }

    /// The range, extended to whole folios at both ends. Advising part of a folio would split it.
    fn whole_folios(&self, range: &ClearRange) -> AddrRange {
        let whole = |at: Addr, leaf: Leaf| {
            let flags = self
                .frames
                .as_ref()
                .and_then(|frames| frames.flags(leaf.pfn).ok());
            madvise_unit(at, leaf, flags.unwrap_or_default(), self.frames.as_ref())
        };
        let first = whole(range.range.start, range.first).unwrap_or(range.range);
        let last = whole(Addr(range.range.end.0 - 1), range.last).unwrap_or(range.range);
        AddrRange {
            start: first.start.min(range.range.start),
            end: last.end.max(range.range.end),
        }
    }
}

fn chunks_of(range: AddrRange) -> impl Iterator<Item = u64> {
    range.start.0 / CHUNK_SIZE..range.end.0.div_ceil(CHUNK_SIZE)
}

/// Records the pages of `range` that `part` maps, of which `accessed` were accessed.
fn record_pages(chunk: &mut ScanChunk, part: &TablePart<'_>, range: AddrRange, accessed: &PageBits) {
    let TablePart { table, leaves, .. } = part;
    if table.level == 0 {
        for (nth, (present, accessed)) in leaves.present.iter().zip(accessed).enumerate() {
            chunk.set_pages(table.range(nth * 64).start, *present, *accessed);
        }
        return;
    }
    for nth in leaves.entries() {
        let at = table.range(nth).intersection(&range).unwrap_or_default();
        chunk.set_range(at, accessed[nth / 64] >> (nth % 64) & 1 == 1);
        chunk.set_huge(at);
    }
}
