//! The processes of an application, held by pidfd while a job works on them, and the working set of each
//! process.
//!
//! Working sets need no monitoring. A complete page-out leaves no anonymous page resident, so the pages that
//! are resident at the next page-out are those that the application faulted in again. Prefetched pages count
//! only if they were accessed: until then they are in the swap cache and not in the page tables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use thermo_engine::TargetId;
use thermo_kernel::stat;
use thermo_targets::{Process, Processes};
use thermo_units::{AddrRange, Bytes};

/// Maximum number of ranges in the working set of one process.
const MAX_RANGES: usize = 1024;

#[derive(Debug)]
pub(super) struct AppProcesses {
    root: PathBuf,
    processes: Processes,
    starttimes: BTreeMap<TargetId, u64>,
    next_id: u32,
    /// Processes whose last page-out of anonymous memory was complete.
    fully_paged_out: BTreeSet<TargetId>,
    working_sets: BTreeMap<TargetId, Vec<AddrRange>>,
}

impl AppProcesses {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            processes: Processes::new(),
            starttimes: BTreeMap::new(),
            next_id: 0,
            fully_paged_out: BTreeSet::new(),
            working_sets: BTreeMap::new(),
        }
    }

    /// Opens the processes in `pids` that run, and drops all others. A PID that was reused since the last
    /// call counts as a new process without a working set.
    pub(super) fn update(&mut self, pids: &[u32]) {
        let starttimes = &self.starttimes;
        let root = &self.root;
        self.processes.retain(|id, process| {
            let is_same =
                stat::read(root, process.pid).is_ok_and(|stat| starttimes.get(id) == Some(&stat.starttime));
            is_same && process.is_alive() && pids.contains(&process.pid)
        });
        let open: BTreeSet<u32> = self.processes.values().map(|process| process.pid).collect();
        for pid in pids.iter().filter(|pid| !open.contains(pid)) {
            self.open(*pid);
        }
    }

    /// Drops all processes that ended or are not in `pids`. `pids` must have been verified after
    /// [`Self::update`] opened the processes.
    pub(super) fn retain(&mut self, pids: &[u32]) {
        self.processes
            .retain(|_, process| pids.contains(&process.pid) && process.is_alive());
        let processes = &self.processes;
        self.starttimes.retain(|id, _| processes.contains_key(id));
        self.fully_paged_out.retain(|id| processes.contains_key(id));
        self.working_sets.retain(|id, _| processes.contains_key(id));
    }

    fn open(&mut self, pid: u32) {
        let read_stat = || {
            stat::read(&self.root, pid)
                .ok()
                .filter(|stat| !stat.is_kernel_thread() && !stat.has_ended())
        };
        let Some(before) = read_stat() else { return };
        let id = TargetId(self.next_id);
        let Ok(process) = Process::open(id, pid) else {
            return;
        };
        // The PID may have been reused between reading its start time and opening the pidfd.
        let after = read_stat();
        if after.is_some_and(|after| after.starttime == before.starttime) && process.is_alive() {
            self.next_id += 1;
            self.starttimes.insert(id, before.starttime);
            self.processes.insert(id, process);
        }
    }

    pub(super) const fn processes(&self) -> &Processes {
        &self.processes
    }

    /// Updates the working set of a process after a page-out. `resident` are the ranges found resident;
    /// `complete` is false when the page-out was cancelled or refused.
    pub(super) fn record_pageout(&mut self, id: TargetId, resident: Vec<AddrRange>, complete: bool) {
        if !complete {
            self.fully_paged_out.remove(&id);
        } else if !self.fully_paged_out.insert(id) {
            self.working_sets.insert(id, coalesce(resident, MAX_RANGES));
        }
    }

    /// The working set of each process: the memory it used before the last page-out.
    pub(super) const fn working_sets(&self) -> &BTreeMap<TargetId, Vec<AddrRange>> {
        &self.working_sets
    }

    /// Total size of the working sets; `None` if no working set is known.
    pub(super) fn working_set(&self) -> Option<Bytes> {
        let ranges = self.working_sets.values().flatten();
        (!self.working_sets.is_empty()).then(|| ranges.map(AddrRange::len).sum())
    }
}

/// Merges `ranges` over the smallest gaps until at most `max` remain.
fn coalesce(mut ranges: Vec<AddrRange>, max: usize) -> Vec<AddrRange> {
    let mut gap = 0;
    loop {
        ranges.dedup_by(|next, before| {
            let is_close = next.start.0.saturating_sub(before.end.0) <= gap;
            if is_close {
                before.end = before.end.max(next.end);
            }
            is_close
        });
        if ranges.len() <= max {
            return ranges;
        }
        gap = (gap * 2).max(thermo_units::PAGE_SIZE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coalesce_closes_the_smallest_gaps_first() {
        let page = |n: u64| AddrRange::new(n << 12, (n + 1) << 12);
        let ranges = vec![page(0), page(1), page(3), page(100), page(102)];
        assert_eq!(coalesce(ranges.clone(), 9).len(), 4);
        let coalesced = coalesce(ranges, 2);
        assert_eq!(
            coalesced,
            [AddrRange::new(0, 4 << 12), AddrRange::new(100 << 12, 103 << 12)]
        );
    }

    #[test]
    fn working_set_is_known_after_second_pageout() {
        let mut app = AppProcesses::new(Path::new("/"));
        let (id, range) = (TargetId(0), vec![AddrRange::new(0, 4096)]);
        app.record_pageout(id, range.clone(), true);
        assert_eq!(app.working_set(), None, "resident, whether used or not");
        app.record_pageout(id, range.clone(), true);
        assert_eq!(app.working_set(), Some(Bytes(4096)));
        app.record_pageout(id, Vec::new(), false);
        assert_eq!(
            app.working_set(),
            Some(Bytes(4096)),
            "the page-out was incomplete"
        );
        app.record_pageout(id, vec![AddrRange::new(0, 1 << 20)], true);
        assert_eq!(
            app.working_set(),
            Some(Bytes(4096)),
            "the one before was incomplete"
        );
    }
}
