//! The state of every page of a target: the passes that found it accessed, or the time since which it is
//! idle.
//!
//! | byte | meaning |
//! | --- | --- |
//! | 0 | not resident |
//! | 1 to 127 | accessed in at least one of the last seven passes; bit 0 is the newest pass |
//! | 128 to 253 | idle since the timestamp with index (byte - 128) |
//! | 254 | found accessed by the first pass: the accessed bit may be years old |
//! | 255 | unknown |
//!
//! 512 neighbouring pages in the same state share one byte, so that large idle or hot areas need almost no
//! memory. The number of pages with each byte is kept up to date; tables are computed from these counts.
//!
//! A snapshot can be taken in the middle of a pass. Chunks that the running pass has scanned have one pass
//! more in their history than the others. Each chunk records its last pass.
//!
//! The number of accessed passes in the window distinguishes hot from warm memory, but shows a change only
//! after half of the window. So a run of many pages that all became accessed or idle in the same pass, and
//! stayed so for two passes, takes its new state at once: many pages do not change together by chance. See
//! `recent_change`.

mod acted_on;
mod byte;
mod chunk_states;
mod counts;
mod edit;
mod recent_change;
mod runs;
mod timestamps;
mod transitions;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::acted_on::ActedOn;
pub(crate) use self::byte::CHUNK;
use self::byte::{ABSENT, FIRST_SCAN, FIRST_TIMESTAMP, MAX_HISTORY, UNKNOWN, WORDS, is_idle};
use self::chunk_states::{Chunk, ChunkBacking, ChunkBytes, count, has_history};
use self::counts::{Counts, Group, Scanned};
pub(crate) use self::runs::{State, StateRun};
use self::timestamps::{Renumbering, Timestamps};
use self::transitions::{ReaccessCounts, Transitions};
use super::WINDOW;
use super::chunk::{ScanChunk, WORD, Word};
use crate::access_tables::{AccessTables, Backing, NR_AGES, UnknownReason, age_bucket};
use crate::budget::Method;
use thermo_units::{Addr, AddrRange, PAGE_SIZE};
use thermo_units::{Bytes, Nanos};

/// All addresses.
const EVERYWHERE: AddrRange = AddrRange::new(0, u64::MAX / PAGE_SIZE * PAGE_SIZE);

/// The states of all resident pages of a target that were scanned at least once.
#[derive(Debug, Clone, Default)]
pub struct PageStates {
    /// Chunks by address / 2 MiB.
    chunks: BTreeMap<u64, Chunk>,
    /// Number of complete passes. Also the index of the running pass.
    nr_passes: u32,
    /// Start of the running pass.
    began: Nanos,
    /// Timestamp of pages that the running pass finds resident and idle for the first time. Unique to them;
    /// moved to the end of the pass when it ends.
    first_seen: Nanos,
    /// Ends of the last [`WINDOW`] passes, newest last.
    ends: Vec<Nanos>,
    /// Time between the ends of the last two passes: the time between two scans of a page. After the first
    /// pass, its duration.
    last_pass: Nanos,
    /// Start of the last complete pass.
    last_began: Nanos,
    /// End of the first pass: no page is known to be idle for longer.
    first_end: Nanos,
    timestamps: Timestamps,
    counts: Counts,
    acted_on: ActedOn,
    /// True if the first pass can trust accessed bits because the target has just started.
    trusts_first_pass: bool,
    /// Pages found accessed again since the last [`PageStates::take_tables`], by idle age.
    reaccessed: [u64; NR_AGES],
    /// Backing of the mappings: ascending, disjoint.
    backings: Arc<[(AddrRange, Backing)]>,
}

/// Time of the last access to pages with the same byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastAccess {
    /// The last scan found them accessed.
    LastScan,
    At(Nanos),
    Unknown(UnknownReason),
}

/// The pages of a chunk, as the last scan found them.
pub(crate) struct KnownPages<'a>(&'a ChunkBytes);

