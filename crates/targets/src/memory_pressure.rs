//! Whether memory is short on the machine: whether the kernel has to page out.

use std::path::Path;

use thermo_kernel::psi;
use thermo_kernel::vmstat;
use thermo_units::Nanos;

/// Memory counts as short for so long after the last sign of it.
const LASTS: Nanos = Nanos::secs(10);
/// It is asked no more often.
const ASKED: Nanos = Nanos::secs(1);
/// It is short where one part in so many of the time is lost to it,
const LOST: u64 = 1000;
/// while the kernel looks through so many pages to find some, or, where lost time is not counted, through so many a second.
const SCANNED: u64 = 1000;

/// Whether the kernel has to page out.
#[derive(Debug, Default)]
pub struct MemoryPressure {
    lasts: bool,
    /// When it was asked last, and what was told then.
    asked: Option<(Nanos, Signs)>,
    /// When it was seen last.
    seen: Nanos,
    /// What the kernel had looked through when tasks last lost time.
    scanned: Option<u64>,
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
        let lost = psi::system(root).map(Self::Lost);
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

impl MemoryPressure {
    /// Whether it was when that was looked at last.
    #[must_use]
    pub const fn is_under_pressure(&self) -> bool {
        self.lasts
    }

    /// Looks, if it is time to; whether it was.
    pub fn look(&mut self, root: &Path, now: Nanos) -> bool {
        let last = self.asked;
        if last.is_some_and(|(at, _)| now.saturating_sub(at) < ASKED) {
            return false;
        }
        self.asked = Signs::read(root).map(|signs| (now, signs));
        if let (Some((_, signs)), Some((at, before))) = (self.asked, last)
            && signs.tell(before, now.saturating_sub(at))
            && self.kernel_scans(root)
        {
            (self.seen, self.lasts) = (now, true);
        }
        self.lasts &= now.saturating_sub(self.seen) < LASTS;
        true
    }

    /// Whether the kernel has looked for pages, for the machine or for a control group, since this was asked last. Time is
    /// lost as well to what comes back after somebody had it paged out by advice, us for one; that is no pressure.
    fn kernel_scans(&mut self, root: &Path) -> bool {
        let Ok(vmstat) = vmstat::read(root) else {
            return true;
        };
        let scanned = vmstat.scanned_pages() + vmstat.scanned_pages_of_groups();
        let before = self.scanned.replace(scanned);
        before.is_none_or(|before| scanned.saturating_sub(before) >= SCANNED)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::fake::lose_time;

    #[test]
    fn memory_is_short_from_the_first_sign_until_some_time_after_the_last() {
        let root = tempfile::tempdir().unwrap();
        let mut pressure = MemoryPressure::default();
        let mut at = |ms, lost_us: u64| {
            lose_time(root.path(), lost_us);
            pressure.look(root.path(), Nanos::millis(ms));
            pressure.is_under_pressure()
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
    fn what_comes_back_after_advice_is_no_shortage() {
        let root = tempfile::tempdir().unwrap();
        let mut pressure = MemoryPressure::default();
        let mut at = |s, lost_ms: u64, of_groups: u64| {
            lose_time(root.path(), lost_ms * 1000);
            let counts = format!("pgscan_kswapd 5\npgscan_anon {}\npgscan_file 0\n", of_groups + 5);
            std::fs::write(root.path().join("proc/vmstat"), counts).unwrap();
            pressure.look(root.path(), Nanos::secs(s));
            pressure.is_under_pressure()
        };
        assert!(!at(0, 0, 70_000));
        assert!(at(1, 100, 70_000), "nothing is known of before");
        assert!(at(10, 1000, 70_900));
        assert!(!at(11, 1100, 70_900), "few pages since the tenth second");
        assert!(at(12, 1200, 71_900), "and a thousand more");
    }

    #[test]
    fn where_lost_time_is_not_counted_scanned_pages_tell() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        let mut pressure = MemoryPressure::default();
        let mut at = |s, scanned: u64| {
            let text = format!("pgscan_kswapd {scanned}\n");
            std::fs::write(root.path().join("proc/vmstat"), text).unwrap();
            pressure.look(root.path(), Nanos::secs(s));
            pressure.is_under_pressure()
        };
        assert!(!at(0, 70_000) && !at(2, 72_000) && at(4, 74_001));
    }
}
