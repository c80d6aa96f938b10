//! Every page of a range at once: its tables copied out, the marks that are set taken off in as few calls as
//! their runs allow, and the tables read again to see which marks stayed.

use std::ops::ControlFlow;
use std::{array, iter};

use thermo_bpf::{Entry, Folios, Layout, Leaf, Leaves, PageTables, Table, WalkError};
use thermo_core::sweep::{Piece, Swept};
use thermo_core::{Addr, AddrRange, PAGE_SIZE, TargetId};
use thermo_sys::pagemap::Pagemap;

use super::spots::{Between, Marks, Spots};
use super::table::{OfTables, Pages};
use super::taken::Taken;
use super::{PteTracker, leaf, shared};
use crate::process::Process;

/// Which chunks of which targets were swept, by address / [`CHUNK`].
pub(super) type SweptChunks = OfTables<()>;

/// The unit in which is kept what was swept.
const CHUNK: u64 = 64 << 20;

/// How far is looked for the next page behind a piece without any.
const FARTHEST: u64 = 8 << 40;

/// Of how many pages whose marks stayed frames' flags are read: pages that wait to be put on a list are a few for each CPU;
/// more are pages that are touched all the time.
const FLAGS_READ: u64 = 64;

/// A run of neighbouring pages whose marks are set, with what maps its first and its last page.
#[derive(Debug, Clone, Copy)]
struct Marked {
    range: AddrRange,
    first: Leaf,
    last: Leaf,
}

