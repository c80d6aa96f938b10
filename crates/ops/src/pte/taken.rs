//! Marks that others take off and keep account of: when sweeps look for them.
//!
//! Who takes an accessed mark off for a purpose of its own (in-kernel DAMON, the idle-page bitmap) marks the folio
//! *young*, and what we clear loses that mark as well. So a page was touched since we cleared it if its mark is set or its
//! folio is young. To see that costs a read of the kernel's memory for every page that is *not* marked, which is most of
//! what a sweep looks at, and dear beside the rest of it.
//!
//! So nothing is asked where nobody of that kind is about. When somebody comes, one round asks, for marks taken long
//! ago; from then on rounds ask while it matters, and always of little memory. Whether it matters is told by a few of the
//! pages whose marks the round before took off: what is touched all the time is among them, and of those that
//! were touched again, some have lost the mark to somebody else.
//!
//! A young mark tells of the last round only where the round before has taken it off. So what is found by the first
//! round that asks may be years old: it is cleared, and does not count.

use std::path::Path;
use std::time::{Duration, Instant};

use thermo_bpf::{Entry, Folios, Leaves, PageTables};
use thermo_core::sweep::{PageSeen, Piece};
use thermo_core::{Addr, AddrRange, PAGE_SIZE, TargetId};
use thermo_sys::{damon, page_idle};

use crate::process::Processes;

/// Rounds in a row in which it did not matter, until none asks any more.
const CALM_ROUNDS: u32 = 4;
/// What is taken matters from so many of the pages on that tell, and from one in so many of those that were touched.
const LEAST_TAKEN: usize = 16;
const MATTERS: usize = 50;
/// Of no more pages than these (128 MiB) all are asked while somebody is about.
const LITTLE: u64 = 1 << 15;
/// How often it is looked for somebody new: to open files costs as much as a look at many MiB.
const SEEK_EACH: Duration = Duration::from_secs(1);
/// Most pages that tell: a tenth of a microsecond each.
const MOST_PICKS: usize = 2048;

/// What sweeps ask of folios, and why.
#[derive(Debug)]
pub(super) struct Taken {
    /// Whether folios can be read at all.
    can_see: bool,
    /// When it was looked for others last, and whether there was any.
    sought: Option<Instant>,
    found: bool,
    /// Somebody was about when the round began.
    anybody: bool,
    /// Whether the round before asked, and whether this one does.
    before: bool,
    now: bool,
    /// Rounds in a row in which it did not matter.
    calm: u32,
    /// Leaves the round that is running looked at.
    leaves: u64,
    picks: Picks,
}

impl Taken {
    pub(super) fn new(can_see: bool) -> Self {
        Self {
            can_see,
            sought: None,
            found: false,
            anybody: false,
            before: false,
            now: false,
            calm: CALM_ROUNDS,
            leaves: 0,
            picks: Picks::default(),
        }
    }

    /// A round of sweeps over `processes` begins on the machine at `root`.
    pub(super) fn begin_round(&mut self, tables: &mut PageTables, root: &Path, processes: &Processes) {
        if self.sought.is_none_or(|at| at.elapsed() >= SEEK_EACH) {
            self.sought = Some(Instant::now());
            self.found = self.can_see && (damon::runs(root) || page_idle::exists(root));
        }
        let anybody = self.found;
        let lost = match anybody {
            true => self.picks.look(tables, processes),
            false => Lost::default(),
        };
        self.choose(anybody, lost);
    }

    fn choose(&mut self, anybody: bool, lost: Lost) {
        let comes = anybody && !std::mem::replace(&mut self.anybody, anybody);
        self.calm = if lost.matters() {
            0
        } else {
            self.calm.saturating_add(1)
        };
        let is_little = std::mem::take(&mut self.leaves) <= LITTLE;
        self.before = self.now;
        self.now = anybody && (comes || is_little || self.calm < CALM_ROUNDS);
        self.picks = Picks::default();
    }

    /// What this round asks.
    pub(super) const fn asks(&self) -> Folios {
        if self.now {
            Folios::OfUnmarked
        } else {
            Folios::Unasked
        }
    }

    /// Counts leaves that a round looks at.
    pub(super) fn count(&mut self, leaves: &Leaves) {
        self.leaves += leaves.count();
    }

    /// Which leaves of a table were touched since the last round, as far as can be seen.
    pub(super) fn touched(&self, leaves: &Leaves) -> [u64; 8] {
        let young = |nth: usize| if self.before { leaves.young[nth] } else { 0 };
        std::array::from_fn(|nth| leaves.accessed[nth] | young(nth))
    }

    /// Notes pages of a target whose marks were taken off, after what `piece` says of them.
    pub(super) fn cleared(&mut self, id: TargetId, range: AddrRange, piece: &Piece) {
        if self.anybody {
            self.picks.offer(id, range, piece);
        }
    }
}

/// What became of pages whose marks were taken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Lost {
    /// Touched again.
    touched: usize,
    /// Of these, those whose mark somebody else took.
    taken: usize,
}

impl Lost {
    const fn matters(self) -> bool {
        self.taken >= LEAST_TAKEN && self.taken * MATTERS >= self.touched
    }

    fn add(&mut self, entry: &Entry) {
        if let Entry::Leaf(leaf) = entry {
            self.touched += usize::from(leaf.is_touched());
            self.taken += usize::from(leaf.young && !leaf.accessed);
        }
    }
}

/// Some of the pages whose marks a round took off, evenly chosen from all.
#[derive(Debug)]
struct Picks {
    pages: Vec<(TargetId, Addr)>,
    /// One in so many is kept.
    one_in: u64,
    /// How many are passed over until the next.
    skip: u64,
}

