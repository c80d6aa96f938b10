//! Detects memory pressure: the kernel has to reclaim, and tasks are stalled by it.

use std::path::Path;

use thermo_kernel::psi;
use thermo_kernel::vmstat;
use thermo_units::Nanos;

/// Memory pressure is assumed for this long after it was last found.
const ASSUMED_FOR: Nanos = Nanos::secs(10);
/// The kernel's counters are read at most this often.
const INTERVAL: Nanos = Nanos::secs(1);
/// There is pressure if tasks are stalled for more than one part in this many of the time,
const STALLED_PART: u64 = 1000;
/// and the kernel scans at least this many pages. Without PSI: more than this many pages a second.
const MIN_SCANNED: u64 = 1000;

/// The state of memory pressure.
#[derive(Debug, Default)]
pub(super) struct MemoryPressure {
    is_present: bool,
    /// The last reading and its time.
    last: Option<(Nanos, PressureCounter)>,
    /// When pressure was last found.
    found: Nanos,
    /// Pages that the kernel had scanned when tasks were last found stalled.
    scanned: Option<u64>,
}

/// A counter since boot. PSI also covers control groups with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PressureCounter {
    Stalled(Nanos),
    /// On kernels without PSI.
    Scanned(u64),
}

impl PressureCounter {
    fn read(root: &Path) -> Option<Self> {
        let stalled = psi::system_stall(root).map(Self::Stalled);
        let scanned = || vmstat::read(root).map(|vmstat| Self::Scanned(vmstat.scanned_pages()));
        stalled.or_else(|_| scanned()).ok()
    }

    /// Whether the counter grew fast enough since `before`, which was read `time` ago.
    fn is_pressure(self, before: Self, time: Nanos) -> bool {
        match (self, before) {
            (Self::Stalled(now), Self::Stalled(before)) => {
                now.saturating_sub(before).0 > time.0 / STALLED_PART
            }
            (Self::Scanned(now), Self::Scanned(before)) => {
                let most = u128::from(MIN_SCANNED) * u128::from(time.0) / u128::from(Nanos::secs(1).0);
                u128::from(now.saturating_sub(before)) > most
            }
            _ => false,
        }
    }
}

impl MemoryPressure {
    /// The result of the last update.
    pub(super) const fn is_present(&self) -> bool {
        self.is_present
    }

    /// Reads the counters if the last reading is old enough. Returns whether it read them.
    pub(super) fn update(&mut self, root: &Path, now: Nanos) -> bool {
        let last = self.last;
        if last.is_some_and(|(at, _)| now.saturating_sub(at) < INTERVAL) {
            return false;
        }
        self.last = PressureCounter::read(root).map(|counter| (now, counter));
        if let (Some((_, counter)), Some((at, before))) = (self.last, last)
            && counter.is_pressure(before, now.saturating_sub(at))
            && self.kernel_scans(root)
        {
            (self.found, self.is_present) = (now, true);
        }
        self.is_present &= now.saturating_sub(self.found) < ASSUMED_FOR;
        true
    }

    /// Whether the kernel has scanned pages to reclaim, for the machine or a control group, since the last
    /// call. Refaults after advice to page out, e.g. by Thermocline, also stall tasks; that is no pressure.
    fn kernel_scans(&mut self, root: &Path) -> bool {
        let Ok(vmstat) = vmstat::read(root) else {
            return true;
        };
        let scanned = vmstat.scanned_pages() + vmstat.scanned_pages_of_groups();
        let before = self.scanned.replace(scanned);
        before.is_none_or(|before| scanned.saturating_sub(before) >= MIN_SCANNED)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    /// Writes a PSI file below `root` that reports `us` microseconds of stalls since boot.
    fn lose_time(root: &Path, us: u64) {
        let file = psi::system_file(root);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let text = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={us}\n");
        std::fs::write(file, text).unwrap();
    }

    #[test]
    fn pressure_lasts_ten_seconds_after_the_last_sign() {
        let root = tempfile::tempdir().unwrap();
        let mut pressure = MemoryPressure::default();
        let mut at = |ms, lost_us: u64| {
            lose_time(root.path(), lost_us);
            pressure.update(root.path(), Nanos::millis(ms));
            pressure.is_present()
        };
        assert!(!at(0, 5_000_000), "stalls before the first reading do not count");
        assert!(!at(500, 6_000_000), "read at most once a second");
        assert!(at(1_000, 6_000_000));
        assert!(at(10_900, 6_000_000));
        assert!(!at(12_000, 6_000_000));
        assert!(!at(22_000, 6_009_000), "less than a thousandth of the time");
        assert!(at(23_000, 6_011_000));
    }

    #[test]
    fn refaults_without_reclaim_are_no_pressure() {
        let root = tempfile::tempdir().unwrap();
        let mut pressure = MemoryPressure::default();
        let mut at = |s, lost_ms: u64, of_groups: u64| {
            lose_time(root.path(), lost_ms * 1000);
            let counts = format!("pgscan_kswapd 5\npgscan_anon {}\npgscan_file 0\n", of_groups + 5);
            std::fs::write(root.path().join("proc/vmstat"), counts).unwrap();
            pressure.update(root.path(), Nanos::secs(s));
            pressure.is_present()
        };
        assert!(!at(0, 0, 70_000));
        assert!(at(1, 100, 70_000), "scanned pages of before are not known");
        assert!(at(10, 1000, 70_900));
        assert!(!at(11, 1100, 70_900), "few pages since the tenth second");
        assert!(at(12, 1200, 71_900), "and a thousand more");
    }

    #[test]
    fn scanned_pages_show_pressure_without_psi() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        let mut pressure = MemoryPressure::default();
        let mut at = |s, scanned: u64| {
            let text = format!("pgscan_kswapd {scanned}\n");
            std::fs::write(root.path().join("proc/vmstat"), text).unwrap();
            pressure.update(root.path(), Nanos::secs(s));
            pressure.is_present()
        };
        assert!(!at(0, 70_000) && !at(2, 72_000) && at(4, 74_001));
    }
}
