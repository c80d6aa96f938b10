//! What a recording is: host, settings, length, tracker, and what the monitoring itself cost.
//!
//! CPU is in percent of one CPU, all our own threads, from the recording's beginning to its last cost record;
//! the resident size is the largest seen.

use serde::Serialize;
use thermo_engine::access_tables::PageKind;
use thermo_recording::model::{
    AccessTables, Cost, Metadata, Note, Record, Region, Settings, Snapshot, Target,
};
use thermo_units::{Bytes, Nanos, PAGE_SIZE};

use crate::heat::HeatSizes;
use crate::layout::Layout;
use crate::passes::{PassLengths, Passes};
use crate::style::{Style, Table, percent};
use crate::tables::LastKnown;
use crate::{Accumulator, Doubt, SCHEMA};

/// Notes of a kind beyond this many are only counted: hundreds of targets that appear do not hide a plan or a warning.
const MOST_NOTES: usize = 200;

/// What the monitoring costs, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct OwnCost {
    /// CPU of all our threads, in percent of one CPU; `None` when it was not recorded.
    pub own_cpu_percent: Option<f64>,
    /// The part of it spent on monitoring (not on acting, nor on writing).
    pub monitoring_cpu_percent: Option<f64>,
    /// The same from the fourth second on: until then monitoring may use up to 10 % of a CPU.
    pub steady_monitoring_cpu_percent: Option<f64>,
    /// Our largest resident size in bytes.
    pub own_rss_bytes: Option<u64>,
    /// How much longer the targets take because they are looked at, in percent of one CPU: an estimate
    /// of what setting the marks anew costs them, a microsecond each. CPU that we take from them is not in it.
    pub slow_down_percent: Option<f64>,
    #[serde(skip)]
    cleared: Cleared,
    /// The first cost record behind the first seconds.
    #[serde(skip)]
    steady_from: Option<Cost>,
}

/// The first seconds of monitoring, in which the first scan may exceed the budget.
const FIRST_TIME_NS: u64 = 3_000_000_000;

/// What setting an accessed mark again costs a program: the page walk and the write to the page table, rather
/// more than less.
const MARK_COST_NS: u64 = 1000;
const HUGE_PAGE_SIZE: u64 = 2 << 20;

/// Accessed bits that were cleared and set again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Cleared {
    bits: u64,
    /// The time of snapshots that tell how accesses were found: of the others the bits cannot be counted.
    watched_ns: u64,
}

impl Cleared {
    fn add(&mut self, snapshot: &Snapshot) {
        if snapshot.targets.iter().any(|target| target.scanned.is_none()) {
            return;
        }
        let length_ns = snapshot.time_ns.saturating_sub(snapshot.start_ns);
        let of_target = |target: &Target| match (&target.tables, target.scanned) {
            (Some(tables), Some(true)) => by_passes(tables, length_ns),
            (None, Some(true)) => target.regions.iter().map(|r| by_rate(r, snapshot)).sum(),
            // Each access check that found a region accessed cleared one bit.
            _ => target.regions.iter().map(|r| u64::from(r.nr_accesses)).sum(),
        };
        self.bits += snapshot.targets.iter().map(of_target).sum::<u64>();
        self.watched_ns += length_ns;
    }

    fn slow_down_percent(self) -> Option<f64> {
        let spent = self.bits.saturating_mul(MARK_COST_NS);
        (self.watched_ns > 0).then(|| spent as f64 / self.watched_ns as f64 * 100.0)
    }
}

/// Each pass clears the bit of every leaf that was accessed since the one before.
fn by_passes(tables: &AccessTables, length_ns: u64) -> u64 {
    let leaves = PageKind::ALL.into_iter().map(|kind| {
        let size = if kind.huge { HUGE_PAGE_SIZE } else { PAGE_SIZE };
        tables.idle[kind.index()][0].0 / size
    });
    let passes = length_ns as f64 / tables.pass.0.max(1) as f64;
    match tables.pass.0 {
        0 => 0,
        _ => (leaves.sum::<u64>() as f64 * passes) as u64,
    }
}

