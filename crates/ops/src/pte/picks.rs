//! A few pages that stand for all whose marks sweeps took off.

use thermo_core::sweep::{PageSeen, Piece};
use thermo_core::{Addr, AddrRange, PAGE_SIZE, TargetId};

/// Some of the pages whose marks a round took off, evenly chosen from all.
#[derive(Debug)]
pub(super) struct Picks {
    /// Most that are kept.
    most: usize,
    pages: Vec<(TargetId, Addr)>,
    /// One in so many is kept.
    one_in: u64,
    /// How many are passed over until the next.
    skip: u64,
}

impl Picks {
    /// None yet, and never more than `most`.
    pub(super) const fn new(most: usize) -> Self {
        Self {
            most,
            pages: Vec::new(),
            one_in: 1,
            skip: 0,
        }
    }

    /// Takes some of the pages of `range`, but not those whose marks stay whatever is done.
    pub(super) fn offer(&mut self, id: TargetId, range: AddrRange, piece: &Piece) {
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
        if self.pages.len() >= self.most {
            let mut keep = false;
            self.pages.retain(|_| {
                keep = !keep;
                keep
            });
            self.one_in *= 2;
        }
        self.pages.push(page);
    }

    /// The pages of each target.
    pub(super) fn by_target(&self) -> impl Iterator<Item = (TargetId, impl Iterator<Item = Addr>)> {
        // `chunk_by` gives no empty groups.
        let groups = self.pages.chunk_by(|a, b| a.0 == b.0);
        groups.filter_map(|group| Some((group.first()?.0, group.iter().map(|(_, addr)| *addr))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 2048;

    #[test]
    fn picks_are_spread_over_all_and_leave_out_what_is_unknown() {
        let mut piece = Piece::default();
        let all = AddrRange::new(0, 64 << 20);
        piece.reset(all);
        piece.set_unknown(Addr(0));
        let mut picks = Picks::new(MOST);
        for half in [AddrRange::new(0, 10 << 20), AddrRange::new(10 << 20, 64 << 20)] {
            picks.offer(TargetId(3), half, &piece);
        }
        assert!((MOST / 2..=MOST).contains(&picks.pages.len()));
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
        let mut few = Picks::new(MOST);
        few.offer(TargetId(3), AddrRange::new(4096, 4 * 4096), &piece);
        assert_eq!(few.pages.len(), 3);
    }
}
