//! Clocks (`clock_gettime(2)`).

use rustix::time::{ClockId, Timespec, clock_gettime};
use thermo_units::Nanos;

/// Clock ticks per second in `/proc` (`USER_HZ`, 100 on every supported architecture).
const TICKS_PER_SECOND: u64 = 100;

/// Time since boot without suspend, `CLOCK_MONOTONIC`: the clock of recordings and of the ground truth.
#[must_use]
pub fn monotonic() -> Nanos {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// Time since boot in clock ticks, comparable with process start times in `/proc/PID/stat`.
#[must_use]
pub fn boot_ticks() -> u64 {
    nanos(clock_gettime(ClockId::Boottime)).0 / (Nanos::secs(1).0 / TICKS_PER_SECOND)
}

/// CPU time of the calling thread, and of the calls that other threads made for it
/// ([`crate::stalled_call`]).
#[must_use]
pub fn thread_cpu() -> Nanos {
    nanos(clock_gettime(ClockId::ThreadCPUTime)) + crate::stalled_call::delegated_cpu()
}

/// CPU time of all threads of this process.
#[must_use]
pub fn process_cpu() -> Nanos {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// Wall-clock time minus [`monotonic`] time, in nanoseconds.
#[must_use]
pub fn wall_clock_offset_ns() -> i64 {
    let wall = nanos(clock_gettime(ClockId::Realtime));
    let offset = i128::from(wall.0) - i128::from(monotonic().0);
    i64::try_from(offset).unwrap_or(0)
}

/// Converts times of the monotonic clock to Unix time. A step of the wall clock changes what [`Self::now`]
/// gives, and nothing in those that were made before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallClock {
    offset_ns: i64,
}

impl WallClock {
    /// As the wall clock is now.
    #[must_use]
    pub fn now() -> Self {
        Self {
            offset_ns: wall_clock_offset_ns(),
        }
    }

    /// The Unix time of a monotonic time. A time before 1970 is 1970.
    #[must_use]
    pub const fn unix(self, monotonic: Nanos) -> Nanos {
        Nanos(monotonic.0.saturating_add_signed(self.offset_ns))
    }

    /// The Unix time of a monotonic time in milliseconds.
    #[must_use]
    pub const fn unix_ms(self, monotonic: Nanos) -> u64 {
        self.unix(monotonic).0 / 1_000_000
    }

    /// By how much the wall clock of `later` is ahead of this one, in nanoseconds.
    #[must_use]
    pub const fn step_ns(self, later: Self) -> i64 {
        later.offset_ns.saturating_sub(self.offset_ns)
    }
}

fn nanos(time: Timespec) -> Nanos {
    // None of these clocks is negative or near 584 years.
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    Nanos(secs * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_monotonic() {
        let (first, second) = (monotonic(), monotonic());
        assert!(first <= second && first.0 > 0);
        assert!(thread_cpu() <= process_cpu());
    }

    #[test]
    fn wall_clock_offset_gives_current_time() {
        let wall_ns = i128::from(wall_clock_offset_ns()) + i128::from(monotonic().0);
        assert!(wall_ns > 1_577_836_800_000_000_000, "before 2020");
    }

    #[test]
    fn wall_clock_converts_with_its_offset() {
        let clock = |offset_ns| WallClock { offset_ns };
        assert_eq!(clock(5_000_000_000).unix_ms(Nanos::millis(7)), 5007);
        assert_eq!(clock(-9).unix(Nanos(5)), Nanos::ZERO, "before 1970");
        assert_eq!(clock(-9).step_ns(clock(5)), 14);
    }
}
