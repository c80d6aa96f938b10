//! Access rates of one target on a bounded grid of time by address. When the grid is full, its cells double
//! in size.
//!
//! Only cells with memory exist. All cells of a grid have the same size, a power of two.

use std::collections::BTreeMap;

/// Maximum number of cells of a grid, along the address axis.
pub(crate) const MAX_CELLS: usize = 1024;

/// The minimum cell size is one page.
const PAGE_SHIFT: u32 = 12;

/// Rate of a cell without memory, or without a live target.
pub const ABSENT: i16 = -1;
/// Rate of a cell whose accesses are unknown, or for which it is unknown whether memory was mapped.
pub const UNKNOWN: i16 = -2;

/// The grid of one target: cells by address divided by the cell size.
#[derive(Debug, Clone)]
pub(crate) struct Grid {
    shift: u32,
    cells: BTreeMap<u64, CellRow>,
}

/// All columns of one cell, from the first column in which the cell had memory.
#[derive(Debug, Clone)]
struct CellRow {
    low: u64,
    high: u64,
    first: usize,
    sums: Vec<Sum>,
}

/// Sums over all pieces in one cell and column, in byte seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    weight: f32,
    accessed: f32,
    unknown: f32,
}

/// An address range with its access rate (0 to 1).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) rate: f64,
    pub(crate) unknown: bool,
}

