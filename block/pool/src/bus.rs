//! The reclaim bus: components that can free memory register here and are called under memory pressure.
//!
//! A reclaimer must not be called while its device is only partly created or removed; the kernel patch used a
//! lock for both. Here, a [`Registration`] is made once the object is complete. Dropping the registration
//! waits for a running call, except when that call itself drops it. Afterwards, no call comes. The reporting
//! thread makes all calls, one after the other; I/O threads never do.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thermo_kernel::clock;
use thermo_units::{Bytes, Nanos};

use crate::sync::{Mutex, lock, thread};

/// A report of memory pressure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pressure {
    /// Name of the source that detected the pressure.
    pub source: String,
    /// The observation, with its numbers.
    pub detail: String,
}

/// The result of one report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReclaimSummary {
    /// Number of reclaimers called.
    pub called: u64,
    /// Sum of the bytes that the reclaimers freed, by their own account.
    pub freed: Bytes,
    /// Whether the report was dropped because the last one was too recent.
    pub rate_limited: bool,
}

/// A registered reclaimer and its counters.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReclaimerStats {
    /// Name given at registration.
    pub name: String,
    /// Reclaimers with higher priority are called first.
    pub priority: i32,
    /// Number of calls.
    pub calls: u64,
    /// Bytes freed by all calls.
    pub freed: Bytes,
    /// Number of calls that panicked. A reclaimer that panicked is still called next time.
    pub panics: u64,
}

struct Work {
    estimate: Box<dyn Fn() -> Bytes + Send>,
    reclaim: Box<dyn FnMut(&Pressure) -> Bytes + Send>,
}

struct Entry {
    name: String,
    priority: i32,
    /// Locked during a call. `None` after unregistration.
    work: Mutex<Option<Work>>,
    caller: Mutex<Option<thread::ThreadId>>,
    unregistered: AtomicBool,
    calls: AtomicU64,
    freed: AtomicU64,
    panics: AtomicU64,
}

impl Entry {
    fn is_called_by_this_thread(&self) -> bool {
        *lock(&self.caller) == Some(thread::current().id())
    }

    fn estimate(&self) -> Bytes {
        if self.is_called_by_this_thread() {
            return Bytes::ZERO;
        }
        lock(&self.work).as_ref().map_or(Bytes::ZERO, |work| {
            catch_unwind(AssertUnwindSafe(|| (work.estimate)())).unwrap_or_default()
        })
    }

    fn call(&self, pressure: &Pressure) -> Option<Bytes> {
        if self.is_called_by_this_thread() {
            return None;
        }
        let mut work = lock(&self.work);
        let reclaim = &mut work.as_mut()?.reclaim;
        *lock(&self.caller) = Some(thread::current().id());
        let outcome = catch_unwind(AssertUnwindSafe(|| reclaim(pressure)));
        *lock(&self.caller) = None;
        // The call dropped its own registration, so the drop could not wait for it.
        let unregistered_work = if self.unregistered.load(Ordering::SeqCst) {
            work.take()
        } else {
            None
        };
        drop(work);
        drop(unregistered_work);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.panics
            .fetch_add(u64::from(outcome.is_err()), Ordering::Relaxed);
        let freed = outcome.unwrap_or_default();
        self.freed.fetch_add(freed.0, Ordering::Relaxed);
        Some(freed)
    }
}

struct State {
    entries: Mutex<Vec<Arc<Entry>>>,
    last: Mutex<Option<Nanos>>,
    min_interval: Nanos,
}

/// A bus of reclaimers. Clones refer to the same bus.
#[derive(Clone)]
pub struct ReclaimBus(Arc<State>);

impl fmt::Debug for ReclaimBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus")
            .field("reclaimers", &self.reclaimers())
            .finish_non_exhaustive()
    }
}

impl Default for ReclaimBus {
    /// Reports at most once a millisecond: a tenth of the shortest useful squeeze.
    fn default() -> Self {
        Self::new(Nanos::millis(1))
    }
}

