//! Changes of page states without a scan: memory that was acted on, and memory that is not mapped any more.

use super::EVERYWHERE;
use super::PageStates;
use super::byte::{ABSENT, CHUNK, CHUNK_PAGES, FIRST_TIMESTAMP, MAX_HISTORY, is_idle};
use super::chunk_states::ChunkBytes;
use super::counts::Counts;
use thermo_units::{Addr, AddrRange, Nanos, PAGE_SIZE};

impl PageStates {
    /// Restarts the idle time of the idle pages of `range` at `now`, because an action was applied to them.
    ///
    /// A page that became idle within the window counts as accessed or idle depending on its neighbours (see
    /// `recent_change`). If the range `was_idle` as a whole, such pages restart too. Otherwise they stay
    /// accessed, so that an action on hot memory does not make it idle.
    pub(crate) fn restart_age(&mut self, range: AddrRange, was_idle: bool, now: Nanos) {
        if self.timestamps.is_full(1) {
            self.make_room();
        }
        let (index, renumbering) = self.timestamps.index_of(now);
        self.renumber(renumbering);
        let restarted = FIRST_TIMESTAMP + index;
        self.change(range, |byte| {
            let restarts =
                is_idle(*byte) || was_idle && *byte > ABSENT && *byte <= MAX_HISTORY && *byte & 1 == 0;
            if restarts {
                *byte = restarted;
            }
        });
    }

    /// Forgets all pages outside `ranges` (ascending, disjoint, page-aligned).
    pub(crate) fn keep_only(&mut self, ranges: &[AddrRange]) {
        let mut start = Addr(0);
        for range in ranges {
            self.forget(AddrRange {
                start,
                end: range.start,
            });
            start = range.end;
        }
        self.forget(AddrRange {
            start,
            end: EVERYWHERE.end,
        });
    }

    /// Forgets the pages of `range` (page-aligned): they are not resident.
    pub(crate) fn forget(&mut self, range: AddrRange) {
        self.change(range, |byte| *byte = ABSENT);
    }

    /// Changes the bytes of the pages of `range`.
    fn change(&mut self, range: AddrRange, mut change: impl FnMut(&mut u8)) {
        let numbers = range.start.0 / CHUNK..range.end.0.div_ceil(CHUNK).max(range.start.0 / CHUNK);
        let mut empty = Vec::new();
        for (number, chunk) in self.chunks.range_mut(numbers) {
            let page_index = |addr: Addr| {
                let page = addr.0.saturating_sub(number * CHUNK) / PAGE_SIZE;
                usize::try_from(page).unwrap_or(CHUNK_PAGES).min(CHUNK_PAGES)
            };
            let (first, end) = (page_index(range.start), page_index(range.end));
            if first >= end {
                continue;
            }
            chunk.count(self.nr_passes, &mut self.counts, Counts::subtract);
            match &mut chunk.bytes {
                ChunkBytes::Uniform(byte) if (first, end) == (0, CHUNK_PAGES) => change(byte),
                bytes => bytes.each()[first..end].iter_mut().for_each(&mut change),
            }
            chunk.bytes.compact();
            chunk.count(self.nr_passes, &mut self.counts, Counts::add);
            if matches!(chunk.bytes, ChunkBytes::Uniform(ABSENT)) {
                empty.push(*number);
            }
        }
        for number in empty {
            if let Some(chunk) = self.chunks.remove(&number) {
                chunk.count(self.nr_passes, &mut self.counts, Counts::subtract);
            }
        }
    }
}
