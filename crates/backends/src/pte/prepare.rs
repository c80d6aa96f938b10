//! Clears the accessed bits of the pages of probes, and finds out which bits the kernel did not clear.

use thermo_engine::ops::Probe;
use thermo_kernel::kpageflags::Flags;
use thermo_kernel::madvise_batch::AdviceOutcome;
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_pagetable::{Entry, Folios, Leaf};
use thermo_targets::Process;
use thermo_units::{Addr, AddrRange};

use super::madvise_fallback;
use super::madvise_unit::madvise_unit;
use super::state::{ProbeState, PteTracker};

impl PteTracker {
    /// True if `MADV_COLD` skips this page without an error.
    fn is_skipped_by_kernel(&self, page: Option<Page>, leaf: Leaf) -> bool {
        !page.is_some_and(Page::is_exclusive) || self.is_off_lru(Some(leaf.pfn))
    }

    /// The entries of pages of a process, in order. Nothing is read if there are none.
    fn pages_of(&self, process: &Process, addrs: Vec<Addr>) -> impl Iterator<Item = Option<Page>> + use<> {
        let pagemap = || Pagemap::open(&self.root, process.pid).ok();
        let opened = if addrs.is_empty() { None } else { pagemap() };
        let pages = opened.and_then(|pagemap| pagemap.pages(addrs).ok());
        pages.unwrap_or_default().into_iter()
    }

    /// Prepares the probes of one process and pushes a state for each.
    pub(super) fn prepare_one(&mut self, process: &Process, probes: &[Probe]) {
        let first = self.probe_states.len();
        self.probe_states
            .resize(first + probes.len(), ProbeState::Unknown);
        if self.read_entries_of_probes(process, probes, Folios::All).is_err() {
            return;
        }
        self.read_frame_flags();
        let (ranges, range_of_probe) = self.ranges_to_clear();
        self.note_lru_positions();
        self.lru_restore.before_clear(process);
        let (is_alive, outcomes) = madvise_fallback::advise_cold(process, &ranges);
        self.lru_restore.after_clear(process);
        if is_alive && self.read_entries(process, Folios::NotAccessed).is_ok() {
            self.read_back_probes(process, first, &range_of_probe, &outcomes);
        }
    }

    /// Notes accessed pages whose LRU position has to be restored.
    fn note_lru_positions(&mut self) {
        for (addr, entry) in self.addrs.iter().zip(&self.entries) {
            if let Entry::Leaf(leaf) = entry
                && leaf.was_accessed()
            {
                self.lru_restore.note(*addr, *leaf, self.frames.as_ref());
            }
        }
    }

    /// Reads the frame flags of the entries just read. Accessed pages need them to find their folio if it may
    /// be larger than a page. All pages need them if other monitors show only in idle flags.
    fn read_frame_flags(&mut self) {
        let uses_idle_flag = self.uses_idle_flag();
        let Self {
            flags,
            frames,
            entries,
            ..
        } = self;
        // A huge page is advised as a whole, whatever its folio.
        let may_be_part =
            |leaf: &Leaf| leaf.level == 0 && leaf.was_accessed() && leaf.is_large != Some(false);
        let of = |entry: &Entry| match (entry, &*frames) {
            (Entry::Leaf(leaf), Some(frames)) if may_be_part(leaf) || uses_idle_flag => {
                frames.flags(leaf.pfn).ok()
            }
            _ => None,
        };
        flags.clear();
        flags.extend(entries.iter().map(of));
    }

    /// Finds the ranges to advise from the entries just read. Returns the ranges, and for each probe the
    /// index of its range.
    fn ranges_to_clear(&self) -> (Vec<AddrRange>, Vec<Option<usize>>) {
        let mut ranges: Vec<AddrRange> = Vec::new();
        let range_index = |((addr, entry), flags): ((&Addr, &Entry), &Option<Flags>)| {
            let Entry::Leaf(leaf) = entry else { return None };
            if !leaf.was_accessed() {
                return None;
            }
            let range = madvise_unit(*addr, *leaf, flags.unwrap_or_default(), self.frames.as_ref())?;
            // Probes are sorted, so probes of the same range are neighbours.
            if ranges.last() != Some(&range) {
                ranges.push(range);
            }
            Some(ranges.len() - 1)
        };
        let range_of_probe = self
            .addrs
            .iter()
            .zip(&self.entries)
            .zip(&self.flags)
            .map(range_index)
            .collect();
        (ranges, range_of_probe)
    }

    fn read_back_probes(
        &mut self,
        process: &Process,
        first: usize,
        range_of_probe: &[Option<usize>],
        outcomes: &[AdviceOutcome],
    ) {
        let was_refused =
            |range: &Option<usize>| range.is_some_and(|range| outcomes[range] != AdviceOutcome::Done);
        let was_accessed = |entry: &Entry, range: &Option<usize>| match entry {
            Entry::Leaf(leaf) => leaf.level <= 1 && !was_refused(range) && leaf.was_accessed(),
            _ => false,
        };
        let all = self.entries.iter().zip(range_of_probe).zip(&self.addrs);
        let accessed = all.filter(|((entry, range), _)| was_accessed(entry, range));
        let mut pages = self.pages_of(process, accessed.map(|(_, addr)| *addr).collect());
        for (n, (entry, range)) in self.entries.iter().zip(range_of_probe).enumerate() {
            let addr = self.addrs[n];
            self.probe_states[first + n] = match entry {
                Entry::Absent(_) => ProbeState::Cleared { idle: Some(false) },
                Entry::Leaf(leaf) if leaf.level > 1 || was_refused(range) => ProbeState::Unknown,
                Entry::Leaf(leaf)
                    if was_accessed(entry, range)
                        && self.is_skipped_by_kernel(pages.next().flatten(), *leaf) =>
                {
                    ProbeState::Unknown
                }
                Entry::Leaf(leaf) => {
                    self.recently_cleared
                        .insert(process.id, Addr(addr.0 & !(leaf.len().0 - 1)));
                    ProbeState::Cleared {
                        idle: self.flags[n].map(Flags::is_idle),
                    }
                }
                Entry::Table | Entry::Unreadable => ProbeState::Unknown,
            };
        }
        // The pid may belong to another process by now; then the entries are not those of the target.
        if !process.is_alive() {
            self.probe_states[first..].fill(ProbeState::Unknown);
        }
    }
}
