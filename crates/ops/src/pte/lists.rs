//! Keeping pages where they are on the kernel's lists.
//!
//! `MADV_COLD` takes from a page what the kernel would decide by when memory is short: its mark, the flag that says that
//! it was found in use before, and its place on the active list. Touching a page from outside sets no mark, but it is what
//! the kernel counts as a use: the first one sets the flag, one more makes the page active (`folio_mark_accessed()`). So
//! what a look took is given back, where it matters, by sweeps and by samples:
//!
//! * Where a scheme sorts the lists (`lru_prio`), looking would undo with each round what the scheme did: pages that were
//!   active become so again.
//! * While memory is short, the kernel pages out by what it finds. It makes active what it finds in use for the second
//!   time: so do we, and what we are the first to find in use gets the flag.
//!
//! It costs many times what the rest of a look at a page does; the budget gives rounds more time for it. And it gives not
//! all back: a mark keeps a page that was found in use but once, and makes the kernel look among cached files before it looks
//! among what programs use (docs/results/2026-11-23-order.md).

use std::path::Path;

use thermo_bpf::Leaf;
use thermo_core::{Addr, Nanos};
use thermo_sys::kpageflags::{Flags, PageFrames};
use thermo_sys::process_vm::MAX_PAGES;
use thermo_sys::psi::{self, Resource};
use thermo_sys::{clock, vmstat};

use crate::actor::touch_all;
use crate::process::Process;

/// What has to be given back to the kernel's lists.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Whether a scheme sorts them.
    pub(super) are_sorted: bool,
    shortage: Shortage,
    /// Pages to be touched once, each by an address that maps it, and twice.
    once: Vec<Addr>,
    twice: Vec<Addr>,
}

impl Lists {
    /// Looks whether memory is short now on the machine at `root`: before each piece, since a round may take a minute.
    pub(super) fn follow(&mut self, root: &Path) {
        self.shortage.look(root, clock::monotonic());
    }

    /// Notes the page at `addr`, mapped by `leaf`, whose mark is about to come off.
    pub(super) fn note(&mut self, addr: Addr, leaf: Leaf, frames: Option<&PageFrames>) {
        if !self.are_sorted && !self.shortage.lasts {
            return;
        }
        let Some(flags) = frames.and_then(|frames| frames.flags(leaf.pfn).ok()) else {
            return;
        };
        match uses(flags, self.shortage.lasts) {
            0 => {}
            1 => self.once.push(addr),
            _ => self.twice.push(addr),
        }
    }

    /// Gives back what was noted, and forgets it.
    pub(super) fn restore(&mut self, process: &Process) {
        self.once.extend(&self.twice);
        for pages in [&self.once, &self.twice] {
            for pages in pages.chunks(MAX_PAGES) {
                touch_all(process.pid, pages, &mut |_| ());
            }
        }
        self.once.clear();
        self.twice.clear();
    }
}

/// How many uses of a page with these `flags`, found marked, the kernel has to count to know what it would have known.
const fn uses(flags: Flags, is_short: bool) -> u32 {
    match () {
        () if flags.is_active() => 2,
        () if !is_short => 0,
        () if flags.is_referenced() => 2,
        () => 1,
    }
}

/// Memory counts as short for so long after the last sign of it.
const LASTS: Nanos = Nanos::secs(10);
/// It is asked no more often.
const ASKED: Nanos = Nanos::secs(1);
/// It is short where one part in so many of the time is lost to it,
const LOST: u64 = 1000;
/// or where the kernel looks through so many pages a second to find some.
const SCANNED: u64 = 1000;

/// Whether the kernel has to page out.
#[derive(Debug, Default)]
struct Shortage {
    lasts: bool,
    /// When it was asked last, and what was told then.
    asked: Option<(Nanos, Signs)>,
    /// When it was seen last.
    seen: Nanos,
}

/// What tells of it, as counted since boot. Time lost counts those in control groups with a limit, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signs {
    Lost(Nanos),
    /// On kernels that do not count lost time.
    Scanned(u64),
}

impl Signs {
    fn read(root: &Path) -> Option<Self> {
        let lost = psi::system(root, Resource::Memory).map(|psi| Self::Lost(psi.some));
        let scanned = || vmstat::read(root).map(|vmstat| Self::Scanned(vmstat.scanned_pages()));
        lost.or_else(|_| scanned()).ok()
    }

    /// Whether much was added since `before`, in `time`.
    fn tell(self, before: Self, time: Nanos) -> bool {
        match (self, before) {
            (Self::Lost(now), Self::Lost(before)) => now.saturating_sub(before).0 > time.0 / LOST,
            (Self::Scanned(now), Self::Scanned(before)) => {
                let most = u128::from(SCANNED) * u128::from(time.0) / u128::from(Nanos::secs(1).0);
                u128::from(now.saturating_sub(before)) > most
            }
            _ => false,
        }
    }
}

impl Shortage {
    fn look(&mut self, root: &Path, now: Nanos) {
        let last = self.asked;
        if last.is_some_and(|(at, _)| now.saturating_sub(at) < ASKED) {
            return;
        }
        self.asked = Signs::read(root).map(|signs| (now, signs));
        if let (Some((_, signs)), Some((at, before))) = (self.asked, last)
            && signs.tell(before, now.saturating_sub(at))
        {
            (self.seen, self.lasts) = (now, true);
        }
        self.lasts &= now.saturating_sub(self.seen) < LASTS;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn what_was_taken_is_given_back() {
        let flags = |bits: &[u32]| Flags::from_bits(bits.iter().map(|bit| 1 << bit).sum());
        let (plain, referenced, active) = (flags(&[]), flags(&[2]), flags(&[6]));
        assert_eq!(
            [plain, referenced, active].map(|flags| uses(flags, false)),
            [0, 0, 2]
        );
        assert_eq!(
            [plain, referenced, active].map(|flags| uses(flags, true)),
            [1, 2, 2]
        );
    }

    #[test]
    fn memory_is_short_from_the_first_sign_until_some_time_after_the_last() {
        let root = tempfile::tempdir().unwrap();
        let file = psi::system_file(root.path(), Resource::Memory);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let mut shortage = Shortage::default();
        let mut at = |ms, lost_us: u64| {
            std::fs::write(
                &file,
                format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={lost_us}\n"),
            )
            .unwrap();
            shortage.look(root.path(), Nanos::millis(ms));
            shortage.lasts
        };
        assert!(!at(0, 5_000_000), "what was before is no sign");
        assert!(!at(500, 6_000_000), "it is not asked yet");
        assert!(at(1_000, 6_000_000));
        assert!(at(10_900, 6_000_000));
        assert!(!at(12_000, 6_000_000));
        assert!(!at(22_000, 6_009_000), "less than a thousandth of the time");
        assert!(at(23_000, 6_011_000));
    }

    #[test]
    fn where_lost_time_is_not_counted_scanned_pages_tell() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        let mut shortage = Shortage::default();
        let mut at = |s, scanned: u64| {
            let text = format!("pgscan_kswapd {scanned}\n");
            std::fs::write(root.path().join("proc/vmstat"), text).unwrap();
            shortage.look(root.path(), Nanos::secs(s));
            shortage.lasts
        };
        assert!(!at(0, 70_000) && !at(2, 72_000) && at(4, 74_001));
    }
}
