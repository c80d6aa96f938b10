//! The reclaim bus: who has memory to give registers here, and hears when memory is short.
//!
//! The kernel patch had to keep its callback away from devices that are half made or half removed, with a lock
//! around both. Here a [`Registration`] is made when the object is whole; dropping it waits for a call that is under
//! way (unless the call itself drops it), and afterwards no call comes. Calls are made by the thread that reports,
//! one after the other, never by a thread that does I/O.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thermo_kernel::clock;
use thermo_units::{Bytes, Nanos};

use crate::sync::{Mutex, lock, thread};

/// Why memory is thought short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pressure {
    /// Who noticed: the name of a source.
    pub source: String,
    /// What was seen, with its numbers.
    pub detail: String,
}

/// What a report led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Round {
    /// Registrations that were called.
    pub called: u64,
    /// What they say they freed.
    pub freed: Bytes,
    /// The last report was a moment ago, so nobody was called.
    pub too_soon: bool,
}

/// A registration and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reclaimer {
    /// Its name.
    pub name: String,
    /// The higher, the earlier it is called.
    pub priority: i32,
    /// Calls so far.
    pub calls: u64,
    /// What they freed.
    pub freed: Bytes,
    /// Calls that panicked; it is called again all the same.
    pub panics: u64,
}

struct Work {
    estimate: Box<dyn Fn() -> Bytes + Send>,
    reclaim: Box<dyn FnMut(&Pressure) -> Bytes + Send>,
}

struct Entry {
    name: String,
    priority: i32,
    /// Locked while it is called; empty once it is unregistered.
    work: Mutex<Option<Work>>,
    caller: Mutex<Option<thread::ThreadId>>,
    gone: AtomicBool,
    calls: AtomicU64,
    freed: AtomicU64,
    panics: AtomicU64,
}

impl Entry {
    fn is_called_by_us(&self) -> bool {
        *lock(&self.caller) == Some(thread::current().id())
    }

    fn estimate(&self) -> Bytes {
        if self.is_called_by_us() {
            return Bytes::ZERO;
        }
        lock(&self.work).as_ref().map_or(Bytes::ZERO, |work| {
            catch_unwind(AssertUnwindSafe(|| (work.estimate)())).unwrap_or_default()
        })
    }

    fn call(&self, pressure: &Pressure) -> Option<Bytes> {
        if self.is_called_by_us() {
            return None;
        }
        let mut work = lock(&self.work);
        let reclaim = &mut work.as_mut()?.reclaim;
        *lock(&self.caller) = Some(thread::current().id());
        let outcome = catch_unwind(AssertUnwindSafe(|| reclaim(pressure)));
        *lock(&self.caller) = None;
        // Unregistered from within: the one who did it could not wait for us.
        let leaving = if self.gone.load(Ordering::SeqCst) {
            work.take()
        } else {
            None
        };
        drop(work);
        drop(leaving);
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
    gap: Nanos,
}

/// The bus. Clones are the same bus.
#[derive(Clone)]
pub struct Bus(Arc<State>);

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus")
            .field("reclaimers", &self.reclaimers())
            .finish_non_exhaustive()
    }
}

impl Default for Bus {
    /// Calls at most once a millisecond: a tenth of the shortest useful squeeze.
    fn default() -> Self {
        Self::new(Nanos::millis(1))
    }
}

impl Bus {
    /// A bus on which calls are at least `gap` apart. Some sources report thousands of times a second.
    #[must_use]
    pub fn new(gap: Nanos) -> Self {
        Self(Arc::new(State {
            entries: Mutex::new(Vec::new()),
            last: Mutex::new(None),
            gap,
        }))
    }

