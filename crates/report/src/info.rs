//! The facts of a recording: host, settings, duration, tracker, cost of monitoring and notes.

mod text;

use serde::Serialize;
use thermo_recording::model::{Metadata, Note, Record, Settings};

use crate::heat::HeatSizes;
use crate::layout::Layout;
use crate::own_cost::OwnCost;
use crate::passes::{PassLengths, Passes};
use crate::tables::LastKnown;
use crate::{Accumulator, Basis, SCHEMA};

/// Maximum number of notes kept of each kind; more are only counted. The limit is per kind, so that notes
/// about hundreds of targets do not displace a plan or a warning.
const MAX_NOTES: usize = 200;

/// Builds an [`Info`] report.
#[derive(Debug, Clone)]
pub struct InfoAccumulator {
    info: Info,
    layout: Layout,
    last: LastKnown,
    passes: Passes,
}

/// The facts of a recording.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Info {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Name and version of the writer.
    pub writer: String,
    /// Host of the recording.
    pub host: Host,
    /// Name of the tracker.
    pub tracker: String,
    /// The reason for that tracker.
    pub tracker_reason: String,
    /// The targets, as text.
    pub targets: String,
    /// Settings at the start.
    pub settings: Settings,
    /// Seed of all random choices; `None` if another program wrote the recording.
    pub seed: Option<u64>,
    /// The schemes, each as a sentence.
    pub schemes: Vec<String>,
    /// Number of snapshots, including snapshots without live targets.
    pub snapshots: u64,
    /// Time from the start to the last record.
    pub duration_ns: u64,
    /// Start of the recording, on `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// Wall-clock time minus `CLOCK_MONOTONIC`; `None` if another program wrote the recording.
    pub wall_clock_offset_ns: Option<i64>,
    /// Maximum number of regions in a snapshot.
    pub most_regions: u64,
    /// The monitoring methods used, `sampling` and `scan`; `sampling` for targets without tables.
    pub methods: Vec<&'static str>,
    /// Lengths of scan passes; `None` if no pass was complete or no tables were recorded.
    pub pass_s: Option<PassLengths>,
    /// Resident bytes of the last snapshot in regions that average differing pages, because regions were
    /// coalesced to limit their number. Tables are exact nevertheless.
    pub averaged_bytes: u64,
    /// Resident bytes whose idle age is not known in the last snapshot.
    pub unknown_bytes: u64,
    /// `unknown_bytes` as a share of the resident bytes, 0 to 1.
    pub unknown_share: f64,
    /// Cost of monitoring.
    #[serde(flatten)]
    pub cost: OwnCost,
    /// Notes of the recording, up to a maximum number of each kind.
    pub notes: Vec<NoteJson>,
    /// Number of notes that are not listed.
    pub more_notes: u64,
    /// The data behind the report, and warnings.
    pub basis: Basis,
}

/// The host of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Host {
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub arch: String,
}

/// A note of the recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NoteJson {
    /// Time of the note.
    pub time_ns: u64,
    /// Kind of the note, e.g. `warning`.
    pub kind: String,
    /// The note, as a sentence.
    pub text: String,
}

impl InfoAccumulator {
    /// An accumulator for the recording described by `metadata`.
    #[must_use]
    pub fn new(metadata: &Metadata) -> Self {
        let metadata = metadata.clone();
        Self {
            info: Info {
                schema: SCHEMA,
                writer: metadata.writer,
                host: Host {
                    kernel: metadata.kernel,
                    arch: metadata.arch,
                },
                tracker: metadata.tracker,
                tracker_reason: metadata.tracker_reason,
                targets: metadata.targets,
                settings: metadata.settings,
                seed: metadata.seed,
                schemes: metadata.schemes,
                snapshots: 0,
                duration_ns: 0,
                start_ns: metadata.start_ns,
                wall_clock_offset_ns: metadata.wall_clock_offset_ns,
                most_regions: 0,
                methods: Vec::new(),
                pass_s: None,
                averaged_bytes: 0,
                unknown_bytes: 0,
                unknown_share: 0.0,
                cost: OwnCost::default(),
                notes: Vec::new(),
                more_notes: 0,
                basis: Basis::default(),
            },
            layout: Layout::default(),
            last: LastKnown::default(),
            passes: Passes::default(),
        }
    }
}

impl Accumulator for InfoAccumulator {
    type Report = Info;

    fn add(&mut self, record: &Record) {
        self.layout.add(record);
        let info = &mut self.info;
        if let Some(snapshot) = info.basis.add(record) {
            self.last.add(snapshot, &self.layout);
            self.passes.add(snapshot);
        }
        info.cost.add(record, info.start_ns);
        let time_ns = match record {
            Record::Snapshot(snapshot) => {
                info.snapshots += 1;
                let regions = snapshot
                    .targets
                    .iter()
                    .map(|target| target.regions.len() as u64)
                    .sum();
                info.most_regions = info.most_regions.max(regions);
                info.averaged_bytes = snapshot
                    .targets
                    .iter()
                    .map(|target| target.averaged)
                    .fold(0, u64::saturating_add);
                snapshot.time_ns
            }
            Record::Cost(cost) => cost.time_ns,
            Record::Note(note) => {
                info.add_note(note);
                note.time_ns
            }
            Record::Mappings(mappings) => mappings.time_ns,
            Record::Footprint(footprint) => footprint.time_ns,
            Record::Scheme(applied) => applied.time_ns,
            Record::Totals(totals) => totals.time_ns,
        };
        info.duration_ns = info.duration_ns.max(time_ns.saturating_sub(info.start_ns));
    }

    fn finish(mut self) -> Info {
        let unknown = HeatSizes::from(&self.last.tables().sum()).unknown;
        self.info.unknown_bytes = unknown.bytes;
        self.info.unknown_share = unknown.share;
        self.info.methods = self.passes.methods();
        self.info.pass_s = self.passes.lengths();
        self.info
    }
}

impl Info {
    fn add_note(&mut self, note: &Note) {
        let same_kind = self.notes.iter().filter(|kept| kept.kind == note.kind);
        if same_kind.count() < MAX_NOTES {
            let Note { time_ns, kind, text } = note.clone();
            self.notes.push(NoteJson { time_ns, kind, text });
        } else {
            self.more_notes += 1;
        }
    }

    /// A row `key,value` for each value of the JSON; nested keys are joined with dots.
    #[must_use]
    pub fn csv(&self) -> String {
        crate::flat::csv(self)
    }
}
