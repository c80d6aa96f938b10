//! What listens to a kdamond of the control files: the trace, and the collection of tried regions that a command
//! asked for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use thermo_engine::sink::TriedRegion;
use thermo_engine::{Event, Sink};

use super::Tell;
use crate::trace::Trace;

/// What each scheme was applied to in one apply interval, by the scheme's number.
pub type Tried = BTreeMap<usize, Vec<TriedRegion>>;

/// The listener.
pub struct Listener {
    number: u32,
    tid: i32,
    trace: Arc<Trace>,
    tell: Tell,
    collection: Option<Collection>,
}

/// Tried regions that somebody waits for.
struct Collection {
    /// Schemes that were not applied since, and are active.
    missing: Vec<usize>,
    tried: Tried,
    done: Sender<Tried>,
}

impl Listener {
    /// Listens to the kdamond `number`, whose warnings go to `tell`.
    pub const fn new(number: u32, trace: Arc<Trace>, tell: Tell) -> Self {
        Self {
            number,
            tid: 0,
            trace,
            tell,
            collection: None,
        }
    }

    /// Says which thread it is that is listened to.
    pub const fn is_of(&mut self, tid: i32) {
        self.tid = tid;
    }

    /// Collects what each of `schemes` is applied to next, and sends it once all were. False when somebody else
    /// waits already.
    pub fn collect(&mut self, schemes: Vec<usize>, done: Sender<Tried>) -> bool {
        if self.collection.is_some() {
            return false;
        }
        self.collection = Some(Collection {
            missing: schemes,
            tried: Tried::new(),
            done,
        });
        true
    }

    /// Collects for nobody any more.
    pub fn collect_no_more(&mut self) {
        self.collection = None;
    }

    /// Waits for schemes behind `nr_schemes` no longer.
    pub fn forget_schemes(&mut self, nr_schemes: usize) {
        self.give_up(|scheme| scheme >= nr_schemes);
    }

    fn give_up(&mut self, which: impl Fn(usize) -> bool) {
        if let Some(collection) = &mut self.collection {
            collection.missing.retain(|scheme| !which(*scheme));
        }
        self.send_if_done();
    }

    fn note(&mut self, scheme: usize, tried: &[TriedRegion]) {
        if let Some(collection) = &mut self.collection
            && let Some(at) = collection.missing.iter().position(|missing| *missing == scheme)
        {
            collection.missing.swap_remove(at);
            collection.tried.insert(scheme, tried.to_vec());
            self.send_if_done();
        }
    }

    fn send_if_done(&mut self) {
        if let Some(collection) = self
            .collection
            .take_if(|collection| collection.missing.is_empty())
        {
            // Whoever asked may have given up waiting.
            drop(collection.done.send(collection.tried));
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
            Event::SchemeApplied { scheme, tried, .. } => self.note(*scheme, tried),
            Event::SchemeActive {
                scheme,
                active: false,
                ..
            } => self.give_up(|given| given == *scheme),
            Event::Warning { text, .. } => (self.tell)(&format!("kdamond.{}: {text}", self.number)),
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
            stats: &SchemeStats::default(),
        });
    }

    #[test]
    fn it_waits_for_every_active_scheme_and_for_no_other() {
        let mut listener = Listener::new(0, Arc::default(), |_| {});
        let (done, tried) = channel();
        assert!(listener.collect(vec![0, 1, 2, 3], done.clone()));
        assert!(!listener.collect(vec![0], done), "one at a time");
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
        assert!(listener.collect(vec![0], channel().0), "free for the next");
    }

    #[test]
    fn what_a_kdamond_warns_of_is_told_with_its_name() {
        static TOLD: Mutex<String> = Mutex::new(String::new());
        let tell: Tell = |text| text.clone_into(&mut TOLD.lock().unwrap());
        Listener::new(3, Arc::default(), tell).on(&Event::Warning {
            now: Nanos::ZERO,
            text: "one of its targets cannot be watched",
        });
        assert_eq!(
            *TOLD.lock().unwrap(),
            "kdamond.3: one of its targets cannot be watched"
        );
    }
}
