//! Idle memory: how many resident bytes have not been accessed for how long, in the last snapshot.
//!
//! Ages, unknown bytes and resident bytes are those of the access tables, added up over all targets: ages and unknown
//! sum to resident. Swapped bytes are apart. Nothing can be known to be idle for longer than it was watched, so the
//! longest ages appear only in long recordings.

use serde::Serialize;
use thermo_engine::access_tables::{AccessTables, NR_AGES, PageKind, UnknownReason};
use thermo_recording::model::Record;
use thermo_units::{Bytes, Nanos};

use crate::ages::{self, AgeBytes};
use crate::layout::Layout;
use crate::style::{Style, Table, csv_text, percent};
use crate::tables::{LastKnown, SnapshotTables, TargetTables};
use crate::{Accumulator, Doubt, NO_SNAPSHOTS};

/// The version of this report's JSON.
pub const SCHEMA: u32 = 2;

/// Idle memory in the making.
#[derive(Debug, Clone, Default)]
pub struct IdleAccumulator {
    layout: Layout,
    doubt: Doubt,
    last: LastKnown,
    swapped: Option<u64>,
}

/// Idle memory of the last snapshot in which something was known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Idle {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When the snapshot ended.
    pub time_ns: u64,
    /// When the last complete scan pass began: nothing that is known is older. `None` before the first.
    pub as_of_ns: Option<u64>,
    /// `scan`, or `sampling` when at least one target was sampled.
    pub method: &'static str,
    /// The longest scan pass of a target, the resolution of ages; with sampling the aggregation interval. `None`
    /// before the first pass was complete.
    pub pass_s: Option<f64>,
    /// Complete passes so far, of the target with the fewest.
    pub nr_passes: u64,
    /// Resident bytes: the sum of `ages` and `unknown_bytes`.
    pub resident_bytes: u64,
    /// Bytes by idle age, ascending, without gaps between the ages.
    pub ages: Vec<AgeBytes>,
    /// Resident bytes whose idle age is not known.
    pub unknown_bytes: u64,
    /// Those by reason.
    pub unknown: Vec<UnknownBytes>,
    /// Bytes of the targets in swap; `None` when they were not recorded.
    pub swapped_bytes: Option<u64>,
    /// `ages` by kind of pages, kinds without bytes left out; empty when kinds are not known.
    pub kinds: Vec<KindAges>,
    /// Each target, when there are several.
    pub targets: Vec<TargetAges>,
    /// How exact ages are, in a sentence.
    #[serde(skip)]
    pub resolution: String,
    /// What it stands on.
    pub basis: Doubt,
}

/// Bytes whose idle age is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct UnknownBytes {
    /// Why, as in [`UnknownReason::name`].
    pub reason: &'static str,
    /// Bytes.
    pub bytes: u64,
    #[serde(skip)]
    text: &'static str,
}

/// The idle ages of one kind of pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KindAges {
    /// Which kind, as in [`PageKind::name`].
    pub kind: &'static str,
    /// Bytes whose age is known.
    pub bytes: u64,
    /// Bytes of each age of `ages`.
    pub ages: [u64; NR_AGES],
}

/// The idle ages of one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TargetAges {
    /// Which one.
    pub id: u32,
    /// Its process.
    pub pid: Option<u32>,
    /// Its resident bytes.
    pub resident_bytes: u64,
    /// Of those, bytes whose age is not known.
    pub unknown_bytes: u64,
    /// Bytes of each age of `ages`.
    pub ages: [u64; NR_AGES],
}

impl Accumulator for IdleAccumulator {
    type Report = Idle;

    fn add(&mut self, record: &Record) {
        self.layout.add(record);
        if let Some(snapshot) = self.doubt.add(record) {
            self.last.add(snapshot, &self.layout);
            let footprints = self.last.tables().targets.iter().map(|target| target.id);
            let swapped = footprints.filter_map(|id| Some(self.layout.footprint(id)?.swap));
            self.swapped = swapped.reduce(u64::saturating_add);
        }
    }

    fn finish(mut self) -> Idle {
        let all = self.last.tables();
        let sum = all.sum();
        all.warn(&mut self.doubt);
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
            basis: self.doubt,
        }
    }
}

fn numbers(ages: [Bytes; NR_AGES]) -> [u64; NR_AGES] {
    ages.map(|bytes| bytes.0)
}

fn unknown(sum: &AccessTables) -> Vec<UnknownBytes> {
    let one = |reason: UnknownReason| UnknownBytes {
        reason: reason.name(),
        bytes: sum.unknown[reason.index()].0,
        text: reason.text(),
    };
    UnknownReason::ALL.map(one).to_vec()
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
    if all.targets.len() < 2 {
        return Vec::new();
    }
    let target = |TargetTables { id, pid, tables, .. }: &TargetTables| TargetAges {
        id: *id,
        pid: *pid,
        resident_bytes: tables.resident().0,
        unknown_bytes: tables.unknown().0,
        ages: numbers(tables.ages()),
    };
    all.targets.iter().map(target).collect()
}

impl Idle {
    /// A table with bars.
    #[must_use]
    pub fn text(&self, style: &Style) -> String {
        if self.basis.snapshots == 0 {
            return format!("{NO_SNAPSHOTS}\n");
        }
        let mut text = format!(
            "Idle memory of {} resident, in the last of {}\n",
            Bytes(self.resident_bytes),
            self.basis.basis()
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
        let mut row = |name: String, bytes: u64, longer: String| {
            let share = bytes as f64 / self.resident_bytes.max(1) as f64;
            let cells = [name, Bytes(bytes).to_string(), percent(share), longer];
            table.row(cells.into_iter().chain([style.bar(share, bar)]));
        };
        for (nth, age) in self.ages.iter().enumerate().take(self.shown()) {
            let longer: u64 = self.ages[nth..].iter().map(|age| age.bytes).sum();
            let longer = (age.min_s > 0).then(|| Bytes(longer).to_string());
            row(name(age), age.bytes, longer.unwrap_or_default());
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

    /// How many ages are worth a row: those that were watched, and those that have bytes.
    fn shown(&self) -> usize {
        let watched = self.basis.span();
        let is_shown = |age: &AgeBytes| age.bytes > 0 || Nanos::secs(age.min_s) <= watched;
        let last = self.ages.iter().rposition(is_shown);
        last.map_or(0, |last| last + 1)
    }

    /// `min_s,max_s,unknown,bytes,bytes_at_least`: a row for each idle age, then one for each reason why ages are not
    /// known.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut rows = Vec::new();
        for (nth, age) in self.ages.iter().enumerate() {
            let max = age.max_s.map(|s| s.to_string()).unwrap_or_default();
            let longer: u64 = self.ages[nth..].iter().map(|age| age.bytes).sum();
            rows.push([
                age.min_s.to_string(),
                max,
                String::new(),
                age.bytes.to_string(),
                longer.to_string(),
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