impl PteTracker {
    /// Reads the marks of all pages of `range` into `piece` and takes them off.
    ///
    /// Only pages whose mark is set, or whose folio's is where that is asked (`taken.rs`), are advised: the others'
    /// place on the kernel's lists stays as it is; and of them not those whose mark stayed when they were advised lately
    /// (`left_alone.rs`). A mark that is still set afterwards is of a page that is touched
    /// all the time, or of one that the kernel passes over (mapped more than once, on no list, locked): those are
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
        self.lists.follow(&self.root);
        let mut marked = Vec::new();
        let mut left_alone = self.left_alone.within(process.id, range);
        let folios = self.taken.asks();
        let looked = &mut |part: &Part<'_>| {
            let (touched, leaves) = judge(&mut self.spots, &mut self.taken, process.id, part, piece);
            book(piece, part, range, &touched);
            // Also what is young since long ago: its mark comes off like the others.
            part.each_of(leaves.each_touched(), range, &mut |at, leaf| {
                if left_alone.has(at.start, leaf) {
                    piece.set_unknown(at.start);
                } else if piece.is_part()
                    || !self
                        .witnesses
                        .holds(process.id, at.start, leaf, self.frames.as_ref())
                {
                    extend(&mut marked, at, leaf);
                    self.lists.note(at.start, leaf, self.frames.as_ref());
                }
            });
        };
        let read = each_part(&mut self.tables, process.pid, range, folios, looked);
        if read.is_err() {
            return Swept { next };
        }
        let ranges: Vec<AddrRange> = marked.iter().map(|run| self.whole_folios(run)).collect();
        self.lists.raise(process);
        let alive = self.clear_marks(process, &ranges, piece);
        // A number that was given to another process in the meantime: what was read is not the target's.
        if !alive || !process.is_alive() {
            piece.reset(range);
            return Swept { next };
        }
        self.read_back_all(process, &ranges, piece);
        for run in &marked {
            self.taken.cleared(process.id, run.range, piece);
        }
        self.lists.restore(process);
        if let Some(shared) = self.shared.as_mut().filter(|_| !piece.is_part()) {
            shared.found(process.id, piece);
        }
        self.passed(process, range, piece)
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
    fn whole_folios(&self, run: &Marked) -> AddrRange {
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

    /// Reads again what lies between the first and the last of `advised`, and books as unknown what is still marked
    /// and was left alone by the kernel. Folios are asked again as well, for somebody else may have taken a mark that the
    /// kernel left alone.
    fn read_back_all(&mut self, process: &Process, advised: &[AddrRange], piece: &mut Piece) {
        let range = piece.range();
        let start = advised.iter().map(|part| part.start).min();
        let end = advised.iter().map(|part| part.end).max();
        let (Some(start), Some(end)) = (start, end) else {
            return;
        };
        let Some(between) = range.intersection(&AddrRange { start, end }) else {
            return;
        };
        self.open_pagemap(process);
        let pagemap = self.pagemap.as_ref().map(|(_, pagemap)| pagemap);
        // Pages that cannot be read are not known to be the process's own.
        let is_own = |addr| {
            let page = pagemap.and_then(|pagemap| pagemap.page(addr).ok());
            page.is_some_and(|page| page.is_exclusive())
        };
        let mut still_marked: Vec<AddrRange> = Vec::new();
        let mut huge: Vec<AddrRange> = Vec::new();
        let mut left_alone = self.left_alone.within(process.id, between);
        let read = each_part(
            &mut self.tables,
            process.pid,
            between,
            self.taken.asks(),
            &mut |part| {
                let left = self.spots.left(&part.marks(process.id, &[0; 8]));
                let mut leaves = part.asked(piece).without(&left);
                if part.table.level == 0 {
                    let base = part.table.base;
                    let own = self.own.known(process.id, base, &leaves.touched(), is_own);
                    leaves = leaves.without(&own);
                }
                part.each_of(leaves.each_touched(), between, &mut |at, leaf| {
                    if left_alone.has(at.start, leaf) {
                        return;
                    }
                    match leaf.level {
                        0 => at.join_onto(&mut still_marked),
                        _ => huge.push(at),
                    }
                });
            },
        );
        if read.is_err() {
            return piece.reset(range);
        }
        for at in huge {
            // All its pages are mapped alike, but for those that a child has copied by now.
            let middle = Addr(at.start.0 + at.len().0 / 2).align_down();
            let asked = [at.start, middle, Addr(at.end.0 - PAGE_SIZE)];
            if !asked.into_iter().all(is_own) {
                pages_of(at).for_each(|addr| piece.set_unknown(addr));
            }
        }
        let pages = still_marked
            .iter()
            .map(|run| run.len().0 / PAGE_SIZE)
            .sum::<u64>();
        let may_wait = pages <= FLAGS_READ;
        for run in still_marked {
            self.pages.clear();
            if let Some(pagemap) = pagemap {
                drop(pagemap.read(run, &mut self.pages));
            }
            for (nth, addr) in (run.start.0..run.end.0).step_by(PAGE_SIZE as usize).enumerate() {
                let page = self.pages.get(nth).copied().unwrap_or_default();
                if !page.is_exclusive() {
                    if let Some(pfn) = page.pfn() {
                        self.witnesses.add_frame(process.id, Addr(addr), pfn);
                        self.left_alone.add(process.id, Addr(addr), pfn);
                    }
                    piece.set_unknown(Addr(addr));
                } else if may_wait && self.is_on_no_list(page.pfn()) {
                    piece.set_unknown(Addr(addr));
                } else {
                    self.own.add(process.id, Addr(addr));
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

/// A table, and which of its leaves map a part of what is looked at.
pub(super) struct Part<'a> {
    table: &'a Table<'a>,
    layout: &'a Layout,
    leaves: Leaves,
}

impl Part<'_> {
    /// Calls `each` with the leaves that `nths` are, and with what each maps of `range`.
    fn each_of(
        &self,
        nths: impl Iterator<Item = usize>,
        range: AddrRange,
        each: &mut impl FnMut(AddrRange, Leaf),
    ) {
        for nth in nths {
            let at = self.table.range(nth).intersection(&range);
            if let (Entry::Leaf(leaf), Some(at)) = (self.table.decode(self.layout, nth), at) {
                each(at, leaf);
            }
        }
    }

    /// What is judged of it, where those are `touched`.
    const fn marks<'b>(&'b self, id: TargetId, touched: &'b Pages) -> Marks<'b> {
        Marks {
            id,
            level: self.table.level,
            base: self.table.base,
            there: &self.leaves.there,
            touched,
        }
    }

    /// The leaves that `piece` asks for.
    fn asked(&self, piece: &Piece) -> Leaves {
        if !piece.is_part() {
            return self.leaves;
        }
        let Part { table, leaves, .. } = self;
        let start = |nth: usize| table.range(nth).start;
        if table.level == 0 {
            return leaves.without(&array::from_fn(|nth| !piece.asked(start(nth * 64))));
        }
        let mut others = [0; 8];
        for nth in leaves.each() {
            if !piece.asks_for(start(nth).max(piece.range().start)) {
                others[nth / 64] |= 1 << (nth % 64);
            }
        }
        leaves.without(&others)
    }
}

/// Calls `each` with the tables that map parts of `range`; huge pages of a GiB before the small pages of it.
fn each_part(
    tables: &mut PageTables,
    pid: u32,
    range: AddrRange,
    folios: Folios,
    each: &mut impl FnMut(&Part<'_>),
) -> Result<(), WalkError> {
    each_part_until(tables, pid, range, folios, &mut |part| {
        each(part);
        ControlFlow::Continue(())
    })
}

/// The same until `each` says to stop, and then with what was read together with that part.
fn each_part_until(
    tables: &mut PageTables,
    pid: u32,
    range: AddrRange,
    folios: Folios,
    each: &mut impl FnMut(&Part<'_>) -> ControlFlow<()>,
) -> Result<(), WalkError> {
    let layout = *tables.layout();
    tables.tables_until(pid, range, folios, &mut |table| {
        let entry = |bytes: u64| usize::try_from(bytes).unwrap_or(512).min(512);
        let from = (range.start.0.saturating_sub(table.base.0)) / table.span();
        let to = (range.end.0.saturating_sub(table.base.0)).div_ceil(table.span());
        each(&Part {
            table: &table,
            layout: &layout,
            leaves: table.leaves(&layout).within(entry(from)..entry(to)),
        })
    })
}

/// Calls `each` with every leaf that maps a part of `range`, and with that part, as [`each_part`].
pub(super) fn each_leaf(
    tables: &mut PageTables,
    pid: u32,
    range: AddrRange,
    folios: Folios,
    each: &mut impl FnMut(AddrRange, Leaf),
) -> Result<(), WalkError> {
    each_part(tables, pid, range, folios, &mut |part| {
        part.each_of(part.leaves.each(), range, each);
    })
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

pub(super) fn pages_of(at: AddrRange) -> impl Iterator<Item = Addr> {
    (at.start.0..at.end.0).step_by(PAGE_SIZE as usize).map(Addr)
}

/// Appends a marked leaf to the last run, or begins a new one. Tables of one level come in order, but those of
/// huge pages come before those of small ones, so a run never goes on behind what came later.
fn extend(marked: &mut Vec<Marked>, at: AddrRange, leaf: Leaf) {
    match marked.last_mut() {
        Some(run) if run.range.end == at.start && run.last.level == leaf.level => {
            run.range.end = at.end;
            run.last = leaf;
        }
        _ => marked.push(Marked {
            range: at,
            first: leaf,
            last: leaf,
        }),
    }
}
