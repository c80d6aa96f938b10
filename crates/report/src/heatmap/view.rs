//! Fits a heatmap to the rows and columns of a picture.
//!
//! Areas become bands. An area too small for a row of its own is merged with its neighbours, so that a
//! process with a thousand small mappings stays readable.

use std::collections::BTreeMap;

use super::{ABSENT, Area, TargetMap, UNKNOWN};

/// A target and its bands, in ascending order of address.
pub(crate) struct TargetView<'a> {
    pub(crate) target: &'a TargetMap,
    pub(crate) bands: Vec<Band<'a>>,
}

/// Memory drawn without a break. Gaps between bands are folded.
pub(crate) struct Band<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) rows: Vec<Row<'a>>,
}

/// One row of a band.
pub(crate) struct Row<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The name of the mapping with the most bytes.
    pub(crate) name: Option<&'a str>,
    /// Number of other names in the row.
    pub(crate) more_names: usize,
    /// Access rate of each column in thousandths, [`ABSENT`] or [`UNKNOWN`].
    pub(crate) rates: Vec<i16>,
}

/// A row of a heatmap that was fitted to a size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FittedRow {
    /// Target id.
    pub target: u32,
    /// Process id; `None` for physical memory, or if the recording does not say.
    pub pid: Option<u32>,
    /// First address.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// The kernel's name of the largest mapping; empty for anonymous memory, or if it is not known.
    pub name: String,
    /// Access rate of each column in thousandths, [`ABSENT`] or [`UNKNOWN`].
    pub rates: Vec<i16>,
}

/// `targets` in at most `columns` columns and about `rows` rows.
pub(super) fn rows(targets: &[&TargetMap], columns: usize, rows: usize) -> Vec<FittedRow> {
    let mut fitted = Vec::new();
    for TargetView { target, bands } in fit(targets, columns, rows, 1) {
        fitted.extend(bands.into_iter().flat_map(|band| band.rows).map(|row| FittedRow {
            target: target.id,
            pid: target.pid,
            start: row.start,
            end: row.end,
            name: row.name.unwrap_or_default().to_owned(),
            rates: row.rates,
        }));
    }
    fitted
}

/// A cell of an area.
#[derive(Clone, Copy)]
struct Cell<'a> {
    area: &'a Area,
    index: usize,
}

/// Fits `targets` to `columns` columns and about `rows` rows; each band has at least `min_rows` rows.
pub(crate) fn fit<'a>(
    targets: &[&'a TargetMap],
    columns: usize,
    rows: usize,
    min_rows: usize,
) -> Vec<TargetView<'a>> {
    let bytes: f64 = targets
        .iter()
        .map(|target| target.cells() as f64 * target.cell_bytes as f64)
        .sum();
    let mut bytes_per_row = bytes / rows.max(1) as f64;
    // Small bands take more than their share of rows, so the scale is coarsened until all bands fit. 24 steps
    // are a factor of 28; with more bands than rows, no scale fits.
    for _ in 0..24 {
        let used: usize = targets
            .iter()
            .map(|t| count_rows(&bands(t, bytes_per_row), t, bytes_per_row, min_rows))
            .sum();
        if used <= rows {
            break;
        }
        bytes_per_row *= 1.15;
    }
    let target = |target: &&'a TargetMap| {
        let bands = bands(target, bytes_per_row);
        let bands = bands.iter().map(|cells| {
            let rows = rows_of_band(cells, target, bytes_per_row, min_rows);
            band(cells, target, rows, columns)
        });
        TargetView {
            target,
            bands: bands.collect(),
        }
    };
    targets.iter().map(target).collect()
}

fn count_rows(bands: &[Vec<Cell<'_>>], target: &TargetMap, bytes_per_row: f64, min_rows: usize) -> usize {
    let rows = bands
        .iter()
        .map(|cells| rows_of_band(cells, target, bytes_per_row, min_rows));
    rows.sum()
}

/// Number of rows of a band, at least 1 and `min_rows`.
fn rows_of_band(cells: &[Cell<'_>], target: &TargetMap, bytes_per_row: f64, min_rows: usize) -> usize {
    let rows = (cells.len() as f64 * target.cell_bytes as f64 / bytes_per_row).round() as usize;
    rows.max(min_rows).max(1)
}

/// The cells of `target` by band; small neighbouring areas share a band.
fn bands(target: &TargetMap, bytes_per_row: f64) -> Vec<Vec<Cell<'_>>> {
    let cell_bytes = target.cell_bytes as f64;
    let mut bands: Vec<Vec<Cell<'_>>> = Vec::new();
    let mut is_small = false;
    for area in &target.areas {
        let bytes = area.rates.len() as f64 * cell_bytes;
        let cells = (0..area.rates.len()).map(|index| Cell { area, index });
        match bands.last_mut() {
            Some(band) if is_small && bytes < bytes_per_row / 2.0 => band.extend(cells),
            _ => bands.push(cells.collect()),
        }
        is_small = bands
            .last()
            .is_some_and(|band| (band.len() as f64 * cell_bytes) < bytes_per_row / 2.0);
    }
    bands
}

fn band<'a>(cells: &[Cell<'a>], target: &TargetMap, rows: usize, columns: usize) -> Band<'a> {
    let row = |row: usize| {
        let low = row * cells.len() / rows;
        let high = ((row + 1) * cells.len() / rows).clamp(low + 1, cells.len());
        let cells = &cells[low..high];
        let (start, _) = cells[0].area.cell(cells[0].index, target.cell_bytes);
        let last = cells[cells.len() - 1];
        let (_, end) = last.area.cell(last.index, target.cell_bytes);
        let rates = (0..columns)
            .map(|column| mean_rate(cells, column, columns))
            .collect();
        let (name, more_names) = main_name(cells, start, end);
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

/// The mean rate of `cells` in one of the `columns` columns of a picture.
fn mean_rate(cells: &[Cell<'_>], column: usize, columns: usize) -> i16 {
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
        // A low rate must not round to 0: 0 means no access at all.
        (known, _) => (((sum + known / 2) / known) as i16).max(i16::from(sum > 0)),
    }
}

/// The mapping name with the most bytes of `start..end`, and the number of other names.
fn main_name<'a>(cells: &[Cell<'a>], start: u64, end: u64) -> (Option<&'a str>, usize) {
    let mut bytes_by_name: BTreeMap<&str, u64> = BTreeMap::new();
    let mut previous: Option<*const Area> = None;
    for cell in cells {
        if previous == Some(std::ptr::from_ref(cell.area)) {
            continue;
        }
        previous = Some(std::ptr::from_ref(cell.area));
        for named in &cell.area.names {
            let overlap = named.end.min(end).saturating_sub(named.start.max(start));
            if overlap > 0 {
                *bytes_by_name.entry(&named.name).or_default() += overlap;
            }
        }
    }
    let name = bytes_by_name
        .iter()
        .max_by_key(|(_, bytes)| **bytes)
        .map(|(name, _)| *name);
    (name, bytes_by_name.len().saturating_sub(1))
}

/// `libc.so.6`, or `libc.so.6 +2` with two more names.
pub(crate) fn label(name: &str, more_names: usize) -> String {
    if more_names == 0 {
        name.to_owned()
    } else {
        format!("{name} +{more_names}")
    }
}
