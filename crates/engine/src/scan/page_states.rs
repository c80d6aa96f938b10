//! What is known of every page of a target: in which of the last passes it was accessed, or since when it has been idle.
//!
//! | byte | meaning |
//! | --- | --- |
//! | 0 | not resident |
//! | 1–127 | accessed in at least one of the last seven passes; bit 0 is the newest |
//! | 128–253 | idle since the moment of this number (byte − 128) |
//! | 254 | found accessed by the first pass: the accessed bit may be years old |
//! | 255 | unknown |
//!
//! 512 pages that are all alike have one byte together, so that memory which is idle or hot as a whole costs next to
//! nothing. How many pages have which byte is counted all the time; tables come from these counts.
//!
//! A snapshot is taken at any moment of a pass. Chunks that the pass under way has scanned know one pass more than the
//! others; each chunk remembers which it is.
//!
//! How much of the window was accessed tells hot from warm, but notices a change only when half of the window has gone
//! by. So a run of pages that all went from accessed to idle at once, or the other way, and stayed so for two passes, is
//! taken as what it is since: many pages do not change together by chance.

mod byte;
mod chunk_states;
mod codes;
mod counts;
mod moments;
mod step;

use std::collections::BTreeMap;

use self::byte::{ABSENT, CHUNK, CHUNK_PAGES, FIRST, FIRST_MOMENT, HISTORY, UNKNOWN, WORDS, is_idle};
use self::chunk_states::{Chunk, ChunkBacking, ChunkBytes, count, has_history};
use self::codes::{Codes, Reaccessed};
use self::counts::{Counts, Group, Scanned};
use self::moments::{Moments, Moved};
use self::step::{PAGES_OF_STEP, Step};
use super::WINDOW;
use super::chunk::{ScanChunk, WORD, Word};
use crate::access_tables::{AccessTables, Backing, NR_AGES, UnknownReason, age_bucket};
use crate::budget::Method;
use thermo_units::{Addr, AddrRange, PAGE_SIZE};
use thermo_units::{Bytes, Nanos};

/// All addresses.
const EVERYWHERE: AddrRange = AddrRange::new(0, u64::MAX / PAGE_SIZE * PAGE_SIZE);

/// The states of all resident pages of a target that were ever scanned.
#[derive(Debug, Clone, Default)]
pub struct PageStates {
    /// By address / 2 MiB.
    chunks: BTreeMap<u64, Chunk>,
    /// How many passes have ended. Also the number of the pass under way.
    nr_passes: u32,
    /// When the pass under way began.
    began: Nanos,
    /// The moment of pages that this pass sees for the first time: of no others, since it is put off to the end of it.
    fresh: Nanos,
    /// When the last passes ended, newest last; as many as the window has.
    ends: Vec<Nanos>,
    /// From the end of the pass before the last to that of the last: what lies between two scans of a page. Of the first
    /// pass, how long it took.
    last_pass: Nanos,
    /// When the last pass began.
    last_began: Nanos,
    /// When the first pass ended: nothing is known to be idle for longer.
    first_end: Nanos,
    moments: Moments,
    counts: Counts,
    /// Whether the first pass can trust accessed bits: the target is not older than they should be.
    trusts_first_pass: bool,
    /// Pages found accessed again since this was last asked, by how long they had been idle.
    reaccessed: [u64; NR_AGES],
    /// What backs the mappings: ascending, disjoint.
    backings: Vec<(AddrRange, Backing)>,
}

/// A run of neighbouring pages with the same state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StateRun {
    pub(crate) range: AddrRange,
    pub(crate) state: State,
}

/// What is known of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Accessed in this many passes of the window, at least one. While there were fewer passes than the window holds:
    /// what it would be if they went on alike.
    Accessed(u32),
    /// Not accessed since.
    Idle(Nanos),
    Unknown,
}

/// When pages of one byte were accessed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastAccess {
    /// The last scan found them accessed.
    LastScan,
    At(Nanos),
    Unknown(UnknownReason),
}

impl PageStates {
    /// Of a target of which nothing is known; `is_new`: it has just started, so that accessed bits cannot be old.
    pub(crate) fn new(is_new: bool) -> Self {
        Self {
            trusts_first_pass: is_new,
            ..Self::default()
        }
    }

