//! Reads the records of a recording, once and in their order.

use std::collections::{BTreeMap, BTreeSet};

use thermo_agent::api::{Decision, DecisionKind, UnixMillis};
use thermo_recording::model::{Metadata, Record, SchemeApplied, target_name};
use thermo_report::heatmap::HeatmapAccumulator;
use thermo_report::layout::short_name;
use thermo_report::tables::SnapshotTables;
use thermo_report::{Accumulator, Layout};

use super::{POLICY, RecordingSource};
use crate::source::TargetId;
use crate::source::frames::Frames;

/// Maximum number of decisions kept: the first ones.
const MAX_DECISIONS: usize = 1 << 16;

/// A time of a recording as Unix time; on its own clock if it has no wall-clock time.
pub(super) fn unix_ms(metadata: &Metadata, time_ns: u64) -> UnixMillis {
    time_ns.saturating_add_signed(metadata.wall_clock_offset_ns.unwrap_or(0)) / 1_000_000
}

/// A target of the recording: a process, physical memory, or, in recordings of other programs, either.
#[derive(Debug, Default)]
pub(super) struct Process {
    pid: Option<u32>,
    executable: Option<String>,
}

/// Reads records, in their order.
pub(super) struct Reader {
    pub(super) metadata: Metadata,
    layout: Layout,
    frames: Frames,
    map: HeatmapAccumulator,
    pub(super) processes: BTreeMap<u32, Process>,
    /// Bytes that each scheme applied so far.
    applied: BTreeMap<u32, u64>,
    decisions: Vec<Decision>,
}

impl Reader {
    pub(super) fn new(metadata: Metadata) -> Self {
        Self {
            layout: Layout::default(),
            frames: Frames::default(),
            map: HeatmapAccumulator::new(&metadata),
            metadata,
            processes: BTreeMap::new(),
            applied: BTreeMap::new(),
            decisions: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, record: &Record) {
        self.layout.add(record);
        self.map.add(record);
        match record {
            Record::Snapshot(snapshot) => {
                let tables = SnapshotTables::new(snapshot, &self.layout);
                for target in &tables.targets {
                    self.processes.entry(target.id).or_default().pid = target.pid;
                }
                let time = unix_ms(&self.metadata, snapshot.time_ns);
                self.frames.add(time, tables, &self.layout);
            }
            Record::Mappings(mappings) => {
                // The executable has the lowest file mapping, except where an interpreter was given to run.
                let mut names = mappings.mappings.iter().map(|mapping| &mapping.name);
                if let Some(path) = names.find(|name| name.starts_with('/')) {
                    let process = self.processes.entry(mappings.target).or_default();
                    process.executable = Some(short_name(path).to_owned());
                }
            }
            Record::Scheme(applied) => self.add_scheme(applied),
            // A history has the names of its targets as notes.
            Record::Note(note) if note.kind == "target_name" => {}
            Record::Note(note) => {
                let event = match note.kind.as_str() {
                    "target_appeared" => "appeared",
                    "target_gone" => "gone",
                    "plan" => "plan",
                    "scheme_active" => "scheme",
                    _ => "",
                };
                self.decide(note.time_ns, DecisionKind::Warning, event, 0, note.text.clone());
            }
            Record::Footprint(_) | Record::Cost(_) | Record::Totals(_) => {}
        }
    }

    fn add_scheme(&mut self, scheme: &SchemeApplied) {
        let before = self.applied.insert(scheme.index, scheme.sz_applied).unwrap_or(0);
        let bytes = scheme.sz_applied.saturating_sub(before);
        let text = self.metadata.schemes.get(scheme.index as usize);
        let text = text
            .cloned()
            .unwrap_or_else(|| format!("scheme {}", scheme.index));
        if bytes > 0 {
            self.decide(scheme.time_ns, DecisionKind::Acted, &scheme.action, bytes, text);
        }
        for (reason, bytes) in scheme.skipped.iter().filter(|(_, bytes)| *bytes > 0) {
            let kind = DecisionKind::Skipped;
            self.decide(scheme.time_ns, kind, &scheme.action, *bytes, reason.clone());
        }
    }

    fn decide(&mut self, time_ns: u64, kind: DecisionKind, action: &str, bytes: u64, why: String) {
        if self.decisions.len() < MAX_DECISIONS {
            self.decisions.push(Decision {
                number: self.decisions.len() as u64,
                time_ms: unix_ms(&self.metadata, time_ns),
                policy: POLICY.to_owned(),
                target: None,
                kind,
                action: action.to_owned(),
                bytes,
                why,
            });
        }
    }

    pub(super) fn finish(self, title: String, ids: BTreeMap<u32, TargetId>) -> RecordingSource {
        RecordingSource {
            title,
            ids,
            metadata: self.metadata,
            frames: self.frames,
            map: self.map.finish(),
            decisions: self.decisions,
        }
    }
}

/// The targets of a plain recording: each process with its executable.
pub(super) fn process_ids(
    metadata: &Metadata,
    processes: &BTreeMap<u32, Process>,
) -> BTreeMap<u32, TargetId> {
    let mut seen = BTreeSet::new();
    let id = |(number, process): (&u32, &Process)| {
        let mut name = match (process.pid, &process.executable) {
            (Some(pid), Some(executable)) => format!("{executable} {pid}"),
            (Some(pid), None) => format!("pid {pid}"),
            (None, _) => target_name(metadata.imported, *number, None),
        };
        // A process that changed its executable has two numbers.
        if !seen.insert(name.clone()) {
            name.push_str(&format!(" #{number}"));
        }
        let policy = POLICY.to_owned();
        (*number, TargetId { policy, name })
    };
    processes.iter().map(id).collect()
}
