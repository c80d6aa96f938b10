//! Throttles a job: sizes its calls so that a returning application never waits long, and pauses between
//! calls to keep to a share of one CPU.
//!
//! Pauses, not a low priority, limit CPU use: a low-priority thread that holds the memory lock of a process
//! and is not scheduled blocks that process.

use std::sync::atomic::{AtomicBool, Ordering};

use thermo_units::{Bytes, Nanos, Permille};

/// Size of the first call.
const INITIAL_SIZE: Bytes = Bytes::mib(1);
/// Minimum and maximum size of a call.
const SIZE_LIMITS: (Bytes, Bytes) = (Bytes::kib(64), Bytes::mib(32));
/// Target duration of a call at the worst cost per MiB seen lately. Calls should take at most 2 ms; the
/// margin covers memory that is worse still.
const TARGET_TIME: Nanos = Nanos(1_400_000);
/// The worst cost decays by 1/32 per call.
const DECAY_DIVISOR: u64 = 32;
/// Maximum pause. An interrupted call takes long and says little about the cost of calls.
const MAX_PAUSE: Nanos = Nanos::millis(200);

/// Determines the size of each call and the pause after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallThrottle {
    size: Bytes,
    /// The worst time per MiB seen lately.
    worst: Nanos,
    duty: Permille,
}

impl CallThrottle {
    /// Uses at most `duty` of one CPU.
    #[must_use]
    pub fn new(duty: Permille) -> Self {
        let duty = Permille(duty.0.clamp(1, 1000));
        Self {
            size: INITIAL_SIZE,
            worst: Nanos::ZERO,
            duty,
        }
    }

    /// The throttle for the next job, which uses at most `duty` of one CPU. The new throttle keeps the
    /// learned cost but starts with at most the initial size, because other memory may cost more.
    #[must_use]
    pub fn for_next_job(&self, duty: Permille) -> Self {
        Self {
            size: self.size.min(INITIAL_SIZE),
            worst: self.worst,
            ..Self::new(duty)
        }
    }

    /// Maximum size of the next call.
    #[must_use]
    pub const fn size(&self) -> Bytes {
        self.size
    }

    /// Records that a call of `bytes` took `time`. Returns the pause before the next call.
    ///
    /// The size follows the worst cost per MiB seen lately: with the mean cost, every second call would be
    /// too long. From one call to the next the size shrinks to no less than half, because the call may have
    /// been interrupted, and grows by at most 1/8, because the call may have met cheap memory.
    pub fn record_call(&mut self, bytes: Bytes, time: Nanos) -> Nanos {
        let (min, max) = SIZE_LIMITS;
        let half = Bytes(self.size.0 / 2);
        // The fixed cost dominates a small call.
        if bytes >= half || time > TARGET_TIME {
            let measured = time_per_mib(time, bytes.max(half));
            let decayed = self.worst.saturating_sub(Nanos(self.worst.0 / DECAY_DIVISOR));
            let limited = if self.worst == Nanos::ZERO {
                measured
            } else {
                measured.min(self.worst * 2)
            };
            self.worst = limited.max(decayed);
            let fitting = Bytes(TARGET_TIME.0.saturating_mul(1 << 20) / self.worst.0.max(1));
            let largest = if bytes >= self.size {
                self.size.0 + self.size.0 / 8
            } else {
                self.size.0
            };
            self.size = fitting.clamp(half, Bytes(largest)).clamp(min, max);
        }
        self.size = Bytes(self.size.0 & !0xfff);
        let pause = u128::from(time.0) * u128::from(1000 - self.duty.0) / u128::from(self.duty.0);
        Nanos(u64::try_from(pause).unwrap_or(u64::MAX)).min(MAX_PAUSE)
    }
}