    /// Begins a pass.
    pub(crate) const fn begin_pass(&mut self, now: Nanos) {
        self.began = now;
        self.fresh = Nanos(now.0 + 1);
    }

    /// Takes in what the scan of a chunk of the pass under way found, at `now`.
    pub(crate) fn take_in(&mut self, scan: &ScanChunk, now: Nanos) {
        let range = scan.range();
        if scan.is_empty() {
            return self.forget(range);
        }
        let codes = self.codes();
        let mut reaccessed = [0; 256];
        for number in range.start.0 / CHUNK..range.end.0.div_ceil(CHUNK) {
            let word = |nth: u64| scan.word(Addr(number * CHUNK + nth * WORD));
            let words: [Word; WORDS] = std::array::from_fn(|nth| word(nth as u64));
            self.take_in_chunk(number, &words, codes, &mut reaccessed);
        }
        for (code, pages) in (0..=u8::MAX).zip(reaccessed).filter(|(_, pages)| *pages > 0) {
            if let LastAccess::At(last) = self.last_access(code, Scanned::InTheLast) {
                // Both accesses lie between two scans.
                let idle = now
                    .saturating_sub(last)
                    .saturating_add(Nanos(self.last_pass.0 / 2));
                self.reaccessed[age_bucket(idle)] += u64::from(pages);
            }
        }
    }

