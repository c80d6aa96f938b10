//! Finds processes by the numbers that the kernel gave out since the last look. The cost depends on how many
//! processes and threads have started, not on how many exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use thermo_kernel::proc;
use thermo_units::Nanos;

/// A number is looked at again for this long: its process may be about to execute another program.
const AGAIN: Nanos = Nanos::secs(5);
/// With more numbers than this, the list of processes is read instead.
const MAX_NUMBERS: u32 = 4096;

/// The numbers given out since the last look.
#[derive(Debug)]
pub(crate) struct NewPids {
    root: PathBuf,
    /// The last number at the last look; `None` before the first, and if the kernel does not tell.
    last: Option<u32>,
    /// Numbers to look at again, and until when.
    again: BTreeMap<u32, Nanos>,
    /// Numbers without a process at the first look. The kernel gives out a number before its process is
    /// visible, so they get a second look.
    unseen: BTreeSet<u32>,
    /// Numbers at their second look.
    second: BTreeSet<u32>,
}

impl NewPids {
    /// Nothing was looked at yet on the machine at `root` (`/`).
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            last: None,
            again: BTreeMap::new(),
            unseen: BTreeSet::new(),
            second: BTreeSet::new(),
        }
    }

    /// The numbers given out since the last call, oldest first, and before them those to look at again. Some
    /// are threads, or have no process any more. `None`: all processes have to be looked at.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Vec<u32>> {
        let to = proc::last_pid(&self.root).ok();
        let (from, to) = (std::mem::replace(&mut self.last, to)?, to?);
        self.again.retain(|_, until| *until > now);
        self.second = std::mem::take(&mut self.unseen);
        let mut numbers: Vec<u32> = self.again.keys().chain(&self.second).copied().collect();
        if from <= to && to - from <= MAX_NUMBERS {
            numbers.extend(from + 1..=to);
        } else {
            let all = proc::pids(&self.root).ok()?;
            // If the numbers began anew, the larger ones are older.
            let (old, new): (Vec<u32>, Vec<u32>) = all.into_iter().partition(|pid| *pid > from);
            numbers.extend(old.into_iter().filter(|pid| from > to || *pid <= to));
            numbers.extend(new.into_iter().filter(|pid| from > to && *pid <= to));
        }
        Some(numbers)
    }

    /// Looks at this number again in the next seconds.
    pub(crate) fn again(&mut self, pid: u32, now: Nanos) {
        self.again.entry(pid).or_insert(now.saturating_add(AGAIN));
    }

    /// Looks at this number once more, at the next update: it has no process.
    pub(crate) fn unseen(&mut self, pid: u32) {
        if !self.second.contains(&pid) {
            self.unseen.insert(pid);
        }
    }

    /// Does not look at this number again.
    pub(crate) fn done(&mut self, pid: u32) {
        self.again.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;

    fn machine(pids: &[u32]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for pid in pids {
            fs::create_dir_all(root.path().join(format!("proc/{pid}"))).unwrap();
        }
        root
    }

    fn set_last(root: &Path, last: u32) {
        fs::write(root.join("proc/loadavg"), format!("0.00 0.00 0.00 1/99 {last}\n")).unwrap();
    }

    #[test]
    fn numbers_since_the_last_look_are_new() {
        let root = machine(&[1]);
        set_last(root.path(), 100);
        let mut pids = NewPids::new(root.path());
        let mut next = |last, now| {
            set_last(root.path(), last);
            pids.next(Nanos::secs(now))
        };
        assert_eq!(next(100, 0), None, "the first look");
        assert_eq!(next(100, 1), Some(vec![]));
        assert_eq!(next(103, 2), Some(vec![101, 102, 103]));
        pids.again(102, Nanos::secs(2));
        assert_eq!(pids.next(Nanos::secs(6)), Some(vec![102]));
        assert_eq!(pids.next(Nanos::secs(7)), Some(vec![]), "long enough");
        for expected in [vec![101], vec![]] {
            pids.unseen(101);
            assert_eq!(pids.next(Nanos::secs(8)), Some(expected), "once more");
        }
    }

    #[test]
    fn numbers_that_begin_anew_are_found_in_the_list() {
        let root = machine(&[1, 50, 300, 32_000, 32_700]);
        set_last(root.path(), 31_000);
        let mut pids = NewPids::new(root.path());
        pids.next(Nanos::ZERO);
        set_last(root.path(), 60);
        assert_eq!(pids.next(Nanos::ZERO), Some(vec![32_000, 32_700, 1, 50]));
        set_last(root.path(), 20_000);
        assert_eq!(
            pids.next(Nanos::ZERO),
            Some(vec![300]),
            "many numbers, few processes"
        );
    }

    #[test]
    fn without_the_last_number_all_have_to_be_looked_at() {
        let root = machine(&[1]);
        let mut pids = NewPids::new(root.path());
        assert_eq!(pids.next(Nanos::ZERO), None);
        assert_eq!(pids.next(Nanos::ZERO), None);
    }
}
