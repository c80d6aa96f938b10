//! What keeps paging out from doing harm: a floor under free swap, and feedback on what came back.

use std::path::Path;

use thermo_engine::ops::{Skip, TargetRange};
use thermo_kernel::pagemap::Pagemap;
use thermo_kernel::{clock, meminfo};
use thermo_targets::Processes;
use thermo_units::{Bytes, Nanos, Permille};

use super::pagemap_stats::survey;
use super::refault::{PagedOut, Refaults};

/// How much of a run is looked at to see what came back, in pieces spread over it.
const LOOK_AT: Bytes = Bytes::mib(4);
/// After paging out so much, free swap is looked up anew.
const SWAP_EVERY: Bytes = Bytes::mib(64);

/// The limits of paging out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageoutLimits {
    /// When less than this share of swap is free, or there is none, only pages of files are paged out.
    pub swap_floor: Permille,
    /// Stop while more than this share of what was paged out within the window is back in memory.
    pub refaults: Permille,
    /// How long back what was paged out counts.
    pub refault_window: Nanos,
}

impl Default for PageoutLimits {
    /// 20 % of swap stay free; stop when more than 25 % of what left within a minute is back.
    fn default() -> Self {
        Self {
            swap_floor: Permille(200),
            refaults: Permille(250),
            refault_window: Nanos::secs(60),
        }
    }
}

/// Whether `free` of `total` swap is too little.
#[must_use]
pub fn below_swap_floor(free: Bytes, total: Bytes, floor: Permille) -> bool {
    total == Bytes::ZERO || u128::from(free.0) * 1000 < u128::from(total.0) * u128::from(floor.0)
}

#[derive(Debug)]
pub(super) struct Guard {
    swap_floor: Permille,
    refaults: Refaults,
    /// What free swap was found to allow, and how much was paged out since.
    swap: Option<(bool, Bytes)>,
}

impl Guard {
    pub(super) fn new(limits: PageoutLimits) -> Self {
        let refaults = Refaults::new(limits.refaults, limits.refault_window);
        Self {
            swap_floor: limits.swap_floor,
            refaults,
            swap: None,
        }
    }

    /// A new request begins: what was known of swap may be old.
    pub(super) fn begin(&mut self) {
        self.swap = None;
    }

    /// Why nothing may be paged out now, if so. `to_swap`: whether what is to be paged out needs swap.
    pub(super) fn objection(
        &mut self,
        root: &Path,
        processes: &Processes,
        to_swap: bool,
        now: Nanos,
    ) -> Option<Skip> {
        if to_swap && !self.swap_allows(root) {
            return Some(Skip::SwapFloor);
        }
        let there_now = |run: &PagedOut| {
            let process = processes.get(&run.target).filter(|process| process.is_alive())?;
            let pagemap = Pagemap::open(root, process.pid).ok()?;
            Some(survey(&pagemap, &[run.range], LOOK_AT).present)
        };
        let share = self.refaults.share(now, there_now);
        self.refaults.exceeds(share).then_some(Skip::Refaults)
    }

    /// Whether there is room for more in swap.
    pub(super) fn swap_allows(&mut self, root: &Path) -> bool {
        if let Some((allowed, paged_out)) = self.swap
            && paged_out < SWAP_EVERY
        {
            return allowed;
        }
        // What cannot be read cannot be trusted to be enough.
        let allowed = meminfo::read(root)
            .is_ok_and(|info| !below_swap_floor(info.swap_free, info.swap_total, self.swap_floor));
        self.swap = Some((allowed, Bytes::ZERO));
        allowed
    }

    /// Notes that the kernel was asked to page out `bytes` more.
    pub(super) fn asked(&mut self, bytes: Bytes) {
        if let Some((_, paged_out)) = &mut self.swap {
            *paged_out += bytes;
        }
    }

    /// Notes that `out` bytes of `run` have left just now. `still_there` is what was counted of it since.
    pub(super) fn left(
        &mut self,
        pagemap: &Pagemap,
        run: TargetRange,
        out: Bytes,
        still_there: Option<Bytes>,
    ) {
        if out == Bytes::ZERO {
            return;
        }
        let TargetRange { target, range } = run;
        // What is looked at again later must be what is looked at now.
        let still_there = still_there
            .filter(|_| range.len() <= LOOK_AT)
            .unwrap_or_else(|| survey(pagemap, &[range], LOOK_AT).present);
        self.refaults.record(PagedOut {
            when: clock::monotonic(),
            target,
            range,
            out,
            still_there,
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn free_swap_above_the_floor_allows_and_below_it_forbids() {
        let floor = Permille(200);
        for (free, total, below) in [
            (Bytes::mib(100), Bytes::mib(100), false),
            (Bytes::mib(20), Bytes::mib(100), false),
            (Bytes(Bytes::mib(20).0 - 1), Bytes::mib(100), true),
            (Bytes::ZERO, Bytes::mib(100), true),
            (Bytes::ZERO, Bytes::ZERO, true),
        ] {
            assert_eq!(below_swap_floor(free, total, floor), below, "{free} of {total}");
        }
        assert!(
            !below_swap_floor(Bytes(1), Bytes::gib(1), Permille(0)),
            "no floor"
        );
    }

    #[test]
    fn the_machine_is_asked_again_after_much_was_paged_out() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        let swap = |free: u32| {
            let text = format!("MemTotal: 100 kB\nSwapTotal: 100 kB\nSwapFree: {free} kB\n");
            std::fs::write(root.path().join("proc/meminfo"), text).unwrap();
        };
        let mut guard = Guard::new(PageoutLimits::default());
        let none = Processes::new();
        let ask = |guard: &mut Guard| guard.objection(root.path(), &none, true, Nanos::secs(5));
        swap(90);
        assert_eq!(ask(&mut guard), None);
        swap(10);
        assert_eq!(ask(&mut guard), None, "still as it was found");
        guard.swap = Some((true, SWAP_EVERY));
        assert_eq!(ask(&mut guard), Some(Skip::SwapFloor));
        assert_eq!(
            guard.objection(root.path(), &none, false, Nanos::secs(5)),
            None,
            "files need no swap"
        );
        swap(90);
        guard.begin();
        assert_eq!(ask(&mut guard), None);
    }
}
