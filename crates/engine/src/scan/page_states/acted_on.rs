//! The last access of pages that an action was applied to.
//!
//! An action restarts the idle time of a page, and a page that is paged out has no state at all. But the page
//! stays as cold as it was: its next access is a re-access after the whole idle time. So the byte of its last
//! access is kept until the page is accessed or unmapped. Without it, nothing would show that memory paged
//! out too early comes back.
//!
//! A page that the target frees and uses again counts as a re-access as well: a scan cannot tell swapped
//! pages from freed ones.

use std::collections::BTreeMap;
use std::ops::Range;

use super::byte::{ABSENT, CHUNK_PAGES, WORDS};
use super::chunk_states::ChunkBytes;
use super::transitions::{ReaccessCounts, was_idle};
use crate::scan::chunk::Word;

/// The byte of pages without a kept access.
pub(super) const NONE: u8 = ABSENT;

/// For each page, the byte of its last access (the index of a timestamp), by chunk number.
#[derive(Debug, Clone, Default)]
pub(super) struct ActedOn(BTreeMap<u64, ChunkBytes>);

impl ActedOn {
    /// Keeps the last access of `pages` of a chunk with the state bytes `states`. `last_access` is the byte
    /// to keep for each state byte, or [`NONE`]. A page keeps the access of an earlier action.
    pub(super) fn keep(
        &mut self,
        number: u64,
        pages: Range<usize>,
        states: &ChunkBytes,
        last_access: &[u8; 256],
    ) {
        let kept = self.0.entry(number).or_insert(ChunkBytes::Uniform(NONE));
        match (states, &kept) {
            (ChunkBytes::Uniform(state), ChunkBytes::Uniform(NONE)) if pages == (0..CHUNK_PAGES) => {
                *kept = ChunkBytes::Uniform(last_access[usize::from(*state)]);
            }
            _ => {
                let bytes = kept.each();
                for page in pages.filter(|page| bytes[*page] == NONE).collect::<Vec<_>>() {
                    bytes[page] = last_access[usize::from(states.get(page))];
                }
                kept.compact();
            }
        }
        self.drop_if_empty(number);
    }

    /// Counts pages that a scan found accessed by their last access before the action. In `reaccessed`, they
    /// are already counted by `states`, their bytes before the scan, if they had stayed resident.
    pub(super) fn take_reaccessed(
        &mut self,
        number: u64,
        words: &[Word; WORDS],
        states: &[u8; CHUNK_PAGES],
        reaccessed: &mut ReaccessCounts,
    ) {
        let Some(kept) = self.0.get_mut(&number) else {
            return;
        };
        if words.iter().all(|word| word.accessed == 0) {
            return;
        }
        let bytes = kept.each();
        for (page, last_access) in bytes.iter_mut().enumerate() {
            let is_accessed = words[page / 64].is_accessed(page % 64);
            if *last_access == NONE || !is_accessed {
                continue;
            }
            if was_idle(states[page]) {
                reaccessed[usize::from(states[page])] -= 1;
            }
            reaccessed[usize::from(*last_access)] += 1;
            *last_access = NONE;
        }
        kept.compact();
        self.drop_if_empty(number);
    }

    /// Forgets `pages` of a chunk: they are not mapped any more.
    pub(super) fn forget(&mut self, number: u64, pages: Range<usize>) {
        if let Some(kept) = self.0.get_mut(&number) {
            kept.each()[pages].fill(NONE);
            kept.compact();
        }
        self.drop_if_empty(number);
    }

    /// The numbers of chunks with kept pages among `numbers`.
    pub(super) fn chunks(&self, numbers: Range<u64>) -> Vec<u64> {
        self.0.range(numbers).map(|(number, _)| *number).collect()
    }

    /// Which bytes are kept for a page.
    pub(super) fn used(&self) -> [bool; 256] {
        let mut used = [false; 256];
        for kept in self.0.values() {
            kept.runs()
                .for_each(|(_, _, byte)| used[usize::from(byte)] = true);
        }
        used
    }

    /// Changes each byte to its new value in `table`.
    pub(super) fn renumber(&mut self, table: &[u8; 256]) {
        self.0.values_mut().for_each(|kept| kept.renumber(table));
    }

    fn drop_if_empty(&mut self, number: u64) {
        if matches!(self.0.get(&number), Some(ChunkBytes::Uniform(NONE))) {
            self.0.remove(&number);
        }
    }

    /// Approximate memory use, in bytes.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        let entry = (size_of::<ChunkBytes>() + size_of::<u64>()) * 4 / 3;
        self.0.values().map(|kept| kept.heap_size() + entry).sum()
    }
}