/// The same where only regions are known: one pass in a snapshot.
fn by_rate(region: &Region, snapshot: &Snapshot) -> u64 {
    let pages = region.end.saturating_sub(region.start) / PAGE_SIZE;
    pages * u64::from(region.nr_accesses) / u64::from(snapshot.max_nr_accesses.max(1))
}

impl OwnCost {
    /// Takes what `record` of a recording that began at `start_ns` tells of cost.
    pub fn add(&mut self, record: &Record, start_ns: u64) {
        match record {
            Record::Cost(cost) => self.add_cost(cost, start_ns),
            Record::Snapshot(snapshot) => {
                self.cleared.add(snapshot);
                self.slow_down_percent = self.cleared.slow_down_percent();
            }
            _ => {}
        }
    }

    /// Takes what was spent in total until `cost.time_ns`.
    fn add_cost(&mut self, cost: &Cost, start_ns: u64) {
        let wall = cost.time_ns.saturating_sub(start_ns);
        if wall > 0 {
            let percent = |cpu_ns: u64| Some(cpu_ns as f64 / wall as f64 * 100.0);
            self.own_cpu_percent = percent(cost.cpu_ns);
            self.monitoring_cpu_percent = percent(cost.monitoring_cpu_ns);
        }
        if wall >= FIRST_TIME_NS {
            let from = *self.steady_from.get_or_insert(*cost);
            let (wall, spent) = (
                cost.time_ns.saturating_sub(from.time_ns),
                cost.monitoring_cpu_ns.saturating_sub(from.monitoring_cpu_ns),
            );
            self.steady_monitoring_cpu_percent = (wall > 0).then(|| spent as f64 / wall as f64 * 100.0);
        }
        self.own_rss_bytes = self.own_rss_bytes.max(Some(cost.rss));
    }

    /// `0.84 % of one CPU (0.61 % for monitoring), 7.20 MiB resident`.
    #[must_use]
    pub fn text(&self) -> String {
        let cpu = match (self.own_cpu_percent, self.monitoring_cpu_percent) {
            (Some(all), Some(monitoring)) => {
                format!("{all:.2} % of one CPU ({monitoring:.2} % for monitoring)")
            }
            _ => "CPU not recorded".to_owned(),
        };
        let rss = self
            .own_rss_bytes
            .map(|rss| format!(", {} resident at most", Bytes(rss)));
        cpu + &rss.unwrap_or_default()
    }

    /// `about 0.07 %`.
    #[must_use]
    pub fn slow_down_text(&self) -> String {
        self.slow_down_percent.map_or_else(
            || "not known".to_owned(),
            |percent| format!("about {percent:.2} %"),
        )
    }
}

/// Facts in the making.
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
    /// Where it was made.
    pub host: Host,
    /// Name of the tracker.
    pub tracker: String,
    /// Why that one.
    pub tracker_reason: String,
    /// What was watched, in words.
    pub targets: String,
    /// The settings it began with.
    pub settings: Settings,
    /// Seed of all random choices.
    pub seed: u64,
    /// The schemes, each as a sentence.
    pub schemes: Vec<String>,
    /// Snapshots, also those in which no target lived.
    pub snapshots: u64,
    /// From the beginning to the last record.
    pub duration_ns: u64,
    /// When it began, on `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// Wall-clock time minus `CLOCK_MONOTONIC`.
    pub wall_clock_offset_ns: i64,
    /// Most regions in a snapshot.
    pub most_regions: u64,
    /// Methods of monitoring that tables name, `sampling` and `scan`; where there are no tables, `sampling`.
    pub methods: Vec<&'static str>,
    /// Lengths of scan passes; `None` when no pass was complete, or no tables were recorded.
    pub pass_s: Option<PassLengths>,
    /// Resident bytes of the last snapshot in regions that hold pages which are not alike: regions were coalesced to keep
    /// their number. Tables are exact nevertheless.
    pub averaged_bytes: u64,
    /// Resident bytes whose idle age is not known in the last snapshot.
    pub unknown_bytes: u64,
    /// Their share of the resident bytes, 0 to 1.
    pub unknown_share: f64,
    /// What the monitoring cost.
    #[serde(flatten)]
    pub cost: OwnCost,
    /// What happened.
    pub notes: Vec<NoteJson>,
    /// Notes that are not listed.
    pub more_notes: u64,
    /// The snapshots with living targets, and warnings.
    pub basis: Doubt,
}

