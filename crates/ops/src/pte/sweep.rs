//! Every page of a range at once: its tables copied out, the marks that are set taken off in as few calls as
//! their runs allow, and the tables read again to see which marks stayed.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;

use thermo_bpf::{Entry, Folios, Leaf, PageTables, WalkError};
use thermo_core::sweep::{Piece, Swept};
use thermo_core::{Addr, AddrRange, PAGE_SIZE, TargetId};
use thermo_sys::pagemap::Pagemap;

use super::{PteTracker, batch, leaf, shared};
use crate::process::Process;

/// Which chunks of which targets were swept, by address / [`CHUNK`].
pub(super) type SweptChunks = BTreeSet<(TargetId, u64)>;

/// The unit in which is kept what was swept.
const CHUNK: u64 = 64 << 20;

/// How far is looked for the next page behind a piece without any.
const FARTHEST: u64 = 8 << 40;

/// How many frames' flags are read in one look: pages that wait to be put on a list are a few for each CPU; more are
/// pages that are touched all the time.
const FLAGS_READ: usize = 256;

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
    /// unknown.
    pub fn sweep(&mut self, process: &Process, range: AddrRange, piece: &mut Piece) -> Swept {
        let next = range.end;
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
        let mut marked = Vec::new();
        let mut left_alone = self.left_alone.within(process.id, range);
        let folios = self.taken.asks();
        let read = each_leaf(&mut self.tables, process.pid, range, folios, &mut |at, leaf| {
            book(piece, at, self.taken.is_touched(leaf));
            // Also what is young since long ago: its mark comes off like the others.
            if leaf.is_touched() && left_alone.has(at.start, leaf) {
                piece.set_unknown(at.start);
            } else if leaf.is_touched()
                && !self
                    .witnesses
                    .holds(process.id, at.start, leaf, self.frames.as_ref())
            {
                extend(&mut marked, at, leaf);
                if let Some(active) = &mut self.active {
                    active.note(at.start, leaf, self.frames.as_ref());
                }
            }
        });
        if read.is_err() {
            return Swept { next };
        }
        let ranges: Vec<AddrRange> = marked.iter().map(|run| self.whole_folios(run)).collect();
        let alive = batch::clear(process.pidfd.as_fd(), &ranges, &mut |n| {
            each_page(ranges[n], |addr| piece.set_unknown(addr));
        });
        // A number that was given to another process in the meantime: what was read is not the target's.
        if !alive || !process.is_alive() {
            piece.reset(range);
            return Swept { next };
        }
        self.read_back_all(process, &ranges, piece);
        for run in &marked {
            self.taken.cleared(process.id, run.range, piece);
        }
        if let Some(active) = &mut self.active {
            active.restore(process);
        }
        if let Some(shared) = &mut self.shared {
            shared.found(process.id, piece);
        }
        self.passed(process, range, piece)
    }

    /// Notes that all of `range` was looked at. Where nothing was there, what comes next is looked for: address
    /// spaces have holes of terabytes.
    fn passed(&mut self, process: &Process, range: AddrRange, piece: &Piece) -> Swept {
        self.swept
            .extend(chunks_of(range).map(|chunk| (process.id, chunk)));
        let next = match piece.is_empty() {
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
            // Huge pages come before the small ones of their GiB.
            let lowest = &mut |at: AddrRange, _| {
                first = Some(first.map_or(at.start, |first| first.min(at.start)));
            };
            let read = each_leaf(&mut self.tables, process.pid, window, Folios::Unasked, lowest);
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
        for chunk in chunks_of(range).filter(|chunk| self.swept.contains(&(process.id, *chunk))) {
            let part = AddrRange::new(chunk * CHUNK, (chunk + 1) * CHUNK).intersection(&range);
            each_leaf(
                &mut self.tables,
                process.pid,
                part.unwrap_or_default(),
                self.taken.asks(),
                &mut |at, leaf| {
                    if leaf.is_touched() {
                        touched.push(at);
                    }
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
        let mut still_marked: Vec<AddrRange> = Vec::new();
        let mut left_alone = self.left_alone.within(process.id, between);
        let read = each_leaf(
            &mut self.tables,
            process.pid,
            between,
            self.taken.asks(),
            &mut |at, leaf| {
                if leaf.is_touched() && !left_alone.has(at.start, leaf) {
                    at.join_onto(&mut still_marked);
                }
            },
        );
        if read.is_err() {
            return piece.reset(range);
        }
        let pagemap = Pagemap::open(&self.root, process.pid).ok();
        let mut flags_to_read = FLAGS_READ;
        for run in still_marked {
            self.pages.clear();
            if let Some(pagemap) = &pagemap {
                // Pages that cannot be read are not known to be the process's own.
                drop(pagemap.read(run, &mut self.pages));
            }
            for (nth, addr) in (run.start.0..run.end.0).step_by(4096).enumerate() {
                let page = self.pages.get(nth).copied().unwrap_or_default();
                if !page.is_exclusive() {
                    if let Some(pfn) = page.pfn() {
                        self.witnesses.add_frame(process.id, Addr(addr), pfn);
                        self.left_alone.add(process.id, Addr(addr), pfn);
                    }
                    piece.set_unknown(Addr(addr));
                } else if self.is_on_no_list(page.pfn(), &mut flags_to_read) {
                    piece.set_unknown(Addr(addr));
                }
            }
        }
    }

    /// Whether a frame is on no list of the kernel's, which `MADV_COLD` passes over. Taken to be on one where too
    /// many are asked for.
    fn is_on_no_list(&self, pfn: Option<u64>, to_read: &mut usize) -> bool {
        let (Some(pfn), Some(frames)) = (pfn.filter(|_| *to_read > 0), &self.frames) else {
            return false;
        };
        *to_read -= 1;
        frames
            .flags(pfn)
            .is_ok_and(|flags| !flags.is_lru() || flags.is_zero_page())
    }
}

fn chunks_of(range: AddrRange) -> impl Iterator<Item = u64> {
    range.start.0 / CHUNK..range.end.0.div_ceil(CHUNK)
}

/// Calls `each` with every leaf that maps a part of `range`, and with that part; huge pages of a GiB before the
/// small pages of it.
pub(super) fn each_leaf(
    tables: &mut PageTables,
    pid: u32,
    range: AddrRange,
    folios: Folios,
    each: &mut impl FnMut(AddrRange, Leaf),
) -> Result<(), WalkError> {
    let layout = *tables.layout();
    tables.tables(pid, range, folios, &mut |table| {
        let span = PAGE_SIZE << (9 * u64::from(table.level));
        let first = range.start.0.saturating_sub(table.base.0) / span;
        for nth in usize::try_from(first).unwrap_or(512)..512 {
            let start = table.base.0 + nth as u64 * span;
            if start >= range.end.0 {
                break;
            }
            if let Entry::Leaf(leaf) = table.decode(&layout, nth) {
                let all = AddrRange::new(start, start + span);
                if let Some(part) = all.intersection(&range) {
                    each(part, leaf);
                }
            }
        }
    })
}

fn book(piece: &mut Piece, at: AddrRange, accessed: bool) {
    each_page(at, |addr| piece.set(addr, accessed));
}

pub(super) fn each_page(at: AddrRange, each: impl FnMut(Addr)) {
    (at.start.0..at.end.0).step_by(4096).map(Addr).for_each(each);
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
