//! Clocks: `CLOCK_MONOTONIC`, which every moment in the product is on, CPU time, and waiting (clock_gettime(2)).

use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::Timespec;
use thermo_core::Nanos;

/// Now, on `CLOCK_MONOTONIC`.
#[must_use]
pub fn now() -> Nanos {
    nanos(rustix::time::clock_gettime(ClockId::Monotonic))
}

/// CPU time this thread has used.
#[must_use]
pub fn thread_cpu() -> Nanos {
    nanos(rustix::time::clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU time all threads of this process have used.
#[must_use]
pub fn process_cpu() -> Nanos {
    nanos(rustix::time::clock_gettime(ClockId::ProcessCPUTime))
}

/// What must be added to a moment of [`now`] for nanoseconds since 1970.
#[must_use]
pub fn realtime_offset() -> i64 {
    let wall = nanos(rustix::time::clock_gettime(ClockId::Realtime));
    i64::try_from(i128::from(wall.0) - i128::from(now().0)).unwrap_or(i64::MAX)
}

/// Sleeps until `moment`, or until a signal comes to this thread; tells whether `moment` was reached.
pub fn sleep_until(moment: Nanos) -> bool {
    let secs = i64::try_from(moment.0 / 1_000_000_000).unwrap_or(i64::MAX);
    let nanos = i64::try_from(moment.0 % 1_000_000_000).unwrap_or_default();
    let wake = Timespec {
        tv_sec: secs,
        tv_nsec: nanos,
    };
    clock_nanosleep_absolute(ClockId::Monotonic, &wake).is_ok()
}

fn nanos(time: Timespec) -> Nanos {
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    Nanos(
        secs.saturating_mul(1_000_000_000)
            .saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_reaches_the_moment() {
        let moment = now().saturating_add(Nanos::millis(2));
        while !sleep_until(moment) {}
        assert!(now() >= moment);
        assert!(
            sleep_until(Nanos(1)),
            "a moment that has passed is reached at once"
        );
    }

    #[test]
    fn cpu_time_grows_with_work() {
        let (thread, process) = (thread_cpu(), process_cpu());
        while thread_cpu() == thread {}
        assert!(process_cpu() > process);
    }

    #[test]
    fn the_wall_clock_is_past_2020() {
        let wall = i128::from(now().0) + i128::from(realtime_offset());
        assert!(wall > 1_577_836_800_000_000_000);
    }
}
