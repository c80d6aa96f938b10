//! DAMON's tracepoints: one line for each event, as `perf script` prints it, sent to every listener.
//!
//! A listener that is too slow loses whole aggregations, never parts of lines. It never blocks a kdamond.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thermo_engine::Attrs;
use thermo_engine::sink::TargetRegions;
use thermo_units::Nanos;

/// Messages that wait for one listener at most. Further messages are dropped.
const MAX_BACKLOG: usize = 4096;

/// Names of the supported events, as in tracefs's `available_events`.
pub const TRACED_EVENTS: [&str; 2] = ["damon:damon_aggregated", "damon:damon_monitor_intervals_tune"];

/// Distributes the events of kdamonds to listeners.
#[derive(Debug, Default)]
pub struct Trace {
    nr_listeners: AtomicUsize,
    listeners: Mutex<Vec<SyncSender<Arc<str>>>>,
}

impl Trace {
    /// Adds a listener. It receives the events from now on.
    #[must_use]
    pub fn listen(&self) -> Receiver<Arc<str>> {
        let (sender, receiver) = sync_channel(MAX_BACKLOG);
        let mut listeners = self.lock();
        listeners.push(sender);
        self.nr_listeners.store(listeners.len(), Ordering::Relaxed);
        receiver
    }

    /// Reports the end of an aggregation of kdamond `number` (thread `tid`).
    pub(crate) fn aggregated(&self, number: u32, tid: i32, now: Nanos, targets: &[TargetRegions<'_>]) {
        if self.nr_listeners.load(Ordering::Relaxed) == 0 {
            return;
        }
        let prefix = prefix(number, tid, now);
        let mut text = String::new();
        for target in targets {
            let (id, nr_regions) = (target.id.0, target.regions.len());
            for region in target.regions {
                let (start, end) = (region.range.start.0, region.range.end.0);
                // Writing to a string cannot fail.
                let _ = writeln!(
                    text,
                    "{prefix} damon:damon_aggregated: target_id={id} nr_regions={nr_regions} {start}-{end}: {} {}",
                    region.nr_accesses, region.age
                );
            }
        }
        self.send(text.into());
    }

    /// Reports that the intervals were tuned.
    pub(crate) fn tuned(&self, number: u32, tid: i32, now: Nanos, attrs: &Attrs) {
        if self.nr_listeners.load(Ordering::Relaxed) > 0 {
            let (prefix, sample) = (prefix(number, tid, now), attrs.sample.as_micros());
            self.send(format!("{prefix} damon:damon_monitor_intervals_tune: sample_us={sample}\n").into());
        }
    }

    fn send(&self, text: Arc<str>) {
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

/// Start of each line: thread, CPU and time. The CPU is unknown and always printed as 0.
fn prefix(number: u32, tid: i32, now: Nanos) -> String {
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
    fn trace_prints_one_line_per_region() {
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
        assert!(
            listener.try_recv().is_err(),
            "events before listen() are not delivered"
        );
        drop(listener);
        trace.tuned(0, 77, Nanos::ZERO, &Attrs::default());
        assert_eq!(trace.nr_listeners.load(Ordering::Relaxed), 0);
    }
}