    fn take_in_chunk(
        &mut self,
        number: u64,
        words: &[Word; WORDS],
        codes: Codes,
        reaccessed: &mut Reaccessed,
    ) {
        let huge = words.iter().all(|word| word.huge == u64::MAX);
        if let Some(chunk) = self.chunks.get_mut(&number) {
            if let ChunkBytes::Uniform(code) = chunk.bytes
                && chunk.huge == huge
                && words.iter().all(|word| codes.keeps(code, word))
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
            changed |= codes.take_in_word(bytes, word, reaccessed);
        }
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

    /// Tells `scan`, of a chunk that is about to be scanned, where all of 64 pages were accessed in each of the last two
    /// passes.
    pub(crate) fn tell_steady(&self, scan: &mut ScanChunk) {
        let range = scan.range();
        let chunks = range.start.0 / CHUNK..range.end.0.div_ceil(CHUNK);
        for (number, chunk) in self.chunks.range(chunks) {
            for word in 0..WORDS as u64 {
                if chunk.bytes.is_steady(word as usize) {
                    scan.set_steady(Addr(number * CHUNK + word * WORD));
                }
            }
        }
    }

    /// Ends the pass under way. What it did not come by is not mapped any more.
    pub(crate) fn end_pass(&mut self, now: Nanos) {
        self.moments.put_off(self.fresh, now);
        if !self.moments.is_full(4) {
            // What leaves the window in seven passes is idle since then. As the last number it moves no other.
            let (_, moved) = self.moments.number_of(now);
            self.translate(moved);
        }
        let (pass, counts) = (self.nr_passes, &mut self.counts);
        self.chunks.retain(|_, chunk| {
            let stays = chunk.pass == pass && !matches!(chunk.bytes, ChunkBytes::Uniform(ABSENT));
            if !stays {
                chunk.count(pass, counts, Counts::subtract);
            }
            stays
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

    /// How many passes have ended.
    pub(crate) const fn nr_passes(&self) -> u32 {
        self.nr_passes
    }

    /// What backs the mappings: ascending, disjoint. Holds for what is scanned from now on.
    pub(crate) fn set_backings(&mut self, backings: Vec<(AddrRange, Backing)>) {
        self.backings = backings;
    }

    /// What backs the mapping at `addr`.
    pub(crate) fn backing_at(&self, addr: Addr) -> Backing {
        let at = self.backings.partition_point(|(range, _)| range.end <= addr);
        let found = self.backings.get(at).filter(|(range, _)| range.contains(addr));
        found.map_or_else(Backing::default, |(_, backing)| *backing)
    }

    /// The page-exact results at `now`, and the re-accesses since this was last asked.
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
            code,
            scanned,
        } in self.counts.groups()
        {
            let bytes = Bytes(u64::from(pages) * PAGE_SIZE);
            let ages = &mut tables.idle[kind.index()];
            match self.last_access(code, scanned) {
                LastAccess::LastScan => ages[0] += bytes,
                // The last access lies between two scans: half a pass is what held against the kernel's truth.
                LastAccess::At(last) => {
                    let known = now.saturating_sub(self.first_end.min(last));
                    let age = now
                        .saturating_sub(last)
                        .saturating_add(Nanos(self.last_pass.0 / 2));
                    ages[age_bucket(age.min(known))] += bytes;
                }
                LastAccess::Unknown(reason) => tables.unknown[reason.index()] += bytes,
            }
        }
        let reaccessed = std::mem::take(&mut self.reaccessed);
        tables.reaccessed = reaccessed.map(|pages| Bytes(pages * PAGE_SIZE));
        tables
    }

    /// When pages with the byte `code` were accessed last, in a chunk that was `scanned` then.
    fn last_access(&self, code: u8, scanned: Scanned) -> LastAccess {
        match code {
            FIRST => LastAccess::Unknown(UnknownReason::FirstScan),
            ABSENT | UNKNOWN => LastAccess::Unknown(UnknownReason::Uncleared),
            history @ 1..=HISTORY => match (history.trailing_zeros(), scanned) {
                (0, _) => LastAccess::LastScan,
                (passes, Scanned::InThisPass) => LastAccess::At(self.ended(passes)),
                (passes, Scanned::InTheLast) => LastAccess::At(self.ended(passes + 1)),
            },
            idle => LastAccess::At(self.moments.get(idle - FIRST_MOMENT)),
        }
    }

    /// When the pass ended that was so many passes before the one under way, at least one.
    fn ended(&self, passes: u32) -> Nanos {
        let at = self.ends.len().saturating_sub(passes as usize);
        self.ends.get(at).copied().unwrap_or(self.began)
    }

    /// Makes the pages of `range` that are idle count as idle only since `now`: something was done to them.
    ///
    /// Where an accessed page became idle lately, its neighbours decide as which it is taken, and that may have changed
    /// since. So those of a range that `was_idle` as a whole begin anew; those of another stay accessed, or what is done
    /// to hot memory would make it look idle.
    pub(crate) fn restart_age(&mut self, range: AddrRange, was_idle: bool, now: Nanos) {
        if self.moments.is_full(1) {
            self.make_room();
        }
        let (number, moved) = self.moments.number_of(now);
        self.translate(moved);
        let code = FIRST_MOMENT + number;
        self.change(range, |byte| {
            let restarts = is_idle(*byte) || was_idle && *byte > ABSENT && *byte <= HISTORY && *byte & 1 == 0;
            if restarts {
                *byte = code;
            }
        });
    }

    /// Forgets what lies outside of `ranges` (ascending, disjoint, page-aligned).
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
            let place = |addr: Addr| {
                let page = addr.0.saturating_sub(number * CHUNK) / PAGE_SIZE;
                usize::try_from(page).unwrap_or(CHUNK_PAGES).min(CHUNK_PAGES)
            };
            let (first, end) = (place(range.start), place(range.end));
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

    /// The runs of resident pages, ascending. Idle is what was not accessed for `recent` or longer before `now`.
    pub(crate) fn runs(&self, now: Nanos, recent: Nanos) -> impl Iterator<Item = StateRun> + '_ {
        let of_chunks = self.chunks.iter();
        let mut runs = of_chunks
            .flat_map(move |(number, chunk)| self.chunk_runs(*number, chunk, now, recent))
            .peekable();
        std::iter::from_fn(move || {
            let mut run = runs.next()?;
            let goes_on =
                |run: StateRun, next: &StateRun| next.range.start == run.range.end && next.state == run.state;
            while let Some(next) = runs.next_if(|next| goes_on(run, next)) {
                run.range.end = next.range.end;
            }
            Some(run)
        })
    }

    /// The runs of pages that have been idle for `least` or longer at `now`, ascending.
    pub(crate) fn idle_for(&self, least: Nanos, now: Nanos) -> impl Iterator<Item = AddrRange> + '_ {
        let is_idle = move |run: &StateRun| match run.state {
            State::Idle(since) => now.saturating_sub(since) >= least,
            State::Accessed(_) | State::Unknown => false,
        };
        self.runs(now, Nanos::ZERO).filter(is_idle).map(|run| run.range)
    }

