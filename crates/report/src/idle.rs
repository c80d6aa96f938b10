//! Idle memory: resident bytes by idle age, in the last snapshot.
//!
//! Ages, unknown bytes and resident bytes come from the access tables, summed over all targets. Ages and
//! unknown bytes sum to resident bytes. Swapped bytes are separate. An idle age is never longer than the time
//! monitored, so the longest ages appear only in long recordings.

use serde::Serialize;
use thermo_engine::access_tables::{AccessTables, NR_AGES, PageKind, UnknownReason};
use thermo_recording::model::Record;
use thermo_units::{Bytes, Nanos};

use crate::ages::{self, AgeBytes};
use crate::layout::Layout;
use crate::style::{Style, Table, csv_text, percent};
use crate::tables::{LastKnown, SnapshotTables, TargetTables};
use crate::{Accumulator, Basis};

/// Schema version of this report's JSON.
pub const SCHEMA: u32 = 2;

/// Builds an [`Idle`] report.
#[derive(Debug, Clone, Default)]
pub struct IdleAccumulator {
    layout: Layout,
    basis: Basis,
    last: LastKnown,
    swapped: Option<u64>,
}

/// Idle memory in the last snapshot with known idle ages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Idle {
    /// [`SCHEMA`].
    pub schema: u32,
    /// End of the snapshot.
    pub time_ns: u64,
    /// Start of the last complete scan pass: no data is older. `None` before the first pass is complete.
    pub as_of_ns: Option<u64>,
    /// `scan`, or `sampling` if at least one target was sampled.
    pub method: &'static str,
    /// Resolution of ages in seconds: the longest scan pass of a target; with sampling, the aggregation
    /// interval. `None` before the first pass is complete.
    pub pass_s: Option<f64>,
    /// Number of complete passes of the target with the fewest.
    pub nr_passes: u64,
    /// Resident bytes: the sum of `ages` and `unknown_bytes`.
    pub resident_bytes: u64,
    /// Bytes by idle age, ascending, without gaps between the ages.
    pub ages: Vec<AgeBytes>,
    /// Resident bytes whose idle age is not known.
    pub unknown_bytes: u64,
    /// Unknown bytes by reason.
    pub unknown: Vec<UnknownBytes>,
    /// Swapped bytes of the targets; `None` if they were not recorded.
    pub swapped_bytes: Option<u64>,
    /// `ages` by kind of page, without empty kinds. Empty if kinds are not known.
    pub kinds: Vec<KindAges>,
    /// Ages of each target. Empty if there is only one target.
    pub targets: Vec<TargetAges>,
    /// The resolution of idle ages, as a sentence.
    #[serde(skip)]
    pub resolution: String,
    /// The data behind the report.
    pub basis: Basis,
}

/// Bytes whose idle age is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct UnknownBytes {
    /// The reason, as in [`UnknownReason::name`].
    pub reason: &'static str,
    /// Bytes.
    pub bytes: u64,
    #[serde(skip)]
    pub(crate) text: &'static str,
}

/// The idle ages of one kind of page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KindAges {
    /// The kind, as in [`PageKind::name`].
    pub kind: &'static str,
    /// Bytes whose age is known.
    pub bytes: u64,
    /// Bytes for each age of [`Idle::ages`].
    pub ages: [u64; NR_AGES],
}

/// The idle ages of one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TargetAges {
    /// Target id.
    pub id: u32,
    /// Process id; `None` for physical memory, or if the recording does not say.
    pub pid: Option<u32>,
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Resident bytes whose idle age is not known.
    pub unknown_bytes: u64,
    /// Bytes for each age of [`Idle::ages`].
    pub ages: [u64; NR_AGES],
}

impl Accumulator for IdleAccumulator {
    type Report = Idle;

    fn add(&mut self, record: &Record) {
        self.layout.add(record);
        if let Some(snapshot) = self.basis.add(record) {
            self.last.add(snapshot, &self.layout);
            let ids = self.last.tables().targets.iter().map(|target| target.id);
            let swapped = ids.filter_map(|id| Some(self.layout.footprint(id)?.swap));
            self.swapped = swapped.reduce(u64::saturating_add);
        }
    }

    fn finish(mut self) -> Idle {
        let all = self.last.tables();
        let sum = all.sum();
        all.add_warnings(&mut self.basis);
        Idle {
            schema: SCHEMA,
            time_ns: self.last.time_ns(),
            as_of_ns: all.as_of().map(|as_of| as_of.0),
            method: sum.method.name(),
            pass_s: all.pass().map(Nanos::as_secs_f64),
            nr_passes: sum.nr_passes,
            resident_bytes: sum.resident().0,
            ages: ages::rows(numbers(sum.ages())),
            unknown_bytes: sum.unknown().0,
            unknown: unknown(&sum),
            swapped_bytes: self.swapped,
            kinds: kinds(all),
            targets: targets(all),
            resolution: all.resolution(),
            basis: self.basis,
        }
    }
}

fn numbers(ages: [Bytes; NR_AGES]) -> [u64; NR_AGES] {
    ages.map(|bytes| bytes.0)
}

