//! One line a region, for tables of hundreds of thousands of them.
//!
//! Sizes, rates and ages take few different values in a recording, and a number costs ten times more to format than
//! to copy, so cells are kept as they were last written.

use thermo_recording::model::{Region, Snapshot};
use thermo_units::{Bytes, Nanos};

use super::age_ns;
use crate::heat::rate;
use crate::style::{Style, percent};

/// Writes lines of one width.
#[derive(Debug)]
pub(super) struct Lines {
    style: Style,
    bar: usize,
    name_width: usize,
    /// `nr_accesses` of how many looks: where this changes, no rate that was kept holds.
    max_nr_accesses: u32,
    sizes: Cells,
    rates: Cells,
    ages: Cells,
    line: Vec<u8>,
}

impl Lines {
    pub(super) fn new(style: Style) -> Self {
        let bar = style.width.saturating_sub(72).clamp(6, 40);
        Self {
            style,
            bar,
            name_width: style.width.saturating_sub(52 + bar).max(8),
            max_nr_accesses: 0,
            sizes: Cells::default(),
            rates: Cells::default(),
            ages: Cells::default(),
            line: Vec::new(),
        }
    }

    /// The headings.
    pub(super) fn headings(&self) -> String {
        let bar = self.bar;
        format!(
            "{:>14}  {:>8}  {:>7} {:bar$}  {:>10}  mapping\n",
            "address", "size", "access", "", "age"
        )
    }

    /// The line of `region`, ended; `name` is what its mapping is called.
    pub(super) fn line(&mut self, region: &Region, snapshot: &Snapshot, name: &str) -> &[u8] {
        if snapshot.max_nr_accesses != self.max_nr_accesses {
            self.rates = Cells::default();
            self.max_nr_accesses = snapshot.max_nr_accesses;
        }
        let (style, bar) = (self.style, self.bar);
        let size = region.end.saturating_sub(region.start);
        let age = age_ns(region, snapshot);
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
        let shown = self.ages.cell(age, || format!("  {:>10}", Nanos(age)));
        line.extend_from_slice(shown.as_bytes());
        if !name.is_empty() {
            line.extend_from_slice(b"  ");
            line.extend_from_slice(style.cut(name, self.name_width).as_bytes());
        }
        line.push(b'\n');
        line
    }
}

/// Appends `addr` in hexadecimal, to the right of 14 columns.
fn push_address(line: &mut Vec<u8>, addr: u64) {
    const COLUMNS: usize = 18;
    let mut text = [b' '; COLUMNS];
    let mut place = COLUMNS;
    let mut rest = addr;
    while rest > 0 || place == COLUMNS {
        place -= 1;
        text[place] = b"0123456789abcdef"[(rest % 16) as usize];
        rest /= 16;
    }
    place -= 2;
    text[place..place + 2].copy_from_slice(b"0x");
    line.extend_from_slice(&text[place.min(COLUMNS - 14)..]);
}

/// Cells by the number they show: a place for each number, the last one to come to a place keeps it.
#[derive(Debug)]
struct Cells(Vec<Option<(u64, String)>>);

impl Default for Cells {
    fn default() -> Self {
        Self(vec![None; Self::PLACES])
    }
}

impl Cells {
    const PLACES: usize = 1024;

    fn cell(&mut self, number: u64, make: impl FnOnce() -> String) -> &str {
        // Multiplying by the golden ratio spreads numbers that are all multiples of a page or an interval.
        let place = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % Self::PLACES;
        let kept = &mut self.0[place];
        if kept.as_ref().is_none_or(|(of, _)| *of != number) {
            *kept = None;
        }
        &kept.get_or_insert_with(|| (number, make())).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_stand_to_the_right() {
        for addr in [0, 0x1000, 0x7fff_ffff_f000, u64::MAX] {
            let mut line = Vec::new();
            push_address(&mut line, addr);
            assert_eq!(line, format!("{addr:>#14x}").as_bytes());
        }
    }

    #[test]
    fn cells_that_share_a_place_do_not_mix() {
        let mut cells = Cells::default();
        for number in (0..5000).chain(0..5000) {
            assert_eq!(cells.cell(number, || number.to_string()), number.to_string());
        }
    }
}
