//! Heatmaps: time by address, with the access rate as shade or colour.
//!
//! [`HeatmapAccumulator`] sums rates on a `grid` of bounded size. [`Heatmap`] is the result and its JSON.
//! `view` fits it to the rows and columns of a picture; `text`, `picture` and `html` draw it. Addresses
//! without memory are folded. Time runs to the right, addresses upward.

mod grid;
mod html;
mod picture;
mod rare_regions;
mod text;
mod view;

use std::collections::BTreeMap;

use serde::Serialize;
use thermo_recording::model::{Mappings, Metadata, Record, Snapshot, Target, target_name};

use crate::heat::{HeatSizes, rate};
use crate::layout::Layout;
use crate::tables::{LastKnown, has_data};
use crate::{Accumulator, Basis, SCHEMA};
pub use grid::{ABSENT, UNKNOWN};
use grid::{Grid, MAX_CELLS, Piece};
use rare_regions::RareRegions;
pub use view::FittedRow;

/// Maximum number of columns of the grid; when it is reached, the duration of a column doubles.
const MAX_COLUMNS: u64 = 512;
/// Maximum number of cells of all targets together.
const MAX_TOTAL_CELLS: usize = 2 * MAX_CELLS;
/// Maximum number of targets with a grid; further targets are only counted.
const MAX_TARGETS: usize = 64;
/// Maximum number of mapping names kept for one target.
const MAX_NAMES: usize = 8192;

/// Builds a [`Heatmap`].
#[derive(Debug, Clone, Default)]
pub struct HeatmapAccumulator {
    layout: Layout,
    basis: Basis,
    last: LastKnown,
    column_ns: u64,
    columns: usize,
    targets: BTreeMap<u32, TargetGrid>,
    rare: RareRegions,
    left_out: std::collections::BTreeSet<u32>,
    /// Mapping names by target and start address, with the end address.
    names: BTreeMap<u32, BTreeMap<u64, (u64, String)>>,
    /// [`Metadata::imported`].
    imported: bool,
}

#[derive(Debug, Clone)]
struct TargetGrid {
    pid: Option<u32>,
    grid: Grid,
    /// For each column with a snapshot of the target: true if a snapshot covers all of its memory. Snapshots
    /// before the end of the first scan pass do not.
    covered: BTreeMap<usize, bool>,
}

impl TargetGrid {
    fn new(pid: Option<u32>) -> Self {
        Self {
            pid,
            grid: Grid::new(),
            covered: BTreeMap::new(),
        }
    }

    fn add(&mut self, pieces: &[Piece], columns: &[(usize, f64)], covers_all: bool) {
        self.grid.add(pieces, columns);
        for (column, _) in columns {
            *self.covered.entry(*column).or_default() |= covers_all;
        }
    }

    fn halve_columns(&mut self) {
        self.grid.halve_columns();
        for (column, covered) in std::mem::take(&mut self.covered) {
            *self.covered.entry(column / 2).or_default() |= covered;
        }
    }

    /// The areas of the grid. In columns that no snapshot covers completely while the target was live, absent
    /// cells may have had memory, so they become [`UNKNOWN`].
    fn areas(&self, columns: usize) -> Vec<(u64, u64, Vec<Vec<i16>>)> {
        let mut areas = self.grid.areas(columns);
        let live = self.covered.keys().next().zip(self.covered.keys().next_back());
        let live = live.map_or(0..0, |(first, last)| *first..*last + 1);
        let uncovered: Vec<usize> = live
            .filter(|column| self.covered.get(column) != Some(&true))
            .collect();
        for rates in areas.iter_mut().flat_map(|area| &mut area.2) {
            for &column in &uncovered {
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
            self.add_names(mappings);
        }
        if let Some(snapshot) = self.basis.add(record) {
            self.extend_to(snapshot);
            for target in &snapshot.targets {
                if let Some(from) = self.rare.begin(target, snapshot) {
                    let columns = self.columns_between(from, snapshot.time_ns);
                    self.add_target(target, snapshot.max_nr_accesses, &columns);
                } else if has_data(target) {
                    let columns = self.columns_between(snapshot.start_ns, snapshot.time_ns);
                    self.wait_for_regions(target.id, &columns);
                }
            }
            self.limit_cells();
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
                name: target_name(self.imported, *id, target.pid),
                cell_bytes: target.grid.cell_bytes(),
                scanned: target.covered.values().any(|covered| *covered),
                areas: target.areas(self.columns).into_iter().map(area).collect(),
            }
        };
        Heatmap {
            schema: SCHEMA,
            start_ns: self.basis.start_ns,
            column_ns: self.column_ns,
            columns: self.columns,
            targets: self.targets.iter().map(target).collect(),
            targets_left_out: self.left_out.len(),
            unknown_share: HeatSizes::from(&self.last.tables().sum()).unknown.share,
            basis: self.basis,
        }
    }
}