    /// Registers something that can free memory. On pressure those of higher `priority` are called first, among equals
    /// those with the larger `estimate` of what they could free; `reclaim` tells what it freed. Neither may wait for
    /// a thread that may itself be about to drop the registration.
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
            gone: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        });
        lock(&self.0.entries).push(Arc::clone(&entry));
        let state = Arc::clone(&self.0);
        Registration { state, entry }
    }

    /// Reports pressure by hand.
    pub fn report_pressure(&self, detail: &str) -> Round {
        self.report(&Pressure {
            source: "manual".to_owned(),
            detail: detail.to_owned(),
        })
    }

    /// Tells everybody who is registered, unless the last report was less than the gap ago.
    pub fn report(&self, pressure: &Pressure) -> Round {
        self.report_at(clock::monotonic(), pressure)
    }

    pub(crate) fn report_at(&self, now: Nanos, pressure: &Pressure) -> Round {
        let mut round = Round::default();
        {
            let mut last = lock(&self.0.last);
            round.too_soon = last.is_some_and(|last| now < last.saturating_add(self.0.gap));
            if round.too_soon {
                return round;
            }
            *last = Some(now);
        }
        // Called without the list's lock, so that anybody can register and leave meanwhile.
        let entries = lock(&self.0.entries).clone();
        let mut order: Vec<_> = entries
            .iter()
            .map(|entry| (entry.priority, entry.estimate(), entry))
            .collect();
        order.sort_by_key(|&(priority, estimate, _)| std::cmp::Reverse((priority, estimate)));
        for freed in order.into_iter().filter_map(|(_, _, entry)| entry.call(pressure)) {
            round.called += 1;
            round.freed += freed;
        }
        round
    }

    /// Who is registered, and what came of it.
    #[must_use]
    pub fn reclaimers(&self) -> Vec<Reclaimer> {
        let entries = lock(&self.0.entries);
        let one = |entry: &Arc<Entry>| Reclaimer {
            name: entry.name.clone(),
            priority: entry.priority,
            calls: entry.calls.load(Ordering::Relaxed),
            freed: Bytes(entry.freed.load(Ordering::Relaxed)),
            panics: entry.panics.load(Ordering::Relaxed),
        };
        entries.iter().map(one).collect()
    }
}

/// Keeps something registered on a [`Bus`]. When it has been dropped, no call is under way and none will come; dropped
/// by the call itself, that call is the last.
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
        self.entry.gone.store(true, Ordering::SeqCst);
        if !self.entry.is_called_by_us() {
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

    fn bus() -> Bus {
        Bus::new(Nanos::ZERO)
    }

    #[test]
    fn the_higher_priority_comes_first_then_the_larger_estimate() {
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
        let round = bus.report(&pressure());
        assert_eq!((round.called, round.freed), (3, Bytes(3)));
        assert_eq!(*lock(&order), "abc");
    }

    #[test]
    fn reports_in_quick_succession_are_one() {
        let bus = Bus::new(Nanos(10));
        let _held = bus.register("one", 0, || Bytes(0), |_| Bytes(5));
        assert_eq!(bus.report_at(Nanos(0), &pressure()).called, 1);
        assert!(bus.report_at(Nanos(9), &pressure()).too_soon);
        assert_eq!(bus.report_at(Nanos(10), &pressure()).called, 1);
        let one = &bus.reclaimers()[0];
        assert_eq!((one.calls, one.freed), (2, Bytes(10)));
    }

    #[test]
    fn who_left_is_not_called() {
        let bus = bus();
        drop(bus.register("gone", 0, || Bytes(0), |_| Bytes(1)));
        assert_eq!(bus.report(&pressure()), Round::default());
    }

    #[test]
    fn a_call_may_end_its_own_registration_and_report_again() {
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
    fn a_panic_is_counted_and_the_others_are_called() {
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
    fn loom_no_call_after_the_registration_is_dropped() {
        loom::model(|| {
            let bus = Bus::new(Nanos::ZERO);
            let alive = Arc::new(loom::sync::atomic::AtomicBool::new(true));
            let late = Arc::new(AtomicBool::new(false));
            let (seen, told) = (Arc::clone(&alive), Arc::clone(&late));
            let reclaim = move |_: &Pressure| {
                told.fetch_or(!seen.load(Ordering::SeqCst), Ordering::SeqCst);
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
            assert!(!late.load(Ordering::SeqCst), "called when half removed");
        });
    }
}
