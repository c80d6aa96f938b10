//! The summary that `thermo run` prints: sizes of hot, warm and cold memory, heatmap, working set, monitoring
//! cost.
//!
//! Sizes come from the access tables of the last snapshot with known idle ages. They sum to the resident
//! bytes.

use serde::Serialize;
use thermo_recording::model::{Metadata, Record, Totals};
use thermo_units::Bytes;

use crate::Accumulator;
use crate::ages;
use crate::heat::{COLD_FROM_S, HeatSizes, Share};
use crate::heatmap::{Heatmap, HeatmapAccumulator};
use crate::layout::Layout;
use crate::own_cost::OwnCost;
use crate::style::{Style, Table, percent};
use crate::tables::LastKnown;
use crate::wss::{Wss, WssAccumulator};

/// Schema version of this report's JSON.
pub const SCHEMA: u32 = 2;

/// Builds a [`Summary`].
#[derive(Debug, Clone)]
pub struct SummaryAccumulator {
    start_ns: u64,
    targets: String,
    tracker: String,
    layout: Layout,
    last: LastKnown,
    totals: Option<Totals>,
    heatmap: HeatmapAccumulator,
    wss: WssAccumulator,
    cost: OwnCost,
}

impl SummaryAccumulator {
    /// An accumulator for the recording described by `metadata`.
    #[must_use]
    pub fn new(metadata: &Metadata) -> Self {
        Self {
            start_ns: metadata.start_ns,
            targets: metadata.targets.clone(),
            tracker: metadata.tracker.clone(),
            layout: Layout::default(),
            last: LastKnown::default(),
            totals: None,
            heatmap: HeatmapAccumulator::new(metadata),
            wss: WssAccumulator::default(),
            cost: OwnCost::default(),
        }
    }
}

impl Accumulator for SummaryAccumulator {
    type Report = Summary;

    fn add(&mut self, record: &Record) {
        self.layout.add(record);
        self.heatmap.add(record);
        self.wss.add(record);
        self.cost.add(record, self.start_ns);
        match record {
            Record::Snapshot(snapshot) if crate::confidence::has_data(snapshot) => {
                self.last.add(snapshot, &self.layout);
            }
            Record::Totals(totals) => self.totals = Some(totals.clone()),
            _ => {}
        }
    }

    fn finish(self) -> Summary {
        let tables = self.last.tables();
        let sum = tables.sum();
        Summary {
            schema: SCHEMA,
            targets: self.targets,
            tracker: self.tracker,
            method: sum.method.name(),
            resident_bytes: sum.resident().0,
            sizes: HeatSizes::from(&sum),
            cold_from_s: COLD_FROM_S,
            resolution: tables.unknown_text() + &tables.resolution(),
            totals: self.totals.map(TotalsTable::from),
            wss: self.wss.finish(),
            cost: self.cost,
            heatmap: self.heatmap.finish(),
        }
    }
}

/// The summary of a recording.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The targets, as text.
    pub targets: String,
    /// Name of the tracker.
    pub tracker: String,
    /// `scan`, or `sampling` if at least one target was sampled.
    pub method: &'static str,
    /// Resident bytes of all targets: the sum of `sizes`.
    pub resident_bytes: u64,
    /// Memory by heat.
    pub sizes: HeatSizes,
    /// Minimum idle age of cold memory, in seconds.
    pub cold_from_s: u64,
    /// What is unknown, and the resolution of idle ages, as sentences.
    #[serde(skip)]
    pub resolution: String,
    /// Memory of the machine or of a control group by use, as last recorded.
    pub totals: Option<TotalsTable>,
    /// The working set. Its `basis` has the warnings.
    pub wss: Wss,
    /// Cost of monitoring.
    #[serde(flatten)]
    pub cost: OwnCost,
    /// Access rates by time and address.
    #[serde(skip)]
    pub heatmap: Heatmap,
}

/// Memory of the machine or of a control group by use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TotalsTable {
    /// Time of the reading.
    pub time_ns: u64,
    /// `machine`, or the path of a control group.
    pub scope: String,
    /// Bytes by name.
    pub rows: Vec<TotalsRow>,
}

