//! Memory pressure on a workload: applies the limits of its cgroup in turn, repeatedly, while it is measured.
//!
//! Writing a limit below the cgroup's memory use reclaims the difference before the write returns. So a
//! separate thread writes the limits. Version 1 fails with `EBUSY` when the kernel reclaims too little; the
//! write is retried while the limit should hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::cgroup::{Cgroup, MemoryLimit};
use crate::experiment::PressureStep;

/// Delay before a failed write of a limit is retried.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Applies memory pressure until it is dropped. Dropping it removes the limit.
#[derive(Debug)]
pub(crate) struct Pressure {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pressure {
    /// Applies `steps` to `group`. `peak` is the workload's peak memory without pressure, in bytes.
    pub(crate) fn start(group: &Cgroup, steps: &[PressureStep], peak: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (limit, steps, stopped) = (group.memory_limit(), steps.to_vec(), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let mut steps = steps.iter().cycle();
            while let Some(step) = steps.next().filter(|_| !stopped.load(Ordering::Relaxed)) {
                hold(
                    &limit,
                    step.bytes(peak),
                    Duration::from_nanos(step.span.0),
                    &stopped,
                );
            }
            // An error does not matter: the cgroup is removed next.
            drop(limit.remove());
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Pressure {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            drop(thread.join());
        }
    }
}

/// Holds the limit for `span`, or until `stop` is set.
fn hold(limit: &MemoryLimit, bytes: u64, span: Duration, stop: &AtomicBool) {
    let deadline = Instant::now() + span;
    let mut is_set = false;
    while !stop.load(Ordering::Relaxed) {
        is_set = is_set || limit.set(bytes).is_ok();
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            break;
        }
        thread::park_timeout(if is_set {
            remaining
        } else {
            remaining.min(RETRY_DELAY)
        });
    }
}

impl PressureStep {
    /// The limit in bytes for a peak memory of `peak` bytes.
    #[must_use]
    pub fn bytes(&self, peak: u64) -> u64 {
        let bytes = u128::from(peak) * u128::from(self.percent) / 100;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::Nanos;

    #[test]
    fn limit_is_percentage_of_peak() {
        let step = |percent| PressureStep {
            percent,
            span: Nanos::secs(1),
        };
        assert_eq!((step(75).bytes(1000), step(200).bytes(1000)), (750, 2000));
        assert_eq!(step(1000).bytes(u64::MAX), u64::MAX);
    }
}