impl HeatmapAccumulator {
    /// An accumulator for the recording described by `metadata`.
    #[must_use]
    pub fn new(metadata: &Metadata) -> Self {
        Self {
            imported: metadata.imported,
            ..Self::default()
        }
    }

    /// Makes columns up to the end of `snapshot`.
    fn extend_to(&mut self, snapshot: &Snapshot) {
        let origin = self.basis.start_ns;
        let from = snapshot.start_ns.saturating_sub(origin);
        let to = snapshot.time_ns.saturating_sub(origin).max(from + 1);
        if self.column_ns == 0 {
            self.column_ns = (to - from).max(snapshot.aggr_ns).max(1);
        }
        // `to` is exclusive: a snapshot that ends on a column border begins no new column.
        while (to - 1) / self.column_ns >= MAX_COLUMNS {
            self.column_ns *= 2;
            self.columns = self.columns.div_ceil(2);
            for target in self.targets.values_mut() {
                target.halve_columns();
            }
        }
        self.columns = self.columns.max(((to - 1) / self.column_ns) as usize + 1);
    }

    /// The columns that the time from `from_ns` to `to_ns` covers, each with the seconds covered.
    fn columns_between(&self, from_ns: u64, to_ns: u64) -> Vec<(usize, f64)> {
        let from = from_ns.saturating_sub(self.basis.start_ns);
        let to = to_ns.saturating_sub(self.basis.start_ns).max(from + 1);
        let (first, last) = (from / self.column_ns, (to - 1) / self.column_ns);
        let seconds = |column: u64| {
            let (begin, end) = (column * self.column_ns, (column + 1) * self.column_ns);
            (column as usize, (to.min(end) - from.max(begin)) as f64 / 1e9)
        };
        (first..=last).map(seconds).collect()
    }

    fn add_target(&mut self, target: &Target, max_nr_accesses: u32, columns: &[(usize, f64)]) {
        if self.targets.len() >= MAX_TARGETS && !self.targets.contains_key(&target.id) {
            self.left_out.insert(target.id);
            return;
        }
        let mut pieces = Vec::with_capacity(target.regions.len());
        for region in &target.regions {
            let (rate, unknown) = (rate(region, max_nr_accesses), region.unknown);
            let ranges = self.layout.mapped_ranges(target.id, region);
            pieces.extend(ranges.map(|(start, end)| Piece {
                start,
                end,
                rate,
                unknown,
            }));
        }
        let covers_all = target.tables.as_deref().is_none_or(|tables| tables.nr_passes > 0);
        self.targets
            .entry(target.id)
            .or_insert_with(|| TargetGrid::new(target.pid))
            .add(&pieces, columns, covers_all);
    }

    /// The target lives, and its regions may come later. Until then they are not known.
    fn wait_for_regions(&mut self, target: u32, columns: &[(usize, f64)]) {
        if let Some(target) = self.targets.get_mut(&target) {
            target.add(&[], columns, false);
        }
    }

    fn limit_cells(&mut self) {
        while self
            .targets
            .values()
            .map(|target| target.grid.len())
            .sum::<usize>()
            > MAX_TOTAL_CELLS
        {
            if let Some(largest) = self.targets.values_mut().max_by_key(|target| target.grid.len()) {
                largest.grid.coarsen();
            }
        }
    }

