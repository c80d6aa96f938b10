//! One byte a page: in which of the last rounds it was touched, or since when it has been idle.
//!
//! | byte | meaning |
//! | --- | --- |
//! | 0 | not there |
//! | 1–127 | touched in at least one of the last seven rounds; bit 0 is the newest |
//! | 128–254 | idle since the moment in slot (byte − 128) |
//! | 255 | cannot be told |
//!
//! How much of the window was touched tells hot from warm, but notices a change only when the window has half gone by. So
//! a run of pages that all went from touched to untouched at once, or the other way, and stayed so for two rounds, is
//! told as what it is since: many pages do not change together by chance.
//!
//! Slots are moments. When they run out, those of no page are given up, and moments that are close for their
//! age go together: old ages become coarser, young ones stay exact, and no page ever needs more than its byte.

mod codes;
mod step;

use std::collections::BTreeMap;

use self::codes::Codes;
use self::step::{PAGES_OF_STEP, Step};
use super::WINDOW;
use super::piece::{Piece, WORD, Word};
use crate::addr::{Addr, AddrRange, PAGE_SIZE};
use crate::units::{Bytes, Nanos};

const ABSENT: u8 = 0;
const FIRST_SLOT: u8 = 128;
const UNKNOWN: u8 = 255;
const SLOTS: usize = (UNKNOWN - FIRST_SLOT) as usize;
const HISTORY: u8 = FIRST_SLOT - 1;

/// Pages of one page-table page, the unit memory for bytes is taken in.
const CHUNK_PAGES: usize = 512;
const WORDS: usize = CHUNK_PAGES / 64;
const CHUNK: u64 = CHUNK_PAGES as u64 * PAGE_SIZE;

/// All addresses.
pub(crate) const EVERYWHERE: AddrRange = AddrRange::new(0, u64::MAX / PAGE_SIZE * PAGE_SIZE);

/// The heat of every page of a target that was ever seen.
#[derive(Debug, Clone, Default)]
pub struct PageHeat {
    /// Bytes of the pages of 2 MiB each, by address / 2 MiB.
    chunks: BTreeMap<u64, Box<[u8; CHUNK_PAGES]>>,
    /// When the rounds of the window ended, newest last; at most [`WINDOW`].
    rounds: Vec<Nanos>,
    /// Whether the very first round has left the window.
    window_is_full: bool,
    /// Moments that pages have been idle since, ascending.
    slots: Vec<Nanos>,
}

/// A run of neighbouring pages with the same state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) range: AddrRange,
    pub(crate) state: State,
}

/// What is known of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Touched in this many rounds of the window, at least one. While there were fewer rounds than the window
    /// holds, it is what it would be if they went on alike.
    Touched(u32),
    /// Not touched since.
    Idle(Nanos),
    Unknown,
}

/// Bytes of a target by what is known of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageSums {
    /// Touched in the last round.
    pub touched_last: Bytes,
    /// Touched in at least one round of the window.
    pub touched: Bytes,
    /// Not touched in the window.
    pub idle: Bytes,
    /// Cannot be told.
    pub unknown: Bytes,
}

impl PageHeat {
    /// Takes in what a look at a piece found. `now` is when the round began, for pages that are seen for the
    /// first time and were not touched.
    pub(crate) fn take_in(&mut self, piece: &Piece, now: Nanos) {
        let range = piece.range();
        if piece.is_empty() && !piece.is_part() {
            return self.forget(range);
        }
        let (fresh, went_idle) = self.idle_codes(now);
        let codes = Codes {
            fresh,
            went_idle,
            // The first marks that are found tell of an access at any time since the page came.
            is_first_look: self.rounds.is_empty(),
        };
        for number in range.start.0 / CHUNK..range.end.0.div_ceil(CHUNK) {
            let word = |nth: u64| piece.word(Addr(number * CHUNK + nth * WORD));
            let words: [Word; WORDS] = std::array::from_fn(|nth| word(nth as u64));
            let nothing_there = words.iter().all(|word| word.present == 0);
            if nothing_there && !self.chunks.contains_key(&number) {
                continue;
            }
            let chunk = self
                .chunks
                .entry(number)
                .or_insert_with(|| Box::new([ABSENT; CHUNK_PAGES]));
            let (bytes, _) = chunk.as_chunks_mut::<64>();
            for (bytes, word) in bytes.iter_mut().zip(&words) {
                codes.take_in_word(bytes, word);
            }
        }
    }

