//! How fast it goes: calls so small that an application which comes back waits for none longer than a moment, and
//! pauses between them, so that only a share of a CPU is used.
//!
//! The share is made by pausing between calls and not by a low priority: who holds the memory lock of a process and
//! is not let run keeps that process from running too.

use std::sync::atomic::{AtomicBool, Ordering};

use thermo_core::{Bytes, Nanos, Permille};

/// What a call begins with.
const FIRST: Bytes = Bytes::mib(1);
/// Sizes stay within this.
const SIZES: (Bytes, Bytes) = (Bytes::kib(64), Bytes::mib(32));
/// What a call may take.
const MOST: Nanos = Nanos::millis(2);
/// No pause is longer: a call that was interrupted says little of what calls cost.
const LONGEST_PAUSE: Nanos = Nanos::millis(200);

/// Sizes of calls and pauses between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    size: Bytes,
    duty: Permille,
}

impl Pace {
    /// Uses `duty` of a CPU at most.
    #[must_use]
    pub fn new(duty: Permille) -> Self {
        let duty = Permille(duty.0.clamp(1, 1000));
        Self { size: FIRST, duty }
    }

    /// How much the next call may be about.
    #[must_use]
    pub const fn size(&self) -> Bytes {
        self.size
    }

    /// Takes in that a call about `bytes` took `time`. Returns how long to pause.
    ///
    /// One that took too long makes the next ones as much smaller, down to half; a quick one lets them grow by an
    /// eighth, so that a single lucky call does not make a long one.
    pub fn called(&mut self, bytes: Bytes, time: Nanos) -> Nanos {
        let (least, most) = SIZES;
        if time > MOST {
            let fitting = u128::from(self.size.0) * u128::from(MOST.0) / u128::from(time.0);
            let fitting = u64::try_from(fitting).unwrap_or(u64::MAX);
            self.size = Bytes(fitting.max(self.size.0 / 2)).clamp(least, most);
        } else if bytes >= self.size && time.0 <= MOST.0 / 8 * 7 {
            self.size = Bytes(self.size.0 + self.size.0 / 8).clamp(least, most);
        }
        self.size = Bytes(self.size.0 & !0xfff);
        let idle = u128::from(time.0) * u128::from(1000 - self.duty.0) / u128::from(self.duty.0);
        Nanos(u64::try_from(idle).unwrap_or(u64::MAX)).min(LONGEST_PAUSE)
    }
}

/// Work that is cut into calls.
pub trait Calls {
    /// Makes the next call, about `most` bytes at most. Returns how many it was about and how long it took; nothing
    /// when there is no more to be done.
    fn call(&mut self, most: Bytes) -> Option<(Bytes, Nanos)>;

    /// Pauses; shorter when `cancel` becomes true.
    fn pause(&mut self, time: Nanos, cancel: &AtomicBool);
}

/// Makes calls until there are no more, or until `cancel` is true: then no call more is begun. Returns whether it
/// came to the end.
pub fn carry_out(work: &mut dyn Calls, pace: &mut Pace, cancel: &AtomicBool) -> bool {
    while !cancel.load(Ordering::Acquire) {
        let Some((bytes, time)) = work.call(pace.size()) else {
            return true;
        };
        let pause = pace.called(bytes, time);
        work.pause(pause, cancel);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_come_to_take_what_they_may() {
        // 0.5 and 8 milliseconds a MiB.
        for (nanos_per_kib, lo, hi) in [
            (500, Bytes::mib(3), Bytes::mib(5)),
            (8_000, Bytes::kib(200), Bytes::kib(260)),
        ] {
            let mut pace = Pace::new(Permille(250));
            assert_eq!(pace.size(), Bytes::mib(1));
            for _ in 0..100 {
                let size = pace.size();
                pace.called(size, Nanos((size.0 >> 10) * nanos_per_kib));
            }
            assert!(
                lo <= pace.size() && pace.size() <= hi,
                "{} at {nanos_per_kib}",
                pace.size()
            );
        }
    }

    #[test]
    fn pauses_keep_the_share_and_one_slow_call_changes_little() {
        let mut pace = Pace::new(Permille(250));
        assert_eq!(pace.called(Bytes::mib(1), Nanos::millis(1)), Nanos::millis(3));
        assert_eq!(
            Pace::new(Permille(1000)).called(Bytes::mib(1), Nanos::millis(1)),
            Nanos::ZERO
        );
        let before = pace.size();
        assert_eq!(pace.called(before, Nanos::secs(5)), LONGEST_PAUSE);
        assert!(pace.size() >= Bytes(before.0 / 2 - 4096), "{}", pace.size());
        for _ in 0..50 {
            pace.called(Bytes::mib(1), Nanos::secs(5));
        }
        assert_eq!(pace.size(), Bytes::kib(64));
    }

    struct Pieces<'a> {
        left: u32,
        calls: u32,
        cancel_in: u32,
        cancel: &'a AtomicBool,
    }

    impl Calls for Pieces<'_> {
        fn call(&mut self, most: Bytes) -> Option<(Bytes, Nanos)> {
            self.left = self.left.checked_sub(1)?;
            self.calls += 1;
            if self.calls == self.cancel_in {
                self.cancel.store(true, Ordering::Release);
            }
            Some((most, Nanos::millis(1)))
        }

        fn pause(&mut self, _: Nanos, _: &AtomicBool) {}
    }

    #[test]
    fn a_cancel_in_the_middle_of_a_call_lets_none_begin_after_it() {
        for cancel_in in [1, 7, 999] {
            let cancel = AtomicBool::new(false);
            let mut work = Pieces {
                left: 1000,
                calls: 0,
                cancel_in,
                cancel: &cancel,
            };
            assert!(!carry_out(&mut work, &mut Pace::new(Permille(500)), &cancel));
            assert_eq!(work.calls, cancel_in);
        }
        let cancel = AtomicBool::new(false);
        let mut work = Pieces {
            left: 10,
            calls: 0,
            cancel_in: 11,
            cancel: &cancel,
        };
        assert!(carry_out(&mut work, &mut Pace::new(Permille(500)), &cancel));
        assert_eq!(work.calls, 10);
    }
}
