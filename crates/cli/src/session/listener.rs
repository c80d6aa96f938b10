//! What the kdamond tells, turned into records and handed to the thread that writes them.
//!
//! Writing a file may wait for a disk; looking must not. So the kdamond only copies, and sends.

use std::sync::mpsc::Sender;

use thermo_core::sink::TargetRegions;
use thermo_core::{Attrs, Event, Region, Sink};
use thermo_record::model::{self, Note, Record, SchemeApplied, Snapshot, Target};

/// The sink of a session's kdamond.
#[derive(Debug)]
pub struct Listener {
    records: Sender<Record>,
    /// Names of the schemes' actions, by index.
    actions: Vec<String>,
}

impl Listener {
    /// A listener that sends to `records`; `actions` are those of the context's schemes, in their order.
    pub fn new(records: Sender<Record>, actions: Vec<String>) -> Self {
        Self { records, actions }
    }
}

impl Sink for Listener {
    fn on(&mut self, event: &Event<'_>) {
        if let Some(record) = self.record_of(event) {
            // The session that would write it may have come to its end.
            drop(self.records.send(record));
        }
    }
}

impl Listener {
    fn record_of(&self, event: &Event<'_>) -> Option<Record> {
        Some(match event {
            Event::Aggregated { start, end, attrs, targets } => {
                Record::Snapshot(snapshot(start.0, end.0, attrs, targets))
            }
            Event::SchemeApplied { now, scheme, skipped, stats, .. } => Record::Scheme(SchemeApplied {
                time_ns: now.0,
                index: u32::try_from(*scheme).unwrap_or(u32::MAX),
                action: self.actions.get(*scheme).cloned().unwrap_or_default(),
                nr_tried: stats.nr_tried,
                sz_tried: stats.sz_tried.0,
                nr_applied: stats.nr_applied,
                sz_applied: stats.sz_applied.0,
                sz_ops_filter_passed: stats.sz_ops_filter_passed.0,
                sz_changed: stats.sz_changed.0,
                qt_exceeds: stats.qt_exceeds,
                effective_sz: stats.effective_sz.0,
                skipped: skipped.iter().map(|(why, bytes)| (why.name().to_owned(), bytes.0)).collect(),
            }),
            Event::SchemeActive { now, scheme, active, metric } => {
                let now_is = if *active { "begins" } else { "rests" };
                note(now.0, "plan", format!("scheme {scheme} {now_is}: its watermark metric is {metric}"))
            }
            Event::TargetAppeared { now, pid, .. } => {
                note(now.0, "target_appeared", format!("{} appeared", name_of(*pid)))
            }
            Event::TargetGone { now, pid, .. } => note(now.0, "target_gone", format!("{} is gone", name_of(*pid))),
            Event::Warning { now, text } => note(now.0, "warning", (*text).to_owned()),
            _ => return None,
        })
    }
}

fn note(time_ns: u64, kind: &str, text: String) -> Record {
    Record::Note(Note { time_ns, kind: kind.to_owned(), text })
}

fn name_of(pid: Option<u32>) -> String {
    pid.map_or_else(|| "a target".to_owned(), |pid| format!("process {pid}"))
}

fn snapshot(start_ns: u64, time_ns: u64, attrs: &Attrs, targets: &[TargetRegions<'_>]) -> Snapshot {
    let targets = targets.iter().map(|target| Target {
        id: target.id.0,
        pid: target.pid,
        regions: target.regions.iter().map(region).collect(),
    });
    Snapshot {
        start_ns,
        time_ns,
        aggr_ns: attrs.aggr.0,
        max_nr_accesses: attrs.max_nr_accesses(),
        targets: targets.collect(),
    }
}

fn region(region: &Region) -> model::Region {
    model::Region {
        start: region.range.start.0,
        end: region.range.end.0,
        nr_accesses: region.nr_accesses,
        age: region.age,
        unknown: region.unknown,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::sync::mpsc;

    use thermo_core::{AddrRange, Nanos, TargetId};

    #[test]
    fn an_aggregation_becomes_a_snapshot_of_the_same_numbers() {
        let (sender, receiver) = mpsc::channel();
        let regions = [Region { nr_accesses: 3, age: 7, ..Region::new(AddrRange::new(0x1000, 0x5000)) }];
        Listener::new(sender, Vec::new()).on(&Event::Aggregated {
            start: Nanos(1),
            end: Nanos(2),
            attrs: &Attrs::default(),
            targets: &[TargetRegions { id: TargetId(4), pid: Some(77), regions: &regions }],
        });
        let Record::Snapshot(snapshot) = receiver.recv().unwrap() else { panic!("not a snapshot") };
        assert_eq!((snapshot.time_ns, snapshot.max_nr_accesses), (2, 20));
        assert_eq!(snapshot.targets[0].pid, Some(77));
        let found = snapshot.targets[0].regions[0];
        assert_eq!((found.start, found.end, found.nr_accesses, found.age), (0x1000, 0x5000, 3, 7));
    }

    #[test]
    fn a_session_that_is_over_is_no_error() {
        let (sender, receiver) = mpsc::channel();
        drop(receiver);
        Listener::new(sender, Vec::new()).on(&Event::Warning { now: Nanos(1), text: "late" });
    }
}
