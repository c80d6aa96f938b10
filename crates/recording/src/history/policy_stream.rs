//! The records of one policy, segment after segment, on the wall clock.

use std::collections::VecDeque;

use thermo_units::{Nanos, printable};

use super::continuity::Continuity;
use super::query::{NamedTarget, Query};
use super::store::Segment;
use super::target_ids::TargetIds;
use super::target_name::TargetName;
use super::until_begin::UntilBegin;
use super::wall_clock;
use crate::error::ReadError;
use crate::lock::is_being_written;
use crate::model::Record;
use crate::part::Part;
use crate::reader::{Recording, open};

/// The records of one policy.
pub(super) struct PolicyStream {
    policy: String,
    segments: VecDeque<Segment>,
    query: Query,
    /// The target of the query, as names are recorded.
    wanted: Option<String>,
    current: Option<Current>,
    ids: TargetIds,
    continuity: Continuity,
    before: UntilBegin,
    ready: VecDeque<Record>,
    warnings: Vec<String>,
}

/// The segment being read.
struct Current {
    recording: Recording,
    is_live: bool,
    /// The next segment begins here; what overlaps is its.
    end: Option<Nanos>,
}

/// From the clock of a segment to Unix time. The agent writes the offset of every segment.
fn offset_ns(segment: &Recording) -> i64 {
    segment.metadata.wall_clock_offset_ns.unwrap_or_default()
}

impl Current {
    /// The next record that `query` may need: what it certainly does not need is not decoded.
    fn next(&mut self, query: &Query, is_wanted: &dyn Fn(u32) -> bool) -> Option<Result<Record, ReadError>> {
        let offset_ns = offset_ns(&self.recording);
        let part = Part {
            from_ns: query
                .from
                .map_or(0, |from| wall_clock::monotonic(from, offset_ns)),
            to_ns: query
                .to
                .map_or(u64::MAX, |to| wall_clock::monotonic(to, offset_ns)),
            totals_only: query.totals_only,
            is_wanted,
        };
        self.recording.next_of(&part)
    }
}

impl PolicyStream {
    /// Reads `segments` of one policy, in order.
    pub(super) fn new(segments: Vec<Segment>, query: Query) -> Self {
        let policy = segments.first().map(|segment| segment.policy.clone());
        let wanted = query.target.as_deref();
        Self {
            policy: policy.unwrap_or_default(),
            segments: segments.into(),
            wanted: wanted.map(|name| printable(name).replace('\n', "\\n")),
            current: None,
            ids: TargetIds::default(),
            continuity: Continuity::default(),
            before: UntilBegin::new(query.from),
            ready: VecDeque::new(),
            warnings: Vec::new(),
            query,
        }
    }

    /// The next record.
    pub(super) fn next(&mut self) -> Option<Record> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Some(record);
            }
            let record = self.next_of_segment()?;
            if let Some(record) = self.translate(record) {
                let is_late = self.query.to.is_some_and(|to| wall_clock::time(&record) > to);
                if !is_late {
                    self.ready.extend(self.before.add(record));
                }
            }
        }
    }

    /// The names seen so far.
    pub(super) fn targets(&self) -> impl Iterator<Item = NamedTarget> + '_ {
        self.ids.names().map(|name| self.named(name))
    }

    pub(super) fn target(&self, id: u32) -> Option<NamedTarget> {
        self.ids.name(id).map(|name| self.named(name))
    }

    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn named(&self, name: &str) -> NamedTarget {
        NamedTarget {
            policy: self.policy.clone(),
            name: name.to_owned(),
        }
    }

    /// The next record of the current or a later segment, on the wall clock. `None`: there is none.
    fn next_of_segment(&mut self) -> Option<Record> {
        loop {
            let Some(current) = &mut self.current else {
                self.open_next()?;
                continue;
            };
            let next = current.next(&self.query, &|id| {
                self.wanted.is_none() || self.ids.name_of_segment(id) == self.wanted.as_deref()
            });
            match next {
                Some(Ok(mut record)) => {
                    wall_clock::shift(&mut record, offset_ns(&current.recording));
                    if current.end.is_none_or(|end| wall_clock::time(&record) <= end) {
                        return Some(record);
                    }
                }
                Some(Err(error)) => {
                    self.warn(&error);
                    self.current = None;
                }
                None => {
                    if let Some(truncated) = current.recording.truncated().filter(|_| !current.is_live) {
                        let lost = truncated.lost_bytes;
                        let path = current.recording.path().display();
                        if lost > 0 {
                            let text = format!(
                                "{path} is truncated: {lost} bytes of an incomplete batch were skipped"
                            );
                            self.warnings.push(text);
                        }
                    }
                    self.current = None;
                }
            }
        }
    }

    /// Opens the next readable segment. `None`: there is none.
    fn open_next(&mut self) -> Option<()> {
        loop {
            let segment = self.segments.pop_front()?;
            let is_live = is_being_written(&segment.path);
            match open(&segment.path) {
                Ok(recording) => {
                    // File names are in whole milliseconds.
                    let end = self.segments.front().map(|next| next.start + Nanos::millis(1));
                    let start = wall_clock::unix(recording.metadata.start_ns, offset_ns(&recording));
                    self.ids.begin_segment();
                    self.continuity.begin_segment(start);
                    self.current = Some(Current {
                        recording,
                        is_live,
                        end,
                    });
                    return Some(());
                }
                // The file was just created, or pruned since it was listed.
                Err(ReadError::Empty { .. } | ReadError::NoRecord { .. }) if is_live => {}
                Err(ReadError::Open { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => self.warn(&error),
            }
        }
    }

    fn warn(&mut self, error: &ReadError) {
        self.warnings
            .push(format!("a segment of the history is skipped: {error}"));
    }

    /// The record with the ids of the whole history. `None`: it is not of the query, or says nothing new.
    fn translate(&mut self, mut record: Record) -> Option<Record> {
        match &mut record {
            Record::Note(note) => {
                if let Some(name) = TargetName::parse(note) {
                    let is_new = self.ids.name_target(&name);
                    return (is_new && self.is_wanted(&name.name)).then_some(record);
                }
            }
            Record::Snapshot(snapshot) => {
                for target in &mut snapshot.targets {
                    target.id = self.ids.id(target.id);
                }
                if let Some(wanted) = &self.wanted {
                    let ids = &self.ids;
                    snapshot
                        .targets
                        .retain(|target| ids.name(target.id) == Some(wanted));
                    if snapshot.targets.is_empty() {
                        return None;
                    }
                }
            }
            Record::Mappings(mappings) => mappings.target = self.wanted_id(mappings.target)?,
            Record::Footprint(footprint) => footprint.target = self.wanted_id(footprint.target)?,
            Record::Scheme(_) | Record::Cost(_) => {
                let is_counted = wall_clock::time(&record) > self.query.from.unwrap_or_default();
                return self.continuity.add(record, is_counted);
            }
            Record::Totals(_) => {}
        }
        Some(record)
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.wanted.as_deref().is_none_or(|wanted| wanted == name)
    }

    fn wanted_id(&mut self, id: u32) -> Option<u32> {
        let id = self.ids.id(id);
        let name = self.ids.name(id);
        (self.wanted.is_none() || self.wanted.as_deref() == name).then_some(id)
    }
}