    /// Tells `piece`, which is about to be looked at, where all of 64 pages were touched in each of the last two rounds:
    /// what is touched now and then does so by chance hardly ever.
    pub(crate) fn tell_steady(&self, piece: &mut Piece) {
        let range = piece.range();
        let chunks = range.start.0 / CHUNK..range.end.0.div_ceil(CHUNK);
        for (number, chunk) in self.chunks.range(chunks) {
            for (word, bytes) in (0..).zip(chunk.as_chunks::<64>().0) {
                if are_steady(bytes) {
                    piece.set_steady(Addr(number * CHUNK + word * WORD));
                }
            }
        }
    }

    /// The page-table pages within `within` that are steady as a whole, ascending.
    pub(crate) fn steady(&self, within: AddrRange) -> impl Iterator<Item = AddrRange> + '_ {
        let first = within.start.0.div_ceil(CHUNK);
        let steady = self
            .chunks
            .range(first..first.max(within.end.0 / CHUNK))
            .filter(|(_, chunk)| are_steady(chunk.as_slice()));
        steady.map(|(number, _)| pages_of_chunk(*number, 0, CHUNK_PAGES))
    }

    /// Whether a round ended since there is this.
    pub(crate) const fn has_rounds(&self) -> bool {
        !self.rounds.is_empty()
    }

    /// Says that a round ended: the window moves on.
    pub(crate) fn end_round(&mut self, now: Nanos) {
        self.rounds.push(now);
        // What leaves the window in seven rounds is idle since then. As the last slot it costs nothing; later it would.
        if self.slots.len() < SLOTS && self.slots.last() < Some(&now) {
            self.slots.push(now);
        }
        if self.rounds.len() > WINDOW as usize {
            self.rounds.remove(0);
            self.window_is_full = true;
        }
        // Chunks that hold nothing any more (unmapped, swapped out) need no memory.
        self.chunks
            .retain(|_, chunk| chunk.iter().any(|byte| *byte != ABSENT));
    }

    /// Makes the pages of `range` that are idle count as idle only since `now`: something was done to them.
    ///
    /// Where a touched page became untouched lately, its neighbours decide which of both it is told as, and that may
    /// have changed since. So those of a range that `was_idle` as a whole, as it was told of, begin anew; those of
    /// another stay touched, or what is done to hot memory would make it look idle.
    pub(crate) fn restart_age(&mut self, range: AddrRange, was_idle: bool, now: Nanos) {
        let code = FIRST_SLOT + self.slot_of(now);
        for byte in self.bytes_of(range).flatten() {
            if is_idle(*byte) || was_idle && matches!(Step::of(*byte), Some(Step::Ended { .. })) {
                *byte = code;
            }
        }
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

    /// Forgets the pages of `range` (page-aligned): nothing is there. Chunks left empty go when the round ends.
    pub(crate) fn forget(&mut self, range: AddrRange) {
        self.bytes_of(range).for_each(|bytes| bytes.fill(ABSENT));
    }

    /// The bytes of the pages of `range`, a slice for each chunk there is.
    fn bytes_of(&mut self, range: AddrRange) -> impl Iterator<Item = &mut [u8]> {
        let chunks = range.start.0 / CHUNK..range.end.0.div_ceil(CHUNK).max(range.start.0 / CHUNK);
        self.chunks.range_mut(chunks).map(move |(number, chunk)| {
            let place = |addr: Addr| {
                let page = addr.0.saturating_sub(number * CHUNK) / PAGE_SIZE;
                usize::try_from(page).unwrap_or(CHUNK_PAGES).min(CHUNK_PAGES)
            };
            let first = place(range.start);
            &mut chunk[first..place(range.end).max(first)]
        })
    }

    /// The runs of pages that are there, ascending.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let of_chunks = self.chunks.iter();
        let mut runs = of_chunks
            .flat_map(|(number, chunk)| self.chunk_runs(*number, chunk))
            .peekable();
        std::iter::from_fn(move || {
            let mut run = runs.next()?;
            let goes_on = |run: Run, next: &Run| next.range.start == run.range.end && next.state == run.state;
            while let Some(next) = runs.next_if(|next| goes_on(run, next)) {
                run.range.end = next.range.end;
            }
            Some(run)
        })
    }

    fn chunk_runs<'a>(&'a self, number: u64, chunk: &'a [u8; CHUNK_PAGES]) -> impl Iterator<Item = Run> + 'a {
        runs_of_bytes(chunk).filter_map(move |(start, same)| {
            let state = self.state_of(same)?;
            let range = pages_of_chunk(number, start, same.len());
            Some(Run { range, state })
        })
    }

    /// The state of neighbouring pages whose bytes are the same, at least one.
    fn state_of(&self, same: &[u8]) -> Option<State> {
        let is_many = same.len() >= PAGES_OF_STEP;
        match is_many.then(|| Step::of(same[0])).flatten() {
            Some(Step::Began) => Some(State::Touched(WINDOW)),
            Some(Step::Ended { rounds }) => Some(State::Idle(self.ended_before(rounds))),
            None => self.state(same[0]),
        }
    }

    /// The end of the round that the last `rounds` came after.
    fn ended_before(&self, rounds: u32) -> Nanos {
        let known = self.rounds.len().checked_sub(1 + rounds as usize);
        known.map_or_else(|| self.window_start(Nanos::ZERO), |at| self.rounds[at])
    }

    fn state(&self, byte: u8) -> Option<State> {
        match byte {
            ABSENT => None,
            UNKNOWN => Some(State::Unknown),
            history @ 1..=HISTORY => Some(State::Touched(
                (history.count_ones() * WINDOW / self.judged_rounds()).min(WINDOW),
            )),
            idle => self
                .slots
                .get(usize::from(idle - FIRST_SLOT))
                .map(|since| State::Idle(*since)),
        }
    }

    /// The runs of pages that changed in the last round, and whose change would be told if it lasted for another one;
    /// ascending, of the chunks that lie in `within`. None before the window is full.
    pub(crate) fn changing(&self, within: AddrRange) -> impl Iterator<Item = AddrRange> + '_ {
        let chunks = within.start.0 / CHUNK..within.end.0.div_ceil(CHUNK);
        let chunks = self.chunks.range(chunks).filter(|_| self.window_is_full);
        chunks.flat_map(|(number, chunk)| {
            runs_of_bytes(chunk)
                .filter(|(_, same)| {
                    same.len() >= PAGES_OF_STEP && same.first().is_some_and(|b| Step::is_near(*b))
                })
                .map(move |(start, same)| pages_of_chunk(*number, start, same.len()))
        })
    }

    /// What is worth another look in `within`: around what changed, the page-table pages before and behind as well, for a
    /// change may be going on. Ascending where each begins.
    pub(crate) fn around_changes(&self, within: AddrRange) -> impl Iterator<Item = AddrRange> + '_ {
        let wider = AddrRange {
            start: Addr(within.start.0.saturating_sub(CHUNK)),
            end: Addr(within.end.0.saturating_add(CHUNK)).min(EVERYWHERE.end),
        };
        self.changing(wider).filter_map(move |changed| {
            let before = (changed.start.0 / CHUNK).saturating_sub(1);
            let behind = changed.end.0.div_ceil(CHUNK) + 1;
            AddrRange::new(before * CHUNK, behind * CHUNK).intersection(&within)
        })
    }

    /// How many bytes are hot and how many idle, page by page.
    #[must_use]
    pub fn sums(&self) -> PageSums {
        let mut sums = PageSums::default();
        let words = self.chunks.values().flat_map(|chunk| chunk.as_chunks::<64>().0);
        for bytes in words {
            // Of 64 bytes no count is too large for one.
            let count = |is: fn(u8) -> bool| {
                Bytes(u64::from(bytes.iter().map(|byte| u8::from(is(*byte))).sum::<u8>()) * PAGE_SIZE)
            };
            sums.unknown += count(|byte| byte == UNKNOWN);
            sums.touched += count(|byte| byte != ABSENT && byte <= HISTORY);
            sums.touched_last += count(|byte| byte <= HISTORY && byte & 1 == 1);
            sums.idle += count(is_idle);
        }
        sums
    }

    /// The bytes of a page that is idle since `now`, and of one that was touched last in the oldest round of the
    /// window.
    fn idle_codes(&mut self, now: Nanos) -> (u8, u8) {
        let window_start = self.window_start(now);
        // Room for both first, and both in before either is told: a moment that comes in moves later ones.
        if self.slots.len() + 2 > SLOTS {
            self.give_up_slots();
        }
        self.slot_of(window_start);
        self.slot_of(now);
        (
            FIRST_SLOT + self.slot_of(now),
            FIRST_SLOT + self.slot_of(window_start),
        )
    }

    /// How many rounds of the window could tell anything: all but the very first.
    fn judged_rounds(&self) -> u32 {
        let rounds = u32::try_from(self.rounds.len()).unwrap_or(WINDOW);
        rounds.saturating_sub(u32::from(!self.window_is_full)).max(1)
    }

    /// The end of the oldest round of the window: since when a page has been idle that was touched in it last.
    fn window_start(&self, now: Nanos) -> Nanos {
        self.rounds.first().copied().unwrap_or(now)
    }

    /// The slot of a moment; a new one if need be.
    fn slot_of(&mut self, moment: Nanos) -> u8 {
        if let Ok(slot) = self.slots.binary_search(&moment) {
            return u8::try_from(slot).unwrap_or(0);
        }
        if self.slots.len() + 1 > SLOTS {
            self.give_up_slots();
        }
        let slot = self.slots.partition_point(|known| *known < moment);
        if slot < self.slots.len() {
            self.translate(|old| if usize::from(old) >= slot { old + 1 } else { old });
        }
        self.slots.insert(slot, moment);
        u8::try_from(slot).unwrap_or(0)
    }

    /// Makes room: slots of no page go; while that is not enough, the two moments go together that are closest
    /// for their age. Their pages count as idle since the later one, which never makes memory look older than
    /// it is.
    fn give_up_slots(&mut self) {
        let mut used = [false; 256];
        for byte in self.chunks.values().flat_map(|chunk| chunk.iter()) {
            used[usize::from(*byte)] = true;
        }
        // Where the pages of each old slot go: the place of a kept moment.
        let mut kept: Vec<(Nanos, Vec<usize>)> = Vec::new();
        for (slot, moment) in self.slots.iter().enumerate() {
            if used[usize::from(FIRST_SLOT) + slot] || self.rounds.contains(moment) {
                kept.push((*moment, vec![slot]));
            }
        }
        let newest = self.slots.last().copied().unwrap_or_default();
        while kept.len() > SLOTS / 2 {
            let closeness = |pair: &[(Nanos, Vec<usize>)]| {
                let (gap, age) = (pair[1].0 - pair[0].0, newest - pair[0].0);
                u128::from(gap.0) * 1_000_000 / u128::from(age.0.max(1))
            };
            let closest = kept
                .windows(2)
                .map(closeness)
                .enumerate()
                .min_by_key(|(_, gap)| *gap);
            let Some((first, _)) = closest else { break };
            let (_, slots) = kept.remove(first);
            kept[first].1.extend(slots);
        }
        let mut place = [0_u8; SLOTS];
        for (new, (_, slots)) in (0..=u8::MAX).zip(&kept) {
            for slot in slots {
                place[*slot] = new;
            }
        }
        self.translate(|slot| place[usize::from(slot)]);
        self.slots = kept.into_iter().map(|(moment, _)| moment).collect();
    }

    fn translate(&mut self, new_slot: impl Fn(u8) -> u8) {
        let mut table = [0_u8; 256];
        for (byte, translated) in (0..=255_u8).zip(table.iter_mut()) {
            *translated = if is_idle(byte) {
                FIRST_SLOT + new_slot(byte - FIRST_SLOT)
            } else {
                byte
            };
        }
        for byte in self.chunks.values_mut().flat_map(|chunk| chunk.iter_mut()) {
            *byte = table[usize::from(*byte)];
        }
    }
}

