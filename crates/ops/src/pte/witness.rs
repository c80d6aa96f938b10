//! Marks that witness whether somebody else takes accessed marks off and keeps nothing.
//!
//! `MADV_COLD` leaves pages alone that are mapped more than once (libraries, mostly): their marks are set, we do not take
//! them off, and they stay for good. Where some of them are gone at the next look although the same frame is mapped
//! still, somebody took them: who writes to `clear_refs`, or the kernel on its search for memory. Marks that in-kernel
//! DAMON or the idle-page bitmap took do not count, for those leave a flag.
//!
//! Who takes marks all the time leaves no such page a mark. So some of the target's own pages witness as well: every few
//! seconds a round of sweeps leaves the mark of one in 256 touched pages where it is, and when the next round comes by, it
//! must be there still. (Such a page counts as touched for one round too long.)
//!
//! Pages that are touched all the time have their marks back at once and witness nothing, so what is seen is the least.

use std::collections::BTreeMap;
use std::path::Path;

use thermo_bpf::{Entry, Folios, Leaf, PageTables};
use thermo_core::{Addr, AddrRange, TargetId};
use thermo_sys::kpageflags::PageFrames;
use thermo_sys::pagemap::Pagemap;

use super::table;
use crate::process::{Process, Processes};

/// Most pages kept of a target, and most targets: a look costs some 50 µs each.
const MOST: usize = 256;
const MOST_TARGETS: usize = 8;
/// Marks that must be gone, and the part of those that were kept they must be (one in so many), to be told of.
const LEAST_GONE: usize = 8;
const LEAST_PART: usize = 4;
/// Of so many marked pages one stays so for a round, where a round holds marks back.
const ONE_IN: u64 = 256;

/// Pages whose marks nobody of us takes off, or not before we have looked.
#[derive(Debug, Default)]
pub(super) struct Witnesses {
    /// Of each target: where, and the frame behind it.
    pages: BTreeMap<TargetId, BTreeMap<Addr, u64>>,
    /// Pages whose marks the last round left set, with the frame behind them.
    held: BTreeMap<(TargetId, Addr), u64>,
    holding: Holding,
    /// Marked pages that the round has met so far, while it leaves some of them so.
    marked: u64,
    /// What became of those that the next round came by.
    tested: BTreeMap<TargetId, Count>,
    /// Nothing more is kept once it was told.
    told: bool,
}

/// Whether sweeps leave some marks set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Holding {
    #[default]
    Off,
    /// In the round that comes next.
    Due,
    Now,
}

/// What became of the marks of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Count {
    kept: usize,
    gone: usize,
}

impl Count {
    const fn is_telling(self) -> bool {
        self.gone >= LEAST_GONE && self.gone * LEAST_PART >= self.gone + self.kept
    }
}

impl Witnesses {
    /// Keeps the page at `addr`, mapped by `leaf`, whose mark was set and left alone. Others than small pages have
    /// pieces that tell nothing of each other.
    pub(super) fn add(&mut self, id: TargetId, addr: Addr, leaf: Leaf) {
        if leaf.level == 0 {
            self.add_frame(id, addr, leaf.pfn);
        }
    }

    /// The same, for who knows the frame of a small page.
    pub(super) fn add_frame(&mut self, id: TargetId, addr: Addr, pfn: u64) {
        let has_room = self.pages.len() < MOST_TARGETS || self.pages.contains_key(&id);
        if self.told || !has_room {
            return;
        }
        let pages = self.pages.entry(id).or_default();
        if pages.len() < MOST {
            pages.insert(addr, pfn);
        }
    }

    /// A round of sweeps begins.
    pub(super) const fn begin_round(&mut self) {
        self.holding = match self.holding {
            Holding::Due => Holding::Now,
            Holding::Now | Holding::Off => Holding::Off,
        };
        self.marked = 0;
    }

    /// Whether this round leaves some marks set.
    pub(super) fn is_holding(&self) -> bool {
        self.holding == Holding::Now
    }

    /// Whether the mark of the page at `addr` shall stay in this round, as one of few that witness.
    pub(super) fn holds(
        &mut self,
        id: TargetId,
        addr: Addr,
        leaf: Leaf,
        frames: Option<&PageFrames>,
    ) -> bool {
        if self.holding != Holding::Now || leaf.level > 0 || !leaf.accessed {
            return false;
        }
        self.marked += 1;
        if !self.marked.is_multiple_of(ONE_IN) || self.held.len() >= MOST {
            return false;
        }
        // Of a large folio the mark may come off with that of its other pages.
        let flags = frames.and_then(|frames| frames.flags(leaf.pfn).ok());
        let holds = flags.is_some_and(|flags| {
            flags.is_lru() && !flags.is_idle() && !flags.is_compound_head() && !flags.is_compound_tail()
        });
        if holds {
            self.held.insert((id, addr), leaf.pfn);
        }
        holds
    }

    /// Lets go of marks that we may take off ourselves before their next sweep.
    pub(super) fn let_go(&mut self) {
        self.held.clear();
    }

    /// The same of a target that others than rounds take marks off from now on.
    pub(super) fn let_go_of(&mut self, id: TargetId) {
        table::forget(&mut self.held, id);
    }

