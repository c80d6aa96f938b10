//! Time quotas: CPU time used by a scheme, and the number of bytes that the remaining time is enough for.

use thermo_units::{Bytes, Nanos};

/// Throughput assumed until a measurement exists, as in the kernel: 4 MiB per ms.
const ASSUMED_BYTES_PER_MS: u64 = 4 << 20;

/// CPU time used by one scheme, and its throughput.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TimeQuota {
    /// CPU time used in this window.
    spent: Nanos,
    /// CPU time used in excess in earlier windows. The throughput is an estimate, so a window can exceed the
    /// quota. Later windows get less, so that the quota holds over time.
    debt: Nanos,
    /// Bytes and nanoseconds of all measurements so far.
    measured: (u128, u128),
}

impl TimeQuota {
    /// Adds a measurement: `sz` bytes took `spent`.
    pub(super) fn record(&mut self, sz: Bytes, spent: Nanos) {
        self.spent = self.spent.saturating_add(spent);
        self.measured.0 += u128::from(sz.0);
        self.measured.1 += u128::from(spent.0);
    }

    /// Begins a new window. Since the start of the last one, `windows` windows of `time` each were allowed.
    pub(super) fn renew(&mut self, time: Nanos, windows: u64) {
        let allowed = Nanos(time.0.saturating_mul(windows));
        let debt = self.debt.saturating_add(self.spent).saturating_sub(allowed);
        self.debt = if time == Nanos::ZERO { Nanos::ZERO } else { debt };
        self.spent = Nanos::ZERO;
    }

    /// True if a quota of `time` is used up in this window.
    pub(super) fn is_used_up(&self, time: Nanos) -> bool {
        time > Nanos::ZERO && self.spent >= time.saturating_sub(self.debt)
    }

    /// The number of bytes that a window with a quota of `time` allows, from the throughput so far. At least
    /// `min`, unless debt uses up the window. `None`: no time quota is set.
    pub(super) fn affordable_bytes(&self, time: Nanos, min: Bytes) -> Option<Bytes> {
        if time == Nanos::ZERO {
            return None;
        }
        let left = time.saturating_sub(self.debt);
        if left == Nanos::ZERO {
            return Some(Bytes::ZERO);
        }
        let (bytes, nanos) = match self.measured {
            (bytes, nanos) if bytes > 0 && nanos > 0 => (bytes, nanos),
            _ => (u128::from(ASSUMED_BYTES_PER_MS), u128::from(Nanos::millis(1).0)),
        };
        let bytes = bytes.saturating_mul(u128::from(left.0)) / nanos;
        // Without at least one unit in a window, a low throughput would never be measured again.
        Some(Bytes(u64::try_from(bytes).unwrap_or(u64::MAX)).max(min))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Bytes = Bytes(4096);
    const TIME: Nanos = Nanos::millis(10);

    #[test]
    fn time_quota_uses_measured_throughput() {
        let mut quota = TimeQuota::default();
        assert_eq!(
            quota.affordable_bytes(TIME, PAGE),
            Some(Bytes::mib(40)),
            "assumed"
        );
        // 40 MiB took 5 ms, so 10 ms are enough for 80 MiB.
        quota.record(Bytes::mib(40), Nanos::millis(5));
        assert!(!quota.is_used_up(TIME));
        quota.renew(TIME, 1);
        assert_eq!(quota.affordable_bytes(TIME, PAGE), Some(Bytes::mib(80)));
        // 80 MiB took 25 ms, 15 ms too much. The next window gets 0 ms, the one after it 5 ms, at 120 MiB in
        // 30 ms.
        quota.record(Bytes::mib(80), Nanos::millis(25));
        assert!(quota.is_used_up(TIME));
        for mib in [0, 20, 40, 40] {
            quota.renew(TIME, 1);
            assert_eq!(quota.affordable_bytes(TIME, PAGE), Some(Bytes::mib(mib)));
        }
    }

    #[test]
    fn unused_windows_pay_debt_and_allow_one_page() {
        let time = Nanos::millis(1);
        let mut quota = TimeQuota::default();
        quota.record(PAGE, Nanos::millis(100));
        quota.renew(time, 50);
        assert_eq!(quota.affordable_bytes(time, PAGE), Some(Bytes::ZERO));
        assert!(quota.is_used_up(time));
        quota.renew(time, 50);
        assert_eq!(quota.affordable_bytes(time, PAGE), Some(PAGE));
    }

    #[test]
    fn unset_time_quota_has_no_limit_or_debt() {
        let mut quota = TimeQuota::default();
        quota.record(PAGE, Nanos::secs(100));
        assert!(!quota.is_used_up(Nanos::ZERO));
        assert_eq!(quota.affordable_bytes(Nanos::ZERO, PAGE), None);
        quota.renew(Nanos::ZERO, 1);
        assert!(!quota.is_used_up(TIME));
    }
}