/// The host of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Host {
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub arch: String,
}

/// A note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NoteJson {
    /// When.
    pub time_ns: u64,
    /// What it is about.
    pub kind: String,
    /// The sentence.
    pub text: String,
}

impl InfoAccumulator {
    /// An accumulator for the recording of `metadata`.
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
                basis: Doubt::default(),
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
                info.note(note);
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
    fn passes_text(&self) -> String {
        let text = |pass: PassLengths| {
            let [median, most] = [pass.p50, pass.max].map(|s| Nanos((s * 1e9).round() as u64));
            format!("; a scan pass took {median} (median), {most} at most")
        };
        self.pass_s.map(text).unwrap_or_default()
    }

    fn has_plans(&self) -> bool {
        self.notes.iter().any(|note| note.kind == "plan")
    }

    fn note(&mut self, note: &Note) {
        let of_its_kind = self.notes.iter().filter(|kept| kept.kind == note.kind);
        if of_its_kind.count() < MOST_NOTES {
            let Note { time_ns, kind, text } = note.clone();
            self.notes.push(NoteJson { time_ns, kind, text });
        } else {
            self.more_notes += 1;
        }
    }

    /// A row `key,value` for each fact of the JSON; deeper keys are joined with dots.
    #[must_use]
    pub fn csv(&self) -> String {
        crate::flat::csv(self)
    }

    /// A list of facts, then what happened.
    #[must_use]
    pub fn text(&self, style: &Style) -> String {
        let mut table = Table::new(2, &["recording", &self.writer]);
        let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
        row("host", format!("Linux {} {}", self.host.kernel, self.host.arch));
        row("targets", self.targets.clone());
        row("tracker", format!("{}: {}", self.tracker, self.tracker_reason));
        row("intervals", intervals(&self.settings, self.has_plans()));
        let Settings {
            min_nr_regions,
            max_nr_regions,
            ..
        } = self.settings;
        row(
            "regions",
            format!(
                "{min_nr_regions} to {max_nr_regions}{}; at most {} seen",
                if self.has_plans() { " at first" } else { "" },
                self.most_regions
            ),
        );
        if self.averaged_bytes > 0 {
            let averaged = Bytes(self.averaged_bytes);
            row(
                "coalesced",
                format!(
                    "{averaged} resident in regions that average pages which are not alike (tables are exact)"
                ),
            );
        }
        if let Some(budget) = self.settings.cpu_budget_percent {
            row("CPU budget", format!("{budget} % of one CPU"));
        }
        row("seed", self.seed.to_string());
        row(
            "length",
            format!("{}, {} snapshots", Nanos(self.duration_ns), self.snapshots),
        );
        if !self.methods.is_empty() {
            row("method", self.methods.join(" and ") + &self.passes_text());
        }
        row(
            "unknown",
            format!(
                "idle age not known of {} ({}) in the last snapshot",
                Bytes(self.unknown_bytes),
                percent(self.unknown_share)
            ),
        );
        row("own cost", self.cost.text());
        row(
            "slow-down",
            format!("{} of the targets, estimated", self.cost.slow_down_text()),
        );
        for scheme in &self.schemes {
            row("scheme", scheme.clone());
        }
        let mut text = table.text();
        for note in &self.notes {
            let at = Nanos(note.time_ns.saturating_sub(self.start_ns)).to_string();
            text.push_str(&style.plain(&format!("{at:>10}  {}: {}\n", note.kind, note.text)));
        }
        if self.more_notes > 0 {
            text.push_str(&format!("            and {} notes more\n", self.more_notes));
        }
        text
    }
}

fn intervals(settings: &Settings, at_first: bool) -> String {
    let [sample, aggr, update] = [settings.sample_ns, settings.aggr_ns, settings.update_ns].map(Nanos);
    let when = if at_first {
        "; at first, chosen to fit the budget"
    } else {
        ""
    };
    format!("sample {sample}, aggregation {aggr}, update {update}{when}")
}
