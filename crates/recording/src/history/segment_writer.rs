//! Writes the history of one policy, segment after segment.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thermo_engine::ops::TargetId;
use thermo_engine::{Event, Sink};
use thermo_units::{Nanos, printable};

use super::error::HistoryError;
use super::limits::{Clocks, WriteLimits};
use super::living::Living;
use super::store;
use super::target_name::TargetName;
use super::thinning::{Aggregation, Thinning};
use crate::error::WriteError;
use crate::model::{Metadata, Record, SCHEMA, Snapshot};
use crate::recorder::record_of;
use crate::row;
use crate::writer::Writer;

/// A difference of the wall clock by more than this begins a new segment: the clock was stepped, or the
/// machine slept.
const STEP_NS: u64 = 2_000_000_000;

/// Writes the history of one policy.
///
/// Nothing that goes wrong with the files is an error for the caller: monitoring goes on without history, and
/// [`SegmentWriter::take_warnings`] says so.
pub struct SegmentWriter {
    state_dir: PathBuf,
    policy: String,
    limits: WriteLimits,
    actions: Vec<String>,
    make_metadata: Box<dyn FnMut() -> Metadata + Send>,
    /// Wall-clock time minus monotonic time.
    offset_ns: i64,
    thinning: Thinning,
    living: Living,
    segment: Option<Open>,
    /// Set after a failure: when the next attempt is due.
    retry_at: Option<Nanos>,
    /// Whether the last warning says that nothing is written.
    is_failing: bool,
    warnings: Vec<String>,
}

/// The segment being written.
struct Open {
    writer: Writer,
    start: Nanos,
    offset_ns: i64,
}

impl SegmentWriter {
    /// A writer below `state_dir` for `policy`. Its first segment begins with the first record.
    /// `make_metadata` is asked for each segment; times and schema are filled in here.
    ///
    /// # Errors
    /// `policy` cannot be the name of a folder.
    pub fn new(
        state_dir: &Path,
        policy: &str,
        limits: WriteLimits,
        now: Clocks,
        make_metadata: impl FnMut() -> Metadata + Send + 'static,
    ) -> Result<Self, HistoryError> {
        if !store::is_policy_name(policy) {
            return Err(HistoryError::PolicyName(policy.to_owned()));
        }
        Ok(Self {
            state_dir: state_dir.to_owned(),
            policy: policy.to_owned(),
            limits,
            actions: Vec::new(),
            make_metadata: Box::new(make_metadata),
            offset_ns: now.offset_ns(),
            thinning: Thinning::new(limits),
            living: Living::default(),
            segment: None,
            retry_at: None,
            is_failing: false,
            warnings: Vec::new(),
        })
    }

    /// The names of the schemes' actions from now on, in the order of the schemes, which count from zero.
    pub fn set_actions(&mut self, actions: Vec<String>) {
        self.actions = actions;
        self.living.forget_schemes();
    }

    /// The name of a target: needed to find it by name. Call it when the target appears, before or after the
    /// event.
    pub fn name(&mut self, now: Nanos, id: TargetId, pid: Option<u32>, name: &str) {
        let name = TargetName {
            id: id.0,
            pid,
            name: printable(name).replace('\n', "\\n"),
        };
        let note = name.note(now);
        // A segment that begins with this note repeats the names known before.
        self.append(&note);
        self.living.name(name);
    }

    /// Takes a record that the caller has read: mappings, sizes, cost, totals, a note.
    pub fn record(&mut self, record: &Record) {
        let now = Nanos(row::time_ns(record));
        match record {
            Record::Snapshot(snapshot) => self.snapshot(snapshot.time_ns, |thinning, offset| {
                thinning.snapshot(snapshot, offset)
            }),
            Record::Mappings(mappings) => {
                self.living.mappings(mappings);
                self.write_mappings(now);
            }
            other => {
                if !self.thinning.latest(other) {
                    self.append(other);
                }
            }
        }
    }

    /// To be called about once a second, with the time: writes what is due, begins a new segment where the
    /// old one is full or the wall clock was stepped.
    pub fn tick(&mut self, now: Clocks) {
        self.offset_ns = now.offset_ns();
        self.write_mappings(now.monotonic);
        self.flush_if_due(now.monotonic);
        self.close_if_due(now.monotonic);
    }

