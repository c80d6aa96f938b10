//! What kernels tell as tracepoints, told to whoever listens: a line for each event, as `perf script` prints it.
//!
//! A listener that does not keep up loses whole aggregations, never parts of lines, and never holds a kdamond up.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thermo_engine::Attrs;
use thermo_engine::sink::TargetRegions;
use thermo_units::Nanos;

/// How many aggregations a listener may be behind.
const BEHIND: usize = 4096;

/// The names of the events there are, as in tracefs's `available_events`.
pub const TRACED_EVENTS: [&str; 2] = ["damon:damon_aggregated", "damon:damon_monitor_intervals_tune"];

/// Where kdamonds tell their events.
#[derive(Debug, Default)]
pub struct Trace {
    nr_listeners: AtomicUsize,
    listeners: Mutex<Vec<SyncSender<Arc<str>>>>,
}

impl Trace {
    /// Listens from now on.
    #[must_use]
    pub fn listen(&self) -> Receiver<Arc<str>> {
        let (sender, receiver) = sync_channel(BEHIND);
        let mut listeners = self.lock();
        listeners.push(sender);
        self.nr_listeners.store(listeners.len(), Ordering::Relaxed);
        receiver
    }

    /// Tells the end of an aggregation of the kdamond `number` (thread `tid`).
    pub(crate) fn aggregated(&self, number: u32, tid: i32, now: Nanos, targets: &[TargetRegions<'_>]) {
        if self.nr_listeners.load(Ordering::Relaxed) == 0 {
            return;
        }
        let head = head(number, tid, now);
        let mut text = String::new();
        for target in targets {
            let (id, nr_regions) = (target.id.0, target.regions.len());
            for region in target.regions {
                let (start, end) = (region.range.start.0, region.range.end.0);
                // Writing to a string cannot fail.
                let _ = writeln!(
                    text,
                    "{head} damon:damon_aggregated: target_id={id} nr_regions={nr_regions} {start}-{end}: {} {}",
                    region.nr_accesses, region.age
                );
            }
        }
        self.tell(text.into());
    }

    /// Tells that the intervals were tuned.
    pub(crate) fn tuned(&self, number: u32, tid: i32, now: Nanos, attrs: &Attrs) {
        if self.nr_listeners.load(Ordering::Relaxed) > 0 {
            let (head, sample) = (head(number, tid, now), attrs.sample.as_micros());
            self.tell(format!("{head} damon:damon_monitor_intervals_tune: sample_us={sample}\n").into());
        }
    }

    fn tell(&self, text: Arc<str>) {
        let mut listeners = self.lock();
        listeners.retain(|listener| {
            !matches!(
                listener.try_send(Arc::clone(&text)),
                Err(TrySendError::Disconnected(_))
            )
        });
        self.nr_listeners.store(listeners.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SyncSender<Arc<str>>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What comes before an event: who, where and when. The CPU is not known and nobody asks for it.
fn head(number: u32, tid: i32, now: Nanos) -> String {
    let (secs, micros) = (now.0 / 1_000_000_000, now.0 / 1_000 % 1_000_000);
    format!("kdamond.{number} {tid:>7} [000] {secs:>6}.{micros:06}:")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_engine::{Region, TargetId};
    use thermo_units::AddrRange;

    #[test]
    fn a_line_for_each_region_as_perf_script_prints_it() {
        let trace = Trace::default();
        let regions = [
            Region {
                nr_accesses: 3,
                age: 7,
                ..Region::new(AddrRange::new(4096, 8192))
            },
            Region::new(AddrRange::new(8192, 16384)),
        ];
        let target = TargetRegions {
            id: TargetId(1),
            pid: Some(9),
            method: thermo_engine::budget::Method::Sampling,
            regions: &regions,
            tables: None,
            averaged: thermo_units::Bytes::ZERO,
        };
        trace.aggregated(0, 77, Nanos::millis(1), std::slice::from_ref(&target));
        let listener = trace.listen();
        trace.aggregated(0, 77, Nanos(82_877_315_633_000), &[target]);
        assert_eq!(
            &*listener.recv().unwrap(),
            "kdamond.0      77 [000]  82877.315633:".to_owned()
                + " damon:damon_aggregated: target_id=1 nr_regions=2 4096-8192: 3 7\n"
                + "kdamond.0      77 [000]  82877.315633:"
                + " damon:damon_aggregated: target_id=1 nr_regions=2 8192-16384: 0 0\n"
        );
        assert!(listener.try_recv().is_err(), "what came before nobody hears");
        drop(listener);
        trace.tuned(0, 77, Nanos::ZERO, &Attrs::default());
        assert_eq!(trace.nr_listeners.load(Ordering::Relaxed), 0);
    }
}