/// Whether all pages with these bytes were touched in each of the last two rounds.
fn are_steady(bytes: &[u8]) -> bool {
    let is_steady = |byte: u8| byte <= HISTORY && byte & 0b11 == 0b11;
    bytes.iter().fold(true, |all, byte| all & is_steady(*byte))
}

/// Whether a page with this byte is idle.
const fn is_idle(byte: u8) -> bool {
    byte.wrapping_sub(FIRST_SLOT) < UNKNOWN - FIRST_SLOT
}

/// So many pages of a chunk, from the one with number `start` on.
const fn pages_of_chunk(chunk: u64, start: usize, count: usize) -> AddrRange {
    let first = chunk * CHUNK + start as u64 * PAGE_SIZE;
    AddrRange::new(first, first + count as u64 * PAGE_SIZE)
}

/// The runs of bytes that are the same, with where each begins.
fn runs_of_bytes(bytes: &[u8; CHUNK_PAGES]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut rest = bytes.as_slice();
    std::iter::from_fn(move || {
        let start = CHUNK_PAGES - rest.len();
        let same;
        (same, rest) = rest.split_at(len_of_run(rest));
        (!same.is_empty()).then_some((start, same))
    })
}

/// How many of `bytes`, from the first, are the same.
fn len_of_run(bytes: &[u8]) -> usize {
    let Some(first) = bytes.first() else { return 0 };
    if bytes.get(1) != Some(first) {
        return 1;
    }
    let (words, _) = bytes.as_chunks::<64>();
    let is_same = |word: &&[u8; 64]| word.iter().fold(true, |same, byte| same & (byte == first));
    let whole = words.iter().take_while(is_same).count() * 64;
    let rest = bytes[whole..].iter().take_while(|byte| *byte == first);
    whole + rest.count()
}

#[cfg(test)]
mod tests;
