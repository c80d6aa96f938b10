//! Taking the marks off the pages of probes, and finding out where that did nothing.

use thermo_engine::ops::Probe;
use thermo_kernel::kpageflags::Flags;
use thermo_kernel::madvise_batch::Outcome;
use thermo_kernel::pagemap::Pagemap;
use thermo_pagetable::{Entry, Folios, Leaf};
use thermo_targets::Process;
use thermo_units::{Addr, AddrRange};

use super::state::{Mark, PteTracker};
use super::{leaf, madvise_fallback};

impl PteTracker {
    /// True when `MADV_COLD` passes over this page without saying so.
    fn is_left_alone(&self, pagemap: Option<&Pagemap>, addr: Addr, leaf: Leaf) -> bool {
        let exclusive = pagemap
            .and_then(|map| map.page(addr).ok())
            .is_some_and(|page| page.is_exclusive());
        let on_no_list = self
            .frames
            .as_ref()
            .and_then(|frames| frames.flags(leaf.pfn).ok())
            .is_some_and(|flags| !flags.is_lru() || flags.is_zero_page());
        !exclusive || on_no_list
    }

    /// Prepares the probes of one process and pushes a mark for each.
    pub(super) fn prepare_one(&mut self, process: &Process, probes: &[Probe]) {
        let first = self.marks.len();
        self.marks.resize(first + probes.len(), Mark::Unknown);
        if self.read_entries_of(process, probes, Folios::OfAll).is_err() {
            return;
        }
        self.read_flags();
        let (ranges, owners) = self.pieces_that_are_marked();
        self.note_what_is_taken();
        self.lists.raise(process);
        let (alive, outcomes) = madvise_fallback::clear(process, &ranges);
        self.lists.restore(process);
        if alive && self.read_entries(process, Folios::OfUnmarked).is_ok() {
            self.read_back(process, first, &owners, &outcomes);
        }
    }

    /// Notes the pages of marked probes, for the kernel's lists.
    fn note_what_is_taken(&mut self) {
        for (addr, entry) in self.addrs.iter().zip(&self.entries) {
            if let Entry::Leaf(leaf) = entry
                && leaf.is_touched()
            {
                self.lists.note(*addr, *leaf, self.frames.as_ref());
            }
        }
    }

    /// Looks up the frames of the entries just read: those that will be cleared, for the folio they belong to if it
    /// is or may be larger than a page, and all where others' work shows in frames that are marked idle.
    fn read_flags(&mut self) {
        let asks_idle = self.asks_idle_flag();
        let Self {
            flags,
            frames,
            entries,
            ..
        } = self;
        // A huge page is one piece, whatever its folio.
        let may_be_part = |leaf: &Leaf| leaf.level == 0 && leaf.is_touched() && leaf.is_large != Some(false);
        let of = |entry: &Entry| match (entry, &*frames) {
            (Entry::Leaf(leaf), Some(frames)) if may_be_part(leaf) || asks_idle => {
                frames.flags(leaf.pfn).ok()
            }
            _ => None,
        };
        flags.clear();
        flags.extend(entries.iter().map(of));
    }

    /// Decides, from what was just read, for which pieces of memory a call is needed. Returns them, and for each
    /// probe which of them is its.
    fn pieces_that_are_marked(&self) -> (Vec<AddrRange>, Vec<Option<usize>>) {
        let mut ranges: Vec<AddrRange> = Vec::new();
        let owner = |((addr, entry), flags): ((&Addr, &Entry), &Option<Flags>)| {
            let Entry::Leaf(leaf) = entry else { return None };
            if !leaf.is_touched() {
                return None;
            }
            let piece = leaf::piece(*addr, *leaf, flags.unwrap_or_default(), self.frames.as_ref())?;
            // Probes come in order: those that share a piece are neighbours.
            if ranges.last() != Some(&piece) {
                ranges.push(piece);
            }
            Some(ranges.len() - 1)
        };
        let owners = self
            .addrs
            .iter()
            .zip(&self.entries)
            .zip(&self.flags)
            .map(owner)
            .collect();
        (ranges, owners)
    }

    fn read_back(&mut self, process: &Process, first: usize, owners: &[Option<usize>], outcomes: &[Outcome]) {
        let pagemap = std::cell::OnceCell::new();
        let pagemap = || {
            let opened = pagemap.get_or_init(|| Pagemap::open(&self.root, process.pid).ok());
            opened.as_ref()
        };
        for (n, (entry, owner)) in self.entries.iter().zip(owners).enumerate() {
            let addr = self.addrs[n];
            let was_refused = owner.is_some_and(|owner| outcomes[owner] != Outcome::Done);
            self.marks[first + n] = match entry {
                Entry::Absent(_) => Mark::Off { idle: Some(false) },
                Entry::Leaf(leaf) if leaf.level > 1 || was_refused => Mark::Unknown,
                Entry::Leaf(leaf) if leaf.is_touched() && self.is_left_alone(pagemap(), addr, *leaf) => {
                    Mark::Unknown
                }
                Entry::Leaf(leaf) => {
                    self.cleared
                        .insert(process.id, Addr(addr.0 & !(leaf.len().0 - 1)));
                    Mark::Off {
                        idle: self.flags[n].map(Flags::is_idle),
                    }
                }
                Entry::Table | Entry::Unreadable => Mark::Unknown,
            };
        }
        // A number that was given to another process in the meantime: what was read is not the target's.
        if !process.is_alive() {
            self.marks[first..].fill(Mark::Unknown);
        }
    }
}
