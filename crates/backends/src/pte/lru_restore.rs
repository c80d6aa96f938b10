//! Restores the position of pages on the kernel's LRU lists when accessed bits are cleared.
//!
//! `MADV_COLD` removes what reclaim uses to rank a page: the accessed bit, the referenced flag (the page was
//! found accessed before), and the place on the active list. A read from outside (`process_vm_readv`) sets no
//! accessed bit but counts as an access: the first sets the flag, the second activates the page
//! (`folio_mark_accessed()`). So scans and samples restore positions where they matter:
//!
//! * If a scheme sorts the lists (`lru_prio`), each pass would undo the scheme. So active pages become active
//!   again.
//! * Under memory pressure, a page that the kernel finds accessed stays on the inactive list once more, or
//!   becomes active if it was found accessed before (`folio_check_references()`). The tracker cleared the
//!   bit, so it does the same: pages that were found before become active, the others move to the head of the
//!   inactive list. No system call moves a page there, but `MADV_COLD` does if the page is active; so these
//!   pages are activated before the call. Their referenced flag is not set: with it the kernel kept more
//!   pages than without monitoring.
//! * With MGLRU, a page is read as often as needed to be spared once, as it would be for its accessed bit.
//!
//! Without this, monitoring at 1 % of a CPU added 60 % to the major faults of a program under pressure
//! (docs/evaluation.md, order of reclaim). Restoring costs many times the rest of a pass, and is part of the
//! budget.

use std::path::Path;

use thermo_kernel::clock;
use thermo_kernel::kpageflags::{Flags, PageFrames};
use thermo_kernel::lru_gen::{self, ACCESSES_LRU, ACCESSES_MGLRU};
use thermo_kernel::process_vm::touch_all;
use thermo_pagetable::Leaf;
use thermo_targets::Process;
use thermo_units::Addr;

use super::memory_pressure::MemoryPressure;

/// Pages whose position has to be restored.
#[derive(Debug, Default)]
pub(super) struct LruRestore {
    /// True if a scheme sorts the lists: active pages stay active.
    pub(super) keep_active: bool,
    pressure: MemoryPressure,
    /// Kind of the kernel's lists under memory pressure; `None` without pressure.
    pressured_lru: Option<LruKind>,
    /// Pages to move, each by an address that maps it.
    to_head: Vec<Addr>,
    to_active: Vec<Addr>,
}

/// How the kernel orders pages for reclaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LruKind {
    ActiveInactive,
    Mglru,
}

/// Where a page belongs after its accessed bit was cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListPosition {
    /// Where `MADV_COLD` leaves it.
    Unchanged,
    /// At the head of the inactive list.
    Head,
    /// On the active list; with generations, spared once.
    Active,
}

impl LruRestore {
    /// Updates whether the machine at `root` is under memory pressure. Called before each stripe, since a
    /// pass may take a minute. Drops pages that were noted and not restored.
    pub(super) fn update(&mut self, root: &Path) {
        self.to_head.clear();
        self.to_active.clear();
        if self.pressure.update(root, clock::monotonic()) {
            self.pressured_lru = self
                .pressure
                .is_present()
                .then(|| match lru_gen::is_enabled(root) {
                    true => LruKind::Mglru,
                    false => LruKind::ActiveInactive,
                });
        }
    }

    /// Whether positions have to be restored now.
    pub(super) const fn restores_positions(&self) -> bool {
        self.keep_active || self.pressured_lru.is_some()
    }

    /// Notes the page at `addr`, mapped by `leaf`, whose accessed bit is about to be cleared. Skips huge
    /// pages, since a read sets their accessed bit and does not move them. Skips shared pages, since
    /// `MADV_COLD` skips them.
    pub(super) fn note(&mut self, addr: Addr, leaf: Leaf, frames: Option<&PageFrames>) {
        if leaf.level > 0 || !self.restores_positions() {
            return;
        }
        let Some(frames) = frames else { return };
        let Ok(flags) = frames.flags(leaf.pfn) else { return };
        let pages = match list_position(flags, self.pressured_lru) {
            ListPosition::Unchanged => return,
            ListPosition::Head => &mut self.to_head,
            ListPosition::Active => &mut self.to_active,
        };
        if frames.map_count(leaf.pfn).is_ok_and(|count| count <= 1) {
            pages.push(addr);
        }
    }

    /// Activates the pages that `MADV_COLD` then moves to the head of the inactive list.
    pub(super) fn before_clear(&mut self, process: &Process) {
        touch_all((process.pid, &process.pidfd), &self.to_head, ACCESSES_LRU);
        self.to_head.clear();
    }