impl Default for Picks {
    fn default() -> Self {
        Self {
            pages: Vec::new(),
            one_in: 1,
            skip: 0,
        }
    }
}

impl Picks {
    /// Takes some of the pages of `range`, but not those whose marks stay whatever is done.
    fn offer(&mut self, id: TargetId, range: AddrRange, piece: &Piece) {
        let count = range.len().0 / PAGE_SIZE;
        let mut nth = self.skip;
        while nth < count {
            let addr = Addr(range.start.0 + nth * PAGE_SIZE);
            if piece.get(addr) != PageSeen::Unknown {
                self.push((id, addr));
            }
            nth += self.one_in;
        }
        self.skip = nth - count;
    }

    fn push(&mut self, page: (TargetId, Addr)) {
        if self.pages.len() >= MOST_PICKS {
            let mut keep = false;
            self.pages.retain(|_| {
                keep = !keep;
                keep
            });
            self.one_in *= 2;
        }
        self.pages.push(page);
    }

    /// Looks what became of them.
    fn look(&self, tables: &mut PageTables, processes: &Processes) -> Lost {
        let mut lost = Lost::default();
        let (mut addrs, mut entries) = (Vec::new(), Vec::new());
        for group in self.pages.chunk_by(|a, b| a.0 == b.0) {
            let process = group.first().and_then(|(id, _)| processes.get(id));
            addrs.clear();
            addrs.extend(group.iter().map(|(_, addr)| *addr));
            let read =
                process.map(|process| tables.entries(process.pid, &addrs, Folios::OfUnmarked, &mut entries));
            // What is gone tells nothing.
            if read.is_some_and(|read| read.is_ok()) {
                entries.iter().for_each(|entry| lost.add(entry));
            }
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUCH: u64 = LITTLE + 1;
    const NOTHING: Lost = Lost {
        touched: 1000,
        taken: 15,
    };
    const MUCH_LOST: Lost = Lost {
        touched: 1000,
        taken: 20,
    };

    /// A round over so many pages begins, after one in which this was lost; whether it asks.
    fn round(taken: &mut Taken, anybody: bool, lost: Lost, leaves: u64) -> bool {
        taken.leaves = leaves;
        taken.choose(anybody, lost);
        taken.asks() != Folios::Unasked
    }

    #[test]
    fn nothing_is_asked_where_nobody_is_about() {
        let mut taken = Taken::new(true);
        assert!(!round(&mut taken, false, Lost::default(), 5));
        assert!(!round(&mut taken, false, MUCH_LOST, 5));
        assert!(round(&mut taken, true, Lost::default(), 5));
        assert!(!round(&mut taken, false, Lost::default(), 5));
    }

    #[test]
    fn one_round_asks_and_more_while_it_matters() {
        let mut taken = Taken::new(true);
        let mut asks = |lost| round(&mut taken, true, lost, MUCH);
        assert!(asks(Lost::default()), "what was taken long ago comes off");
        assert!(!asks(NOTHING) && !asks(NOTHING));
        assert!(asks(MUCH_LOST));
        for _ in 1..CALM_ROUNDS {
            assert!(asks(NOTHING));
        }
        assert!(!asks(NOTHING));
    }

    #[test]
    fn of_little_memory_every_round_asks() {
        let mut taken = Taken::new(true);
        assert!((0..5 * CALM_ROUNDS).all(|_| round(&mut taken, true, NOTHING, LITTLE)));
        assert!(!round(&mut taken, true, NOTHING, MUCH));
    }

    #[test]
    fn what_was_young_before_anybody_asked_does_not_count() {
        let leaves = Leaves {
            there: [0b111; 8],
            accessed: [0b010; 8],
            young: [0b100; 8],
        };
        let mut taken = Taken::new(true);
        round(&mut taken, true, Lost::default(), 5);
        assert_eq!(taken.touched(&leaves), [0b010; 8]);
        round(&mut taken, true, Lost::default(), 5);
        assert_eq!(taken.touched(&leaves), [0b110; 8]);
        taken.count(&leaves);
        assert_eq!(taken.leaves, 24);
        // After a round that did not ask, it begins anew.
        round(&mut taken, false, Lost::default(), 5);
        round(&mut taken, true, Lost::default(), 5);
        assert_eq!(taken.touched(&leaves), [0b010; 8]);
    }

    #[test]
    fn few_losses_or_a_small_part_of_what_is_touched_do_not_matter() {
        let matters = |touched, taken| Lost { touched, taken }.matters();
        assert!(!matters(15, 15) && matters(16, 16));
        assert!(matters(1000, 20) && !matters(1001, 20));
    }

    #[test]
    fn picks_are_spread_over_all_and_leave_out_what_is_unknown() {
        let mut piece = Piece::default();
        let all = AddrRange::new(0, 64 << 20);
        piece.reset(all);
        piece.set_unknown(Addr(0));
        let mut picks = Picks::default();
        for half in [AddrRange::new(0, 10 << 20), AddrRange::new(10 << 20, 64 << 20)] {
            picks.offer(TargetId(3), half, &piece);
        }
        assert!((MOST_PICKS / 2..=MOST_PICKS).contains(&picks.pages.len()));
        assert!(picks.pages.iter().all(|(_, addr)| *addr != Addr(0)));
        for part in 0..4 {
            let range = AddrRange::new(part * (16 << 20), (part + 1) * (16 << 20));
            let within = picks
                .pages
                .iter()
                .filter(|(_, addr)| range.contains(*addr))
                .count();
            assert!((200..=600).contains(&within), "{within} of {}", picks.pages.len());
        }
        let mut few = Picks::default();
        few.offer(TargetId(3), AddrRange::new(4096, 4 * 4096), &piece);
        assert_eq!(few.pages.len(), 3);
    }
}