    fn add_names(&mut self, mappings: &Mappings) {
        let names = self.names.entry(mappings.target).or_default();
        for mapping in &mappings.mappings {
            let has_room = names.len() < MAX_NAMES;
            match names.get_mut(&mapping.start) {
                Some((end, name)) if *name == mapping.name => *end = mapping.end.max(*end),
                Some(known) => *known = (mapping.end, mapping.name.clone()),
                None if has_room => {
                    names.insert(mapping.start, (mapping.end, mapping.name.clone()));
                }
                None => {}
            }
        }
    }
}

/// The mapping names within `start..end`; adjacent mappings of the same name are merged.
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
    /// Start of the first column.
    pub start_ns: u64,
    /// Duration of a column.
    pub column_ns: u64,
    /// Number of columns.
    pub columns: usize,
    /// One entry for each target that had regions, up to a maximum number.
    pub targets: Vec<TargetMap>,
    /// Number of further targets.
    pub targets_left_out: usize,
    /// Share of resident memory whose idle age is unknown in the last snapshot, 0 to 1.
    pub unknown_share: f64,
    /// The data behind the report.
    pub basis: Basis,
}

/// The memory of one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TargetMap {
    /// Target id.
    pub id: u32,
    /// Process id; `None` for physical memory, or if the recording does not say.
    pub pid: Option<u32>,
    /// [`target_name`].
    #[serde(skip)]
    pub name: String,
    /// Size of a cell in bytes.
    pub cell_bytes: u64,
    /// True if a scan pass was complete. If not, there may be memory between the areas.
    pub scanned: bool,
    /// Contiguous areas, in ascending order.
    pub areas: Vec<Area>,
}

/// A contiguous range of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// The mappings in the area.
    pub names: Vec<Named>,
    /// One row for each cell, in ascending order: the access rate in each column in thousandths. [`ABSENT`]
    /// (-1): no memory, or no live target. [`UNKNOWN`] (-2): accesses unknown, or no snapshot covers the
    /// cell.
    pub rates: Vec<Vec<i16>>,
}

/// A named range of an area.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Named {
    /// First address.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// The kernel's name of the mapping; empty for anonymous memory.
    pub name: String,
}

impl Heatmap {
    /// Duration of all columns together, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.columns as f64 * self.column_ns as f64 / 1e9
    }

    /// The heatmap with at most `columns` columns, and about `rows` rows for all targets: by target, in
    /// ascending order of address.
    #[must_use]
    pub fn fitted(&self, columns: usize, rows: usize) -> Vec<FittedRow> {
        let targets: Vec<&TargetMap> = self.targets.iter().collect();
        view::rows(&targets, columns.min(self.columns), rows)
    }

    /// As [`Self::fitted`], with only the targets `ids`.
    #[must_use]
    pub fn fitted_targets(&self, ids: &[u32], columns: usize, rows: usize) -> Vec<FittedRow> {
        let targets = self.targets.iter().filter(|target| ids.contains(&target.id));
        view::rows(&targets.collect::<Vec<_>>(), columns.min(self.columns), rows)
    }

    /// The `count` largest targets in order of their ids, and the number of other targets.
    fn largest(&self, count: usize) -> (Vec<&TargetMap>, usize) {
        let bytes = |target: &TargetMap| target.cells() as u64 * target.cell_bytes;
        let mut targets: Vec<&TargetMap> = self.targets.iter().collect();
        targets.sort_by_key(|target| std::cmp::Reverse(bytes(target)));
        targets.truncate(count);
        targets.sort_by_key(|target| target.id);
        let others = self.targets.len() - targets.len() + self.targets_left_out;
        (targets, others)
    }

    /// `start_ns,pid,start,end,access_rate_permille`: a row for each cell and column with memory. An unknown
    /// rate is empty.
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
    /// Start and end address of cell number `index`.
    fn cell(&self, index: usize, cell_bytes: u64) -> (u64, u64) {
        let base = self.start / cell_bytes * cell_bytes;
        let start = base.saturating_add(index as u64 * cell_bytes);
        (
            start.max(self.start),
            start.saturating_add(cell_bytes).min(self.end),
        )
    }
}