impl Grid {
    pub(crate) const fn new() -> Self {
        Self {
            shift: PAGE_SHIFT,
            cells: BTreeMap::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    pub(crate) const fn cell_bytes(&self) -> u64 {
        1 << self.shift
    }

    /// Adds `pieces`, in ascending order, to each of `columns` (index, seconds within the column).
    pub(crate) fn add(&mut self, pieces: &[Piece], columns: &[(usize, f64)]) {
        while self.shift < 63 && count_cells(pieces, self.shift) > MAX_CELLS {
            self.coarsen();
        }
        for piece in pieces.iter().filter(|piece| piece.start < piece.end) {
            for index in piece.start >> self.shift..=(piece.end - 1) >> self.shift {
                let low = piece.start.max(index << self.shift);
                let high = piece
                    .end
                    .min((index << self.shift).saturating_add(self.cell_bytes()));
                let row = self.cells.entry(index).or_insert_with(|| CellRow {
                    low,
                    high,
                    first: columns.first().map_or(0, |column| column.0),
                    sums: Vec::new(),
                });
                (row.low, row.high) = (row.low.min(low), row.high.max(high));
                for &(column, seconds) in columns {
                    row.sum_mut(column).add(piece, (high - low) as f64 * seconds);
                }
            }
        }
        while self.cells.len() > MAX_CELLS {
            self.coarsen();
        }
    }

    /// Doubles the size of cells in bytes.
    pub(crate) fn coarsen(&mut self) {
        self.shift += 1;
        for (index, row) in std::mem::take(&mut self.cells) {
            match self.cells.get_mut(&(index >> 1)) {
                Some(into) => into.merge(row),
                None => {
                    self.cells.insert(index >> 1, row);
                }
            }
        }
    }

    /// Doubles the duration of columns.
    pub(crate) fn halve_columns(&mut self) {
        for row in self.cells.values_mut() {
            let mut halved = vec![Sum::default(); (row.first % 2 + row.sums.len()).div_ceil(2)];
            for (offset, sum) in row.sums.iter().enumerate() {
                halved[(row.first % 2 + offset) / 2].merge(*sum);
            }
            (row.first, row.sums) = (row.first / 2, halved);
        }
    }

    /// Runs of adjacent cells: start address, end address, and the rates of each cell in `columns` columns.
    /// Rates are in thousandths, [`ABSENT`] or [`UNKNOWN`].
    pub(crate) fn areas(&self, columns: usize) -> Vec<(u64, u64, Vec<Vec<i16>>)> {
        let mut areas: Vec<(u64, u64, Vec<Vec<i16>>)> = Vec::new();
        let mut next = None;
        for (&index, row) in &self.cells {
            let rates = (0..columns).map(|column| row.rate(column)).collect();
            match areas.last_mut() {
                Some(area) if next == Some(index) => {
                    area.1 = row.high;
                    area.2.push(rates);
                }
                _ => areas.push((row.low, row.high, vec![rates])),
            }
            next = Some(index + 1);
        }
        areas
    }
}

/// Number of cells of `1 << shift` bytes that `pieces` overlap.
fn count_cells(pieces: &[Piece], shift: u32) -> usize {
    let (mut count, mut next) = (0, 0);
    for piece in pieces.iter().filter(|piece| piece.start < piece.end) {
        let (low, high) = (piece.start >> shift, (piece.end - 1) >> shift);
        count += (high + 1).saturating_sub(low.max(next)) as usize;
        next = high + 1;
    }
    count
}

impl CellRow {
    fn sum_mut(&mut self, column: usize) -> &mut Sum {
        if column < self.first {
            let missing = self.first - column;
            self.sums
                .splice(0..0, std::iter::repeat_n(Sum::default(), missing));
            self.first = column;
        }
        let offset = column - self.first;
        if self.sums.len() <= offset {
            self.sums.resize(offset + 1, Sum::default());
        }
        &mut self.sums[offset]
    }

    fn merge(&mut self, other: Self) {
        (self.low, self.high) = (self.low.min(other.low), self.high.max(other.high));
        for (offset, sum) in other.sums.into_iter().enumerate() {
            self.sum_mut(other.first + offset).merge(sum);
        }
    }

    fn rate(&self, column: usize) -> i16 {
        column
            .checked_sub(self.first)
            .and_then(|offset| self.sums.get(offset))
            .map_or(ABSENT, |sum| sum.rate())
    }
}

impl Sum {
    fn add(&mut self, piece: &Piece, weight: f64) {
        self.weight += weight as f32;
        if piece.unknown {
            self.unknown += weight as f32;
        } else {
            self.accessed += (weight * piece.rate) as f32;
        }
    }

    fn merge(&mut self, other: Self) {
        self.weight += other.weight;
        self.accessed += other.accessed;
        self.unknown += other.unknown;
    }

    fn rate(self) -> i16 {
        if self.weight <= 0.0 {
            return ABSENT;
        }
        if self.unknown > self.weight / 2.0 {
            return UNKNOWN;
        }
        let permille = (self.accessed / (self.weight - self.unknown) * 1000.0).round() as i16;
        permille.clamp(i16::from(self.accessed > 0.0), 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u64, end: u64, rate: f64) -> Piece {
        Piece {
            start,
            end,
            rate,
            unknown: false,
        }
    }

    #[test]
    fn grid_splits_areas_at_gaps() {
        let mut grid = Grid::new();
        grid.add(
            &[piece(0, 8192, 1.0), piece(1 << 30, (1 << 30) + 4096, 0.0)],
            &[(0, 1.0)],
        );
        grid.add(&[piece(0, 4096, 0.5)], &[(2, 1.0)]);
        let areas = grid.areas(3);
        assert_eq!(areas[0], (0, 8192, vec![vec![1000, -1, 500], vec![1000, -1, -1]]));
        assert_eq!(areas[1], (1 << 30, (1 << 30) + 4096, vec![vec![0, -1, -1]]));
    }

    #[test]
    fn grid_coarsens_before_adding_terabytes() {
        let mut grid = Grid::new();
        grid.add(
            &[piece(4096, 1 << 40, 0.25), piece(1 << 46, 1 << 47, 0.0)],
            &[(0, 0.1)],
        );
        assert!(grid.len() <= MAX_CELLS);
        assert_eq!(grid.areas(1)[0].2[0], [250]);
    }

    #[test]
    fn halve_columns_and_coarsen_keep_mean() {
        let mut grid = Grid::new();
        grid.add(&[piece(0, 4096, 1.0), piece(4096, 8192, 0.0)], &[(1, 1.0)]);
        grid.add(&[piece(0, 8192, 1.0)], &[(2, 1.0)]);
        grid.add(
            &[Piece {
                unknown: true,
                ..piece(0, 8192, 0.0)
            }],
            &[(6, 1.0)],
        );
        grid.coarsen();
        assert_eq!(grid.areas(7)[0].2, [[-1, 500, 1000, -1, -1, -1, -2]]);
        grid.halve_columns();
        assert_eq!(grid.areas(4)[0].2, [[500, 1000, -1, -2]]);
    }
}
