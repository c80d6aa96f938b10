//! Going around what the kernel will not advise.
//!
//! The kernel goes through a range mapping by mapping, and stops at the first that is locked or has no pages of its own
//! (`madvise_walk_vmas()`): a locked page at the begin of a heap would leave all the marks behind it where they are, in this
//! round and in each to come. So a range that is refused is advised once more, each of its mappings by itself.
//!
//! Every process has a page that is refused: that of the clock, which the kernel writes (`[vvar]`). What is refused by itself
//! is left alone for some rounds (`uncleared_cache.rs`).

use std::os::fd::AsFd as _;

use thermo_engine::scan::{PageSeen, ScanChunk};
use thermo_kernel::madvise_batch::{Outcome, madvise_batch, parts_in};
use thermo_kernel::maps;
use thermo_kernel::process_madvise::{Advice, MAX_BYTES};
use thermo_pagetable::{Entry, Folios};
use thermo_targets::Process;
use thermo_units::{Addr, AddrRange};

use super::part::pages_of;
use super::state::PteTracker;
use super::target_scan::TargetScan;
use super::uncleared_cache;

impl PteTracker {
    /// Takes the marks off `ranges`, ascending in themselves; what the kernel refuses is unknown in `piece`. Returns whether
    /// the process lives, and whether anything was refused.
    pub(super) fn clear_marks(
        &mut self,
        process: &Process,
        scan: &mut TargetScan,
        ranges: &[AddrRange],
        piece: &mut ScanChunk,
    ) -> (bool, bool) {
        let (alive, refused) = clear_all(process, ranges);
        if !alive || refused.is_empty() {
            return (alive, false);
        }
        let mappings = self.mappings_of(process, scan);
        let parts: Vec<AddrRange> = match mappings {
            [] => refused,
            _ => refused
                .iter()
                .flat_map(|range| parts_in(*range, mappings, |mapping| *mapping))
                .map(|(_, part)| part)
                .collect(),
        };
        let (alive, refused) = clear_all(process, &parts);
        for part in refused {
            // Pages without an accessed bit are idle all the same.
            let accessed = pages_of(part).filter(|addr| piece.get(*addr) == PageSeen::Accessed);
            Vec::from_iter(accessed)
                .into_iter()
                .for_each(|addr| piece.set_unknown(addr));
            self.leave_alone(process, scan, part);
        }
        (alive, true)
    }

    /// Keeps what is mapped at the begin of `range`, that it is not advised in the next rounds. The pagemap does not tell of
    /// what is refused for not being the process's own.
    fn leave_alone(&mut self, process: &Process, scan: &mut TargetScan, range: AddrRange) {
        let addrs: Vec<Addr> = pages_of(range).take(uncleared_cache::MOST).collect();
        let mut entries = Vec::new();
        // What cannot be read is asked again.
        drop(
            self.tables
                .entries(process.pid, &addrs, Folios::Unasked, &mut entries),
        );
        for (addr, entry) in addrs.into_iter().zip(entries) {
            if let Entry::Leaf(leaf) = entry {
                scan.uncleared.add(addr, leaf.pfn);
            }
        }
    }

    /// Ascending; none where they cannot be read. Read once a pass.
    pub(super) fn mappings_of<'a>(&self, process: &Process, scan: &'a mut TargetScan) -> &'a [AddrRange] {
        scan.mappings.get_or_insert_with(|| {
            let read = maps::read(&self.root, process.pid).unwrap_or_default();
            read.iter().map(|mapping| mapping.range).collect()
        })
    }
}

/// Takes the marks off `ranges`. Whether the process lives and may be advised, and what became of each range.
pub(super) fn clear(process: &Process, ranges: &[AddrRange]) -> (bool, Vec<Outcome>) {
    let outcomes = madvise_batch(
        process.pidfd.as_fd(),
        ranges,
        Advice::Cold,
        MAX_BYTES,
        &mut |_| false,
    );
    let alive = !outcomes.last().is_some_and(|outcome| outcome.is_for_all());
    (alive, outcomes)
}

/// The same. Returns those of `ranges` that were refused.
fn clear_all(process: &Process, ranges: &[AddrRange]) -> (bool, Vec<AddrRange>) {
    let (alive, outcomes) = clear(process, ranges);
    let refused = ranges
        .iter()
        .zip(outcomes)
        .filter(|(_, outcome)| *outcome != Outcome::Done);
    (alive, refused.map(|(range, _)| *range).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::path::Path;

    use thermo_engine::TargetId;

    use super::*;
    use crate::tracker::Tracker as _;

    #[test]
    fn what_is_refused_is_not_asked_for_in_the_round_that_follows() {
        let tracker = PteTracker::new().inspect_err(|why| eprintln!("SKIP: {why}"));
        let Ok(mut tracker) = tracker else { return };
        let us = Process::open(TargetId(1), std::process::id()).unwrap();
        let clock = maps::read(Path::new("/"), us.pid).unwrap();
        let Some(clock) = clock.iter().find(|mapping| mapping.name == "[vvar]") else {
            eprintln!("SKIP: there is no page of the clock here");
            return;
        };
        let mut asked = Vec::new();
        for _ in 0..3 {
            tracker.begin_pass(&us);
            let mut piece = ScanChunk::default();
            piece.reset(clock.range);
            // The clock is read, which leaves a mark where there was none.
            std::hint::black_box(std::time::Instant::now());
            tracker.scan(&us, clock.range, &mut piece);
            let (_, unknown) = piece.present_and_unknown();
            assert!(unknown.0 >= 4096, "what is refused is unknown");
            asked.push(tracker.scans[&us.id].mappings.is_some());
        }
        assert_eq!(asked, [true, false, false]);
    }
}
