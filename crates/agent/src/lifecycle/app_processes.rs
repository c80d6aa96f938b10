//! The processes of an application, held while something is done to them, and what is remembered of each: what it
//! used last time.
//!
//! What an application used is read off without watching it: after everything was paged out, what is in memory when
//! it is put away again is what it fetched back, page by page. What a prefetch brought in does not count unless it
//! was touched: it stays out of the page tables until then.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use thermo_engine::TargetId;
use thermo_kernel::stat;
use thermo_targets::{Process, Processes};
use thermo_units::{AddrRange, Bytes};

/// Ranges remembered for a process.
const MOST_RANGES: usize = 1024;

#[derive(Debug)]
pub(super) struct Hold {
    root: PathBuf,
    processes: Processes,
    starttimes: BTreeMap<TargetId, u64>,
    next: u32,
    /// Those whose anonymous memory was gone through to the end when they were last put away.
    all_out: BTreeSet<TargetId>,
    used: BTreeMap<TargetId, Vec<AddrRange>>,
}

impl Hold {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            processes: Processes::new(),
            starttimes: BTreeMap::new(),
            next: 0,
            all_out: BTreeSet::new(),
            used: BTreeMap::new(),
        }
    }

    /// Holds those of `pids` that run, and lets go of all others. A number that was given to another process since
    /// it was last held is taken for what it is: a new process, of which nothing is remembered.
    pub(super) fn update(&mut self, pids: &[u32]) {
        let starttimes = &self.starttimes;
        let root = &self.root;
        self.processes.retain(|id, process| {
            let same =
                stat::read(root, process.pid).is_ok_and(|stat| starttimes.get(id) == Some(&stat.starttime));
            same && process.is_alive() && pids.contains(&process.pid)
        });
        let held: BTreeSet<u32> = self.processes.values().map(|process| process.pid).collect();
        for pid in pids.iter().filter(|pid| !held.contains(pid)) {
            self.take(*pid);
        }
    }

    /// Lets go of all that are not among `pids` or have ended: `pids` were found again after they were held.
    pub(super) fn keep(&mut self, pids: &[u32]) {
        self.processes
            .retain(|_, process| pids.contains(&process.pid) && process.is_alive());
        let processes = &self.processes;
        self.starttimes.retain(|id, _| processes.contains_key(id));
        self.all_out.retain(|id| processes.contains_key(id));
        self.used.retain(|id, _| processes.contains_key(id));
    }

    fn take(&mut self, pid: u32) {
        let starttime = || {
            stat::read(&self.root, pid)
                .ok()
                .filter(|stat| !stat.is_kernel_thread() && !stat.has_ended())
        };
        let Some(before) = starttime() else { return };
        let id = TargetId(self.next);
        let Ok(process) = Process::open(id, pid) else {
            return;
        };
        // The number may have passed on between the two.
        let after = starttime();
        if after.is_some_and(|after| after.starttime == before.starttime) && process.is_alive() {
            self.next += 1;
            self.starttimes.insert(id, before.starttime);
            self.processes.insert(id, process);
        }
    }

    pub(super) const fn processes(&self) -> &Processes {
        &self.processes
    }

    /// Remembers what was found in memory of a process that was gone through, to the end or not.
    pub(super) fn gone_through(&mut self, id: TargetId, found: Vec<AddrRange>, to_the_end: bool) {
        if !to_the_end {
            self.all_out.remove(&id);
        } else if !self.all_out.insert(id) {
            self.used.insert(id, within(found, MOST_RANGES));
        }
    }

    /// What each process used last time.
    pub(super) const fn used(&self) -> &BTreeMap<TargetId, Vec<AddrRange>> {
        &self.used
    }

    /// How much that is together; nothing when it is not known of any.
    pub(super) fn working_set(&self) -> Option<Bytes> {
        let ranges = self.used.values().flatten();
        (!self.used.is_empty()).then(|| ranges.map(AddrRange::len).sum())
    }
}

/// The same memory in at most `most` ranges: the smallest gaps are closed first.
fn within(mut ranges: Vec<AddrRange>, most: usize) -> Vec<AddrRange> {
    let mut gap = 0;
    loop {
        ranges.dedup_by(|next, before| {
            let close = next.start.0.saturating_sub(before.end.0) <= gap;
            if close {
                before.end = before.end.max(next.end);
            }
            close
        });
        if ranges.len() <= most {
            return ranges;
        }
        gap = (gap * 2).max(thermo_units::PAGE_SIZE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_by_the_smallest_gaps() {
        let page = |n: u64| AddrRange::new(n << 12, (n + 1) << 12);
        let ranges = vec![page(0), page(1), page(3), page(100), page(102)];
        assert_eq!(within(ranges.clone(), 9).len(), 4);
        let joined = within(ranges, 2);
        assert_eq!(
            joined,
            [AddrRange::new(0, 4 << 12), AddrRange::new(100 << 12, 103 << 12)]
        );
    }

    #[test]
    fn what_was_used_is_known_the_second_time() {
        let mut hold = Hold::new(Path::new("/"));
        let (id, range) = (TargetId(0), vec![AddrRange::new(0, 4096)]);
        hold.gone_through(id, range.clone(), true);
        assert_eq!(hold.working_set(), None, "all of it was there, used or not");
        hold.gone_through(id, range.clone(), true);
        assert_eq!(hold.working_set(), Some(Bytes(4096)));
        hold.gone_through(id, Vec::new(), false);
        assert_eq!(hold.working_set(), Some(Bytes(4096)), "half a look tells nothing");
        hold.gone_through(id, vec![AddrRange::new(0, 1 << 20)], true);
        assert_eq!(hold.working_set(), Some(Bytes(4096)), "it was not all out before");
    }
}