fn unknown(sum: &AccessTables) -> Vec<UnknownBytes> {
    let bytes_for = |reason: UnknownReason| UnknownBytes {
        reason: reason.name(),
        bytes: sum.unknown[reason.index()].0,
        text: reason.text(),
    };
    UnknownReason::ALL.map(bytes_for).to_vec()
}

fn kinds(all: &SnapshotTables) -> Vec<KindAges> {
    if !all.is_recorded() {
        return Vec::new();
    }
    let idle = all.sum().idle;
    let kind = |kind: PageKind| {
        let ages = numbers(idle[kind.index()]);
        KindAges {
            kind: kind.name(),
            bytes: ages.iter().sum(),
            ages,
        }
    };
    PageKind::ALL
        .into_iter()
        .map(kind)
        .filter(|kind| kind.bytes > 0)
        .collect()
}

fn targets(all: &SnapshotTables) -> Vec<TargetAges> {
    let live = all
        .targets
        .iter()
        .filter(|target| target.tables.resident() > Bytes::ZERO);
    if live.clone().count() < 2 {
        return Vec::new();
    }
    let target = |TargetTables { id, pid, tables, .. }: &TargetTables| TargetAges {
        id: *id,
        pid: *pid,
        resident_bytes: tables.resident().0,
        unknown_bytes: tables.unknown().0,
        ages: numbers(tables.ages()),
    };
    live.map(target).collect()
}

impl Idle {
    /// A table with bars.
    #[must_use]
    pub fn text(&self, style: &Style) -> String {
        if self.basis.snapshots == 0 {
            return self.basis.no_data_text();
        }
        let mut text = format!(
            "Idle memory of {} resident, in the last of {}\n",
            Bytes(self.resident_bytes),
            self.basis.summary()
        );
        text.push_str(&self.table(style));
        if let Some(swapped) = self.swapped_bytes {
            text.push_str(&format!("Swapped out, not resident: {}.\n", Bytes(swapped)));
        }
        text.push_str(&self.resolution);
        text + &self.basis.text()
    }

    fn table(&self, style: &Style) -> String {
        let bar = style.width.saturating_sub(64).clamp(6, 60);
        let mut table = Table::new(1, &["idle for", "size", "of resident", "this or longer", ""]);
        let mut row = |name: String, bytes: u64, cumulative: String| {
            let share = bytes as f64 / self.resident_bytes.max(1) as f64;
            let cells = [name, Bytes(bytes).to_string(), percent(share), cumulative];
            table.row(cells.into_iter().chain([style.bar(share, bar)]));
        };
        for (nth, age) in self.ages.iter().enumerate().take(self.nr_shown_ages()) {
            let cumulative = (age.min_s > 0).then(|| Bytes(self.bytes_from(nth)).to_string());
            row(name(age), age.bytes, cumulative.unwrap_or_default());
        }
        for unknown in self.unknown.iter().filter(|unknown| unknown.bytes > 0) {
            row(
                format!("unknown: {}", unknown.reason.replace('_', " ")),
                unknown.bytes,
                String::new(),
            );
        }
        let mut text = table.text();
        for unknown in self.unknown.iter().filter(|unknown| unknown.bytes > 0) {
            let reason = unknown.reason.replace('_', " ");
            if reason != "not scanned" {
                text.push_str(&format!("({reason}: {})\n", unknown.text));
            }
        }
        text
    }

    /// Number of ages with a row: ages within the time monitored, and ages with bytes.
    fn nr_shown_ages(&self) -> usize {
        let monitored = self.basis.span();
        let is_shown = |age: &AgeBytes| age.bytes > 0 || Nanos::secs(age.min_s) <= monitored;
        let last = self.ages.iter().rposition(is_shown);
        last.map_or(0, |last| last + 1)
    }

    /// Bytes of age number `nth` and of all longer ages.
    fn bytes_from(&self, nth: usize) -> u64 {
        self.ages[nth..].iter().map(|age| age.bytes).sum()
    }

    /// `min_s,max_s,unknown,bytes,bytes_at_least`: a row for each idle age, then a row for each reason of
    /// unknown ages.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut rows = Vec::new();
        for (nth, age) in self.ages.iter().enumerate() {
            let max = age.max_s.map(|s| s.to_string()).unwrap_or_default();
            rows.push([
                age.min_s.to_string(),
                max,
                String::new(),
                age.bytes.to_string(),
                self.bytes_from(nth).to_string(),
            ]);
        }
        for UnknownBytes { reason, bytes, .. } in &self.unknown {
            let none = String::new;
            rows.push([none(), none(), (*reason).to_owned(), bytes.to_string(), none()]);
        }
        csv_text(["min_s", "max_s", "unknown", "bytes", "bytes_at_least"], rows)
    }
}

fn name(age: &AgeBytes) -> String {
    match (age.min_s, age.max_s) {
        (0, _) => "accessed in the last pass".to_owned(),
        (min, None) => format!("{} or longer", ages::text(min)),
        (min, Some(max)) => format!("{} to {}", ages::text(min), ages::text(max)),
    }
}
