//! Receives the events of a kdamond: forwards them to the trace, and collects tried regions for a command.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use thermo_engine::sink::TriedRegion;
use thermo_engine::{Event, Sink};

use super::LogFn;
use crate::trace::Trace;

/// The regions that each scheme tried in one apply interval, by the scheme's number.
pub type TriedRegions = BTreeMap<usize, Vec<TriedRegion>>;

/// The event sink of a kdamond.
pub struct Listener {
    number: u32,
    tid: i32,
    trace: Arc<Trace>,
    log: LogFn,
    collection: Option<Collection>,
}

/// Tried regions that a command waits for.
struct Collection {
    /// Active schemes that were not applied since the command.
    missing: Vec<usize>,
    tried: TriedRegions,
    sender: Sender<TriedRegions>,
}

impl Listener {
    /// A sink for kdamond `number`. Warnings go to `log`.
    pub const fn new(number: u32, trace: Arc<Trace>, log: LogFn) -> Self {
        Self {
            number,
            tid: 0,
            trace,
            log,
            collection: None,
        }
    }

    /// Sets the thread id to print in trace lines.
    pub const fn set_tid(&mut self, tid: i32) {
        self.tid = tid;
    }

    /// Prints a warning of this kdamond.
    pub fn warn(&self, text: &str) {
        (self.log)(&format!("kdamond.{}: {text}", self.number));
    }

    /// Collects the regions of the next application of each of `schemes`, and sends them once all were
    /// applied. Returns false if another collection is in progress.
    pub fn collect(&mut self, schemes: Vec<usize>, sender: Sender<TriedRegions>) -> bool {
        if self.collection.is_some() {
            return false;
        }
        self.collection = Some(Collection {
            missing: schemes,
            tried: TriedRegions::new(),
            sender,
        });
        true
    }

    /// Drops the collection in progress.
    pub fn cancel_collection(&mut self) {
        self.collection = None;
    }

    /// Stops waiting for schemes with numbers from `nr_schemes` on.
    pub fn forget_schemes(&mut self, nr_schemes: usize) {
        self.stop_waiting_for(|scheme| scheme >= nr_schemes);
    }

    fn stop_waiting_for(&mut self, is_gone: impl Fn(usize) -> bool) {
        if let Some(collection) = &mut self.collection {
            collection.missing.retain(|scheme| !is_gone(*scheme));
        }
        self.send_if_complete();
    }

    fn add_applied(&mut self, scheme: usize, tried: &[TriedRegion]) {
        if let Some(collection) = &mut self.collection
            && let Some(index) = collection.missing.iter().position(|missing| *missing == scheme)
        {
            collection.missing.swap_remove(index);
            collection.tried.insert(scheme, tried.to_vec());
            self.send_if_complete();
        }
    }

    fn send_if_complete(&mut self) {
        if let Some(collection) = self
            .collection
            .take_if(|collection| collection.missing.is_empty())
        {
            // Fails if the client no longer waits.
            drop(collection.sender.send(collection.tried));
        }
    }
}

impl Sink for Listener {
    fn on(&mut self, event: &Event<'_>) {
        match event {
            Event::Aggregated { end, targets, .. } => {
                self.trace.aggregated(self.number, self.tid, *end, targets)
            }
            Event::Tuned { now, attrs } => self.trace.tuned(self.number, self.tid, *now, attrs),
            Event::SchemeApplied { scheme, tried, .. } => self.add_applied(*scheme, tried),
            Event::SchemeActive {
                scheme,
                active: false,
                ..
            } => self.stop_waiting_for(|waiting| waiting == *scheme),
            Event::Warning { text, .. } => self.warn(text),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;
    use thermo_engine::scheme::SchemeStats;
    use thermo_units::Nanos;

    fn applied(listener: &mut Listener, scheme: usize) {
        listener.on(&Event::SchemeApplied {
            now: Nanos::ZERO,
            scheme,
            tried: &[],
            skipped: &[],
            by_target: &[],
            stats: &SchemeStats::default(),
        });
    }

    #[test]
    fn collection_waits_for_active_schemes_only() {
        let mut listener = Listener::new(0, Arc::default(), |_| {});
        let (sender, tried) = channel();
        assert!(listener.collect(vec![0, 1, 2, 3], sender.clone()));
        assert!(!listener.collect(vec![0], sender), "one collection at a time");
        applied(&mut listener, 1);
        applied(&mut listener, 1);
        listener.on(&Event::SchemeActive {
            now: Nanos::ZERO,
            scheme: 2,
            active: false,
            metric: 0,
        });
        listener.forget_schemes(3);
        assert!(tried.try_recv().is_err());
        applied(&mut listener, 0);
        let tried: Vec<usize> = tried.recv().unwrap().into_keys().collect();
        assert_eq!(tried, [0, 1]);
        assert!(
            listener.collect(vec![0], channel().0),
            "the next collection may start"
        );
    }

    #[test]
    fn warnings_name_the_kdamond() {
        static LOGGED: Mutex<String> = Mutex::new(String::new());
        let log: LogFn = |text| text.clone_into(&mut LOGGED.lock().unwrap());
        Listener::new(3, Arc::default(), log).on(&Event::Warning {
            now: Nanos::ZERO,
            text: "a target cannot be monitored",
        });
        assert_eq!(*LOGGED.lock().unwrap(), "kdamond.3: a target cannot be monitored");
    }
}
