//! Clears accessed bits with `MADV_COLD`, and handles ranges that the kernel refuses.
//!
//! The kernel processes a range mapping by mapping and stops at the first mapping that is locked or has no
//! pages of its own (`madvise_walk_vmas()`). So one locked page at the start of a heap would keep all
//! accessed bits behind it set, in every pass. Therefore a refused range is advised once more, each of its
//! mappings separately.
//!
//! A mapping that is refused on its own is skipped for some passes (`uncleared_cache.rs`).

use thermo_engine::scan::{ScanChunk, ScanResult};
use thermo_kernel::madvise_batch::{AdviceOutcome, madvise_batch, split_by_mapping};
use thermo_kernel::maps;
use thermo_kernel::process_madvise::{Advice, MAX_BYTES};
use thermo_pagetable::{Entry, Folios};
use thermo_targets::Process;
use thermo_units::{Addr, AddrRange};

use super::state::PteTracker;
use super::table_part::pages_of;
use super::target_scan::TargetScan;
use super::uncleared_cache;

impl PteTracker {
    /// Clears the accessed bits of `ranges`. Refused pages whose bit is set become unknown in `chunk`.
    /// Returns whether the process is alive, and whether anything was refused.
    pub(super) fn clear_ranges(
        &mut self,
        process: &Process,
        scan: &mut TargetScan,
        ranges: &[AddrRange],
        chunk: &mut ScanChunk,
    ) -> (bool, bool) {
        let (is_alive, refused) = advise_cold_refused(process, ranges);
        if !is_alive || refused.is_empty() {
            return (is_alive, false);
        }
        let mappings = self.mappings_of(process, scan);
        let parts: Vec<AddrRange> = match mappings {
            [] => refused,
            _ => refused
                .iter()
                .flat_map(|range| split_by_mapping(*range, mappings, |mapping| *mapping))
                .map(|(_, part)| part)
                .collect(),
        };
        let (is_alive, refused) = advise_cold_refused(process, &parts);
        for part in refused {
            // Pages without an accessed bit are idle, although they were refused.
            let accessed = pages_of(part).filter(|addr| chunk.get(*addr) == ScanResult::Accessed);
            Vec::from_iter(accessed)
                .into_iter()
                .for_each(|addr| chunk.set_unknown(addr));
            self.remember_refused(process, scan, part);
        }
        (is_alive, true)
    }

    /// Records the first pages of a refused `range`, so that the next passes skip them. The pagemap does not
    /// show which pages are refused for not being the process's own.
    fn remember_refused(&mut self, process: &Process, scan: &mut TargetScan, range: AddrRange) {
        let addrs: Vec<Addr> = pages_of(range).take(uncleared_cache::MAX_PAGES).collect();
        let mut entries = Vec::new();
        // Pages that cannot be read are tried again in the next pass.
        drop(
            self.tables
                .entries(process.pid, &addrs, Folios::None, &mut entries),
        );
        for (addr, entry) in addrs.into_iter().zip(entries) {
            if let Entry::Leaf(leaf) = entry {
                scan.uncleared.add(addr, leaf.pfn);
            }
        }
    }

    /// The mappings of the process, ascending; none if they cannot be read. Read once a pass.
    pub(super) fn mappings_of<'a>(&self, process: &Process, scan: &'a mut TargetScan) -> &'a [AddrRange] {
        scan.mappings.get_or_insert_with(|| {
            let read = maps::read(&self.root, process.pid).unwrap_or_default();
            read.iter().map(|mapping| mapping.range).collect()
        })
    }
}

/// Advises `MADV_COLD` on `ranges`. Returns whether the process is alive and may be advised, and the outcome
/// for each range.
pub(super) fn advise_cold(process: &Process, ranges: &[AddrRange]) -> (bool, Vec<AdviceOutcome>) {
    let outcomes = madvise_batch(&process.pidfd, ranges, Advice::Cold, MAX_BYTES, &mut |_| false);
    let is_alive = !outcomes
        .last()
        .is_some_and(|outcome| outcome.is_process_wide(Advice::Cold));
    (is_alive, outcomes)
}

/// Like [`advise_cold`], but returns the refused ranges.
fn advise_cold_refused(process: &Process, ranges: &[AddrRange]) -> (bool, Vec<AddrRange>) {
    let (is_alive, outcomes) = advise_cold(process, ranges);
    let refused = ranges
        .iter()
        .zip(outcomes)
        .filter(|(_, outcome)| *outcome != AdviceOutcome::Done);
    (is_alive, refused.map(|(range, _)| *range).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use thermo_engine::TargetId;

    use super::*;
    use crate::tracker::Tracker as _;

    /// Locks a mapping of its own, whose address it prints; 0 if it may not.
    const LOCKS_MEMORY: &str = r#"
import ctypes, mmap, sys
memory = mmap.mmap(-1, 65536)
memory[:] = b"x" * 65536
at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
print(0 if ctypes.CDLL(None).mlock(ctypes.c_void_p(at), ctypes.c_size_t(65536)) else at, flush=True)
sys.stdin.read()
"#;

    #[test]
    fn refused_mapping_is_skipped_in_next_pass() {
        let tracker = PteTracker::new().inspect_err(|why| eprintln!("SKIP: {why}"));
        let Ok(mut tracker) = tracker else { return };
        let mut python = Command::new("python3");
        python
            .args(["-c", LOCKS_MEMORY])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let Ok(mut python) = python.spawn() else {
            return eprintln!("SKIP: python3 is not installed");
        };
        let mut line = String::new();
        BufReader::new(python.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let start: u64 = line.trim().parse().unwrap();
        if start > 0 {
            let locked = AddrRange::new(start, start + 65536);
            let process = Process::open(TargetId(1), python.id()).unwrap();
            let mut read_mappings = Vec::new();
            for _ in 0..3 {
                tracker.begin_pass(&process);
                let mut chunk = ScanChunk::default();
                chunk.reset(locked);
                tracker.scan(&process, locked, &mut chunk);
                let (_, unknown) = chunk.present_and_unknown();
                assert_eq!(unknown.0, 65536, "refused pages are unknown");
                read_mappings.push(tracker.scans[&process.id].mappings.is_some());
            }
            assert_eq!(read_mappings, [true, false, false]);
        } else {
            eprintln!("SKIP: memory cannot be locked here");
        }
        drop(python.stdin.take());
        python.wait().unwrap();
    }
}
