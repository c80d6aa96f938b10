//! Formats one line for each region, in tables of hundreds of thousands of regions.
//!
//! Formatting a number costs ten times more than copying its text, and a recording has few distinct sizes,
//! rates and ages. So formatted cells are cached.

use thermo_recording::model::{Region, Snapshot};
use thermo_units::{Bytes, Nanos};

use crate::heat::rate;
use crate::style::{Style, percent};

/// Formats the lines of a table.
#[derive(Debug)]
pub(super) struct LineFormatter {
    style: Style,
    bar: usize,
    name_width: usize,
    /// Number of access checks that `rates` refers to; the cached rates are dropped when it changes.
    max_nr_accesses: u32,
    sizes: CellCache,
    rates: CellCache,
    ages: CellCache,
    line: Vec<u8>,
}

impl LineFormatter {
    pub(super) fn new(style: Style) -> Self {
        let bar = style.width.saturating_sub(72).clamp(6, 40);
        Self {
            style,
            bar,
            name_width: style.width.saturating_sub(52 + bar).max(8),
            max_nr_accesses: 0,
            sizes: CellCache::default(),
            rates: CellCache::default(),
            ages: CellCache::default(),
            line: Vec::new(),
        }
    }

    /// The line of column headings.
    pub(super) fn headings(&self) -> String {
        let bar = self.bar;
        format!(
            "{:>14}  {:>8}  {:>7} {:bar$}  {:>10}  mapping\n",
            "address", "size", "access", "", "age"
        )
    }

    /// The line of `region`, with newline; `name` is the name of its mapping.
    pub(super) fn line(&mut self, region: &Region, snapshot: &Snapshot, name: &str) -> &[u8] {
        if snapshot.max_nr_accesses != self.max_nr_accesses {
            self.rates = CellCache::default();
            self.max_nr_accesses = snapshot.max_nr_accesses;
        }
        let (style, bar) = (self.style, self.bar);
        let size = region.end.saturating_sub(region.start);
        let line = &mut self.line;
        line.clear();
        push_address(line, region.start);
        let shown = self.sizes.cell(size, || format!("  {:>8}", Bytes(size)));
        line.extend_from_slice(shown.as_bytes());
        if region.unknown {
            line.extend_from_slice(b"  unknown ");
            line.extend(std::iter::repeat_n(b' ', bar));
        } else {
            let shown = self.rates.cell(region.nr_accesses.into(), || {
                let share = rate(region, snapshot.max_nr_accesses);
                format!("  {:>7} {}", percent(share), style.bar(share, bar))
            });
            line.extend_from_slice(shown.as_bytes());
        }
        if let Some(age) = region.age_ns(snapshot.aggr_ns) {
            let shown = self.ages.cell(age, || format!("  {:>10}", Nanos(age)));
            line.extend_from_slice(shown.as_bytes());
        } else {
            line.extend_from_slice(b"     unknown");
        }
        if !name.is_empty() {
            line.extend_from_slice(b"  ");
            line.extend_from_slice(style.cut(name, self.name_width).as_bytes());
        }
        line.push(b'\n');
        line
    }
}

/// Appends `addr` in hexadecimal, aligned right in 14 columns.
fn push_address(line: &mut Vec<u8>, addr: u64) {
    const COLUMNS: usize = 18;
    let mut text = [b' '; COLUMNS];
    let mut start = COLUMNS;
    let mut rest = addr;
    while rest > 0 || start == COLUMNS {
        start -= 1;
        text[start] = b"0123456789abcdef"[(rest % 16) as usize];
        rest /= 16;
    }
    start -= 2;
    text[start..start + 2].copy_from_slice(b"0x");
    line.extend_from_slice(&text[start.min(COLUMNS - 14)..]);
}

/// A direct-mapped cache of cell texts by number: a new number replaces the number in its slot.
#[derive(Debug)]
struct CellCache(Vec<Option<(u64, String)>>);

impl Default for CellCache {
    fn default() -> Self {
        Self(vec![None; Self::SLOTS])
    }
}

impl CellCache {
    const SLOTS: usize = 1024;

    /// The text of `number`; calls `format` if it is not cached.
    fn cell(&mut self, number: u64, format: impl FnOnce() -> String) -> &str {
        // Multiplying by the golden ratio spreads numbers that are all multiples of a page or an interval.
        let index = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % Self::SLOTS;
        let slot = &mut self.0[index];
        if slot.as_ref().is_none_or(|(cached, _)| *cached != number) {
            *slot = None;
        }
        &slot.get_or_insert_with(|| (number, format())).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn push_address_aligns_right() {
        for addr in [0, 0x1000, 0x7fff_ffff_f000, u64::MAX] {
            let mut line = Vec::new();
            push_address(&mut line, addr);
            assert_eq!(line, format!("{addr:>#14x}").as_bytes());
        }
    }

    #[test]
    fn cell_cache_keeps_colliding_numbers_apart() {
        let mut cells = CellCache::default();
        for number in (0..5000).chain(0..5000) {
            assert_eq!(cells.cell(number, || number.to_string()), number.to_string());
        }
    }
}
