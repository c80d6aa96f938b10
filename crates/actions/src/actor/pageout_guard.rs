//! Limits of paging out: a minimum of free swap, and feedback from refaults.

use std::path::Path;

use thermo_engine::ops::{Skip, TargetRange};
use thermo_kernel::pagemap::Pagemap;
use thermo_kernel::{clock, meminfo};
use thermo_targets::Processes;
use thermo_units::{Bytes, Nanos, Permille};

use super::net_guard::NetGuard;
use super::pagemap_stats::count_or_estimate;
use super::refault::{PagedOut, RefaultMeter, Refaults};

/// Bytes of a range that are checked for refaults, in samples spread over it.
const REFAULT_SAMPLE: Bytes = Bytes::mib(4);
/// Free swap is read again after this many bytes were paged out.
const SWAP_CHECK_EVERY: Bytes = Bytes::mib(64);

/// The limits of paging out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageoutLimits {
    /// With less than this share of swap free, or without swap, only pages of files are paged out.
    pub swap_floor: Permille,
    /// Paging out stops while more than this share of the memory paged out within the window is back in
    /// memory.
    pub refaults: Permille,
    /// Memory counts as paged out for this long.
    pub refault_window: Nanos,
    /// Paging out of a target stops for some time when less than this share of what left its memory is saved,
    /// because zram took the rest; 0: nothing is measured.
    pub min_net: Permille,
}

impl Default for PageoutLimits {
    /// 20 % of swap stays free; paging out stops when more than 25 % of the last minute's is back. What is
    /// saved is not measured.
    fn default() -> Self {
        Self {
            swap_floor: Permille(200),
            refaults: Permille(250),
            refault_window: Nanos::secs(60),
            min_net: Permille(0),
        }
    }
}

/// Whether `free` of `total` swap is below `floor`; always true without swap.
#[must_use]
pub fn below_swap_floor(free: Bytes, total: Bytes, floor: Permille) -> bool {
    total == Bytes::ZERO || u128::from(free.0) * 1000 < u128::from(total.0) * u128::from(floor.0)
}

#[derive(Debug)]
pub(super) struct PageoutGuard {
    swap_floor: Permille,
    refaults: Refaults,
    pub(super) net: NetGuard,
    /// Whether free swap allows paging out, and the bytes paged out since it was read.
    swap: Option<(bool, Bytes)>,
    /// Bytes that the dry run of this request would have put into swap.
    promised: Bytes,
}

impl PageoutGuard {
    pub(super) fn new(limits: PageoutLimits) -> Self {
        let refaults = Refaults::new(limits.refaults, limits.refault_window);
        Self {
            swap_floor: limits.swap_floor,
            refaults,
            net: NetGuard::new(limits.min_net),
            swap: None,
            promised: Bytes::ZERO,
        }
    }

    pub(super) fn set_meter(&mut self, meter: RefaultMeter) {
        self.refaults.meter = meter;
    }

    /// Begins a request for `processes`: free swap is read again.
    pub(super) fn begin_request(&mut self, processes: &Processes) {
        self.swap = None;
        self.promised = Bytes::ZERO;
        self.net.retain(processes);
    }

    /// Why nothing may be paged out now, if so. `to_swap`: the memory needs swap.
    pub(super) fn stop_reason(
        &mut self,
        root: &Path,
        processes: &Processes,
        to_swap: bool,
        now: Nanos,
    ) -> Option<Skip> {
        if to_swap && !self.swap_allows(root) {
            return Some(Skip::SwapFloor);
        }
        let present_now = |paged_out: &PagedOut| {
            let process = processes
                .get(&paged_out.target)
                .filter(|process| process.is_alive())?;
            let pagemap = Pagemap::open(root, process.pid).ok()?;
            Some(count_or_estimate(&pagemap, &[paged_out.range], REFAULT_SAMPLE).present)
        };
        let share = self.refaults.share(now, present_now);
        self.refaults.exceeds(share).then_some(Skip::Refaults)
    }

    /// Whether enough swap is free.
    pub(super) fn swap_allows(&mut self, root: &Path) -> bool {
        if let Some((allowed, paged_out)) = self.swap
            && paged_out < SWAP_CHECK_EVERY
        {
            return allowed;
        }
        // Unreadable counts as too little.
        let allowed = meminfo::read(root).is_ok_and(|info| {
            let free = info.swap_free.saturating_sub(self.promised);
            !below_swap_floor(free, info.swap_total, self.swap_floor)
        });
        self.swap = Some((allowed, Bytes::ZERO));
        allowed
    }

    /// Records that the kernel was asked to page out `bytes` more.
    pub(super) fn record_requested(&mut self, bytes: Bytes) {
        if let Some((_, paged_out)) = &mut self.swap {
            *paged_out += bytes;
        }
    }

    /// Records that a dry run would have put `bytes` more into swap.
    pub(super) fn record_promised(&mut self, bytes: Bytes) {
        self.promised += bytes;
    }

    /// Records that a swap device does not take more pages: for a while, memory that needs swap is skipped.
    pub(super) fn record_full_swap(&mut self) {
        self.swap = Some((false, Bytes::ZERO));
    }

    /// Records that `out` bytes of `run` were just paged out. `still_present`: bytes counted present
    /// afterwards.
    pub(super) fn record_paged_out(
        &mut self,
        pagemap: &Pagemap,
        run: TargetRange,
        out: Bytes,
        still_present: Option<Bytes>,
    ) {
        if out == Bytes::ZERO {
            return;
        }
        let TargetRange { target, range } = run;
        // Refault checks compare with this value, so it must come from the same samples.
        let still_present = still_present
            .filter(|_| range.len() <= REFAULT_SAMPLE)
            .unwrap_or_else(|| count_or_estimate(pagemap, &[range], REFAULT_SAMPLE).present);
        self.refaults.record(PagedOut {
            when: clock::monotonic(),
            target,
            range,
            out,
            still_present,
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn swap_floor_compares_share_of_free_swap() {
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
    fn guard_rereads_free_swap_after_paging_out() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        let swap = |free: u32| {
            let text = format!("MemTotal: 100 kB\nSwapTotal: 100 kB\nSwapFree: {free} kB\n");
            std::fs::write(root.path().join("proc/meminfo"), text).unwrap();
        };
        let mut guard = PageoutGuard::new(PageoutLimits::default());
        let none = Processes::new();
        let ask = |guard: &mut PageoutGuard| guard.stop_reason(root.path(), &none, true, Nanos::secs(5));
        swap(90);
        assert_eq!(ask(&mut guard), None);
        swap(10);
        assert_eq!(ask(&mut guard), None, "not read again yet");
        swap(90);
        guard.record_promised(Bytes::kib(80));
        guard.swap = None;
        assert_eq!(
            ask(&mut guard),
            Some(Skip::SwapFloor),
            "a dry run fills swap, too"
        );
        guard.begin_request(&none);
        assert_eq!(ask(&mut guard), None);
        guard.record_full_swap();
        assert_eq!(ask(&mut guard), Some(Skip::SwapFloor), "the device takes no more");
        swap(10);
        guard.swap = Some((true, SWAP_CHECK_EVERY));
        assert_eq!(ask(&mut guard), Some(Skip::SwapFloor));
        assert_eq!(
            guard.stop_reason(root.path(), &none, false, Nanos::secs(5)),
            None,
            "files need no swap"
        );
        swap(90);
        guard.begin_request(&none);
        assert_eq!(ask(&mut guard), None);
    }
}
