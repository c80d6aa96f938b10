//! Keeping pages where they are on the kernel's lists.
//!
//! `MADV_COLD` takes from a page what the kernel would decide by when memory is short: its mark, the flag that says that
//! it was found in use before, and its place on the active list. Touching a page from outside sets no mark, but it is what
//! the kernel counts as a use: the first one sets the flag, one more makes the page active (`folio_mark_accessed()`). So
//! what a look took is given back, where it matters, by sweeps and by samples:
//!
//! * Where a scheme sorts the lists (`lru_prio`), looking would undo with each round what the scheme did: pages that were
//!   active become so again.
//! * While memory is short, a page that the kernel finds marked has one more time on the inactive list before it is paged
//!   out, or becomes active if it had that before (`folio_check_references()`). We found the mark, so it is our turn:
//!   those that were used before become active, and the others go to the head of their list. No call moves a page there, but
//!   the advice does that takes the mark off, if the page is active by then: so those are made active first. The flag
//!   that says that they were found once they have not; with it the kernel kept more than it does by itself.
//! * With generations (MGLRU) there are no such lists. What is used often enough is kept once when it is its turn to go,
//!   as it would be for its mark.
//!
//! It costs many times what the rest of a look at a page does; the budget gives rounds more time for it. And it gives not
//! all back, since it comes earlier than the kernel would: a target whose memory comes back from swap is sampled
//! (`growth_guard.rs` of targets). What else was tried, and what each did: docs/evaluation.md.

use std::path::Path;

use thermo_kernel::clock;
use thermo_kernel::kpageflags::{Flags, PageFrames};
use thermo_kernel::lru_gen::{self, USES_FOR_GENERATIONS, USES_FOR_LISTS};
use thermo_kernel::process_vm::touch_all;
use thermo_pagetable::Leaf;
use thermo_targets::{MemoryPressure, Process};
use thermo_units::Addr;

/// What has to be given back to the kernel's lists.
#[derive(Debug, Default)]
pub(super) struct LruRestore {
    /// Whether a scheme sorts them.
    pub(super) are_sorted: bool,
    pressure: MemoryPressure,
    /// How pages are kept, while memory is short.
    short: Option<Kept>,
    /// Pages to be moved, each by an address that maps it.
    to_head: Vec<Addr>,
    to_active: Vec<Addr>,
}

/// How the kernel keeps pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    OnLists,
    InGenerations,
}

/// Where a page belongs after a look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListPosition {
    /// Where it is.
    Here,
    /// At the head of the inactive list.
    Head,
    /// On the active list, or with generations kept for its uses.
    Active,
}

impl LruRestore {
    /// Looks whether memory is short now on the machine at `root`: before each piece, since a round may take a minute. What
    /// was noted and not given back is forgotten.
    pub(super) fn follow(&mut self, root: &Path) {
        self.to_head.clear();
        self.to_active.clear();
        if self.pressure.look(root, clock::monotonic()) {
            self.short = self
                .pressure
                .is_under_pressure()
                .then(|| match lru_gen::is_on(root) {
                    true => Kept::InGenerations,
                    false => Kept::OnLists,
                });
        }
    }

    /// Whether pages are to keep their places now.
    pub(super) const fn are_kept(&self) -> bool {
        self.are_sorted || self.short.is_some()
    }

    /// Notes the page at `addr`, mapped by `leaf`, whose mark is about to come off. Of a huge page a touch sets the mark, and
    /// leaves lists alone. What the advice passes over loses nothing, and a page that is shared would be copied by a touch.
    pub(super) fn note(&mut self, addr: Addr, leaf: Leaf, frames: Option<&PageFrames>) {
        if leaf.level > 0 || !self.are_kept() {
            return;
        }
        let Some(frames) = frames else { return };
        let Ok(flags) = frames.flags(leaf.pfn) else { return };
        let pages = match place(flags, self.short) {
            ListPosition::Here => return,
            ListPosition::Head => &mut self.to_head,
            ListPosition::Active => &mut self.to_active,
        };
        if frames.map_count(leaf.pfn).is_ok_and(|count| count <= 1) {
            pages.push(addr);
        }
    }

    /// Makes active what advice is to move to the head of its list: before that advice.
    pub(super) fn raise(&mut self, process: &Process) {
        touch_all(process.pid, &self.to_head, USES_FOR_LISTS);
        self.to_head.clear();
    }

    /// Gives back what else was noted: after the advice.
    pub(super) fn restore(&mut self, process: &Process) {
        let uses = match self.short {
            Some(Kept::InGenerations) => USES_FOR_GENERATIONS,
            Some(Kept::OnLists) | None => USES_FOR_LISTS,
        };
        touch_all(process.pid, &self.to_active, uses);
        self.to_active.clear();
    }
}