    /// Warnings since the last call, one sentence each: that the history cannot be written, and that it is
    /// written again.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// The file being written.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.segment.as_ref().map(|segment| segment.writer.path())
    }

    /// Writes the rest, and ends the segment.
    pub fn finish(mut self) -> Vec<String> {
        for record in self.thinning.finish() {
            self.append(&record);
        }
        self.close();
        self.warnings
    }

    fn snapshot(&mut self, time_ns: u64, thin: impl FnOnce(&mut Thinning, i64) -> Vec<Record>) {
        // Slots are those of the clock of the segment, so that its times are consistent.
        let offset_ns = self
            .segment
            .as_ref()
            .map_or(self.offset_ns, |open| open.offset_ns);
        let records = thin(&mut self.thinning, offset_ns);
        for record in &records {
            self.append(record);
        }
        let now = Nanos(time_ns);
        self.flush_if_due(now);
        self.close_if_due(now);
    }

    fn write_mappings(&mut self, now: Nanos) {
        if self.segment.is_none() {
            // They are among the first records of the next segment.
            return;
        }
        for record in self.living.due_mappings(now, self.limits.mappings_every) {
            self.append(&record);
        }
    }

    fn append(&mut self, record: &Record) {
        let now = Nanos(row::time_ns(record));
        if self.segment.is_none() && !self.open(now) {
            return;
        }
        if let Some(open) = &mut self.segment {
            let appended = open.writer.append(record);
            self.living.written(record);
            self.check(now, appended);
        }
    }

    /// Begins a segment. False: it is not possible now.
    fn open(&mut self, now: Nanos) -> bool {
        if self.retry_at.is_some_and(|retry_at| now < retry_at) {
            return false;
        }
        let metadata = Metadata {
            schema: SCHEMA,
            wall_clock_offset_ns: Some(self.offset_ns),
            start_ns: now.0,
            ..(self.make_metadata)()
        };
        let unix = Nanos(now.0.saturating_add_signed(self.offset_ns));
        let path = store::new_path(&self.state_dir, &self.policy, unix);
        let writer = create(&path, &metadata);
        let Some(writer) = self.check(now, writer) else {
            return false;
        };
        let mut open = Open {
            writer: writer.with_batch_age(self.limits.batch_age),
            start: now,
            offset_ns: self.offset_ns,
        };
        self.thinning.restart_regions();
        let first = self.living.first_records(now);
        let appended = first.iter().try_for_each(|record| open.writer.append(record));
        self.segment = Some(open);
        self.check(now, appended).is_some()
    }

    fn flush_if_due(&mut self, now: Nanos) {
        let Some(open) = self.segment.as_mut().filter(|open| open.writer.flush_due(now.0)) else {
            return;
        };
        let flushed = open.writer.flush();
        if self.check(now, flushed).is_some() {
            self.retry_at = None;
            if std::mem::take(&mut self.is_failing) {
                self.warnings
                    .push(format!("the history of policy {} is written again", self.policy));
            }
        }
    }

    fn close_if_due(&mut self, now: Nanos) {
        let is_due = self.segment.as_ref().is_some_and(|open| {
            now.saturating_sub(open.start) >= self.limits.segment_age
                || open.writer.written().bytes >= self.limits.segment_bytes.0
                || open.offset_ns.abs_diff(self.offset_ns) > STEP_NS
        });
        // What was dropped belongs to this segment: its clock, and what comes after.
        if is_due && !self.thinning.has_dropped() {
            self.close();
        }
    }

    fn close(&mut self) {
        if let Some(open) = self.segment.take() {
            let (now, path) = (open.start, open.writer.path().to_owned());
            let records = open.writer.written().records;
            let finished = open.writer.finish().map(drop);
            if self.check(now, finished).is_none() {
                remove_without_records(&path, records);
            }
        }
    }

    /// After an error: no segment, and one warning.
    fn check<T>(&mut self, now: Nanos, result: Result<T, impl Into<HistoryError>>) -> Option<T> {
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error.into(),
        };
        if let Some(open) = self.segment.take() {
            remove_without_records(open.writer.path(), open.writer.written().records);
        }
        self.retry_at = Some(now.saturating_add(self.limits.retry));
        if !std::mem::replace(&mut self.is_failing, true) {
            let (dir, policy, retry) = (self.state_dir.display(), &self.policy, self.limits.retry);
            self.warnings.push(format!(
                "the history of policy {policy} cannot be written in {dir} ({}): monitoring goes on without it, and \
                 the next attempt is in {retry}",
                reason(&error)
            ));
        }
        None
    }
}

impl Sink for SegmentWriter {
    fn on(&mut self, event: &Event<'_>) {
        match event {
            Event::Sampled { .. } => {}
            Event::Aggregated {
                start,
                end,
                attrs,
                targets,
            } => {
                let head = Snapshot {
                    start_ns: start.0,
                    time_ns: end.0,
                    aggr_ns: attrs.aggr.0,
                    max_nr_accesses: attrs.max_nr_accesses(),
                    targets: Vec::new(),
                };
                let source = Aggregation { head, targets };
                self.snapshot(end.0, |thinning, offset| thinning.snapshot(&source, offset));
            }
            _ => {
                let action = |scheme: usize| self.actions.get(scheme).cloned().unwrap_or_default();
                if let Some(record) = record_of(event, action) {
                    self.record(&record);
                }
                if let Event::TargetGone { id, .. } = event {
                    self.thinning.target_gone(id.0);
                    self.living.gone(*id);
                }
            }
        }
    }
}

fn create(path: &Path, metadata: &Metadata) -> Result<Writer, HistoryError> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|source| HistoryError::Create {
        path: folder.to_owned(),
        source,
    })?;
    Writer::create(path, metadata).map_err(|error| {
        remove_without_records(path, 0);
        error.into()
    })
}

/// Removes the file of a segment that failed before its first batch: there is nothing in it.
fn remove_without_records(path: &Path, records: u64) {
    if records == 0 {
        // It stays if the file system is read-only by now; `prune` tries again.
        let _ = fs::remove_file(path);
    }
}

/// The cause, without the advice for `thermo record`.
fn reason(error: &HistoryError) -> String {
    let system = |source: &io::Error| source.to_string();
    match error {
        HistoryError::Write(
            WriteError::Create { source, .. }
            | WriteError::Write { source, .. }
            | WriteError::KeepOld { source, .. },
        )
        | HistoryError::Create { source, .. } => system(source),
        other => other.to_string(),
    }
}
