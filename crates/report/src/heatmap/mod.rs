//! Heatmaps: time × address, the access rate as shade or colour.
//!
//! [`HeatmapAccumulator`] sums rates up on a `grid` that stays small whatever the recording's size. [`Heatmap`] is the
//! result, and JSON; `view` fits it to as many rows and columns as a picture has; `text`, `picture` and `html`
//! draw. Addresses without memory are folded away; time runs to the right, addresses upward.

mod grid;
mod html;
mod picture;
mod text;
mod view;

use std::collections::BTreeMap;

use serde::Serialize;
use thermo_recording::model::{Mappings, Record, Snapshot, Target};

use crate::heat::{HeatSizes, rate};
use crate::layout::Layout;
use crate::tables::LastKnown;
use crate::{Accumulator, Doubt, SCHEMA};
pub use grid::{ABSENT, UNKNOWN};
use grid::{Grid, MOST_CELLS, Piece};

/// Columns of the grid; when they are full their time is doubled.
const MOST_COLUMNS: u64 = 512;
/// Cells of all targets together.
const MOST_CELLS_OF_ALL: usize = 2 * MOST_CELLS;
/// Targets with a grid of their own; later ones are only counted.
const MOST_TARGETS: usize = 64;
/// Mappings whose names are kept for one target.
const MOST_NAMES: usize = 8192;

/// A heatmap in the making.
#[derive(Debug, Clone, Default)]
pub struct HeatmapAccumulator {
    layout: Layout,
    doubt: Doubt,
    last: LastKnown,
    column_ns: u64,
    columns: usize,
    targets: BTreeMap<u32, TargetGrid>,
    left_out: std::collections::BTreeSet<u32>,
    names: BTreeMap<u32, BTreeMap<u64, (u64, String)>>,
}

#[derive(Debug, Clone)]
struct TargetGrid {
    pid: Option<u32>,
    grid: Grid,
    /// By column, from the first in which the target lived to the last: whether a snapshot told of all its memory. One
    /// before the first complete scan pass does not.
    told: BTreeMap<usize, bool>,
}

impl TargetGrid {
    fn new(pid: Option<u32>) -> Self {
        Self {
            pid,
            grid: Grid::new(),
            told: BTreeMap::new(),
        }
    }

    fn add(&mut self, pieces: &[Piece], columns: &[(usize, f64)], tells_all: bool) {
        self.grid.add(pieces, columns);
        for (column, _) in columns {
            *self.told.entry(*column).or_default() |= tells_all;
        }
    }

    fn halve_columns(&mut self) {
        self.grid.halve_columns();
        for (column, told) in std::mem::take(&mut self.told) {
            *self.told.entry(column / 2).or_default() |= told;
        }
    }

    /// The areas of the grid. What is absent in a column of which nothing, or not all, was told while the target lived
    /// may have been there: it is unknown.
    fn areas(&self, columns: usize) -> Vec<(u64, u64, Vec<Vec<i16>>)> {
        let mut areas = self.grid.areas(columns);
        let lived = self.told.keys().next().zip(self.told.keys().next_back());
        let lived = lived.map_or(0..0, |(first, last)| *first..*last + 1);
        let in_doubt: Vec<usize> = lived
            .filter(|column| self.told.get(column) != Some(&true))
            .collect();
        for rates in areas.iter_mut().flat_map(|area| &mut area.2) {
            for &column in &in_doubt {
                if let Some(rate) = rates.get_mut(column).filter(|rate| **rate == ABSENT) {
                    *rate = UNKNOWN;
                }
            }
        }
        areas
    }
}

impl Accumulator for HeatmapAccumulator {
    type Report = Heatmap;

    fn add(&mut self, record: &Record) {
        self.layout.add(record);
        if let Record::Mappings(mappings) = record {
            self.learn_names(mappings);
        }
        if let Some(snapshot) = self.doubt.add(record) {
            let columns = self.columns_of(snapshot);
            for target in snapshot
                .targets
                .iter()
                .filter(|target| !target.regions.is_empty())
            {
                self.add_target(target, snapshot.max_nr_accesses, &columns);
            }
            self.keep_small();
            self.last.add(snapshot, &self.layout);
        }
    }