/// One row of [`TotalsTable`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TotalsRow {
    /// Use of the memory, e.g. `page cache`.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
}

impl TotalsTable {
    /// Memory mapped by page tables; each page counts once.
    fn mapped(&self) -> Bytes {
        let mapped = self.rows.iter().filter(|row| row.name.starts_with("mapped"));
        Bytes(mapped.map(|row| row.bytes).fold(0, u64::saturating_add))
    }
}

impl From<Totals> for TotalsTable {
    fn from(totals: Totals) -> Self {
        let rows = totals.rows.into_iter();
        Self {
            time_ns: totals.time_ns,
            scope: totals.scope,
            rows: rows.map(|(name, bytes)| TotalsRow { name, bytes }).collect(),
        }
    }
}

impl Summary {
    /// A row `key,value` for each value of the JSON; nested keys are joined with dots.
    #[must_use]
    pub fn csv(&self) -> String {
        crate::flat::csv(self)
    }

    /// Sizes, heatmap, working set and cost.
    #[must_use]
    pub fn text(&self, style: &Style) -> String {
        let cost = format!(
            "Own cost {}.\nSlow-down of the targets: {} (estimated).\n",
            self.cost.text(),
            self.cost.slow_down_text()
        );
        if self.wss.basis.snapshots == 0 {
            return self.wss.basis.no_data_text() + &cost;
        }
        let mut text = format!(
            "Memory of {}, {} resident\n",
            style.cut(&self.targets, style.width.max(60) - 30),
            Bytes(self.resident_bytes)
        );
        if let Some(totals) = &self.totals {
            let mapped = totals.mapped();
            text.push_str(&format!("({mapped} if shared pages count once)\n"));
        }
        text.push_str(&self.sizes_text(style));
        text.push('\n');
        if let Some(totals) = &self.totals {
            text.push_str(&totals.text(style));
            text.push('\n');
        }
        text.push_str(&self.heatmap.map_text(style));
        text.push('\n');
        text.push_str(&self.wss.rows(style));
        text.push('\n');
        text.push_str(&cost);
        text + &self.wss.basis.text()
    }

    fn sizes_text(&self, style: &Style) -> String {
        let (sizes, cold_from) = (&self.sizes, ages::text(self.cold_from_s));
        let rows = [
            ("hot", sizes.hot, "accessed in the last pass".to_owned()),
            ("warm", sizes.warm, format!("idle for less than {cold_from}")),
            ("cold", sizes.cold, format!("idle for {cold_from} or longer")),
            ("unknown", sizes.unknown, "idle age not known".to_owned()),
        ];
        let bar = style.width.saturating_sub(58).clamp(6, 40);
        let mut table = Table::new(2, &["", "", "size", "of resident", ""]);
        for (name, Share { bytes, share }, meaning) in rows {
            let cells = [
                format!("  {name}"),
                meaning,
                Bytes(bytes).to_string(),
                percent(share),
            ];
            table.row(cells.into_iter().chain([style.bar(share, bar)]));
        }
        let mut text = table.text();
        for line in self.resolution.lines() {
            text.push_str(&format!("  {line}\n"));
        }
        text + &style.plain(&format!("  Tracker: {}.\n", self.tracker))
    }
}

impl TotalsTable {
    /// A title, and a row with a bar for each use, as share of the sum.
    fn text(&self, style: &Style) -> String {
        let title = match self.scope.as_str() {
            "machine" => "Memory of the machine".to_owned(),
            group => format!("Memory of the control group {group}"),
        };
        let sum = self.rows.iter().map(|row| u128::from(row.bytes)).sum::<u128>();
        let bar = style.width.saturating_sub(58).clamp(6, 40);
        let mut table = Table::new(1, &["", "size", "share", ""]);
        for row in &self.rows {
            let share = row.bytes as f64 / sum.max(1) as f64;
            table.row([
                format!("  {}", style.plain(&style.cut(&row.name, 30))),
                Bytes(row.bytes).to_string(),
                percent(share),
                style.bar(share, bar),
            ]);
        }
        format!(
            "{}\n{}",
            style.plain(&style.cut(&title, style.width.max(60))),
            table.text()
        )
    }
}
