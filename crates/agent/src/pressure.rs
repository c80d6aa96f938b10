//! What the guards measure besides refaults: stall and swap.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use thermo_kernel::cgroup::Group;
use thermo_kernel::zram;
use thermo_kernel::{meminfo, psi, swap};
use thermo_units::{Bytes, Nanos, Permille};

/// The time over which stall is measured.
const WINDOW: Nanos = Nanos::secs(60);
/// Shorter measurements say nothing.
const MIN_WINDOW: Nanos = Nanos::secs(10);
/// Groups of one policy that are read at most.
const MAX_GROUPS: usize = 16;

/// Measures the share of the last minute in which some task waited for memory: of the control groups of the
/// policy's processes where these have the file, otherwise of the machine.
#[derive(Debug, Default)]
pub struct StallMeter {
    files: BTreeMap<PathBuf, VecDeque<(Nanos, Nanos)>>,
}

impl StallMeter {
    /// Measures the groups of these processes from now on.
    pub fn set_processes(&mut self, root: &Path, pids: &[u32]) {
        let group_file = |pid: &u32| {
            let groups = Group::of_process(root, Some(*pid), "memory").into_iter();
            let mut files = groups.map(|group| group.dir.join("memory.pressure"));
            files.find(|file| file.exists())
        };
        let mut wanted = BTreeSet::new();
        for file in pids.iter().filter_map(group_file) {
            wanted.insert(file);
            if wanted.len() == MAX_GROUPS {
                break;
            }
        }
        if wanted.is_empty() {
            wanted.insert(psi::system_file(root));
        }
        self.files.retain(|file, _| wanted.contains(file));
        for file in wanted {
            self.files.entry(file).or_default();
        }
    }

    /// Reads the files. Returns the largest share of the last minute; `None` without PSI, and in the first
    /// seconds.
    pub fn measure(&mut self, now: Nanos) -> Option<Permille> {
        let shares = self.files.iter_mut().filter_map(|(file, readings)| {
            let total = psi::stall(file).ok()?;
            readings.push_back((now, total));
            while readings.len() > 2
                && readings
                    .get(1)
                    .is_some_and(|next| now.saturating_sub(next.0) >= WINDOW)
            {
                readings.pop_front();
            }
            let (then, before) = *readings.front()?;
            let time = now.saturating_sub(then);
            let stalled = total.saturating_sub(before).0;
            let share = u128::from(stalled) * 1000 / u128::from(time.0.max(1));
            let share = u32::try_from(share.min(1000)).unwrap_or(1000);
            (time >= MIN_WINDOW).then_some(Permille(share))
        });
        shares.max()
    }
}

/// The swap of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SwapState {
    /// The share that is free; `None` without swap.
    pub free: Option<Permille>,
    /// Bytes of memory that a byte in swap occupies: 0 on a disk, the ratio of zram where that is the swap.
    /// `None` without swap, and while an empty zram tells nothing.
    pub cost: Option<f64>,
}

impl SwapState {
    /// Reads it. What cannot be read counts as missing.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let info = meminfo::read(root).unwrap_or_default();
        let share = |free: Bytes, total: Bytes| {
            let share = u128::from(free.0) * 1000 / u128::from(total.0);
            Permille(u32::try_from(share).unwrap_or(1000))
        };
        let has_swap = info.swap_total > Bytes::ZERO;
        let is_zram = swap::read(root).is_ok_and(|areas| areas.iter().any(swap::Swap::is_zram));
        let zram = zram::total(root)
            .ok()
            .filter(|zram| is_zram && zram.orig_data > Bytes::ZERO);
        let ratio = zram.map(|zram| zram.mem_used.0 as f64 / zram.orig_data.0 as f64);
        Self {
            free: has_swap.then(|| share(info.swap_free, info.swap_total)),
            cost: match (has_swap, is_zram) {
                (true, true) => ratio,
                (true, false) => Some(0.0),
                (false, _) => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn stall_is_a_share_of_the_last_minute() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("proc/pressure/memory");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let set = |ms: u64| {
            let text = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={}\n", ms * 1000);
            std::fs::write(&file, text).unwrap();
        };
        let mut meter = StallMeter::default();
        meter.set_processes(root.path(), &[]);
        set(0);
        assert_eq!(meter.measure(Nanos::secs(0)), None, "one reading says nothing");
        set(1000);
        assert_eq!(meter.measure(Nanos::secs(10)), Some(Permille(100)));
        for now in 11..=80 {
            meter.measure(Nanos::secs(now));
        }
        assert_eq!(
            meter.measure(Nanos::secs(81)),
            Some(Permille(0)),
            "the old stall is forgotten"
        );
        std::fs::remove_file(&file).unwrap();
        assert_eq!(meter.measure(Nanos::secs(82)), None);
    }
}
