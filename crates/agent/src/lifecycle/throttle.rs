//! How fast it goes: calls so small that an application which comes back waits for none longer than a moment, and
//! pauses between them, so that only a share of a CPU is used.
//!
//! The share is made by pausing between calls and not by a low priority: who holds the memory lock of a process and
//! is not let run keeps that process from running too.

use std::sync::atomic::{AtomicBool, Ordering};

use thermo_units::{Bytes, Nanos, Permille};

/// What a call begins with, before anything is known of what calls take.
const FIRST: Bytes = Bytes::mib(1);
/// Sizes stay within this.
const SIZES: (Bytes, Bytes) = (Bytes::kib(64), Bytes::mib(32));
/// What a call is to take where memory is as bad as it was lately. It may take 2 ms, but the next may be worse still, and
/// the longest call is the one that somebody waits for.
const AIM: Nanos = Nanos(1_400_000);
/// How soon what was bad is forgotten: one part in so many a call.
const FORGET: u64 = 32;
/// No pause is longer: a call that was interrupted says little of what calls cost.
const LONGEST_PAUSE: Nanos = Nanos::millis(200);

/// Sizes of calls and pauses between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    size: Bytes,
    /// The most that a MiB took lately.
    worst: Nanos,
    duty: Permille,
}

impl Pace {
    /// Uses `duty` of a CPU at most.
    #[must_use]
    pub fn new(duty: Permille) -> Self {
        let duty = Permille(duty.0.clamp(1, 1000));
        Self {
            size: FIRST,
            worst: Nanos::ZERO,
            duty,
        }
    }

    /// The pace for other work of the same kind, which uses `duty` of a CPU at most: it begins with what calls came to,
    /// but no more than at first, for other memory may take longer.
    #[must_use]
    pub fn begin_again(&self, duty: Permille) -> Self {
        Self {
            size: self.size.min(FIRST),
            worst: self.worst,
            ..Self::new(duty)
        }
    }

    /// How much the next call may be about.
    #[must_use]
    pub const fn size(&self) -> Bytes {
        self.size
    }

    /// Takes in that a call about `bytes` took `time`. Returns how long to pause.
    ///
    /// Calls are as large as what the worst memory met lately lets them be: memory differs, and the mean would make
    /// every second call too long. They become at most half as large from one to the next, for a call that was
    /// interrupted says little, and grow by an eighth at most, for so does a lucky one.
    pub fn called(&mut self, bytes: Bytes, time: Nanos) -> Nanos {
        let (least, most) = SIZES;
        let half = Bytes(self.size.0 / 2);
        // What little takes is mostly what any call takes.
        if bytes >= half || time > AIM {
            let took = per_mib(time, bytes.max(half));
            let remembered = self.worst.saturating_sub(Nanos(self.worst.0 / FORGET));
            let believed = if self.worst == Nanos::ZERO {
                took
            } else {
                took.min(self.worst * 2)
            };
            self.worst = believed.max(remembered);
            let fitting = Bytes(AIM.0.saturating_mul(1 << 20) / self.worst.0.max(1));
            let largest = if bytes >= self.size {
                self.size.0 + self.size.0 / 8
            } else {
                self.size.0
            };
            self.size = fitting.clamp(half, Bytes(largest)).clamp(least, most);
        }
        self.size = Bytes(self.size.0 & !0xfff);
        let idle = u128::from(time.0) * u128::from(1000 - self.duty.0) / u128::from(self.duty.0);
        Nanos(u64::try_from(idle).unwrap_or(u64::MAX)).min(LONGEST_PAUSE)
    }
}

/// What a MiB takes when `bytes` take `time`.
fn per_mib(time: Nanos, bytes: Bytes) -> Nanos {
    let nanos = (u128::from(time.0) << 20) / u128::from(bytes.0.max(1));
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
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
            (500, Bytes::kib(2600), Bytes::kib(2800)),
            (8_000, Bytes::kib(160), Bytes::kib(176)),
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

    /// What each KiB of some calls takes, and how much that differs from one to the next, in percent: numbers as good as
    /// drawn, the same ones each time.
    fn costs(nanos_per_kib: u64, spread: u64) -> impl Iterator<Item = u64> {
        let next = |word: &u64| Some(word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
        let draws = std::iter::successors(Some(7_u64), next).map(|word| word >> 33);
        draws.map(move |draw| nanos_per_kib * (100 - spread + draw % (2 * spread + 1)) / 100)
    }

    #[test]
    fn calls_take_two_milliseconds_at_most_though_memory_differs() {
        // From what leaves quickly to what a slow compressor takes, each call up to 40 % more or less than the mean.
        for nanos_per_kib in [100, 300, 1200, 3000, 6000] {
            let mut pace = Pace::new(Permille(250));
            let times: Vec<u64> = costs(nanos_per_kib, 40)
                .take(2000)
                .map(|cost| {
                    let size = pace.size();
                    let time = (size.0 >> 10) * cost;
                    pace.called(size, Nanos(time));
                    time
                })
                .collect();
            // The first ones find out.
            let settled = &times[50..];
            let longest = settled.iter().max().copied().unwrap_or_default();
            let mean = settled.iter().sum::<u64>() / settled.len() as u64;
            assert!(longest <= 2_000_000, "{longest} ns at {nanos_per_kib} a KiB");
            assert!(
                mean >= 1_000_000,
                "{mean} ns at {nanos_per_kib} a KiB: calls are needlessly small"
            );
        }
    }

    #[test]
    fn other_work_begins_with_what_was_learnt() {
        let mut pace = Pace::new(Permille(250));
        pace.called(Bytes::mib(1), Nanos(2 * AIM.0));
        let again = pace.begin_again(Permille(500));
        assert_eq!((again.size(), again.duty), (Bytes::kib(512), Permille(500)));
        // Quick calls that were made large are no reason to begin with large ones.
        for _ in 0..50 {
            pace.called(pace.size(), Nanos(1));
        }
        assert!(pace.size() > FIRST);
        assert_eq!(pace.begin_again(Permille(250)).size(), FIRST);
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
