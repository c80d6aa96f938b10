//! A heatmap fitted to the rows and columns of a picture.
//!
//! Areas become bands. Those too small for a row of their own are put together with their neighbours, so that a process
//! of a thousand small mappings is still a picture.

use std::collections::BTreeMap;

use super::{ABSENT, Area, TargetMap, UNKNOWN};

/// A target, its bands ascending by address.
pub(crate) struct TargetView<'a> {
    pub(crate) target: &'a TargetMap,
    pub(crate) bands: Vec<Band<'a>>,
}

/// Memory drawn without a break; between bands lies a fold.
pub(crate) struct Band<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) rows: Vec<Row<'a>>,
}

/// One row: cells of one band, lowest first, as rates in thousandths by column.
pub(crate) struct Row<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The name that most of its bytes have.
    pub(crate) name: Option<&'a str>,
    /// How many other names it has.
    pub(crate) more_names: usize,
    pub(crate) rates: Vec<i16>,
}

/// A cell on its way into a row.
#[derive(Clone, Copy)]
struct Cell<'a> {
    area: &'a Area,
    index: usize,
}

/// `targets` in `columns` columns and about `rows` rows, no band with fewer than `least`.
pub(crate) fn fit<'a>(
    targets: &[&'a TargetMap],
    columns: usize,
    rows: usize,
    least: usize,
) -> Vec<TargetView<'a>> {
    let bytes: f64 = targets
        .iter()
        .map(|target| target.cells() as f64 * target.cell_bytes as f64)
        .sum();
    let mut bytes_per_row = bytes / rows.max(1) as f64;
    // Small bands take more than their share, so the scale is lowered until all fit, or until it helps no more.
    for _ in 0..24 {
        let taken: usize = targets
            .iter()
            .map(|t| rows_of(&bands(t, bytes_per_row), t, bytes_per_row, least))
            .sum();
        if taken <= rows {
            break;
        }
        bytes_per_row *= 1.15;
    }
    let target = |target: &&'a TargetMap| {
        let bands = bands(target, bytes_per_row);
        let band = |cells: &Vec<Cell<'_>>| cells.len() as f64 * target.cell_bytes as f64 / bytes_per_row;
        let drawn = bands
            .iter()
            .map(|cells| draw(cells, target, band(cells).round() as usize, least, columns));
        TargetView {
            target,
            bands: drawn.collect(),
        }
    };
    targets.iter().map(target).collect()
}

fn rows_of(bands: &[Vec<Cell<'_>>], target: &TargetMap, bytes_per_row: f64, least: usize) -> usize {
    let rows = |cells: &Vec<Cell<'_>>| {
        (cells.len() as f64 * target.cell_bytes as f64 / bytes_per_row).round() as usize
    };
    bands.iter().map(|cells| rows(cells).max(least).max(1)).sum()
}

/// The areas of `target`, small neighbours together.
fn bands(target: &TargetMap, bytes_per_row: f64) -> Vec<Vec<Cell<'_>>> {
    let cell_bytes = target.cell_bytes as f64;
    let mut bands: Vec<Vec<Cell<'_>>> = Vec::new();
    let mut small = false;
    for area in &target.areas {
        let bytes = area.rates.len() as f64 * cell_bytes;
        let cells = (0..area.rates.len()).map(|index| Cell { area, index });
        match bands.last_mut() {
            Some(band) if small && bytes < bytes_per_row / 2.0 => band.extend(cells),
            _ => bands.push(cells.collect()),
        }
        small = bands
            .last()
            .is_some_and(|band| (band.len() as f64 * cell_bytes) < bytes_per_row / 2.0);
    }
    bands
}

fn draw<'a>(cells: &[Cell<'a>], target: &TargetMap, rows: usize, least: usize, columns: usize) -> Band<'a> {
    let rows = rows.max(least).max(1);
    let row = |row: usize| {
        let low = row * cells.len() / rows;
        let high = ((row + 1) * cells.len() / rows).clamp(low + 1, cells.len());
        let cells = &cells[low..high];
        let (start, _) = cells[0].area.cell(cells[0].index, target.cell_bytes);
        let last = cells[cells.len() - 1];
        let (_, end) = last.area.cell(last.index, target.cell_bytes);
        let rates = (0..columns).map(|column| mean(cells, column, columns)).collect();
        let (name, more_names) = name(cells, start, end);
        Row {
            start,
            end,
            name,
            more_names,
            rates,
        }
    };
    let rows: Vec<Row<'a>> = (0..rows).map(row).collect();
    let (start, end) = (rows[0].start, rows[rows.len() - 1].end);
    Band { start, end, rows }
}

/// The mean rate of `cells` in one of `columns` columns of a picture.
fn mean(cells: &[Cell<'_>], column: usize, columns: usize) -> i16 {
    let (mut sum, mut known, mut unknown) = (0_i64, 0_i64, 0_i64);
    for cell in cells {
        let rates = &cell.area.rates[cell.index];
        let low = column * rates.len() / columns;
        let high = ((column + 1) * rates.len() / columns).clamp(low + 1, rates.len().max(low + 1));
        for &rate in rates.get(low..high).unwrap_or_default() {
            match rate {
                ABSENT => {}
                UNKNOWN => unknown += 1,
                rate => {
                    sum += i64::from(rate);
                    known += 1;
                }
            }
        }
    }
    match (known, unknown) {
        (0, 0) => ABSENT,
        (known, unknown) if unknown > known => UNKNOWN,
        // A trace of access must not round to none: cold means that nothing was seen.
        (known, _) => (((sum + known / 2) / known) as i16).max(i16::from(sum > 0)),
    }
}

/// The name that most bytes of `start..end` have, and how many others there are.
fn name<'a>(cells: &[Cell<'a>], start: u64, end: u64) -> (Option<&'a str>, usize) {
    let mut bytes_of: BTreeMap<&str, u64> = BTreeMap::new();
    let mut seen: Option<*const Area> = None;
    for cell in cells {
        if seen == Some(std::ptr::from_ref(cell.area)) {
            continue;
        }
        seen = Some(std::ptr::from_ref(cell.area));
        for named in &cell.area.names {
            let overlap = named.end.min(end).saturating_sub(named.start.max(start));
            if overlap > 0 {
                *bytes_of.entry(&named.name).or_default() += overlap;
            }
        }
    }
    let best = bytes_of
        .iter()
        .max_by_key(|(_, bytes)| **bytes)
        .map(|(name, _)| *name);
    (best, bytes_of.len().saturating_sub(1))
}

/// `libc.so.6`, or `libc.so.6 +2` when there is more.
pub(crate) fn labelled(name: &str, more: usize) -> String {
    if more == 0 {
        name.to_owned()
    } else {
        format!("{name} +{more}")
    }
}
