//! Working-set size: how many bytes were accessed within an aggregation, as percentiles over all snapshots.
//!
//! The working set of a snapshot is every mapped byte of regions with at least one access; memory that cannot be judged
//! does not count and is told of. A percentile is the nearest rank: `p` percent of the snapshots needed that
//! much or less. Sixteen bytes are kept for each snapshot.

use std::collections::BTreeMap;

use serde::Serialize;
use thermo_core::{Bytes, Nanos};
use thermo_record::model::{Record, Snapshot};

use crate::layout::Layout;
use crate::picture::{LineChart, PictureError};
use crate::style::{Style, Table, csv_text};
use crate::{Accumulator, Doubt, NO_SNAPSHOTS, SCHEMA};

/// The percentiles given when none are asked for.
pub const PERCENTILES: [u8; 5] = [0, 25, 50, 75, 100];

/// Working-set sizes in the making.
#[derive(Debug, Clone)]
pub struct WssAccumulator {
    percentiles: Vec<u8>,
    layout: Layout,
    doubt: Doubt,
    sizes: Vec<(u64, u64)>,
    unknown: u64,
}

impl Default for WssAccumulator {
    fn default() -> Self {
        Self::new(&PERCENTILES)
    }
}

impl WssAccumulator {
    /// An accumulator for these percentiles; those above 100 count as 100.
    #[must_use]
    pub fn new(percentiles: &[u8]) -> Self {
        let percentiles = percentiles
            .iter()
            .map(|&percentile| percentile.min(100))
            .collect();
        Self {
            percentiles,
            layout: Layout::default(),
            doubt: Doubt::default(),
            sizes: Vec::new(),
            unknown: 0,
        }
    }
}

impl Accumulator for WssAccumulator {
    type Report = Wss;

    fn add(&mut self, record: &Record) {
        self.layout.add(record);
        if let Some(snapshot) = self.doubt.add(record) {
            self.sizes
                .push((snapshot.time_ns, working_set(snapshot, &self.layout)));
            self.unknown = self.unknown.max(unknown(snapshot, &self.layout));
        }
    }

    fn finish(mut self) -> Wss {
        if self.unknown > 0 {
            let unknown = Bytes(self.unknown);
            self.doubt.warn(&format!(
                "up to {unknown} could not be judged and are not in the working set."
            ));
        }
        let mut sorted: Vec<u64> = self.sizes.iter().map(|(_, bytes)| *bytes).collect();
        sorted.sort_unstable();
        let percentile = |&percent: &u8| Some((percent, nearest_rank(&sorted, percent)?));
        let percentiles = self.percentiles.iter().filter_map(percentile).collect();
        Wss {
            schema: SCHEMA,
            percentiles,
            sizes: self.sizes,
            unknown_bytes: self.unknown,
            basis: self.doubt,
        }
    }
}

/// The bytes of `snapshot` that were accessed.
#[must_use]
pub fn working_set(snapshot: &Snapshot, layout: &Layout) -> u64 {
    let of_target = |target: &thermo_record::model::Target| -> u64 {
        let accessed = target
            .regions
            .iter()
            .filter(|region| region.nr_accesses > 0 && !region.unknown);
        accessed.map(|region| layout.bytes(target.id, region)).sum()
    };
    snapshot.targets.iter().map(of_target).sum()
}

fn unknown(snapshot: &Snapshot, layout: &Layout) -> u64 {
    let regions = snapshot
        .targets
        .iter()
        .flat_map(|t| t.regions.iter().map(move |region| (t.id, region)));
    regions
        .filter(|(_, region)| region.unknown)
        .map(|(target, region)| layout.bytes(target, region))
        .sum()
}

fn nearest_rank(sorted: &[u64], percent: u8) -> Option<u64> {
    let rank = (sorted.len() * usize::from(percent)).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Working-set sizes of a recording.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Wss {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Bytes by percentile; empty when there was no snapshot.
    pub percentiles: BTreeMap<u8, u64>,
    /// The bytes of each snapshot by its time.
    #[serde(skip)]
    pub sizes: Vec<(u64, u64)>,
    /// The most bytes that could not be judged; they are not in the working set.
    pub unknown_bytes: u64,
    /// What it stands on.
    pub basis: Doubt,
}

impl Wss {
    /// A table of percentiles with bars, then the course over time.
    #[must_use]
    pub fn text(&self, style: &Style) -> String {
        if self.sizes.is_empty() {
            return format!("{NO_SNAPSHOTS}\n");
        }
        let mut text = format!(
            "Working set (bytes accessed within an aggregation), {}\n",
            self.basis.basis()
        );
        text.push_str(&self.rows(style));
        let course = crate::series::binned(&self.sizes, style.width.saturating_sub(12).clamp(8, 120));
        text.push_str(&format!("over time   {}\n", style.sparkline(&course)));
        text.push_str(&format!("unknown     {} at most\n", Bytes(self.unknown_bytes)));
        text + &self.basis.text()
    }

    /// The percentiles as rows with bars.
    pub(crate) fn rows(&self, style: &Style) -> String {
        let most = self.percentiles.values().copied().max().unwrap_or(0).max(1);
        let width = style.width.saturating_sub(26).clamp(8, 100);
        let mut table = Table::new(0, &["percentile", "bytes", ""]);
        for (percentile, &bytes) in &self.percentiles {
            let bar = style.bar(bytes as f64 / most as f64, width);
            table.row([format!("{percentile} %"), Bytes(bytes).to_string(), bar]);
        }
        table.text()
    }

    /// `percentile,bytes`.
    #[must_use]
    pub fn csv(&self) -> String {
        csv_text(
            ["percentile", "bytes"],
            self.percentiles
                .iter()
                .map(|(p, bytes)| [p.to_string(), bytes.to_string()]),
        )
    }

    /// The working set over time with its percentiles as lines.
    #[must_use]
    pub fn svg(&self) -> String {
        self.chart().scene().svg()
    }

    /// The same as a PNG file.
    ///
    /// # Errors
    /// [`PictureError`] when it cannot be encoded.
    pub fn png(&self) -> Result<Vec<u8>, PictureError> {
        self.chart().scene().png()
    }

    /// The same as a page, with the table below.
    #[must_use]
    pub fn html(&self) -> String {
        let table = self.text(&Style {
            width: 100,
            ..Style::default()
        });
        crate::picture::page("Working set", &self.svg(), &table)
    }

    fn chart(&self) -> LineChart {
        let start = self.basis.start_ns;
        let seconds =
            |(time, bytes): &(u64, u64)| (Nanos(time.saturating_sub(start)).as_secs_f64(), *bytes as f64);
        LineChart {
            title: format!(
                "Working set: bytes accessed within an aggregation ({})",
                self.basis.basis()
            ),
            lines: vec![("working set".to_owned(), self.sizes.iter().map(seconds).collect())],
            marks: self
                .percentiles
                .iter()
                .map(|(p, bytes)| (format!("{p} %"), *bytes as f64))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let sorted: Vec<u64> = (1..=10).collect();
        let ranks = [0, 1, 25, 50, 75, 99, 100].map(|percent| nearest_rank(&sorted, percent));
        assert_eq!(ranks, [1, 1, 3, 5, 8, 10, 10].map(Some));
        assert_eq!(nearest_rank(&[], 50), None);
    }
}
