//! What the guards measure besides refaults: stall and swap.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use thermo_kernel::cgroup::{self, Group, GroupPath, Mount};
use thermo_kernel::zram;
use thermo_kernel::{meminfo, psi, swap};
use thermo_units::{Bytes, Nanos, Permille, Turn};

use crate::process_table::PolicyProcess;

/// The time over which stall is measured.
const WINDOW: Nanos = Nanos::secs(60);
/// Shorter measurements say nothing.
const MIN_WINDOW: Nanos = Nanos::secs(10);
/// After so many calls, all files were read: a [`WINDOW`].
const TURN_READS: usize = 60;
/// So many files are read in a call at least.
const MIN_FILES: usize = 16;

/// Measures the share of the last minute in which some task waited for memory: of the control groups of each
/// target, and of the machine for processes whose groups do not tell.
#[derive(Debug, Default)]
pub struct StallMeter {
    files: BTreeMap<PathBuf, Readings>,
    /// The file of each group; `None`: it has none.
    groups: BTreeMap<GroupPath, Option<PathBuf>>,
    /// The files of each target.
    targets: BTreeMap<String, BTreeSet<PathBuf>>,
    /// The file of the machine, if the groups of some process do not tell.
    machine: Option<PathBuf>,
    turn: Turn<PathBuf>,
}

impl StallMeter {
    /// Measures the groups of these processes from now on.
    pub fn set_processes(&mut self, root: &Path, processes: &[PolicyProcess]) {
        let known = std::mem::take(&mut self.groups);
        self.targets.clear();
        self.machine = None;
        let mounts = cgroup::mounts(root).unwrap_or_default();
        for process in processes {
            let mut file = None;
            for group in &process.memory_groups {
                let of_group = self.groups.entry(group.clone()).or_insert_with(|| {
                    let known = known.get(group).cloned();
                    known.unwrap_or_else(|| pressure_file(&mounts, group))
                });
                file = file.or_else(|| of_group.clone());
            }
            match file {
                Some(file) => {
                    let files = self.targets.entry(process.target.clone()).or_default();
                    files.insert(file);
                }
                None => self.machine = Some(psi::system_file(root)),
            }
        }
        let of_targets = self.targets.values().flatten();
        let wanted: BTreeSet<PathBuf> = of_targets.chain(&self.machine).cloned().collect();
        self.files.retain(|file, _| wanted.contains(file));
        for file in wanted {
            self.files.entry(file).or_default();
        }
    }

    /// Reads the next files. Call it once a second.
    pub fn read(&mut self, now: Nanos) {
        let nr = self.files.len().div_ceil(TURN_READS).max(MIN_FILES);
        let in_turn = self.turn.entries(&self.files).map(|(file, _)| file.clone());
        for file in in_turn.take(nr).collect::<Vec<_>>() {
            if let Some(readings) = self.files.get_mut(&file) {
                readings.read(&file, now);
            }
            self.turn.set(file);
        }
    }

    /// The largest share among the groups of the target; `None` where no group tells, and in the first
    /// seconds.
    #[must_use]
    pub fn of_target(&self, name: &str) -> Option<Permille> {
        let files = self.targets.get(name)?;
        files.iter().filter_map(|file| self.files.get(file)?.share).max()
    }

    /// The share of the machine; `None` without PSI, in the first seconds, and where all groups tell.
    #[must_use]
    pub fn of_machine(&self) -> Option<Permille> {
        self.files.get(self.machine.as_ref()?)?.share
    }
}

fn pressure_file(mounts: &[Mount], group: &GroupPath) -> Option<PathBuf> {
    let file = Group::at(mounts, group)?.dir.join("memory.pressure");
    file.exists().then_some(file)
}

/// Readings of one file: time, and total stall.
#[derive(Debug, Default)]
struct Readings {
    readings: VecDeque<(Nanos, Nanos)>,
    share: Option<Permille>,
}

impl Readings {
    fn read(&mut self, file: &Path, now: Nanos) {
        let Ok(total) = psi::stall(file) else {
            *self = Self::default();
            return;
        };
        self.readings.push_back((now, total));
        let is_old = |next: &(Nanos, Nanos)| now.saturating_sub(next.0) >= WINDOW;
        while self.readings.len() > 2 && self.readings.get(1).is_some_and(is_old) {
            self.readings.pop_front();
        }
        let Some((then, before)) = self.readings.front() else {
            return;
        };
        let time = now.saturating_sub(*then);
        let stalled = total.saturating_sub(*before).0;
        let share = u128::from(stalled) * 1000 / u128::from(time.0.max(1));
        let share = u32::try_from(share.min(1000)).unwrap_or(1000);
        self.share = (time >= MIN_WINDOW).then_some(Permille(share));
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

    fn write(file: &Path, ms: u64) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let text = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={}\n", ms * 1000);
        std::fs::write(file, text).unwrap();
    }

    fn process(pid: u32, target: &str, group: &str) -> PolicyProcess {
        PolicyProcess {
            pid,
            starttime: 1,
            target: target.to_owned(),
            memory_groups: vec![GroupPath {
                controllers: String::new(),
                path: group.to_owned(),
            }],
        }
    }

    #[test]
    fn stall_is_a_share_of_the_last_minute() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("proc/pressure/memory");
        let mut meter = StallMeter::default();
        meter.set_processes(root.path(), &[process(7, "a", "/a")]);
        let mut measure = |now| {
            meter.read(Nanos::secs(now));
            meter.of_machine()
        };
        write(&file, 0);
        assert_eq!(measure(0), None, "one reading says nothing");
        write(&file, 1000);
        assert_eq!(measure(10), Some(Permille(100)));
        for now in 11..=80 {
            measure(now);
        }
        assert_eq!(measure(81), Some(Permille(0)), "the old stall is forgotten");
        std::fs::remove_file(&file).unwrap();
        assert_eq!(measure(82), None);
    }

    /// 2,000 targets have a group each, and one of them waits for memory all the time.
    #[test]
    fn each_target_has_its_own_stall_and_few_files_are_read_at_a_time() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/fs/cgroup");
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        let mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        std::fs::write(root.path().join("proc/mounts"), mounts).unwrap();
        let names: Vec<String> = (0..2000).map(|nr| format!("user-{nr}")).collect();
        let file = |name: &str| folder.join(name).join("memory.pressure");
        names.iter().for_each(|name| write(&file(name), 0));
        let one = |(pid, name): (u32, &String)| process(pid, name, &format!("/{name}"));
        let processes: Vec<PolicyProcess> = (1..).zip(&names).map(one).collect();
        let mut meter = StallMeter::default();
        meter.set_processes(root.path(), &processes);
        let nr_read = |meter: &StallMeter| {
            let readings = meter.files.values().map(|file| file.readings.len());
            readings.sum::<usize>()
        };
        for now in 0..=120 {
            write(&file("user-7"), now * 1000);
            let before = nr_read(&meter);
            meter.read(Nanos::secs(now));
            assert!(nr_read(&meter) <= before + 34, "at most 34 files in a second");
        }
        assert_eq!(meter.of_target("user-7"), Some(Permille(1000)));
        assert_eq!(meter.of_target("user-8"), Some(Permille(0)));
        assert_eq!(
            meter.of_target("user-1999"),
            Some(Permille(0)),
            "all were read twice"
        );
        assert_eq!(meter.of_machine(), None);
    }
}
