//! Runs of neighbouring pages in the same state. Regions are derived from them, and schemes are applied to
//! them.

use super::LastAccess;
use super::PageStates;
use super::byte::{ABSENT, CHUNK, MAX_HISTORY};
use super::chunk_states::Chunk;
use super::counts::Scanned;
use super::recent_change::{MIN_PAGES, RecentChange};
use crate::scan::WINDOW;
use thermo_units::{AddrRange, Nanos, PAGE_SIZE};

/// A run of neighbouring pages in the same state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StateRun {
    pub(crate) range: AddrRange,
    pub(crate) state: State,
}

/// State of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Accessed in this many passes of the window, at least one. Extrapolated to the whole window while there
    /// were fewer passes.
    Accessed(u32),
    /// Idle since this time.
    Idle(Nanos),
    Unknown,
}

impl PageStates {
    /// The runs of resident pages, ascending. A page is idle if it was not accessed for `recent` or longer at
    /// `now`.
    pub(crate) fn runs(&self, now: Nanos, recent: Nanos) -> impl Iterator<Item = StateRun> + '_ {
        let of_chunks = self.chunks.iter();
        let mut runs = of_chunks
            .flat_map(move |(number, chunk)| self.chunk_runs(*number, chunk, now, recent))
            .peekable();
        std::iter::from_fn(move || {
            let mut run = runs.next()?;
            let continues =
                |run: StateRun, next: &StateRun| next.range.start == run.range.end && next.state == run.state;
            while let Some(next) = runs.next_if(|next| continues(run, next)) {
                run.range.end = next.range.end;
            }
            Some(run)
        })
    }

    /// The runs of pages that have been idle for at least `min_age` at `now`, ascending.
    pub(crate) fn idle_for(&self, min_age: Nanos, now: Nanos) -> impl Iterator<Item = AddrRange> + '_ {
        self.idle_runs(min_age, now, Nanos::ZERO).map(|run| run.range)
    }

    /// Those of [`PageStates::runs`] that have been idle for at least `min_age`.
    pub(crate) fn idle_runs(
        &self,
        min_age: Nanos,
        now: Nanos,
        recent: Nanos,
    ) -> impl Iterator<Item = StateRun> + '_ {
        let is_idle = move |run: &StateRun| match run.state {
            State::Idle(since) => now.saturating_sub(since) >= min_age,
            State::Accessed(_) | State::Unknown => false,
        };
        self.runs(now, recent).filter(is_idle)
    }

    fn chunk_runs<'a>(
        &'a self,
        number: u64,
        chunk: &'a Chunk,
        now: Nanos,
        recent: Nanos,
    ) -> impl Iterator<Item = StateRun> + 'a {
        let scanned = chunk.scanned(self.nr_passes);
        chunk.bytes.runs().filter_map(move |(start, count, byte)| {
            let state = self.state(byte, count, scanned, now, recent)?;
            let first = number * CHUNK + start as u64 * PAGE_SIZE;
            let range = AddrRange::new(first, first + count as u64 * PAGE_SIZE);
            Some(StateRun { range, state })
        })
    }

    /// The state of `count` neighbouring pages with `byte`; `None` if they are not resident.
    fn state(&self, byte: u8, count: usize, scanned: Scanned, now: Nanos, recent: Nanos) -> Option<State> {
        if byte == ABSENT {
            return None;
        }
        let change = (count >= MIN_PAGES)
            .then(|| RecentChange::in_history(byte))
            .flatten();
        Some(match (self.last_access(byte, scanned), change) {
            (LastAccess::Unknown(_), _) => State::Unknown,
            (_, Some(RecentChange::BecameAccessed)) => State::Accessed(WINDOW),
            (LastAccess::At(last), Some(RecentChange::BecameIdle)) => State::Idle(last),
            (LastAccess::At(last), _) if byte > MAX_HISTORY || now.saturating_sub(last) >= recent => {
                State::Idle(last)
            }
            _ => {
                let passes = byte.count_ones() * WINDOW / self.valid_passes();
                State::Accessed(passes.min(WINDOW))
            }
        })
    }

    /// Number of passes in the window that can find accesses: all but the very first.
    fn valid_passes(&self) -> u32 {
        self.nr_passes.saturating_sub(1).clamp(1, WINDOW)
    }
}