    fn finish(self) -> Heatmap {
        let empty = BTreeMap::new();
        let target = |(id, target): (&u32, &TargetGrid)| {
            let names = self.names.get(id).unwrap_or(&empty);
            let area = |(start, end, rates)| Area {
                start,
                end,
                names: names_of(names, start, end),
                rates,
            };
            TargetMap {
                id: *id,
                pid: target.pid,
                cell_bytes: target.grid.cell_bytes(),
                scanned: target.told.values().any(|told| *told),
                areas: target.areas(self.columns).into_iter().map(area).collect(),
            }
        };
        Heatmap {
            schema: SCHEMA,
            start_ns: self.doubt.start_ns,
            column_ns: self.column_ns,
            columns: self.columns,
            targets: self.targets.iter().map(target).collect(),
            targets_left_out: self.left_out.len(),
            unknown_share: HeatSizes::from(&self.last.tables().sum()).unknown.share,
            basis: self.doubt,
        }
    }
}

impl HeatmapAccumulator {
    /// The columns that `snapshot` covers and the seconds of each.
    fn columns_of(&mut self, snapshot: &Snapshot) -> Vec<(usize, f64)> {
        let origin = self.doubt.start_ns;
        let from = snapshot.start_ns.saturating_sub(origin);
        let to = snapshot.time_ns.saturating_sub(origin).max(from + 1);
        if self.column_ns == 0 {
            self.column_ns = (to - from).max(snapshot.aggr_ns).max(1);
        }
        // The last snapshot may run a little over the border: that alone is no reason to begin a column.
        while (to - 1) / self.column_ns >= MOST_COLUMNS {
            self.column_ns *= 2;
            self.columns = self.columns.div_ceil(2);
            for target in self.targets.values_mut() {
                target.halve_columns();
            }
        }
        let (first, last) = (from / self.column_ns, (to - 1) / self.column_ns);
        self.columns = self.columns.max(last as usize + 1);
        let seconds = |column: u64| {
            let (begin, end) = (column * self.column_ns, (column + 1) * self.column_ns);
            (column as usize, (to.min(end) - from.max(begin)) as f64 / 1e9)
        };
        (first..=last).map(seconds).collect()
    }

    fn add_target(&mut self, target: &Target, max_nr_accesses: u32, columns: &[(usize, f64)]) {
        if self.targets.len() >= MOST_TARGETS && !self.targets.contains_key(&target.id) {
            self.left_out.insert(target.id);
            return;
        }
        let mut pieces = Vec::with_capacity(target.regions.len());
        for region in &target.regions {
            let (rate, unknown) = (rate(region, max_nr_accesses), region.unknown);
            let of_region = self.layout.pieces(target.id, region);
            pieces.extend(of_region.map(|(start, end)| Piece {
                start,
                end,
                rate,
                unknown,
            }));
        }
        let tells_all = target.tables.as_deref().is_none_or(|tables| tables.nr_passes > 0);
        self.targets
            .entry(target.id)
            .or_insert_with(|| TargetGrid::new(target.pid))
            .add(&pieces, columns, tells_all);
    }

    fn keep_small(&mut self) {
        while self
            .targets
            .values()
            .map(|target| target.grid.len())
            .sum::<usize>()
            > MOST_CELLS_OF_ALL
        {
            if let Some(largest) = self.targets.values_mut().max_by_key(|target| target.grid.len()) {
                largest.grid.coarsen();
            }
        }
    }

    fn learn_names(&mut self, mappings: &Mappings) {
        let names = self.names.entry(mappings.target).or_default();
        for mapping in &mappings.mappings {
            let room = names.len() < MOST_NAMES;
            match names.get_mut(&mapping.start) {
                Some((end, name)) if *name == mapping.name => *end = mapping.end.max(*end),
                Some(known) => *known = (mapping.end, mapping.name.clone()),
                None if room => {
                    names.insert(mapping.start, (mapping.end, mapping.name.clone()));
                }
                None => {}
            }
        }
    }
}

