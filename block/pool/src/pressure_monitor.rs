//! The thread that asks the sources, reports pressure, and shrinks the pools that no batch has shrunk.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use thermo_kernel::clock;
use thermo_units::Nanos;

use crate::bus::{Bus, Pressure};
use crate::pool::Pools;
use crate::source::Source;

/// Between two looks at the sources: a look is a few microseconds, so this is some 0.03 % of a CPU, and as long as a
/// squeeze.
const LOOK: Nanos = Nanos::millis(10);
/// A pool without a batch is shrunk at the latest after this.
const SHRINK: Nanos = Nanos::millis(100);

/// A source and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SourceState {
    /// What it is.
    pub name: String,
    /// Reports so far.
    pub reports: u64,
    /// What it last reported.
    pub last: Option<String>,
    /// Why it is not asked any more.
    pub failed: Option<String>,
}

impl SourceState {
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
    bell: Condvar,
    states: Mutex<Vec<SourceState>>,
}

/// Runs the thread; dropping it ends the thread.
#[derive(Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts it. The pools should have [`joined`](Pools::join) the bus.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(pools: &Pools, bus: &Bus, sources: Vec<Box<dyn Source>>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            stop: Mutex::new(false),
            bell: Condvar::new(),
            states: Mutex::new(
                sources
                    .iter()
                    .map(|source| SourceState::named(source.name()))
                    .collect(),
            ),
        });
        let (theirs, pools, bus) = (Arc::clone(&shared), pools.clone(), bus.clone());
        let thread = std::thread::Builder::new()
            .name("thermo-pool".to_owned())
            .spawn(move || theirs.run(&pools, &bus, sources))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// The sources, and what came of each.
    #[must_use]
    pub fn sources(&self) -> Vec<SourceState> {
        locked(&self.shared.states).clone()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        *locked(&self.shared.stop) = true;
        self.shared.bell.notify_one();
        if let Some(thread) = self.thread.take() {
            // It catches what callbacks do; if it panicked all the same, there is nothing left to end.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, pools: &Pools, bus: &Bus, sources: Vec<Box<dyn Source>>) {
        let mut sources: Vec<_> = sources.into_iter().map(Some).collect();
        let mut shrunk = clock::monotonic();
        let mut was_pressed = false;
        while !self.is_stopped_after(LOOK) {
            let now = clock::monotonic();
            let pressed = self.look(&mut sources, bus, now);
            // While pools are squeezed, what requests put back goes at the next look.
            if pressed || was_pressed || now.saturating_sub(shrunk) >= SHRINK {
                pools.shrink();
                shrunk = now;
            }
            was_pressed = pressed;
        }
    }

    fn is_stopped_after(&self, pause: Nanos) -> bool {
        let stop = locked(&self.stop);
        let pause = Duration::from_nanos(pause.0);
        let woken = self.bell.wait_timeout_while(stop, pause, |stop| !*stop);
        *woken.unwrap_or_else(PoisonError::into_inner).0
    }

    fn look(&self, sources: &mut [Option<Box<dyn Source>>], bus: &Bus, now: Nanos) -> bool {
        let mut pressed = false;
        for (at, slot) in sources.iter_mut().enumerate() {
            let Some(source) = slot else { continue };
            match source.check(now) {
                Ok(None) => {}
                Ok(Some(detail)) => {
                    pressed = true;
                    let source = source.name();
                    bus.report(&Pressure {
                        source,
                        detail: detail.clone(),
                    });
                    self.note(at, |state| {
                        state.reports += 1;
                        state.last = Some(detail);
                    });
                }
                Err(error) => {
                    self.note(at, |state| state.failed = Some(error.to_string()));
                    *slot = None;
                }
            }
        }
        pressed
    }

    fn note(&self, at: usize, change: impl FnOnce(&mut SourceState)) {
        if let Some(state) = locked(&self.states).get_mut(at) {
            change(state);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
