//! The sink that writes a context's events, and the caller's own records, to a recording.
//!
//! A sink cannot return an error. The recorder keeps the first error and records nothing more; the caller
//! checks [`Recorder::error`].

use thermo_engine::budget::Method;
use thermo_engine::ops::{Skip, TargetId};
use thermo_engine::scheme::SchemeStats;
use thermo_engine::sink::TargetRegions;
use thermo_engine::{Attrs, Event, Sink};
use thermo_units::{AddrRange, Bytes, Nanos};

use crate::error::WriteError;
use crate::model::{Cost, Footprint, Mappings, Note, Record, Region, SchemeApplied, Snapshot, Target};
use crate::writer::{Writer, Written};

/// Records the events of a context.
pub struct Recorder {
    writer: Writer,
    actions: Vec<String>,
    error: Option<WriteError>,
}

impl Recorder {
    /// Records into `writer`. `actions` are the names of the schemes' actions, in the order of the schemes.
    #[must_use]
    pub const fn new(writer: Writer, actions: Vec<String>) -> Self {
        Self {
            writer,
            actions,
            error: None,
        }
    }

    /// Records the memory size of a target.
    pub fn footprint(&mut self, footprint: Footprint) {
        self.record(&Record::Footprint(footprint));
    }

    /// Records the mappings of a target.
    pub fn mappings(&mut self, mappings: Mappings) {
        self.record(&Record::Mappings(mappings));
    }

    /// Records the cost of monitoring so far.
    pub fn cost(&mut self, cost: Cost) {
        self.record(&Record::Cost(cost));
    }

    /// Records an event as text; see [`Note::kind`] for `kind`.
    pub fn note(&mut self, now: Nanos, kind: &str, text: impl Into<String>) {
        self.record(&self::note(now, kind, text.into()));
    }

    /// Records `record`, unless recording failed before.
    pub fn record(&mut self, record: &Record) {
        if self.error.is_none() {
            self.error = self.writer.append(record).err();
        }
    }

    /// Writes a batch if one is due. Sampling and aggregation events call this; call it too when events are
    /// rare.
    pub fn tick(&mut self, now: Nanos) {
        if self.error.is_none() && self.writer.flush_due(now.0) {
            self.error = self.writer.flush().err();
        }
    }

    /// The error that stopped recording.
    #[must_use]
    pub const fn error(&self) -> Option<&WriteError> {
        self.error.as_ref()
    }

    /// Size of the complete batches in the file.
    #[must_use]
    pub const fn written(&self) -> Written {
        self.writer.written()
    }

    /// Writes the remaining records and the end-of-stream marker.
    ///
    /// # Errors
    /// The error that stopped recording, now or before.
    pub fn finish(self) -> Result<Written, WriteError> {
        match self.error {
            Some(error) => Err(error),
            None => self.writer.finish(),
        }
    }

    fn action(&self, scheme: usize) -> String {
        self.actions.get(scheme).cloned().unwrap_or_default()
    }
}

impl Sink for Recorder {
    fn on(&mut self, event: &Event<'_>) {
        if let Some(record) = record_of(event, |scheme| self.action(scheme)) {
            self.record(&record);
        }
        match *event {
            Event::Sampled { now } | Event::Aggregated { end: now, .. } => self.tick(now),
            _ => {}
        }
    }
}

/// The record of `event`; `None` if nothing is recorded of it. `action` gives the name of a scheme's action.
pub(crate) fn record_of(event: &Event<'_>, action: impl Fn(usize) -> String) -> Option<Record> {
    Some(match *event {
        Event::Aggregated {
            start,
            end,
            attrs,
            targets,
        } => Record::Snapshot(snapshot(start, end, attrs, targets)),
        Event::SchemeApplied {
            now,
            scheme,
            skipped,
            stats,
            ..
        } => Record::Scheme(scheme_applied(now, scheme, action(scheme), stats, skipped)),
        Event::SchemeActive {
            now,
            scheme,
            active,
            metric,
        } => {
            let (state, action) = (if active { "active" } else { "inactive" }, action(scheme));
            let text = format!("scheme {scheme} ({action}) became {state}: its watermark metric is {metric}");
            note(now, "scheme_active", text)
        }
        Event::TargetAppeared { now, id, pid, ranges } => {
            note(now, "target_appeared", appeared_text(id, pid, ranges))
        }
        Event::TargetGone { now, id, pid } => {
            let text = format!("target {id}{} is gone", process_text(pid), id = id.0);
            note(now, "target_gone", text)
        }
        Event::AutoAge {
            now,
            scheme,
            decision,
        } => note(
            now,
            "auto_age",
            format!("auto age of scheme {scheme}: {decision}"),
        ),
        Event::Planned { now, plan } => note(now, "plan", plan.to_string()),
        Event::Warning { now, text } => note(now, "warning", text.to_owned()),
        _ => return None,
    })
}

pub(crate) fn note(now: Nanos, kind: &str, text: String) -> Record {
    Record::Note(Note {
        time_ns: now.0,
        kind: kind.to_owned(),
        text,
    })
}

fn scheme_applied(
    now: Nanos,
    index: usize,
    action: String,
    stats: &SchemeStats,
    skipped: &[(Skip, Bytes)],
) -> SchemeApplied {
    SchemeApplied {
        time_ns: now.0,
        index: u32::try_from(index).unwrap_or(u32::MAX),
        action,
        nr_tried: stats.nr_tried,
        sz_tried: stats.sz_tried.0,
        nr_applied: stats.nr_applied,
        sz_applied: stats.sz_applied.0,
        sz_ops_filter_passed: stats.sz_ops_filter_passed.0,
        sz_changed: stats.sz_changed.0,
        qt_exceeds: stats.qt_exceeds,
        effective_sz: stats.effective_sz.0,
        skipped: skipped
            .iter()
            .map(|(reason, bytes)| (reason.name().to_owned(), bytes.0))
            .collect(),
    }
}

fn process_text(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

fn appeared_text(id: TargetId, pid: Option<u32>, ranges: &[AddrRange]) -> String {
    let size = Bytes(ranges.iter().map(|range| range.len().0).sum());
    let (id, process, nr) = (id.0, process_text(pid), ranges.len());
    format!("target {id}{process} appeared: {size} of address space in {nr} ranges are monitored")
}

fn snapshot(start: Nanos, end: Nanos, attrs: &Attrs, targets: &[TargetRegions<'_>]) -> Snapshot {
    Snapshot {
        start_ns: start.0,
        time_ns: end.0,
        aggr_ns: attrs.aggr.0,
        max_nr_accesses: attrs.max_nr_accesses(),
        targets: targets.iter().map(Target::from).collect(),
    }
}

impl From<&TargetRegions<'_>> for Target {
    /// A target of a snapshot, with its regions and tables.
    fn from(target: &TargetRegions<'_>) -> Self {
        Self {
            id: target.id.0,
            pid: target.pid,
            scanned: Some(target.method == Method::Scan),
            averaged: target.averaged.0,
            tables: target.tables.map(|tables| Box::new(*tables)),
            regions: target.regions.iter().map(Region::from).collect(),
        }
    }
}

impl From<&thermo_engine::Region> for Region {
    /// A region with its access count of the current aggregation.
    fn from(region: &thermo_engine::Region) -> Self {
        Self {
            start: region.range.start.0,
            end: region.range.end.0,
            nr_accesses: region.nr_accesses,
            age: Some(region.age),
            unknown: region.unknown,
        }
    }
}
