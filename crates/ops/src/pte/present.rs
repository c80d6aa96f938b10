//! How much of many ranges is in memory, counted in copies of their page tables.

use std::ops::Range;

use thermo_bpf::{Folios, Layout, Table, WalkError};
use thermo_core::{AddrRange, Bytes};

use super::PteTracker;
use crate::process::Process;

/// Ranges no farther apart are read in one go: reading the tables of the gap costs less than another call.
const GAP: Bytes = Bytes::mib(4);

impl PteTracker {
    /// How much of each of `ranges`, which are of whole pages, ascending and disjoint, is in memory.
    ///
    /// # Errors
    /// When the process is gone.
    pub(crate) fn present(
        &mut self,
        process: &Process,
        ranges: &[AddrRange],
    ) -> Result<Vec<Bytes>, WalkError> {
        let layout = *self.tables.layout();
        let mut found = vec![Bytes::ZERO; ranges.len()];
        for walk in walks(ranges) {
            let part = &ranges[walk.clone()];
            let found = &mut found[walk];
            let (Some(first), Some(last)) = (part.first(), part.last()) else {
                continue;
            };
            let all = AddrRange {
                start: first.start,
                end: last.end,
            };
            self.tables
                .tables(process.pid, all, Folios::Unasked, &mut |table| {
                    count(&layout, &table, part, found);
                })?;
        }
        Ok(found)
    }
}

/// Which ranges lie so near to each other that they are read together.
fn walks(ranges: &[AddrRange]) -> impl Iterator<Item = Range<usize>> {
    let near = |a: &AddrRange, b: &AddrRange| b.start.0.saturating_sub(a.end.0) <= GAP.0;
    ranges.chunk_by(near).scan(0, |next, chunk| {
        let first = *next;
        *next += chunk.len();
        Some(first..*next)
    })
}

/// Adds what `table` maps of `ranges`.
fn count(layout: &Layout, table: &Table<'_>, ranges: &[AddrRange], found: &mut [Bytes]) {
    let (base, span) = (table.base.0, table.span());
    let all = AddrRange::new(base, base + 512 * span);
    let leaves = table.leaves(layout);
    let first = ranges.partition_point(|range| range.end <= all.start);
    for (range, found) in ranges.iter().zip(found).skip(first) {
        let Some(part) = range.intersection(&all) else {
            break;
        };
        let from = (part.start.0 - base) / span;
        let to = (part.end.0 - base).div_ceil(span);
        let leaves = leaves.within(from as usize..to as usize);
        if table.level == 0 {
            // Ranges are of whole pages, so nothing is mapped in part.
            *found += Bytes(leaves.count() * span);
            continue;
        }
        for nth in leaves.each() {
            let mapped = table.range(nth).intersection(&part);
            *found += mapped.map_or(Bytes::ZERO, |mapped| mapped.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_ranges_are_read_together() {
        let mib = |from: u64, to: u64| AddrRange::new(from << 20, to << 20);
        let ranges = [mib(0, 1), mib(1, 2), mib(6, 7), mib(12, 13), mib(90, 99)];
        assert_eq!(walks(&ranges).collect::<Vec<_>>(), [0..3, 3..4, 4..5]);
        assert_eq!(walks(&[]).count(), 0);
    }
}