fn time_per_mib(time: Nanos, bytes: Bytes) -> Nanos {
    let nanos = (u128::from(time.0) << 20) / u128::from(bytes.0.max(1));
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// A job that consists of calls.
pub trait ThrottledJob {
    /// Makes the next call, for at most `max` bytes. Returns the bytes and the duration of the call; `None`
    /// if the job is complete.
    fn call(&mut self, max: Bytes) -> Option<(Bytes, Nanos)>;

    /// Pauses for `time`, or until `cancel` becomes true.
    fn pause(&mut self, time: Nanos, cancel: &AtomicBool);
}

/// Runs `job` until it is complete or `cancel` is true. No call begins after `cancel` became true. Returns
/// true if the job is complete.
pub fn run_throttled(job: &mut dyn ThrottledJob, throttle: &mut CallThrottle, cancel: &AtomicBool) -> bool {
    while !cancel.load(Ordering::Acquire) {
        let Some((bytes, time)) = job.call(throttle.size()) else {
            return true;
        };
        let pause = throttle.record_call(bytes, time);
        job.pause(pause, cancel);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_size_converges_to_target_time() {
        // 0.5 and 8 ms per MiB.
        for (nanos_per_kib, lo, hi) in [
            (500, Bytes::kib(2600), Bytes::kib(2800)),
            (8_000, Bytes::kib(160), Bytes::kib(176)),
        ] {
            let mut throttle = CallThrottle::new(Permille(250));
            assert_eq!(throttle.size(), Bytes::mib(1));
            for _ in 0..100 {
                let size = throttle.size();
                throttle.record_call(size, Nanos((size.0 >> 10) * nanos_per_kib));
            }
            assert!(
                lo <= throttle.size() && throttle.size() <= hi,
                "{} at {nanos_per_kib}",
                throttle.size()
            );
        }
    }

    /// Pseudo-random costs per KiB, within `spread` percent of `nanos_per_kib`, the same on every run.
    fn costs(nanos_per_kib: u64, spread: u64) -> impl Iterator<Item = u64> {
        let next = |seed: &u64| Some(seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
        let draws = std::iter::successors(Some(7_u64), next).map(|seed| seed >> 33);
        draws.map(move |draw| nanos_per_kib * (100 - spread + draw % (2 * spread + 1)) / 100)
    }

    #[test]
    fn calls_stay_below_2_ms_when_costs_vary() {
        // From memory that is paged out fast to a slow compressor. Each call differs by up to 40 % from the
        // mean.
        for nanos_per_kib in [100, 300, 1200, 3000, 6000] {
            let mut throttle = CallThrottle::new(Permille(250));
            let times: Vec<u64> = costs(nanos_per_kib, 40)
                .take(2000)
                .map(|cost| {
                    let size = throttle.size();
                    let time = (size.0 >> 10) * cost;
                    throttle.record_call(size, Nanos(time));
                    time
                })
                .collect();
            // The first calls learn the cost.
            let settled = &times[50..];
            let longest = settled.iter().max().copied().unwrap_or_default();
            let mean = settled.iter().sum::<u64>() / settled.len() as u64;
            assert!(longest <= 2_000_000, "{longest} ns at {nanos_per_kib} ns per KiB");
            assert!(
                mean >= 1_000_000,
                "{mean} ns at {nanos_per_kib} ns per KiB: calls are needlessly small"
            );
        }
    }

    #[test]
    fn next_job_starts_with_learned_cost() {
        let mut throttle = CallThrottle::new(Permille(250));
        throttle.record_call(Bytes::mib(1), Nanos(2 * TARGET_TIME.0));
        let again = throttle.for_next_job(Permille(500));
        assert_eq!((again.size(), again.duty), (Bytes::kib(512), Permille(500)));
        // A large size at the end of a job does not carry over.
        for _ in 0..50 {
            throttle.record_call(throttle.size(), Nanos(1));
        }
        assert!(throttle.size() > INITIAL_SIZE);
        assert_eq!(throttle.for_next_job(Permille(250)).size(), INITIAL_SIZE);
    }

    #[test]
    fn pauses_keep_duty_and_slow_call_halves_size() {
        let mut throttle = CallThrottle::new(Permille(250));
        assert_eq!(
            throttle.record_call(Bytes::mib(1), Nanos::millis(1)),
            Nanos::millis(3)
        );
        assert_eq!(
            CallThrottle::new(Permille(1000)).record_call(Bytes::mib(1), Nanos::millis(1)),
            Nanos::ZERO
        );
        let before = throttle.size();
        assert_eq!(throttle.record_call(before, Nanos::secs(5)), MAX_PAUSE);
        assert!(
            throttle.size() >= Bytes(before.0 / 2 - 4096),
            "{}",
            throttle.size()
        );
        for _ in 0..50 {
            throttle.record_call(Bytes::mib(1), Nanos::secs(5));
        }
        assert_eq!(throttle.size(), Bytes::kib(64));
    }

    struct FakeJob<'a> {
        remaining: u32,
        calls: u32,
        cancel_in: u32,
        cancel: &'a AtomicBool,
    }

    impl ThrottledJob for FakeJob<'_> {
        fn call(&mut self, max: Bytes) -> Option<(Bytes, Nanos)> {
            self.remaining = self.remaining.checked_sub(1)?;
            self.calls += 1;
            if self.calls == self.cancel_in {
                self.cancel.store(true, Ordering::Release);
            }
            Some((max, Nanos::millis(1)))
        }

        fn pause(&mut self, _: Nanos, _: &AtomicBool) {}
    }

    #[test]
    fn no_call_begins_after_cancel() {
        for cancel_in in [1, 7, 999] {
            let cancel = AtomicBool::new(false);
            let mut job = FakeJob {
                remaining: 1000,
                calls: 0,
                cancel_in,
                cancel: &cancel,
            };
            assert!(!run_throttled(
                &mut job,
                &mut CallThrottle::new(Permille(500)),
                &cancel
            ));
            assert_eq!(job.calls, cancel_in);
        }
        let cancel = AtomicBool::new(false);
        let mut job = FakeJob {
            remaining: 10,
            calls: 0,
            cancel_in: 11,
            cancel: &cancel,
        };
        assert!(run_throttled(
            &mut job,
            &mut CallThrottle::new(Permille(500)),
            &cancel
        ));
        assert_eq!(job.calls, 10);
    }
}