    /// Restores the other noted pages, after `MADV_COLD`.
    pub(super) fn after_clear(&mut self, process: &Process) {
        let accesses = match self.pressured_lru {
            Some(LruKind::Mglru) => ACCESSES_MGLRU,
            Some(LruKind::ActiveInactive) | None => ACCESSES_LRU,
        };
        touch_all((process.pid, &process.pidfd), &self.to_active, accesses);
        self.to_active.clear();
    }
}

/// Where the kernel would put a small page with these `flags` that it found accessed.
const fn list_position(flags: Flags, pressured_lru: Option<LruKind>) -> ListPosition {
    if !flags.is_lru() || flags.is_unevictable() || flags.is_ksm() {
        return ListPosition::Unchanged;
    }
    match pressured_lru {
        _ if flags.is_active() => ListPosition::Active,
        None => ListPosition::Unchanged,
        Some(LruKind::Mglru) => ListPosition::Active,
        Some(LruKind::ActiveInactive) if flags.is_referenced() => ListPosition::Active,
        Some(LruKind::ActiveInactive) => ListPosition::Head,
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
    fn list_position_matches_kernel_rules() {
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
        let positions = |pressured_lru| kinds.map(|flags| list_position(flags, pressured_lru));
        let (unchanged, head, active) = (ListPosition::Unchanged, ListPosition::Head, ListPosition::Active);
        assert_eq!(
            positions(None),
            [unchanged, unchanged, active, unchanged, unchanged, unchanged]
        );
        let two_lists = [head, active, active, unchanged, unchanged, unchanged];
        assert_eq!(positions(Some(LruKind::ActiveInactive)), two_lists);
        let mglru = [active, active, active, unchanged, unchanged, unchanged];
        assert_eq!(positions(Some(LruKind::Mglru)), mglru);
    }

    /// How many of our pages at `addrs` are accessed, and how many are active.
    fn accessed_and_active(tables: &mut PageTables, frames: &PageFrames, addrs: &[Addr]) -> (usize, usize) {
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
            .entries(std::process::id(), addrs, Folios::None, &mut entries)
            .unwrap();
        let leaf = |entry| match entry {
            Entry::Leaf(leaf) => leaf,
            _ => unreachable!("the page was written a moment ago"),
        };
        entries.into_iter().map(leaf).collect()
    }

    #[test]
    fn first_access_moves_to_head_second_activates() {
        const PAGES: u64 = 255;
        // A CPU moves pages in batches; the last batch may wait for a later call.
        const WAIT: usize = 64;
        if lru_gen::is_enabled(Path::new("/")) {
            return eprintln!("SKIP: this kernel uses MGLRU");
        }
        let tables = PageTables::open().inspect_err(|why| eprintln!("SKIP: {why}"));
        let frames = PageFrames::open(Path::new("/")).inspect_err(|why| eprintln!("SKIP: {why}"));
        let (Ok(mut tables), Ok(frames)) = (tables, frames) else {
            return;
        };
        let this_process = Process::open(TargetId(1), std::process::id()).unwrap();
        let mut memory = vec![1_u8; 1 << 20];
        let start = Addr(memory.as_ptr() as u64).align_up();
        let range = AddrRange::new(start.0, start.0 + PAGES * PAGE_SIZE);
        let addrs: Vec<Addr> = (0..PAGES).map(|page| start + Bytes(page * PAGE_SIZE)).collect();
        let clear = || assert!(madvise_fallback::advise_cold(&this_process, &[range]).0);
        let mut lru_restore = LruRestore {
            pressured_lru: Some(LruKind::ActiveInactive),
            ..LruRestore::default()
        };
        // Now all pages are on the inactive list.
        clear();
        for (is_used, expected) in [(false, [true, false]), (true, [false, true])] {
            memory.fill(2);
            if is_used {
                touch_all((this_process.pid, &this_process.pidfd), &addrs, 1);
            }
            for (addr, leaf) in addrs.iter().zip(leaves(&mut tables, &addrs)) {
                lru_restore.note(*addr, leaf, Some(&frames));
            }
            let mut are_active = [false; 2];
            lru_restore.before_clear(&this_process);
            are_active[0] = accessed_and_active(&mut tables, &frames, &addrs).1 >= addrs.len() - WAIT;
            clear();
            lru_restore.after_clear(&this_process);
            let (accessed, active) = accessed_and_active(&mut tables, &frames, &addrs);
            are_active[1] = active >= addrs.len() - WAIT;
            assert!(are_active[1] || active <= WAIT, "{active}");
            assert_eq!(are_active, expected);
            assert!(accessed <= WAIT, "{accessed}");
        }
    }
}