    fn chunk_runs<'a>(
        &'a self,
        number: u64,
        chunk: &'a Chunk,
        now: Nanos,
        recent: Nanos,
    ) -> impl Iterator<Item = StateRun> + 'a {
        let scanned = chunk.scanned(self.nr_passes);
        chunk.bytes.runs().filter_map(move |(start, count, code)| {
            let state = self.state(code, count, scanned, now, recent)?;
            let first = number * CHUNK + start as u64 * PAGE_SIZE;
            let range = AddrRange::new(first, first + count as u64 * PAGE_SIZE);
            Some(StateRun { range, state })
        })
    }

    /// The state of `count` neighbouring pages with the byte `code`.
    fn state(&self, code: u8, count: usize, scanned: Scanned, now: Nanos, recent: Nanos) -> Option<State> {
        if code == ABSENT {
            return None;
        }
        let step = (count >= PAGES_OF_STEP).then(|| Step::of(code)).flatten();
        Some(match (self.last_access(code, scanned), step) {
            (LastAccess::Unknown(_), _) => State::Unknown,
            (_, Some(Step::Began)) => State::Accessed(WINDOW),
            (LastAccess::At(last), Some(Step::Ended)) => State::Idle(last),
            (LastAccess::At(last), _) if code > HISTORY || now.saturating_sub(last) >= recent => {
                State::Idle(last)
            }
            _ => {
                let passes = code.count_ones() * WINDOW / self.judged_passes();
                State::Accessed(passes.min(WINDOW))
            }
        })
    }

    /// How many passes of the window could tell anything: all but the very first.
    fn judged_passes(&self) -> u32 {
        self.nr_passes.saturating_sub(1).clamp(1, WINDOW)
    }

    /// What the bytes of pages become that this pass scans.
    fn codes(&mut self) -> Codes {
        // Room first, and all in before any is told: a moment that comes in moves later ones.
        if self.moments.is_full(3) {
            self.make_room();
        }
        let moments = [self.ended(WINDOW), self.ended(1), self.fresh];
        for moment in moments {
            let (_, moved) = self.moments.number_of(moment);
            self.translate(moved);
        }
        let [went_idle, since_first, fresh] =
            moments.map(|moment| FIRST_MOMENT + self.moments.number_of(moment).0);
        Codes {
            fresh,
            since_first,
            went_idle,
            is_first_pass: self.nr_passes == 0 && !self.trusts_first_pass,
        }
    }

    fn make_room(&mut self) {
        let counts = &self.counts;
        let moved = self.moments.make_room(|number| counts.is_used(number));
        self.translate(Some(moved));
    }

    fn translate(&mut self, moved: Option<Moved>) {
        let Some(Moved(numbers)) = moved else { return };
        let mut table = [0_u8; 256];
        for (byte, translated) in (0..=u8::MAX).zip(table.iter_mut()) {
            *translated = match byte {
                idle if is_idle(idle) => FIRST_MOMENT + numbers[usize::from(idle - FIRST_MOMENT)],
                other => other,
            };
        }
        for chunk in self.chunks.values_mut() {
            match &mut chunk.bytes {
                ChunkBytes::Uniform(byte) => *byte = table[usize::from(*byte)],
                ChunkBytes::Each(bytes) => bytes
                    .iter_mut()
                    .for_each(|byte| *byte = table[usize::from(*byte)]),
            }
        }
        self.counts.translate(&table);
    }

    /// Bytes of memory that this takes, roughly.
    #[cfg(test)]
    fn state_size(&self) -> Bytes {
        let each = |chunk: &Chunk| match chunk.bytes {
            ChunkBytes::Uniform(_) => 0,
            ChunkBytes::Each(_) => CHUNK_PAGES + 16,
        };
        // A node of the map is three quarters full on average.
        let entry = (size_of::<Chunk>() + size_of::<u64>()) * 4 / 3;
        let chunks: usize = self.chunks.values().map(|chunk| each(chunk) + entry).sum();
        Bytes((chunks + size_of::<Self>()) as u64)
    }
}

#[cfg(test)]
mod tests;
