//! Keeping pages where they are on the kernel's lists.
//!
//! `MADV_COLD` takes from a page what the kernel would decide by when memory is short: its mark, the flag that says that
//! it was found in use before, and its place on the active list. Touching a page from outside sets no mark, but it is what
//! the kernel counts as a use: the first one sets the flag, one more makes the page active (`folio_mark_accessed()`). So
//! what a look took is given back, where it matters, by sweeps and by samples:
//!
//! * Where a scheme sorts the lists (`lru_prio`), looking would undo with each round what the scheme did: pages that were
//!   active become so again.
//! * While memory is short, a page that the kernel would find marked has one more time on the inactive list before it is
//!   paged out, or becomes active if it had that already (`folio_check_references()`). We found the mark, so we do
//!   the same: those that were found before become active, and the others go to the head of their list. There is no call
//!   that moves a page there, but to make it active and to take that back does.
//!
//! It costs many times what the rest of a look at a page does; the budget gives rounds more time for it. And it gives not
//! all back, since it comes earlier than the kernel would: a target whose memory comes back from swap is sampled
//! (`targets/loading.rs`). What else was tried, and what each did: docs/results/2026-11-23-order.md.
//!
//! With generations (MGLRU) `MADV_COLD` itself moves a page to the second youngest, and nothing is left to be done.

use std::os::fd::AsFd as _;
use std::path::Path;

use thermo_bpf::Leaf;
use thermo_core::{Addr, AddrRange, PAGE_SIZE};
use thermo_sys::clock;
use thermo_sys::kpageflags::{Flags, PageFrames};
use thermo_sys::lru_gen::Enabled;
use thermo_sys::process_vm::MAX_PAGES;

use super::batch;
use crate::actor::touch_all;
use crate::process::Process;
use crate::shortage::Shortage;

/// What has to be given back to the kernel's lists.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Whether a scheme sorts them.
    pub(super) are_sorted: bool,
    /// Whether memory is short where there are lists.
    are_short: bool,
    shortage: Shortage,
    /// Pages whose place is to be given back, each by an address that maps it.
    active: Vec<Addr>,
    head: Vec<Addr>,
}

/// Where a page belongs after a look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Where it is.
    Kept,
    /// At the head of the inactive list.
    Head,
    /// On the active list.
    Active,
}

impl Lists {
    /// Looks whether memory is short now on the machine at `root`: before each piece, since a round may take a minute.
    pub(super) fn follow(&mut self, root: &Path) {
        self.shortage.look(root, clock::monotonic());
        self.are_short = self.shortage.lasts() && !Enabled::read(root).is_on();
    }

    /// Notes the page at `addr`, mapped by `leaf`, whose mark is about to come off. Of a huge page a touch sets the mark, and
    /// leaves lists alone.
    pub(super) fn note(&mut self, addr: Addr, leaf: Leaf, frames: Option<&PageFrames>) {
        if leaf.level > 0 || !self.are_sorted && !self.are_short {
            return;
        }
        let Some(flags) = frames.and_then(|frames| frames.flags(leaf.pfn).ok()) else {
            return;
        };
        match place(flags, self.are_short) {
            Place::Kept => {}
            Place::Head => self.head.push(addr.align_down()),
            Place::Active => self.active.push(addr),
        }
    }

    /// Gives back what was noted, and forgets it.
    pub(super) fn restore(&mut self, process: &Process) {
        self.active.extend(&self.head);
        for _ in 0..USES_FOR_ACTIVE {
            for pages in self.active.chunks(MAX_PAGES) {
                touch_all(process.pid, pages, &mut |_| ());
            }
        }
        self.active.clear();
        let mut ranges = Vec::new();
        for addr in self.head.drain(..) {
            AddrRange::new(addr.0, addr.0 + PAGE_SIZE).join_onto(&mut ranges);
        }
        // Of a process that is gone nothing is left to be given back.
        batch::clear(process.pidfd.as_fd(), &ranges, &mut |_| ());
    }
}

/// So many uses make a page active, whatever it was.
const USES_FOR_ACTIVE: usize = 2;

/// Where the kernel would have a small page with these `flags` that it found marked.
const fn place(flags: Flags, is_short: bool) -> Place {
    match () {
        () if flags.is_active() => Place::Active,
        () if !is_short => Place::Kept,
        () if flags.is_referenced() => Place::Active,
        // Advising a part of a larger folio would split it.
        () if flags.is_compound_head() || flags.is_compound_tail() => Place::Kept,
        () => Place::Head,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_bpf::{Entry, Folios, PageTables};
    use thermo_core::{Bytes, TargetId};

    #[test]
    fn a_page_goes_where_the_kernel_would_have_it() {
        let flags = |bits: &[u32]| Flags::from_bits(bits.iter().map(|bit| 1 << bit).sum());
        let (plain, referenced, active, of_larger) = (flags(&[]), flags(&[2]), flags(&[6]), flags(&[16]));
        let places = |is_short| [plain, referenced, active, of_larger].map(|flags| place(flags, is_short));
        assert_eq!(
            places(false),
            [Place::Kept, Place::Kept, Place::Active, Place::Kept]
        );
        assert_eq!(
            places(true),
            [Place::Head, Place::Active, Place::Active, Place::Kept]
        );
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
    fn what_is_found_in_use_for_the_second_time_becomes_active() {
        if Enabled::read(Path::new("/")).is_on() {
            return eprintln!("SKIP: pages are in generations here");
        }
        let tables = PageTables::open().inspect_err(|why| eprintln!("SKIP: {why}"));
        let frames = PageFrames::open(Path::new("/")).inspect_err(|why| eprintln!("SKIP: {why}"));
        let (Ok(mut tables), Ok(frames)) = (tables, frames) else {
            return;
        };
        let us = Process::open(TargetId(1), std::process::id()).unwrap();
        let mut memory = vec![0_u8; 1 << 20];
        let start = Addr(memory.as_ptr() as u64).align_up();
        let addrs: Vec<Addr> = (0..255).map(|page| start + Bytes(page * PAGE_SIZE)).collect();
        let range = AddrRange::new(start.0, start.0 + 255 * PAGE_SIZE);
        let mut lists = Lists {
            are_short: true,
            ..Lists::default()
        };
        let mut look = |is_used_from_outside: bool| {
            memory.fill(1);
            // Batches of pages that wait for their lists are emptied by any advice.
            batch::clear(us.pidfd.as_fd(), &[range], &mut |_| ());
            memory.fill(2);
            if is_used_from_outside {
                touch_all(us.pid, &addrs, &mut |_| ());
            }
            for (addr, leaf) in addrs.iter().zip(leaves(&mut tables, &addrs)) {
                lists.note(*addr, leaf, Some(&frames));
            }
            batch::clear(us.pidfd.as_fd(), &[range], &mut |_| ());
            lists.restore(&us);
            marked_and_active(&mut tables, &frames, &addrs)
        };
        // A few wait in batches.
        let (marked, active) = look(false);
        assert!(marked <= 32 && active <= 32, "{marked} {active}");
        let (marked, active) = look(true);
        assert!(marked <= 32 && active >= 255 - 32, "{marked} {active}");
    }
}