impl ReclaimBus {
    /// Creates a bus that drops reports less than `min_interval` after the last one. Some sources report
    /// thousands of times a second.
    #[must_use]
    pub fn new(min_interval: Nanos) -> Self {
        Self(Arc::new(State {
            entries: Mutex::new(Vec::new()),
            last: Mutex::new(None),
            min_interval,
        }))
    }

    /// Registers a reclaimer. Under pressure, reclaimers with higher `priority` are called first; among
    /// equals, those with the larger `estimate` of freeable bytes. `reclaim` returns the bytes it freed.
    /// Neither function may wait for a thread that may be about to drop the registration.
    #[must_use = "dropping the registration ends it"]
    pub fn register(
        &self,
        name: &str,
        priority: i32,
        estimate: impl Fn() -> Bytes + Send + 'static,
        reclaim: impl FnMut(&Pressure) -> Bytes + Send + 'static,
    ) -> Registration {
        let entry = Arc::new(Entry {
            name: name.to_owned(),
            priority,
            work: Mutex::new(Some(Work {
                estimate: Box::new(estimate),
                reclaim: Box::new(reclaim),
            })),
            caller: Mutex::new(None),
            unregistered: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        });
        lock(&self.0.entries).push(Arc::clone(&entry));
        let state = Arc::clone(&self.0);
        Registration { state, entry }
    }

    /// Reports pressure manually.
    pub fn report_pressure(&self, detail: &str) -> ReclaimSummary {
        self.report(&Pressure {
            source: "manual".to_owned(),
            detail: detail.to_owned(),
        })
    }

    /// Calls every registered reclaimer, unless the last report is too recent.
    pub fn report(&self, pressure: &Pressure) -> ReclaimSummary {
        self.report_at(clock::monotonic(), pressure)
    }

    pub(crate) fn report_at(&self, now: Nanos, pressure: &Pressure) -> ReclaimSummary {
        let mut summary = ReclaimSummary::default();
        {
            let mut last = lock(&self.0.last);
            summary.rate_limited = last.is_some_and(|last| now < last.saturating_add(self.0.min_interval));
            if summary.rate_limited {
                return summary;
            }
            *last = Some(now);
        }
        // The list is not locked during calls, so reclaimers can be registered and dropped meanwhile.
        let entries = lock(&self.0.entries).clone();
        let mut order: Vec<_> = entries
            .iter()
            .map(|entry| (entry.priority, entry.estimate(), entry))
            .collect();
        order.sort_by_key(|&(priority, estimate, _)| std::cmp::Reverse((priority, estimate)));
        for freed in order.into_iter().filter_map(|(_, _, entry)| entry.call(pressure)) {
            summary.called += 1;
            summary.freed += freed;
        }
        summary
    }

    /// The registered reclaimers and their counters.
    #[must_use]
    pub fn reclaimers(&self) -> Vec<ReclaimerStats> {
        let entries = lock(&self.0.entries);
        let one = |entry: &Arc<Entry>| ReclaimerStats {
            name: entry.name.clone(),
            priority: entry.priority,
            calls: entry.calls.load(Ordering::Relaxed),
            freed: Bytes(entry.freed.load(Ordering::Relaxed)),
            panics: entry.panics.load(Ordering::Relaxed),
        };
        entries.iter().map(one).collect()
    }
}

