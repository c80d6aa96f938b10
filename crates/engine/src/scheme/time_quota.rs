//! CPU time a scheme spends: what a window of a time quota has left, and how many bytes fit that.

use thermo_units::{Bytes, Nanos};

/// What is assumed until something was measured, as in the kernel: 4 MiB a millisecond.
const ASSUMED_BYTES_PER_MS: u64 = 4 << 20;

/// The CPU time of one scheme.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spending {
    /// Spent in this window.
    spent: Nanos,
    /// Spent too much in earlier windows. The estimate of a throughput can be wrong; what is overspent once is
    /// saved later, so that the quota holds over time.
    debt: Nanos,
    /// Bytes and nanoseconds of everything measured so far.
    measured: (u128, u128),
}

impl Spending {
    /// Counts `sz` bytes that took `spent`.
    pub(super) fn measure(&mut self, sz: Bytes, spent: Nanos) {
        self.spent = self.spent.saturating_add(spent);
        self.measured.0 += u128::from(sz.0);
        self.measured.1 += u128::from(spent.0);
    }

    /// Begins a new window; `windows` of `time` each were allowed since the last one began.
    pub(super) fn renew(&mut self, time: Nanos, windows: u64) {
        let allowed = Nanos(time.0.saturating_mul(windows));
        let debt = self.debt.saturating_add(self.spent).saturating_sub(allowed);
        self.debt = if time == Nanos::ZERO { Nanos::ZERO } else { debt };
        self.spent = Nanos::ZERO;
    }

    /// Whether nothing is left in this window of a quota of `time`.
    pub(super) fn is_over(&self, time: Nanos) -> bool {
        time > Nanos::ZERO && self.spent >= time.saturating_sub(self.debt)
    }

    /// How many bytes a window of a quota of `time` has CPU time for, by the throughput so far; `None`: there
    /// is no such quota.
    pub(super) fn reach(&self, time: Nanos, least: Bytes) -> Option<Bytes> {
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
        // However slow it was once: without a page now and then it would never be measured again.
        Some(Bytes(u64::try_from(bytes).unwrap_or(u64::MAX)).max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Bytes = Bytes(4096);
    const TIME: Nanos = Nanos::millis(10);

    #[test]
    fn time_becomes_bytes_by_the_throughput_measured() {
        let mut spending = Spending::default();
        assert_eq!(spending.reach(TIME, PAGE), Some(Bytes::mib(40)), "assumed");
        // 40 MiB took 5 ms: 80 MiB fit the next 10 ms.
        spending.measure(Bytes::mib(40), Nanos::millis(5));
        assert!(!spending.is_over(TIME));
        spending.renew(TIME, 1);
        assert_eq!(spending.reach(TIME, PAGE), Some(Bytes::mib(80)));
        // 80 MiB took 25 ms: 15 ms too much, so the next window has nothing and the one after it 5 ms, at
        // 120 MiB in 30 ms.
        spending.measure(Bytes::mib(80), Nanos::millis(25));
        assert!(spending.is_over(TIME));
        for mib in [0, 20, 40, 40] {
            spending.renew(TIME, 1);
            assert_eq!(spending.reach(TIME, PAGE), Some(Bytes::mib(mib)));
        }
    }

    #[test]
    fn however_slow_a_page_is_tried_and_windows_that_passed_unused_pay_debts() {
        let time = Nanos::millis(1);
        let mut spending = Spending::default();
        spending.measure(PAGE, Nanos::millis(100));
        spending.renew(time, 50);
        assert_eq!(spending.reach(time, PAGE), Some(Bytes::ZERO));
        assert!(spending.is_over(time));
        spending.renew(time, 50);
        assert_eq!(spending.reach(time, PAGE), Some(PAGE));
    }

    #[test]
    fn no_quota_has_no_end_and_leaves_no_debt() {
        let mut spending = Spending::default();
        spending.measure(PAGE, Nanos::secs(100));
        assert!(!spending.is_over(Nanos::ZERO));
        assert_eq!(spending.reach(Nanos::ZERO, PAGE), None);
        spending.renew(Nanos::ZERO, 1);
        assert!(!spending.is_over(TIME));
    }
}