/// Where the kernel would have a small page with these `flags` that it found marked.
const fn place(flags: Flags, short: Option<Kept>) -> ListPosition {
    if !flags.is_lru() || flags.is_unevictable() || flags.is_ksm() {
        return ListPosition::Here;
    }
    match short {
        _ if flags.is_active() => ListPosition::Active,
        None => ListPosition::Here,
        Some(Kept::InGenerations) => ListPosition::Active,
        Some(Kept::OnLists) if flags.is_referenced() => ListPosition::Active,
        Some(Kept::OnLists) => ListPosition::Head,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_pagetable::{Entry, Folios, PageTables};

    use thermo_engine::TargetId;
    use thermo_units::{AddrRange, Bytes, PAGE_SIZE};

    use crate::pte::madvise_fallback;

    #[test]
    fn a_page_goes_where_the_kernel_would_have_it() {
        const LRU: u32 = 5;
        let flags = |bits: &[u32]| Flags::from_bits(bits.iter().map(|bit| 1 << bit).sum());
        let kinds = [
            &[LRU][..],
            &[LRU, 2],
            &[LRU, 6],
            &[6],
            &[LRU, 6, 18],
            &[LRU, 6, 21],
        ]
        .map(flags);
        let places = |short| kinds.map(|flags| place(flags, short));
        let (here, head, active) = (ListPosition::Here, ListPosition::Head, ListPosition::Active);
        assert_eq!(places(None), [here, here, active, here, here, here]);
        let on_lists = [head, active, active, here, here, here];
        assert_eq!(places(Some(Kept::OnLists)), on_lists);
        let in_generations = [active, active, active, here, here, here];
        assert_eq!(places(Some(Kept::InGenerations)), in_generations);
    }

    /// Of the pages at `addrs` of ourselves, how many are marked and how many are active.
    fn marked_and_active(tables: &mut PageTables, frames: &PageFrames, addrs: &[Addr]) -> (usize, usize) {
        let leaves = leaves(tables, addrs);
        let is_active = |leaf: &&Leaf| frames.flags(leaf.pfn).is_ok_and(Flags::is_active);
        (
            leaves.iter().filter(|leaf| leaf.accessed).count(),
            leaves.iter().filter(is_active).count(),
        )
    }

    fn leaves(tables: &mut PageTables, addrs: &[Addr]) -> Vec<Leaf> {
        let mut entries = Vec::new();
        tables
            .entries(std::process::id(), addrs, Folios::Unasked, &mut entries)
            .unwrap();
        let leaf = |entry| match entry {
            Entry::Leaf(leaf) => leaf,
            _ => unreachable!("it was written to a moment ago"),
        };
        entries.into_iter().map(leaf).collect()
    }

    #[test]
    fn what_is_found_in_use_goes_to_the_head_and_for_the_second_time_becomes_active() {
        const PAGES: u64 = 255;
        // Some wait in the batches of a processor, until advice that comes there empties them.
        const WAIT: usize = 64;
        if lru_gen::is_on(Path::new("/")) {
            return eprintln!("SKIP: pages are in generations here");
        }
        let tables = PageTables::open().inspect_err(|why| eprintln!("SKIP: {why}"));
        let frames = PageFrames::open(Path::new("/")).inspect_err(|why| eprintln!("SKIP: {why}"));
        let (Ok(mut tables), Ok(frames)) = (tables, frames) else {
            return;
        };
        let us = Process::open(TargetId(1), std::process::id()).unwrap();
        let mut memory = vec![1_u8; 1 << 20];
        let start = Addr(memory.as_ptr() as u64).align_up();
        let range = AddrRange::new(start.0, start.0 + PAGES * PAGE_SIZE);
        let addrs: Vec<Addr> = (0..PAGES).map(|page| start + Bytes(page * PAGE_SIZE)).collect();
        let clear = || assert!(madvise_fallback::clear(&us, &[range]).0);
        let mut lists = LruRestore {
            short: Some(Kept::OnLists),
            ..LruRestore::default()
        };
        // Now all are on their list.
        clear();
        for (is_used, expected) in [(false, [true, false]), (true, [false, true])] {
            memory.fill(2);
            if is_used {
                touch_all(us.pid, &addrs, 1);
            }
            for (addr, leaf) in addrs.iter().zip(leaves(&mut tables, &addrs)) {
                lists.note(*addr, leaf, Some(&frames));
            }
            let mut are_active = [false; 2];
            lists.raise(&us);
            are_active[0] = marked_and_active(&mut tables, &frames, &addrs).1 >= addrs.len() - WAIT;
            clear();
            lists.restore(&us);
            let (marked, active) = marked_and_active(&mut tables, &frames, &addrs);
            are_active[1] = active >= addrs.len() - WAIT;
            assert!(are_active[1] || active <= WAIT, "{active}");
            assert_eq!(are_active, expected);
            assert!(marked <= WAIT, "{marked}");
        }
    }
}