    /// Counts which marks in `range`, which is about to be swept, are gone before their time.
    pub(super) fn test(
        &mut self,
        process: &Process,
        range: AddrRange,
        tables: &mut PageTables,
        frames: Option<&PageFrames>,
    ) {
        let within = (process.id, range.start)..(process.id, range.end);
        let held: Vec<(Addr, u64)> = self
            .held
            .range(within)
            .map(|((_, addr), pfn)| (*addr, *pfn))
            .collect();
        let addrs: Vec<Addr> = held.iter().map(|(addr, _)| *addr).collect();
        let mut entries = Vec::new();
        if addrs.is_empty()
            || tables
                .entries(process.pid, &addrs, Folios::OfUnmarked, &mut entries)
                .is_err()
            || !process.is_alive()
        {
            return;
        }
        let count = self.tested.entry(process.id).or_default();
        for ((addr, pfn), entry) in held.into_iter().zip(&entries) {
            self.held.remove(&(process.id, addr));
            match entry {
                Entry::Leaf(leaf) if leaf.level > 0 || leaf.pfn != pfn => {}
                Entry::Leaf(leaf) if leaf.accessed => count.kept += 1,
                Entry::Leaf(leaf) if !leaf.young && has_no_flag(*leaf, frames) => count.gone += 1,
                _ => {}
            }
        }
    }

    /// What `count` says of a process, if it says anything; nothing more is looked for then.
    fn tell(&mut self, pid: u32, count: Count) -> Option<String> {
        if !count.is_telling() {
            return None;
        }
        let Count { kept, gone } = count;
        *self = Self {
            told: true,
            ..Self::default()
        };
        Some(format!(
            "somebody else takes accessed marks off: of {} marks of process {pid} that we left alone {gone} \
             are gone. Whoever writes to clear_refs does that, and the kernel when it reclaims; what they take \
             before our look we miss, so that some of what is touched looks idle",
            gone + kept
        ))
    }

    /// Looks at the pages again. Returns a sentence, once, when marks are gone.
    pub(super) fn look(
        &mut self,
        tables: &mut PageTables,
        root: &Path,
        processes: &Processes,
        frames: Option<&PageFrames>,
    ) -> Option<String> {
        if self.told {
            return None;
        }
        self.pages.retain(|id, _| processes.contains_key(id));
        let mut counts: Vec<(u32, Count)> = Vec::new();
        for (id, pages) in &mut self.pages {
            if let Some(process) = processes.get(id) {
                let count = look_at(process, pages, tables, root, frames);
                counts.push((process.pid, count.unwrap_or_default()));
            }
        }
        let tested = std::mem::take(&mut self.tested);
        counts.extend(
            tested
                .iter()
                .filter_map(|(id, count)| Some((processes.get(id)?.pid, *count))),
        );
        self.holding = Holding::Due;
        counts.into_iter().find_map(|(pid, count)| self.tell(pid, count))
    }
}

/// Counts what became of the marks of `pages`, and keeps those that are as they were. None when it cannot be told.
fn look_at(
    process: &Process,
    pages: &mut BTreeMap<Addr, u64>,
    tables: &mut PageTables,
    root: &Path,
    frames: Option<&PageFrames>,
) -> Option<Count> {
    let addrs: Vec<Addr> = pages.keys().copied().collect();
    let mut entries = Vec::new();
    tables
        .entries(process.pid, &addrs, Folios::OfUnmarked, &mut entries)
        .ok()?;
    let pagemap = Pagemap::open(root, process.pid).ok()?;
    let mut count = Count::default();
    for (addr, entry) in addrs.iter().zip(&entries) {
        let same = |leaf: &Leaf| leaf.level == 0 && pages.get(addr) == Some(&leaf.pfn);
        match entry {
            Entry::Leaf(leaf) if same(leaf) && leaf.accessed => {
                count.kept += 1;
                continue;
            }
            Entry::Leaf(leaf) if same(leaf) && !leaf.young && was_taken(*addr, *leaf, &pagemap, frames) => {
                count.gone += 1
            }
            _ => {}
        }
        pages.remove(addr);
    }
    // A number that was given to another process in the meantime: what was read is not the target's.
    process.is_alive().then_some(count)
}

/// Whether a mark that is not there can have been taken by strangers alone: the page is mapped by others still, or we
/// could have been it, and no flag says who it was.
fn was_taken(addr: Addr, leaf: Leaf, pagemap: &Pagemap, frames: Option<&PageFrames>) -> bool {
    let is_shared = pagemap
        .page(addr)
        .is_ok_and(|page| page.is_present() && !page.is_exclusive());
    is_shared && has_no_flag(leaf, frames)
}

/// Whether a mark that is gone left no flag in its frame, as DAMON and the idle-page bitmap do.
fn has_no_flag(leaf: Leaf, frames: Option<&PageFrames>) -> bool {
    let flags = frames.map(|frames| frames.flags(leaf.pfn).unwrap_or_default());
    flags.is_some_and(|flags| flags.is_lru() && !flags.is_idle())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_that_are_gone_prove_nothing() {
        let count = |gone, kept| Count { kept, gone };
        assert!(!count(7, 0).is_telling());
        assert!(count(8, 24).is_telling());
        assert!(!count(8, 25).is_telling());
    }

    #[test]
    fn so_many_pages_are_kept_and_no_huge_ones() {
        let mut witnesses = Witnesses::default();
        let leaf = |level| Leaf {
            level,
            accessed: true,
            pfn: 7,
            ..Leaf::default()
        };
        witnesses.add(TargetId(1), Addr(4096), leaf(1));
        (0..1000).for_each(|page| witnesses.add(TargetId(0), Addr(page * 4096), leaf(0)));
        assert_eq!(witnesses.pages[&TargetId(0)].len(), MOST);
        assert!(!witnesses.pages.contains_key(&TargetId(1)));
        (10..100).for_each(|id| witnesses.add(TargetId(id), Addr(0), leaf(0)));
        assert_eq!(witnesses.pages.len(), MOST_TARGETS);
        witnesses.told = true;
        witnesses.pages.clear();
        witnesses.add(TargetId(0), Addr(0), leaf(0));
        assert!(witnesses.pages.is_empty());
    }
}
