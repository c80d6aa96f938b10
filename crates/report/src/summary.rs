//! The end of `thermo run`: how much memory is hot, warm and cold, where it is, how much is needed, what looking cost.
//!
//! Sizes are means over the last [`WINDOW`] snapshots: regions have settled by then, and one snapshot's luck
//! of sampling does not show.

use std::collections::VecDeque;

use serde::Serialize;
use thermo_core::Bytes;
use thermo_record::model::{Metadata, Record};

use crate::heat::{HOT_RATE, HeatSizes, Share};
use crate::heatmap::{Heatmap, HeatmapAccumulator};
use crate::info::OwnCost;
use crate::layout::Layout;
use crate::style::{Style, Table, percent};
use crate::wss::{Wss, WssAccumulator};
use crate::{Accumulator, NO_SNAPSHOTS, SCHEMA};

/// Snapshots the sizes are taken from.
pub const WINDOW: usize = 10;

/// A summary in the making.
#[derive(Debug, Clone)]
pub struct SummaryAccumulator {
    start_ns: u64,
    targets: String,
    tracker: String,
    layout: Layout,
    last: VecDeque<HeatSizes>,
    rss: Option<u64>,
    heatmap: HeatmapAccumulator,
    wss: WssAccumulator,
    cost: OwnCost,
}

impl SummaryAccumulator {
    /// A summary of the recording of `metadata`.
    #[must_use]
    pub fn new(metadata: &Metadata) -> Self {
        Self {
            start_ns: metadata.start_ns,
            targets: metadata.targets.clone(),
            tracker: metadata.tracker.clone(),
            layout: Layout::default(),
            last: VecDeque::new(),
            rss: None,
            heatmap: HeatmapAccumulator::default(),
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
            Record::Snapshot(snapshot) if crate::doubt::lives(snapshot) => {
                if self.last.len() == WINDOW {
                    self.last.pop_front();
                }
                self.last.push_back(HeatSizes::of(snapshot, &self.layout));
                let living = snapshot
                    .targets
                    .iter()
                    .filter(|target| !target.regions.is_empty());
                self.rss = living
                    .map(|target| Some(self.layout.footprint(target.id)?.rss))
                    .sum();
            }
            _ => {}
        }
    }

    fn finish(self) -> Summary {
        Summary {
            schema: SCHEMA,
            targets: self.targets,
            tracker: self.tracker,
            sizes: mean(&self.last),
            sizes_from_snapshots: self.last.len(),
            rss_bytes: self.rss,
            wss: self.wss.finish(),
            cost: self.cost,
            heatmap: self.heatmap.finish(),
        }
    }
}

fn mean(all: &VecDeque<HeatSizes>) -> HeatSizes {
    let n = all.len().max(1) as u64;
    let share = |of: fn(&HeatSizes) -> Share| {
        let mut sum = Share::default();
        for sizes in all {
            sum.add(of(sizes).bytes, of(sizes).access_rate);
        }
        Share {
            bytes: sum.bytes / n,
            ..sum
        }
    };
    HeatSizes {
        hot: share(|sizes| sizes.hot),
        warm: share(|sizes| sizes.warm),
        cold: share(|sizes| sizes.cold),
        unknown: share(|sizes| sizes.unknown),
        cold_resident: all
            .iter()
            .map(|sizes| sizes.cold_resident)
            .sum::<Option<u64>>()
            .map(|sum| sum / n),
        with_gaps: all.iter().any(|sizes| sizes.with_gaps),
    }
}

/// What a run showed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What was watched, in words.
    pub targets: String,
    /// Name of the tracker.
    pub tracker: String,
    /// Memory by heat, mean of the last snapshots.
    pub sizes: HeatSizes,
    /// Of how many.
    pub sizes_from_snapshots: usize,
    /// Resident bytes of all targets at the last snapshot.
    pub rss_bytes: Option<u64>,
    /// The working set; its `basis` carries the warnings.
    pub wss: Wss,
    /// What the monitoring cost.
    #[serde(flatten)]
    pub cost: OwnCost,
    /// Time by address, for the pictures.
    #[serde(skip)]
    pub heatmap: Heatmap,
}

impl Summary {
    /// A row `key,value` for each fact of the JSON; deeper keys are joined with dots.
    #[must_use]
    pub fn csv(&self) -> String {
        crate::flat::csv(self)
    }

    /// Sizes, heatmap, working set and cost.
    #[must_use]
    pub fn text(&self, style: &Style) -> String {
        let cost = format!(
            "Watching cost {}.\nIt slows the targets down by {} (an estimate).\n",
            self.cost.text(),
            self.cost.slow_down_text()
        );
        if self.sizes_from_snapshots == 0 {
            return format!("{NO_SNAPSHOTS}\n{cost}");
        }
        let resident = self
            .rss_bytes
            .map(|rss| format!(", {} resident", Bytes(rss)))
            .unwrap_or_default();
        let mut text = format!(
            "Memory of {}{resident}\n",
            style.cut(&self.targets, style.width.max(60) - 30)
        );
        text.push_str(&self.sizes_text(style));
        text.push('\n');
        text.push_str(&self.heatmap.text(style));
        text.push_str(&format!(
            "\nWorking set (bytes accessed within an aggregation), {}\n",
            self.wss.basis.basis()
        ));
        text.push_str(&self.wss.rows(style));
        text.push('\n');
        text.push_str(&cost);
        text + &self.wss.basis.text()
    }

    fn sizes_text(&self, style: &Style) -> String {
        let sizes = &self.sizes;
        let (cold_name, gone) = match (sizes.cold_resident, sizes.with_gaps) {
            (Some(resident), _) => ("cold, in memory", Some(sizes.cold.bytes.saturating_sub(resident))),
            (None, true) => ("cold, or gaps", None),
            (None, false) => ("cold", None),
        };
        let cold = sizes.cold_resident.unwrap_or(sizes.cold.bytes);
        let shown = sizes.hot.bytes + sizes.warm.bytes + cold + sizes.unknown.bytes;
        let mut rows = vec![
            ("hot", sizes.hot.bytes, rate(sizes.hot)),
            ("warm", sizes.warm.bytes, rate(sizes.warm)),
        ];
        rows.push((cold_name, cold, "not accessed".to_owned()));
        rows.push(("unknown", sizes.unknown.bytes, "shared or unreadable".to_owned()));
        let bar = style.width.saturating_sub(54).clamp(6, 40);
        let mut table = Table::new(1, &["", "size", "share", "accessed in", ""]);
        for (name, bytes, accessed) in rows {
            let share = bytes as f64 / shown.max(1) as f64;
            let cells = [format!("  {name}"), Bytes(bytes).to_string(), percent(share)];
            table.row(cells.into_iter().chain([accessed, style.bar(share, bar)]));
        }
        let mut text = table.text();
        if let Some(gone) = gone.filter(|gone| *gone > 0) {
            let gone = Bytes(gone);
            text.push_str(&format!(
                "  and {gone} mapped but not in memory (never touched, or swapped out)\n"
            ));
        }
        let plural = if self.sizes_from_snapshots == 1 { "" } else { "s" };
        text.push_str(&style.plain(&format!(
            "  (hot: in ≥{HOT_RATE} of looks; mean of the last {} snapshot{plural}; tracker {})\n",
            self.sizes_from_snapshots, self.tracker
        )));
        text
    }
}

fn rate(share: Share) -> String {
    match share.bytes {
        0 => String::new(),
        _ => format!("{} of looks", percent(share.access_rate)),
    }
}