impl KnownPages<'_> {
    /// Whether the page at `addr`, in this chunk, was idle; `None` if it was not resident.
    pub(crate) fn is_idle(&self, addr: Addr) -> Option<bool> {
        match self.0.get((addr.0 % CHUNK / PAGE_SIZE) as usize) {
            ABSENT => None,
            byte => Some(is_idle(byte)),
        }
    }
}

impl PageStates {
    /// The states of a target before its first pass. `is_new`: the target has just started, so its accessed
    /// bits are recent.
    pub(crate) fn new(is_new: bool) -> Self {
        Self {
            trusts_first_pass: is_new,
            ..Self::default()
        }
    }

    /// Begins a pass.
    pub(crate) const fn begin_pass(&mut self, now: Nanos) {
        self.began = now;
        self.first_seen = Nanos(now.0 + 1);
    }

    /// Updates the states with a scan of the running pass, made at `now`.
    pub(crate) fn update(&mut self, scan: &ScanChunk, now: Nanos) {
        let range = scan.range();
        if scan.is_empty() {
            return self.set_absent(range);
        }
        let transitions = self.transitions();
        let mut reaccessed = [0; 256];
        for number in range.start.0 / CHUNK..range.end.0.div_ceil(CHUNK) {
            let word = |nth: u64| scan.word(Addr(number * CHUNK + nth * WORD));
            let words: [Word; WORDS] = std::array::from_fn(|nth| word(nth as u64));
            self.update_chunk(number, &words, transitions, &mut reaccessed);
        }
        for (byte, pages) in (0..=u8::MAX).zip(reaccessed).filter(|(_, pages)| *pages > 0) {
            if let LastAccess::At(last) = self.last_access(byte, Scanned::InLastPass) {
                // Not exact: the last access and this one both happened between two scans.
                let idle = now
                    .saturating_sub(last)
                    .saturating_add(Nanos(self.last_pass.0 / 2));
                self.reaccessed[age_bucket(idle)] += u64::from(pages);
            }
        }
    }

    fn update_chunk(
        &mut self,
        number: u64,
        words: &[Word; WORDS],
        transitions: Transitions,
        reaccessed: &mut ReaccessCounts,
    ) {
        let huge = words.iter().all(|word| word.huge == u64::MAX);
        if let Some(chunk) = self.chunks.get_mut(&number) {
            if let ChunkBytes::Uniform(byte) = chunk.bytes
                && chunk.huge == huge
                && words.iter().all(|word| transitions.keeps(byte, word))
            {
                return chunk.move_to_pass(self.nr_passes, &mut self.counts);
            }
        } else if words.iter().all(|word| word.present == 0) {
            return;
        }
        let backing = ChunkBacking::of(number, &self.backings);
        let chunk = self.chunks.entry(number).or_insert_with(|| Chunk {
            pass: self.nr_passes,
            huge,
            backing: backing.clone(),
            bytes: ChunkBytes::Uniform(ABSENT),
        });
        let before = *chunk.bytes.each();
        let bytes = chunk.bytes.each();
        let mut changed = (chunk.huge, &chunk.backing) != (huge, &backing);
        for (bytes, word) in bytes.as_chunks_mut::<64>().0.iter_mut().zip(words) {
            changed |= transitions.update_word(bytes, word, reaccessed);
        }
        self.acted_on.take_reaccessed(number, words, &before, reaccessed);
        if changed || chunk.pass != self.nr_passes && has_history(&before) {
            let after = *bytes;
            count(
                &before,
                chunk,
                chunk.scanned(self.nr_passes),
                &mut self.counts,
                Counts::subtract,
            );
            (chunk.huge, chunk.backing) = (huge, backing);
            count(&after, chunk, Scanned::InThisPass, &mut self.counts, Counts::add);
        }
        chunk.pass = self.nr_passes;
        chunk.bytes.compact();
    }

