//! Pressure on a workload: limits of its group, one after the other, again and again while it is measured.
//!
//! Who lowers a limit below what a group holds reclaims the difference himself before the write returns, so
//! limits are written by a thread of their own. Version 1 gives up with `EBUSY` when too little could be reclaimed;
//! it is tried again for as long as the limit is to hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::experiment::Step;
use crate::group::{Group, Limit};

/// How soon a limit that was refused is tried again.
const AGAIN: Duration = Duration::from_millis(50);

/// Presses until it is dropped; then no limit is left.
#[derive(Debug)]
pub(crate) struct Pressure {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pressure {
    /// Presses on `group` as `steps` say, whose workload takes `peak` bytes when nothing presses.
    pub(crate) fn start(group: &Group, steps: &[Step], peak: u64) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (limit, steps, seen) = (group.limiter(), steps.to_vec(), Arc::clone(&over));
        let thread = thread::spawn(move || {
            let mut steps = steps.iter().cycle();
            while let Some(step) = steps.next().filter(|_| !seen.load(Ordering::Relaxed)) {
                hold(&limit, step.bytes(peak), Duration::from_nanos(step.span.0), &seen);
            }
            // Nobody is left to tell, and the group is about to go.
            drop(limit.lift());
        });
        Self {
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Pressure {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            drop(thread.join());
        }
    }
}

/// Holds the limit for `span`, or until it is over.
fn hold(limit: &Limit, bytes: u64, span: Duration, over: &AtomicBool) {
    let until = Instant::now() + span;
    let mut is_set = false;
    while !over.load(Ordering::Relaxed) {
        is_set = is_set || limit.set(bytes).is_ok();
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        thread::park_timeout(if is_set { left } else { left.min(AGAIN) });
    }
}

impl Step {
    /// The limit in bytes, for a workload whose peak is `peak`.
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
    fn a_limit_is_a_share_of_the_peak() {
        let step = |percent| Step {
            percent,
            span: Nanos::secs(1),
        };
        assert_eq!((step(75).bytes(1000), step(200).bytes(1000)), (750, 2000));
        assert_eq!(step(1000).bytes(u64::MAX), u64::MAX);
    }
}
