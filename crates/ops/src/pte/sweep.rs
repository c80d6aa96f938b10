//! Every page of a range at once: its tables copied out, the marks that are set taken off in as few calls as
//! their runs allow, and the tables read again to see which marks stayed.

use std::ops::ControlFlow;
use std::{array, iter};

use thermo_bpf::{Folios, Leaf, Leaves, Table, WalkError};
use thermo_core::sweep::{Piece, Swept};
use thermo_core::{Addr, AddrRange, PAGE_SIZE, TargetId};
use thermo_sys::clock;
use thermo_sys::pagemap::Pagemap;

use super::bridge::{Marked, Ranges, Stretch};
use super::gap_cost::GapCost;
use super::part::{Part, each_part, each_part_until, pages_of};
use super::spots::{Between, Spots};
use super::table::{OfTables, Pages, is_set};
use super::taken::Taken;
use super::{PteTracker, leaf, shared};
use crate::process::Process;

/// Which chunks of which targets were swept, by address / [`CHUNK`].
pub(super) type SweptChunks = OfTables<()>;

/// The unit in which is kept what was swept.
const CHUNK: u64 = 64 << 20;

/// So much is read and cleared at once where gaps are bridged: about a tenth of a millisecond lies between both. Where nothing
/// was to be bridged the next stripe is twice as long, up to a chunk.
const STRIPE: u64 = 8 << 20;

/// How far is looked for the next page behind a piece without any.
const FARTHEST: u64 = 8 << 40;

/// Of how many pages whose marks stayed frames' flags are read: pages that wait to be put on a list are a few for each CPU;
/// more are pages that are touched all the time.
const FLAGS_READ: u64 = 64;

/// What was found in a stripe of memory that is read and cleared at once.
#[derive(Debug, Default)]
struct Stripe {
    ranges: Ranges,
    /// Of each table, which accessed bits are to be cleared: those are read again.
    cleared: Vec<(TableAt, Pages)>,
}

/// Level and first address of a table.
type TableAt = (u8, Addr);

impl Stripe {
    /// Which bits of a table were to be cleared.
    fn cleared(&self, table: &Table<'_>) -> Pages {
        let is_it = |(at, _): &&(TableAt, Pages)| *at == (table.level, table.base);
        self.cleared
            .iter()
            .find(is_it)
            .map_or([0; 8], |(_, pages)| *pages)
    }
}

impl PteTracker {
    /// Reads the marks of all pages of `range` into `piece` and takes them off.
    ///
    /// Only pages whose mark is set, or whose folio's is where that is asked (`taken.rs`), and those in small gaps between
    /// them (`bridge.rs`) are advised: the others' place on the kernel's lists stays as it is; and of them not those whose
    /// mark stayed when they were advised lately (`left_alone.rs`). A mark that is still set afterwards is of a page that is
    /// touched all the time, or of one that the kernel passes over (mapped more than once, on no list, locked): those are
    /// unknown. Of memory that is steady, as `piece` says, the marks of most pages stay (`spots.rs`). Where `piece` asks for
    /// some pages only, others are left as they are, but for steady memory that turns out to be touched no more.
    pub fn sweep(&mut self, process: &Process, range: AddrRange, piece: &mut Piece) -> Swept {
        let next = range.end;
        if piece.is_part() {
            // Marks that were held back may come off before the round that they are held for.
            self.witnesses.let_go();
            let shared = self.shared.as_ref();
            if shared.is_some_and(|shared| shared.answers_for(process.id)) {
                // Between two walks nothing new is known.
                piece.ask_only(iter::empty());
                return Swept { next };
            }
        }
        if let Some(shared) = &self.shared {
            let answered = shared.answer(&mut self.tables, self.frames.as_ref(), process, range, piece);
            if let Some(answered) = answered {
                if answered.is_err() || !process.is_alive() {
                    piece.reset(range);
                }
                return self.passed(process, range, piece);
            }
        }
        self.witnesses
            .test(process, range, &mut self.tables, self.frames.as_ref());
        let mut rest = range;
        let mut len = self.stripes.get(&process.id).copied().unwrap_or(STRIPE);
        while !rest.is_empty() {
            let end = Addr((rest.start.0 / len + 1).saturating_mul(len)).min(rest.end);
            let (start, stripe) = (end, AddrRange { end, ..rest });
            rest.start = start;
            match self.scan_stripe(process, stripe, piece) {
                Some(has_bridged) => len = if has_bridged { STRIPE } else { (len * 2).min(CHUNK) },
                None => {
                    piece.reset(range);
                    return Swept { next };
                }
            }
        }
        self.stripes.insert(process.id, len);
        if let Some(shared) = self.shared.as_mut().filter(|_| !piece.is_part()) {
            shared.found(process.id, piece);
        }
        self.passed(process, range, piece)
    }

