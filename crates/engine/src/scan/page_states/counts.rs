//! How many pages have which byte, kept up to date, so that tables cost nothing that grows with memory.

use super::super::WINDOW;
use super::byte::{ABSENT, FIRST, FIRST_MOMENT, HISTORY, UNKNOWN, is_idle};
use crate::access_tables::{NR_KINDS, PageKind};

/// Pages by kind and byte.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts([Option<Box<OfKind>>; NR_KINDS]);

/// Pages of one kind.
#[derive(Debug, Clone)]
struct OfKind {
    /// By byte, but for those of [`OfKind::recent`].
    by_code: [u32; 256],
    /// Those with a history, by it: of chunks that the pass under way has scanned, and of the others. The same history
    /// means one pass more there.
    recent: [[u32; HISTORY as usize + 1]; 2],
}

/// Whether the pass under way has scanned a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scanned {
    InThisPass,
    InTheLast,
}

/// Some pages of one kind with the same meaning.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    pub(super) kind: PageKind,
    pub(super) pages: u32,
    pub(super) code: u8,
    pub(super) scanned: Scanned,
}

impl Counts {
    /// Adds `pages` pages with `code`.
    pub(super) fn add(&mut self, kind: PageKind, code: u8, scanned: Scanned, pages: u32) {
        if code != ABSENT {
            *self.place(kind, code, scanned) += pages;
        }
    }

    /// Takes them away again.
    pub(super) fn subtract(&mut self, kind: PageKind, code: u8, scanned: Scanned, pages: u32) {
        if code == ABSENT {
            return;
        }
        let count = self.place(kind, code, scanned);
        debug_assert!(*count >= pages, "{kind:?} {code}: {count} < {pages}");
        *count = count.saturating_sub(pages);
    }

    fn place(&mut self, kind: PageKind, code: u8, scanned: Scanned) -> &mut u32 {
        let of_kind = self.0[kind.index()].get_or_insert_with(|| {
            Box::new(OfKind {
                by_code: [0; 256],
                recent: [[0; HISTORY as usize + 1]; 2],
            })
        });
        match code {
            0..=HISTORY => &mut of_kind.recent[scanned as usize][usize::from(code)],
            other => &mut of_kind.by_code[usize::from(other)],
        }
    }

    /// A pass ended: what it scanned is of the last pass now. Every chunk that it did not scan was taken away.
    pub(super) fn end_pass(&mut self) {
        for of_kind in self.0.iter_mut().flatten() {
            let [this, last] = &mut of_kind.recent;
            *last = *this;
            this.fill(0);
        }
    }

    /// Numbers of moments went elsewhere.
    pub(super) fn translate(&mut self, table: &[u8; 256]) {
        for of_kind in self.0.iter_mut().flatten() {
            let before = of_kind.by_code;
            of_kind.by_code.fill(0);
            for (code, pages) in before.into_iter().enumerate() {
                of_kind.by_code[usize::from(table[code])] += pages;
            }
        }
    }

    /// Whether any page has the byte of this number of a moment.
    pub(super) fn is_used(&self, moment: u8) -> bool {
        let code = usize::from(FIRST_MOMENT + moment);
        self.0.iter().flatten().any(|of_kind| of_kind.by_code[code] > 0)
    }

    /// All groups that have pages.
    pub(super) fn groups(&self) -> impl Iterator<Item = Group> + '_ {
        let of_kind = |kind: PageKind| Some((kind, self.0[kind.index()].as_deref()?));
        PageKind::ALL
            .into_iter()
            .filter_map(of_kind)
            .flat_map(|(kind, counts)| {
                let [this, last] = &counts.recent;
                let group = move |scanned| {
                    move |(code, pages): (u8, &u32)| Group {
                        kind,
                        pages: *pages,
                        code,
                        scanned,
                    }
                };
                let this = (0..).zip(this).map(group(Scanned::InThisPass));
                let last = (0..).zip(last).map(group(Scanned::InTheLast));
                let others = (0..=u8::MAX).zip(&counts.by_code).map(group(Scanned::InTheLast));
                this.chain(last).chain(others)
            })
            .filter(|group| group.pages > 0)
    }
}

const _: () = assert!(HISTORY as u32 == (1 << WINDOW) - 1 && is_idle(FIRST_MOMENT) && !is_idle(FIRST));
const _: () = assert!(FIRST > HISTORY && UNKNOWN > FIRST);
