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

mod step;

use std::collections::BTreeMap;

use self::step::{PAGES_OF_STEP, Step};
use super::WINDOW;
use super::piece::{PageSeen, Piece};
use crate::addr::{Addr, AddrRange, PAGE_SIZE};
use crate::units::{Bytes, Nanos};

const ABSENT: u8 = 0;
const FIRST_SLOT: u8 = 128;
const UNKNOWN: u8 = 255;
const SLOTS: usize = (UNKNOWN - FIRST_SLOT) as usize;
const HISTORY: u8 = FIRST_SLOT - 1;

/// Pages of one page-table page, the unit memory for bytes is taken in.
const CHUNK_PAGES: usize = 512;
const CHUNK: u64 = CHUNK_PAGES as u64 * PAGE_SIZE;

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
        let mut addr = range.start;
        while addr < range.end {
            let chunk_end = Addr((addr.0 / CHUNK + 1) * CHUNK).min(range.end);
            self.take_in_chunk(
                piece,
                AddrRange {
                    start: addr,
                    end: chunk_end,
                },
                now,
            );
            addr = chunk_end;
        }
    }

    fn take_in_chunk(&mut self, piece: &Piece, part: AddrRange, now: Nanos) {
        // Words of the piece do not begin where chunks do: the last page can lie in one more of them.
        let nothing_there = (part.start.0..part.end.0)
            .step_by(64 * 4096)
            .chain([part.end.0 - PAGE_SIZE])
            .all(|a| piece.word_is_absent(Addr(a)));
        let number = part.start.0 / CHUNK;
        if nothing_there && !self.chunks.contains_key(&number) {
            return;
        }
        let (fresh, went_idle) = self.idle_codes(now);
        // The first marks that are found tell of an access at any time since the page came.
        let first_look = self.rounds.is_empty();
        let chunk = self
            .chunks
            .entry(number)
            .or_insert_with(|| Box::new([ABSENT; CHUNK_PAGES]));
        for addr in (part.start.0..part.end.0).step_by(4096) {
            let byte = &mut chunk[usize::try_from(addr % CHUNK / PAGE_SIZE).unwrap_or(0)];
            *byte = match (piece.get(Addr(addr)), *byte) {
                (PageSeen::Absent, _) => ABSENT,
                (PageSeen::Unknown, _) => UNKNOWN,
                (PageSeen::Accessed, _) if first_look => UNKNOWN,
                (PageSeen::Accessed, history @ 1..=HISTORY) => (history << 1 | 1) & HISTORY,
                (PageSeen::Accessed, _) => 1,
                (PageSeen::Idle, ABSENT | UNKNOWN) => fresh,
                (PageSeen::Idle, history @ 1..=HISTORY) => match (history << 1) & HISTORY {
                    0 => went_idle,
                    left => left,
                },
                (PageSeen::Idle, idle) => idle,
            };
        }
    }

    /// Says that a round ended: the window moves on.
    pub(crate) fn end_round(&mut self, now: Nanos) {
        self.rounds.push(now);
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
            let is_idle = (FIRST_SLOT..UNKNOWN).contains(byte);
            if is_idle || was_idle && matches!(Step::of(*byte), Some(Step::Ended { .. })) {
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
            end: Addr(u64::MAX).align_down(),
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
        self.chunks
            .iter()
            .flat_map(move |(number, chunk)| self.chunk_runs(*number, chunk))
    }

    fn chunk_runs<'a>(&'a self, number: u64, chunk: &'a [u8; CHUNK_PAGES]) -> impl Iterator<Item = Run> + 'a {
        let mut start = 0;
        chunk.chunk_by(|a, b| a == b).filter_map(move |same| {
            let first = number * CHUNK + start as u64 * PAGE_SIZE;
            start += same.len();
            let state = self.state_of(same)?;
            Some(Run {
                range: AddrRange::new(first, first + same.len() as u64 * PAGE_SIZE),
                state,
            })
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
                history.count_ones() * WINDOW / self.judged_rounds(),
            )),
            idle => self
                .slots
                .get(usize::from(idle - FIRST_SLOT))
                .map(|since| State::Idle(*since)),
        }
    }

    /// How many bytes are hot and how many idle, page by page.
    #[must_use]
    pub fn sums(&self) -> PageSums {
        let mut sums = PageSums::default();
        for byte in self.chunks.values().flat_map(|chunk| chunk.iter()) {
            let page = Bytes(PAGE_SIZE);
            match *byte {
                ABSENT => {}
                UNKNOWN => sums.unknown += page,
                history @ 1..=HISTORY => {
                    sums.touched += page;
                    if history & 1 == 1 {
                        sums.touched_last += page;
                    }
                }
                _ => sums.idle += page,
            }
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
            if used[usize::from(FIRST_SLOT) + slot] {
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
            let idle = (FIRST_SLOT..UNKNOWN).contains(&byte);
            *translated = if idle {
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

#[cfg(test)]
mod tests;
