//! Changes of page states without a scan: memory that was acted on, and memory that is not mapped any more.

use std::ops::Range;

use super::acted_on::NONE;
use super::byte::{ABSENT, CHUNK, CHUNK_PAGES, FIRST_TIMESTAMP, is_idle};
use super::chunk_states::ChunkBytes;
use super::counts::{Counts, Scanned};
use super::{EVERYWHERE, LastAccess, PageStates, transitions};
use crate::scan::WINDOW;
use thermo_units::{Addr, AddrRange, Nanos, PAGE_SIZE};

impl PageStates {
    /// Restarts the idle time of the idle pages of `ranges` at `now`, because an action was applied to them.
    /// Their last access is kept for the next re-access.
    ///
    /// A page that became idle within the window counts as accessed or idle depending on its neighbours (see
    /// `recent_change`). If the ranges `were_idle` as a whole, such pages restart too. Otherwise they stay
    /// accessed, so that an action on hot memory does not make it idle.
    pub(crate) fn restart_ages(
        &mut self,
        ranges: impl Iterator<Item = AddrRange>,
        were_idle: bool,
        now: Nanos,
    ) {
        let [in_this_pass, in_last_pass] = self.last_access_bytes(were_idle, now);
        let restarted = FIRST_TIMESTAMP + self.timestamps.index_of(now).0;
        let mut acted_on = std::mem::take(&mut self.acted_on);
        for range in ranges {
            self.change(range, |number, scanned, pages, bytes| {
                let last_access = match scanned {
                    Scanned::InThisPass => &in_this_pass,
                    Scanned::InLastPass => &in_last_pass,
                };
                acted_on.keep(number, pages.clone(), bytes, last_access);
                bytes.change(pages, |byte| match last_access[usize::from(*byte)] {
                    NONE => {}
                    _ => *byte = restarted,
                });
            });
        }
        self.acted_on = acted_on;
    }

    /// For each state byte, the byte of the last access of pages that restart, or [`NONE`]: in chunks scanned
    /// by the running pass, and in the others. Inserts all timestamps that are needed.
    fn last_access_bytes(&mut self, were_idle: bool, now: Nanos) -> [[u8; 256]; 2] {
        let ends: Vec<Nanos> = (1..=WINDOW).map(|passes| self.end_of_pass(passes)).collect();
        if self.timestamps.is_full(ends.len() + 1) {
            self.make_room();
        }
        for timestamp in ends.iter().chain([&now]) {
            let (_, renumbering) = self.timestamps.index_of(*timestamp);
            self.renumber(renumbering);
        }
        [Scanned::InThisPass, Scanned::InLastPass].map(|scanned| {
            std::array::from_fn(|byte| match byte as u8 {
                idle if is_idle(idle) => idle,
                history if were_idle && transitions::was_idle(history) => {
                    match self.last_access(history, scanned) {
                        LastAccess::At(last) => FIRST_TIMESTAMP + self.timestamps.index_of_present(last),
                        LastAccess::LastScan | LastAccess::Unknown(_) => NONE,
                    }
                }
                _ => NONE,
            })
        })
    }

    /// Forgets all pages outside `ranges` (ascending, disjoint, page-aligned): they are not mapped.
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

    fn forget(&mut self, range: AddrRange) {
        for number in self.acted_on.chunks(chunk_numbers(range)) {
            self.acted_on.forget(number, pages_in_chunk(number, range));
        }
        self.set_absent(range);
    }

    /// Records that the pages of `range` (page-aligned) are not resident.
    pub(crate) fn set_absent(&mut self, range: AddrRange) {
        self.change(range, |_, _, pages, bytes| {
            bytes.change(pages, |byte| *byte = ABSENT);
        });
    }

    /// Changes the bytes of each chunk in `range`. `change` gets the number of the chunk, the pass that
    /// scanned it, the pages in `range`, and the bytes.
    fn change(
        &mut self,
        range: AddrRange,
        mut change: impl FnMut(u64, Scanned, Range<usize>, &mut ChunkBytes),
    ) {
        let mut empty = Vec::new();
        for (number, chunk) in self.chunks.range_mut(chunk_numbers(range)) {
            let pages = pages_in_chunk(*number, range);
            if pages.is_empty() {
                continue;
            }
            // Schemes act on many short ranges, so only the pages in the range are counted again.
            chunk.count_pages(pages.clone(), self.nr_passes, &mut self.counts, Counts::subtract);
            change(
                *number,
                chunk.scanned(self.nr_passes),
                pages.clone(),
                &mut chunk.bytes,
            );
            chunk.count_pages(pages, self.nr_passes, &mut self.counts, Counts::add);
            chunk.bytes.compact();
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

/// The numbers of the chunks that `range` touches.
fn chunk_numbers(range: AddrRange) -> Range<u64> {
    let first = range.start.0 / CHUNK;
    first..range.end.0.div_ceil(CHUNK)
}

/// The pages of the chunk with this number that lie in `range`.
fn pages_in_chunk(number: u64, range: AddrRange) -> Range<usize> {
    let page_index = |addr: Addr| {
        let page = addr.0.saturating_sub(number * CHUNK) / PAGE_SIZE;
        usize::try_from(page).unwrap_or(CHUNK_PAGES).min(CHUNK_PAGES)
    };
    page_index(range.start)..page_index(range.end)
}
