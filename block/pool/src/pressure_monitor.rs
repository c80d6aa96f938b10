//! A thread that polls the pressure sources, reports pressure, and shrinks pools whose batch does not end.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use thermo_kernel::clock;
use thermo_units::Nanos;

use crate::bus::{Pressure, ReclaimBus};
use crate::pool::Pools;
use crate::source::Source;

/// Polling interval of the sources. A check costs a few microseconds, about 0.03 % of a CPU. The interval
/// equals the default squeeze duration.
const CHECK_INTERVAL: Nanos = Nanos::millis(10);
/// Longest time until an idle pool is shrunk.
const SHRINK_INTERVAL: Nanos = Nanos::millis(100);

/// A source and its reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SourceStatus {
    /// Name of the source.
    pub name: String,
    /// Number of reports.
    pub reports: u64,
    /// The last report.
    pub last: Option<String>,
    /// The error after which the source is no longer polled.
    pub failed: Option<String>,
}

impl SourceStatus {
    fn named(name: String) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }
}

#[derive(Debug)]
struct Shared {
    stop: Mutex<bool>,
    condvar: Condvar,
    statuses: Mutex<Vec<SourceStatus>>,
}

/// A running monitor thread. Dropping it stops the thread.
#[derive(Debug)]
pub struct PressureMonitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl PressureMonitor {
    /// Starts the thread. The pools should be [registered](Pools::register_on) on the bus.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(pools: &Pools, bus: &ReclaimBus, sources: Vec<Box<dyn Source>>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            stop: Mutex::new(false),
            condvar: Condvar::new(),
            statuses: Mutex::new(
                sources
                    .iter()
                    .map(|source| SourceStatus::named(source.name()))
                    .collect(),
            ),
        });
        let (thread_shared, pools, bus) = (Arc::clone(&shared), pools.clone(), bus.clone());
        let thread = std::thread::Builder::new()
            .name("thermo-pool".to_owned())
            .spawn(move || thread_shared.run(&pools, &bus, sources))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// The sources and their reports.
    #[must_use]
    pub fn sources(&self) -> Vec<SourceStatus> {
        locked(&self.shared.statuses).clone()
    }
}

impl Drop for PressureMonitor {
    fn drop(&mut self) {
        *locked(&self.shared.stop) = true;
        self.shared.condvar.notify_one();
        if let Some(thread) = self.thread.take() {
            // Callbacks are guarded against panics. If the thread panicked all the same, nothing is left to
            // stop.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, pools: &Pools, bus: &ReclaimBus, sources: Vec<Box<dyn Source>>) {
        let mut sources: Vec<_> = sources.into_iter().map(Some).collect();
        let mut last_shrink = clock::monotonic();
        let mut was_under_pressure = false;
        while !self.is_stopped_after(CHECK_INTERVAL) {
            let now = clock::monotonic();
            let is_under_pressure = self.check_sources(&mut sources, bus, now);
            // During a squeeze, buffers put back are released at the next check.
            if is_under_pressure || was_under_pressure || now.saturating_sub(last_shrink) >= SHRINK_INTERVAL {
                pools.shrink();
                last_shrink = now;
            }
            was_under_pressure = is_under_pressure;
        }
    }

    fn is_stopped_after(&self, pause: Nanos) -> bool {
        let stop = locked(&self.stop);
        let pause = Duration::from_nanos(pause.0);
        let woken = self.condvar.wait_timeout_while(stop, pause, |stop| !*stop);
        *woken.unwrap_or_else(PoisonError::into_inner).0
    }

    fn check_sources(&self, sources: &mut [Option<Box<dyn Source>>], bus: &ReclaimBus, now: Nanos) -> bool {
        let mut is_under_pressure = false;
        for (index, slot) in sources.iter_mut().enumerate() {
            let Some(source) = slot else { continue };
            match source.check(now) {
                Ok(None) => {}
                Ok(Some(detail)) => {
                    is_under_pressure = true;
                    let source = source.name();
                    bus.report(&Pressure {
                        source,
                        detail: detail.clone(),
                    });
                    self.update_status(index, |state| {
                        state.reports += 1;
                        state.last = Some(detail);
                    });
                }
                Err(error) => {
                    self.update_status(index, |state| state.failed = Some(error.to_string()));
                    *slot = None;
                }
            }
        }
        is_under_pressure
    }

    fn update_status(&self, index: usize, change: impl FnOnce(&mut SourceStatus)) {
        if let Some(state) = locked(&self.statuses).get_mut(index) {
            change(state);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
