//! Number of pages with each byte. Kept up to date, so that the cost of tables does not grow with memory.

use super::super::WINDOW;
use super::byte::{ABSENT, FIRST_SCAN, FIRST_TIMESTAMP, MAX_HISTORY, UNKNOWN, is_idle};
use crate::access_tables::{NR_KINDS, PageKind};

/// Number of pages by kind and byte.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts([Option<Box<KindCounts>>; NR_KINDS]);

/// Number of pages of one kind.
#[derive(Debug, Clone)]
struct KindCounts {
    /// Pages without a history, by byte.
    by_byte: [u32; 256],
    /// Pages with a history, by history: in chunks scanned by the running pass, and in the others. The same
    /// history ends with the running pass in the former and with the last pass in the latter.
    by_history: [[u32; MAX_HISTORY as usize + 1]; 2],
}

/// The pass that last scanned a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scanned {
    InThisPass,
    InLastPass,
}

/// Pages of one kind in the same state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    pub(super) kind: PageKind,
    pub(super) pages: u32,
    pub(super) byte: u8,
    pub(super) scanned: Scanned,
}

impl Counts {
    /// Adds `pages` pages with `byte`.
    pub(super) fn add(&mut self, kind: PageKind, byte: u8, scanned: Scanned, pages: u32) {
        if byte != ABSENT {
            *self.count_mut(kind, byte, scanned) += pages;
        }
    }

    /// Subtracts `pages` pages with `byte`.
    pub(super) fn subtract(&mut self, kind: PageKind, byte: u8, scanned: Scanned, pages: u32) {
        if byte == ABSENT {
            return;
        }
        let count = self.count_mut(kind, byte, scanned);
        debug_assert!(*count >= pages, "{kind:?} {byte}: {count} < {pages}");
        *count = count.saturating_sub(pages);
    }

    fn count_mut(&mut self, kind: PageKind, byte: u8, scanned: Scanned) -> &mut u32 {
        let counts = self.0[kind.index()].get_or_insert_with(|| {
            Box::new(KindCounts {
                by_byte: [0; 256],
                by_history: [[0; MAX_HISTORY as usize + 1]; 2],
            })
        });
        match byte {
            0..=MAX_HISTORY => &mut counts.by_history[scanned as usize][usize::from(byte)],
            other => &mut counts.by_byte[usize::from(other)],
        }
    }

    /// Ends a pass: the chunks that it scanned become those of the last pass. The caller has subtracted all
    /// others.
    pub(super) fn end_pass(&mut self) {
        for counts in self.0.iter_mut().flatten() {
            let [this, last] = &mut counts.by_history;
            *last = *this;
            this.fill(0);
        }
    }

    /// Moves the counts of each byte to its new byte in `table`.
    pub(super) fn renumber(&mut self, table: &[u8; 256]) {
        for counts in self.0.iter_mut().flatten() {
            let before = counts.by_byte;
            counts.by_byte.fill(0);
            for (byte, pages) in before.into_iter().enumerate() {
                counts.by_byte[usize::from(table[byte])] += pages;
            }
        }
    }

    /// True if a page is idle since the timestamp with `index`.
    pub(super) fn is_used(&self, index: u8) -> bool {
        let byte = usize::from(FIRST_TIMESTAMP + index);
        self.0.iter().flatten().any(|counts| counts.by_byte[byte] > 0)
    }

    /// All groups that have pages.
    pub(super) fn groups(&self) -> impl Iterator<Item = Group> + '_ {
        let counts_of_kind = |kind: PageKind| Some((kind, self.0[kind.index()].as_deref()?));
        PageKind::ALL
            .into_iter()
            .filter_map(counts_of_kind)
            .flat_map(|(kind, counts)| {
                let [this, last] = &counts.by_history;
                let group = move |scanned| {
                    move |(byte, pages): (u8, &u32)| Group {
                        kind,
                        pages: *pages,
                        byte,
                        scanned,
                    }
                };
                let this = (0..).zip(this).map(group(Scanned::InThisPass));
                let last = (0..).zip(last).map(group(Scanned::InLastPass));
                let others = (0..=u8::MAX).zip(&counts.by_byte).map(group(Scanned::InLastPass));
                this.chain(last).chain(others)
            })
            .filter(|group| group.pages > 0)
    }
}

const _: () = assert!(MAX_HISTORY as u32 == (1 << WINDOW) - 1);
const _: () = assert!(is_idle(FIRST_TIMESTAMP) && !is_idle(FIRST_SCAN));
const _: () = assert!(FIRST_SCAN > MAX_HISTORY && UNKNOWN > FIRST_SCAN);