/// The names within `start..end`, neighbours of one name together.
fn names_of(names: &BTreeMap<u64, (u64, String)>, start: u64, end: u64) -> Vec<Named> {
    let mut found: Vec<Named> = Vec::new();
    let first = names
        .range(..=start)
        .next_back()
        .map_or(start, |(&below, _)| below);
    for (&from, (to, name)) in names.range(first..end) {
        let (from, to) = (from.max(start), (*to).min(end));
        match found.last_mut() {
            _ if from >= to => {}
            Some(last) if last.name == *name && last.end >= from => last.end = last.end.max(to),
            _ => found.push(Named {
                start: from,
                end: to,
                name: name.clone(),
            }),
        }
    }
    found
}

/// Access rates by time and address.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Heatmap {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When the first column begins.
    pub start_ns: u64,
    /// The time of a column.
    pub column_ns: u64,
    /// How many columns there are.
    pub columns: usize,
    /// Each target that ever had regions.
    pub targets: Vec<TargetMap>,
    /// Targets beyond the most that are kept.
    pub targets_left_out: usize,
    /// The share of memory that could not be judged in the last snapshot, 0 to 1.
    pub unknown_share: f64,
    /// What it stands on.
    pub basis: Doubt,
}

/// The memory of one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TargetMap {
    /// Which one.
    pub id: u32,
    /// Its process.
    pub pid: Option<u32>,
    /// The bytes of a cell.
    pub cell_bytes: u64,
    /// Whether a scan pass over it was complete; if not, there may be memory between the areas.
    pub scanned: bool,
    /// Memory without gaps, ascending.
    pub areas: Vec<Area>,
}

/// Memory without gaps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Area {
    /// First byte.
    pub start: u64,
    /// Byte after the last.
    pub end: u64,
    /// What lies in it.
    pub names: Vec<Named>,
    /// For each cell, ascending, its access rate in thousandths in each column; [`ABSENT`] (-1) where was no
    /// memory or the target did not live, [`UNKNOWN`] (-2) where it could not be judged, or no snapshot told of it.
    pub rates: Vec<Vec<i16>>,
}

/// A named piece of an area.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Named {
    /// First byte.
    pub start: u64,
    /// Byte after the last.
    pub end: u64,
    /// What the kernel calls it; empty for anonymous memory.
    pub name: String,
}

impl Heatmap {
    /// The time all columns cover, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.columns as f64 * self.column_ns as f64 / 1e9
    }

    /// The `most` largest targets in their order, and how many others there are.
    fn largest(&self, most: usize) -> (Vec<&TargetMap>, usize) {
        let bytes = |target: &TargetMap| target.cells() as u64 * target.cell_bytes;
        let mut targets: Vec<&TargetMap> = self.targets.iter().collect();
        targets.sort_by_key(|target| std::cmp::Reverse(bytes(target)));
        targets.truncate(most);
        targets.sort_by_key(|target| target.id);
        let others = self.targets.len() - targets.len() + self.targets_left_out;
        (targets, others)
    }

    /// `start_ns,pid,start,end,access_rate_permille`: a row for each cell and column that held memory; the rate is
    /// empty where it is unknown.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = "start_ns,pid,start,end,access_rate_permille\n".to_owned();
        for target in &self.targets {
            let pid = target.pid.map(|pid| pid.to_string()).unwrap_or_default();
            for area in &target.areas {
                for (index, row) in area.rates.iter().enumerate() {
                    let (start, end) = area.cell(index, target.cell_bytes);
                    for (column, &rate) in row.iter().enumerate().filter(|(_, rate)| **rate != ABSENT) {
                        let time = self.start_ns + column as u64 * self.column_ns;
                        let rate = if rate == UNKNOWN {
                            String::new()
                        } else {
                            rate.to_string()
                        };
                        text.push_str(&format!("{time},{pid},{start},{end},{rate}\n"));
                    }
                }
            }
        }
        text
    }
}

impl TargetMap {
    fn cells(&self) -> usize {
        self.areas.iter().map(|area| area.rates.len()).sum()
    }
}

impl Area {
    /// The addresses of a cell.
    fn cell(&self, index: usize, cell_bytes: u64) -> (u64, u64) {
        let base = self.start / cell_bytes * cell_bytes;
        let start = base.saturating_add(index as u64 * cell_bytes);
        (
            start.max(self.start),
            start.saturating_add(cell_bytes).min(self.end),
        )
    }
}