/// Keeps a reclaimer registered. After the drop, no call is running and none follows. If the call itself
/// drops the registration, that call is the last.
#[must_use = "dropping the registration ends it"]
pub struct Registration {
    state: Arc<State>,
    entry: Arc<Entry>,
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("name", &self.entry.name)
            .finish_non_exhaustive()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.state.entries).retain(|entry| !Arc::ptr_eq(entry, &self.entry));
        self.entry.unregistered.store(true, Ordering::SeqCst);
        if !self.entry.is_called_by_this_thread() {
            let work = lock(&self.entry.work).take();
            drop(work);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn pressure() -> Pressure {
        Pressure {
            source: "test".to_owned(),
            detail: String::new(),
        }
    }

    fn bus() -> ReclaimBus {
        ReclaimBus::new(Nanos::ZERO)
    }

    #[test]
    fn bus_orders_by_priority_then_estimate() {
        let bus = bus();
        let order = Arc::new(Mutex::new(String::new()));
        let register = |name: &'static str, priority, estimate| {
            let order = Arc::clone(&order);
            let reclaim = move |_: &Pressure| {
                lock(&order).push_str(name);
                Bytes(1)
            };
            bus.register(name, priority, move || Bytes(estimate), reclaim)
        };
        let _held = [register("c", 0, 1), register("b", 0, 2), register("a", 1, 0)];
        let summary = bus.report(&pressure());
        assert_eq!((summary.called, summary.freed), (3, Bytes(3)));
        assert_eq!(*lock(&order), "abc");
    }

    #[test]
    fn bus_drops_reports_within_min_interval() {
        let bus = ReclaimBus::new(Nanos(10));
        let _held = bus.register("one", 0, || Bytes(0), |_| Bytes(5));
        assert_eq!(bus.report_at(Nanos(0), &pressure()).called, 1);
        assert!(bus.report_at(Nanos(9), &pressure()).rate_limited);
        assert_eq!(bus.report_at(Nanos(10), &pressure()).called, 1);
        let one = &bus.reclaimers()[0];
        assert_eq!((one.calls, one.freed), (2, Bytes(10)));
    }

    #[test]
    fn bus_does_not_call_dropped_registration() {
        let bus = bus();
        drop(bus.register("gone", 0, || Bytes(0), |_| Bytes(1)));
        assert_eq!(bus.report(&pressure()), ReclaimSummary::default());
    }

    #[test]
    fn reclaimer_may_drop_own_registration_and_report() {
        let bus = bus();
        let own = Arc::new(Mutex::new(None::<Registration>));
        let (held, again) = (Arc::clone(&own), bus.clone());
        let reclaim = move |pressure: &Pressure| {
            assert_eq!(again.report(pressure).called, 0);
            let registration = lock(&held).take();
            drop(registration);
            Bytes(1)
        };
        *lock(&own) = Some(bus.register("once", 0, || Bytes(0), reclaim));
        assert_eq!(bus.report(&pressure()).called, 1);
        assert_eq!(bus.report(&pressure()).called, 0);
    }

    #[test]
    fn bus_counts_panic_and_calls_the_others() {
        let bus = bus();
        let _bad = bus.register("bad", 1, || Bytes(0), |_| panic!("on purpose, in a test"));
        let _good = bus.register("good", 0, || Bytes(0), |_| Bytes(2));
        assert_eq!(bus.report(&pressure()).freed, Bytes(2));
        assert_eq!(bus.reclaimers()[0].panics, 1);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn loom_no_call_after_registration_is_dropped() {
        loom::model(|| {
            let bus = ReclaimBus::new(Nanos::ZERO);
            let alive = Arc::new(loom::sync::atomic::AtomicBool::new(true));
            let late = Arc::new(AtomicBool::new(false));
            let (alive_in_call, called_late) = (Arc::clone(&alive), Arc::clone(&late));
            let reclaim = move |_: &Pressure| {
                called_late.fetch_or(!alive_in_call.load(Ordering::SeqCst), Ordering::SeqCst);
                Bytes(1)
            };
            let registration = bus.register("device", 0, || Bytes(0), reclaim);
            let reporter = {
                let bus = bus.clone();
                loom::thread::spawn(move || bus.report_pressure("test").called)
            };
            drop(registration);
            alive.store(false, Ordering::SeqCst);
            assert!(reporter.join().unwrap() <= 1);
            assert!(!late.load(Ordering::SeqCst), "called after removal");
        });
    }
}