    /// Reads a stripe and clears its accessed bits. Returns whether gaps were bridged; none when the process is gone, or its
    /// number was given to another process in the meantime.
    fn scan_stripe(&mut self, process: &Process, range: AddrRange, piece: &mut Piece) -> Option<bool> {
        self.lists.follow(&self.root);
        let mut stripe = self.read_stripe(process, range, piece)?;
        if stripe.ranges.stretches.is_empty() {
            return process.is_alive().then_some(false);
        }
        if stripe.ranges.are_worth_mappings() {
            stripe.ranges.bridge_holes(self.mappings_of(process));
        }
        self.lists.raise(process);
        let is_alive = self.clear_stripe(process, &stripe.ranges, piece);
        if !is_alive || !process.is_alive() {
            return None;
        }
        self.read_back_stripe(process, &stripe, piece)?;
        for stretch in &stripe.ranges.stretches {
            self.taken.cleared(process.id, stretch.range, piece);
        }
        self.lists.restore(process);
        Some(stripe.ranges.has_bridged)
    }

    /// Books what is accessed, and finds the ranges to clear.
    fn read_stripe(&mut self, process: &Process, range: AddrRange, piece: &mut Piece) -> Option<Stripe> {
        // The kernel's lists are to stay as they are: pages in gaps would be deactivated.
        let keeps_lists = self.lists.are_kept();
        let gap = match keeps_lists {
            true => 0,
            false => self.gap_cost(process.id).next_gap(),
        };
        let mut stripe = Stripe {
            ranges: Ranges::new(gap),
            ..Stripe::default()
        };
        let mut left_alone = self.left_alone.within(process.id, range);
        let folios = self.taken.asks();
        let frames = self.frames.as_ref();
        let looked = &mut |part: &Part<'_>| {
            let (touched, leaves) = judge(&mut self.spots, &mut self.taken, process.id, part, piece);
            book(piece, part, range, &touched);
            let mut left = left_alone.of(part);
            for nth in leaves.each_touched().filter(|nth| is_set(&left, *nth)) {
                piece.set_unknown(part.table.range(nth).start);
            }
            if self.witnesses.is_holding() || keeps_lists {
                part.each_of(leaves.without(&left).each_touched(), range, &mut |at, leaf| {
                    if !piece.is_part() && self.witnesses.holds(process.id, at.start, leaf, frames) {
                        let nth = part.table.nth(at.start).unwrap_or_default();
                        left[nth / 64] |= 1 << (nth % 64);
                    } else {
                        self.lists.note(at.start, leaf, frames);
                    }
                });
            }
            // Also what is young since long ago: its mark comes off like the others.
            let clear = leaves.without(&left).touched();
            let barred = array::from_fn(|nth| (part.leaves.there[nth] & !leaves.there[nth]) | left[nth]);
            stripe.ranges.add(&Marked { part, clear, barred }, range);
            if clear != [0; 8] {
                stripe.cleared.push(((part.table.level, part.table.base), clear));
            }
        };
        let read = each_part(&mut self.tables, process.pid, range, folios, looked);
        read.is_ok().then_some(stripe)
    }

    /// Clears what was found, and learns what that costs. False: the process is gone.
    fn clear_stripe(&mut self, process: &Process, found: &Ranges, piece: &mut Piece) -> bool {
        let stretches = &found.stretches;
        let ranges: Vec<AddrRange> = stretches
            .iter()
            .map(|stretch| self.whole_folios(stretch))
            .collect();
        let began = clock::thread_cpu();
        let (is_alive, is_refused) = self.clear_marks(process, &ranges, piece);
        let took = clock::thread_cpu().saturating_sub(began);
        let (ranges, pages) = (
            ranges.len() as u64,
            stretches.iter().map(|stretch| stretch.pages).sum(),
        );
        self.stats.add(ranges, pages, took);
        if !is_refused && stretches.iter().all(|stretch| stretch.pages > 0) {
            self.gap_cost(process.id).record(ranges, pages, took);
        }
        is_alive
    }

    fn gap_cost(&mut self, id: TargetId) -> &mut GapCost {
        self.gap_costs
            .entry(id)
            .or_insert_with(|| self.first_gap_cost.clone())
    }

    /// Notes that `range` was looked at. Where nothing was there, a round is told what comes next: address spaces have
    /// holes of terabytes.
    fn passed(&mut self, process: &Process, range: AddrRange, piece: &Piece) -> Swept {
        self.swept
            .extend(chunks_of(range).map(|chunk| ((process.id, chunk), ())));
        let next = match piece.is_empty() && !piece.is_part() {
            true => self.next_mapped(process, range.end),
            false => range.end,
        };
        Swept { next }
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

    /// Appends the leaves of `range` that were touched since a sweep took their marks off.
    pub(super) fn touched_since_swept(
        &mut self,
        process: &Process,
        range: AddrRange,
        touched: &mut Vec<AddrRange>,
    ) -> Result<(), WalkError> {
        for chunk in chunks_of(range).filter(|chunk| self.swept.contains_key(&(process.id, *chunk))) {
            let within = AddrRange::new(chunk * CHUNK, (chunk + 1) * CHUNK).intersection(&range);
            let within = within.unwrap_or_default();
            each_part(
                &mut self.tables,
                process.pid,
                within,
                self.taken.asks(),
                &mut |part| {
                    part.each_of(part.leaves.each_touched(), within, &mut |at, _| touched.push(at));
                },
            )?;
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

    /// Reads again the bits that were cleared, and books as unknown the pages whose bit is still set because the kernel passed
    /// over them. Folios are asked again as well, for somebody else may have taken a mark that the kernel left alone. None:
    /// the process is gone.
    fn read_back_stripe(&mut self, process: &Process, stripe: &Stripe, piece: &mut Piece) -> Option<()> {
        let stretches = || stripe.ranges.stretches.iter().map(|stretch| stretch.range);
        let start = stretches().map(|range| range.start).min()?;
        let end = stretches().map(|range| range.end).max()?;
        let between = AddrRange { start, end };
        self.open_pagemap(process);
        let pagemap = self.pagemap.as_ref().map(|(_, pagemap)| pagemap);
        // Pages that cannot be read are not known to be the process's own.
        let is_own = |addr| {
            let page = pagemap.and_then(|pagemap| pagemap.page(addr).ok());
            page.is_some_and(|page| page.is_exclusive())
        };
        let mut still_marked: Vec<AddrRange> = Vec::new();
        let mut huge: Vec<AddrRange> = Vec::new();
        let folios = self.taken.asks();
        let looked = &mut |part: &Part<'_>| {
            // A page between them that is marked by now was touched since: that is for the next pass.
            let cleared = stripe.cleared(part.table);
            let mut leaves = part.leaves.without(&cleared.map(|word| !word));
            if part.table.level == 0 {
                let base = part.table.base;
                let own = self.own.known(process.id, base, &leaves.touched(), is_own);
                leaves = leaves.without(&own);
            }
            part.each_of(leaves.each_touched(), between, &mut |at, leaf| match leaf.level {
                0 => at.join_onto(&mut still_marked),
                _ => huge.push(at),
            });
        };
        each_part(&mut self.tables, process.pid, between, folios, looked).ok()?;
        for at in huge {
            // All its pages are mapped alike, but for those that a child has copied by now.
            let middle = Addr(at.start.0 + at.len().0 / 2).align_down();
            let asked = [at.start, middle, Addr(at.end.0 - PAGE_SIZE)];
            if !asked.into_iter().all(is_own) {
                pages_of(at).for_each(|addr| piece.set_unknown(addr));
            }
        }
        self.judge_still_marked(process, &still_marked, piece);
        Some(())
    }

    /// Tells pages that are touched all the time from those that the kernel passed over.
    fn judge_still_marked(&mut self, process: &Process, still_marked: &[AddrRange], piece: &mut Piece) {
        let pages = still_marked
            .iter()
            .map(|run| run.len().0 / PAGE_SIZE)
            .sum::<u64>();
        let may_wait = pages <= FLAGS_READ;
        for run in still_marked {
            self.pages.clear();
            if let Some((_, pagemap)) = &self.pagemap {
                drop(pagemap.read(*run, &mut self.pages));
            }
            for (nth, addr) in pages_of(*run).enumerate() {
                let page = self.pages.get(nth).copied().unwrap_or_default();
                if !page.is_exclusive() {
                    if let Some(pfn) = page.pfn() {
                        self.witnesses.add_frame(process.id, addr, pfn);
                        self.left_alone.add(process.id, addr, pfn);
                    }
                    piece.set_unknown(addr);
                } else if may_wait && self.is_on_no_list(page.pfn()) {
                    piece.set_unknown(addr);
                } else {
                    self.own.add(process.id, addr);
                }
            }
        }
    }

    /// Opens what tells of each page of the process, unless it is open since this round.
    fn open_pagemap(&mut self, process: &Process) {
        if self.pagemap.as_ref().is_none_or(|(id, _)| *id != process.id) {
            let opened = Pagemap::open(&self.root, process.pid).ok();
            self.pagemap = opened.map(|pagemap| (process.id, pagemap));
        }
    }

    /// Whether a frame is on no list of the kernel's, which `MADV_COLD` passes over.
    fn is_on_no_list(&self, pfn: Option<u64>) -> bool {
        let (Some(pfn), Some(frames)) = (pfn, &self.frames) else {
            return false;
        };
        frames
            .flags(pfn)
            .is_ok_and(|flags| !flags.is_lru() || flags.is_zero_page())
    }
}

fn chunks_of(range: AddrRange) -> impl Iterator<Item = u64> {
    range.start.0 / CHUNK..range.end.0.div_ceil(CHUNK)
}

/// Which entries of `part` count as touched, and which leaves of it are looked at. What another look has nothing new to say
/// of is left out of `piece`, and what it says to be touched no more is asked for.
fn judge(
    spots: &mut Spots,
    taken: &mut Taken,
    id: TargetId,
    part: &Part<'_>,
    piece: &mut Piece,
) -> (Pages, Leaves) {
    let touched = taken.touched(&part.leaves);
    let marks = part.marks(id, &touched);
    if !piece.is_part() {
        taken.count(&part.leaves);
        let verdict = spots.judge(&marks, |range| piece.is_steady(range));
        return (verdict.touched, part.leaves.without(&verdict.left));
    }
    let mut has_ended = false;
    spots.judge_between(&marks, |range, between| match between {
        Between::AsMarked => {}
        Between::NothingNew => piece.leave_out(range),
        // All of the table, which is of small pages.
        Between::Ended => {
            piece.ask(range);
            has_ended = true;
        }
    });
    (if has_ended { [0; 8] } else { touched }, part.asked(piece))
}

/// Books the pages of `range` that `part` maps, of which those leaves `touched` have been.
fn book(piece: &mut Piece, part: &Part<'_>, range: AddrRange, touched: &Pages) {
    let Part { table, leaves, .. } = part;
    if table.level == 0 {
        for (nth, (there, touched)) in leaves.there.iter().zip(touched).enumerate() {
            piece.set_pages(table.range(nth * 64).start, *there, *touched);
        }
        return;
    }
    for nth in leaves.each() {
        let at = table.range(nth).intersection(&range);
        piece.set_range(at.unwrap_or_default(), touched[nth / 64] >> (nth % 64) & 1 == 1);
    }
}