    /// Marks the words of `scan`, a chunk that is about to be scanned, whose 64 pages were all accessed in
    /// each of the last two passes.
    pub(crate) fn mark_steadily_accessed(&self, scan: &mut ScanChunk) {
        let range = scan.range();
        let chunks = range.start.0 / CHUNK..range.end.0.div_ceil(CHUNK);
        for (number, chunk) in self.chunks.range(chunks) {
            for word in 0..WORDS as u64 {
                if chunk.bytes.is_steadily_accessed(word as usize) {
                    scan.set_steadily_accessed(Addr(number * CHUNK + word * WORD));
                }
            }
        }
    }

    /// Ends the running pass. Chunks that it did not scan are not mapped any more.
    pub(crate) fn end_pass(&mut self, now: Nanos) {
        self.timestamps.postpone_last(self.first_seen, now);
        if !self.timestamps.is_full(4) {
            // Pages accessed last in this pass get this timestamp in seven passes. Inserted last, it
            // renumbers no other.
            let (_, renumbering) = self.timestamps.index_of(now);
            self.renumber(renumbering);
        }
        let (pass, counts) = (self.nr_passes, &mut self.counts);
        self.chunks.retain(|_, chunk| {
            let is_mapped = chunk.pass == pass && !matches!(chunk.bytes, ChunkBytes::Uniform(ABSENT));
            if !is_mapped {
                chunk.count(pass, counts, Counts::subtract);
            }
            is_mapped
        });
        counts.end_pass();
        self.nr_passes += 1;
        if self.nr_passes == 1 {
            self.first_end = now;
        }
        let since = self.ends.last().copied().unwrap_or(self.began);
        (self.last_began, self.last_pass) = (self.began, now.saturating_sub(since));
        self.ends.push(now);
        if self.ends.len() > WINDOW as usize {
            self.ends.remove(0);
        }
    }

    /// Number of complete passes.
    pub(crate) const fn nr_passes(&self) -> u32 {
        self.nr_passes
    }

    /// Sets the backing of the mappings (ascending, disjoint) for later scans.
    pub(crate) fn set_backings(&mut self, backings: Arc<[(AddrRange, Backing)]>) {
        self.backings = backings;
    }

    /// The pages of the chunk that contains `addr`; `None` if none is resident.
    pub(crate) fn chunk_at(&self, addr: Addr) -> Option<KnownPages<'_>> {
        let chunk = self.chunks.get(&(addr.0 / CHUNK));
        chunk.map(|chunk| KnownPages(&chunk.bytes))
    }

    /// Backing of the mapping at `addr`.
    pub(crate) fn backing_at(&self, addr: Addr) -> Backing {
        let at = self.backings.partition_point(|(range, _)| range.end <= addr);
        let found = self.backings.get(at).filter(|(range, _)| range.contains(addr));
        found.map_or_else(Backing::default, |(_, backing)| *backing)
    }

    /// Returns the page-exact results at `now`, with the re-accesses since the last call.
    pub(crate) fn take_tables(&mut self, now: Nanos) -> AccessTables {
        let mut tables = AccessTables {
            pass: self.last_pass,
            nr_passes: u64::from(self.nr_passes),
            as_of: if self.nr_passes > 0 { self.last_began } else { now },
            ..AccessTables::new(Method::Scan)
        };
        for Group {
            kind,
            pages,
            byte,
            scanned,
        } in self.counts.groups()
        {
            let bytes = Bytes(u64::from(pages) * PAGE_SIZE);
            let ages = &mut tables.idle[kind.index()];
            match self.last_access(byte, scanned) {
                LastAccess::LastScan => ages[0] += bytes,
                // The last access happened between two scans. Half a pass is the best estimate: it agreed
                // with the kernel's own data.
                LastAccess::At(last) => {
                    let max_age = now.saturating_sub(self.first_end.min(last));
                    let age = now
                        .saturating_sub(last)
                        .saturating_add(Nanos(self.last_pass.0 / 2));
                    ages[age_bucket(age.min(max_age))] += bytes;
                }
                LastAccess::Unknown(reason) => tables.unknown[reason.index()] += bytes,
            }
        }
        let reaccessed = std::mem::take(&mut self.reaccessed);
        tables.reaccessed = reaccessed.map(|pages| Bytes(pages * PAGE_SIZE));
        tables
    }

    /// Time of the last access to pages with `byte`, in a chunk that was last `scanned` in this or the last
    /// pass.
    fn last_access(&self, byte: u8, scanned: Scanned) -> LastAccess {
        match byte {
            FIRST_SCAN => LastAccess::Unknown(UnknownReason::FirstScan),
            ABSENT | UNKNOWN => LastAccess::Unknown(UnknownReason::Uncleared),
            history @ 1..=MAX_HISTORY => match (history.trailing_zeros(), scanned) {
                (0, _) => LastAccess::LastScan,
                (passes, Scanned::InThisPass) => LastAccess::At(self.end_of_pass(passes)),
                (passes, Scanned::InLastPass) => LastAccess::At(self.end_of_pass(passes + 1)),
            },
            idle => LastAccess::At(self.timestamps.get(idle - FIRST_TIMESTAMP)),
        }
    }

    /// End of the pass that is `passes_ago` (at least 1) before the running one.
    fn end_of_pass(&self, passes_ago: u32) -> Nanos {
        let nth = self.ends.len().saturating_sub(passes_ago as usize);
        self.ends.get(nth).copied().unwrap_or(self.began)
    }

    /// The transitions of page bytes in the running pass.
    fn transitions(&mut self) -> Transitions {
        // Make room and insert all timestamps before reading any index: an insertion renumbers later
        // timestamps.
        if self.timestamps.is_full(3) {
            self.make_room();
        }
        let timestamps = [self.end_of_pass(WINDOW), self.end_of_pass(1), self.first_seen];
        for timestamp in timestamps {
            let (_, renumbering) = self.timestamps.index_of(timestamp);
            self.renumber(renumbering);
        }
        let [left_window, not_accessed_since_first, first_seen] =
            timestamps.map(|timestamp| FIRST_TIMESTAMP + self.timestamps.index_of(timestamp).0);
        Transitions {
            first_seen,
            not_accessed_since_first,
            left_window,
            is_first_pass: self.nr_passes == 0 && !self.trusts_first_pass,
        }
    }

    fn make_room(&mut self) {
        let (counts, kept) = (&self.counts, self.acted_on.used());
        let is_kept = |index: u8| kept[usize::from(FIRST_TIMESTAMP + index)];
        let renumbering = self
            .timestamps
            .make_room(|index| counts.is_used(index) || is_kept(index));
        self.renumber(Some(renumbering));
    }

    /// Changes the bytes of idle pages to the new indices of their timestamps.
    fn renumber(&mut self, renumbering: Option<Renumbering>) {
        let Some(Renumbering(indices)) = renumbering else {
            return;
        };
        let mut table = [0_u8; 256];
        for (byte, new) in (0..=u8::MAX).zip(table.iter_mut()) {
            *new = match byte {
                idle if is_idle(idle) => FIRST_TIMESTAMP + indices[usize::from(idle - FIRST_TIMESTAMP)],
                other => other,
            };
        }
        for chunk in self.chunks.values_mut() {
            chunk.bytes.renumber(&table);
        }
        self.acted_on.renumber(&table);
        self.counts.renumber(&table);
    }

    /// Approximate memory use.
    #[cfg(test)]
    fn state_size(&self) -> Bytes {
        let heap = |chunk: &Chunk| chunk.bytes.heap_size();
        // A node of the map is three quarters full on average.
        let entry = (size_of::<Chunk>() + size_of::<u64>()) * 4 / 3;
        let chunks: usize = self.chunks.values().map(|chunk| heap(chunk) + entry).sum();
        Bytes((chunks + self.acted_on.size() + size_of::<Self>()) as u64)
    }
}

#[cfg(test)]
mod tests;
