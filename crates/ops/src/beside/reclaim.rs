//! The kernel itself, which takes accessed marks off to find out what it can reclaim: on its search through the lists, for
//! the machine or for a control group, and with MGLRU when it begins a new generation, for which it walks page tables.
//!
//! A machine's own shortage concerns all targets, what happens in a group only those that are in it. Whose groups targets
//! are in is asked only where something happened in some group.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use thermo_sys::cgroup::Group;
use thermo_sys::lru_gen::{self, Enabled};
use thermo_sys::memcg::Memcg;
use thermo_sys::vmstat::{self, Vmstat};

use crate::process::Processes;

/// A search for pages to reclaim is worth a word from so many pages on: 16 MiB.
const SCANNED: u64 = 4096;
/// And MGLRU's ageing from so many generations on: each costs one look at what is touched seldom.
const AGED: u64 = 3;

/// What of it is known. What was told is none and not asked about any more.
#[derive(Debug)]
pub(super) struct Reclaim {
    root: PathBuf,
    /// Pages scanned for the machine, when we began.
    machine: Option<u64>,
    groups: Option<Groups>,
    /// Generations of each control group when we began.
    generations: Option<BTreeMap<String, u64>>,
}

#[derive(Debug, Default)]
struct Groups {
    /// Pages scanned for groups when they were last asked, or when we began.
    all: u64,
    /// Pages scanned for those of targets when they were first asked.
    known: BTreeMap<PathBuf, u64>,
}

impl Reclaim {
    pub(super) fn new(root: &Path) -> Self {
        let counters = vmstat::read(root).ok();
        let groups = |counters: &Vmstat| Groups {
            all: counters.scanned_pages_of_groups(),
            known: BTreeMap::new(),
        };
        let ages = Enabled::read(root).walks_page_tables();
        Self {
            root: root.to_owned(),
            machine: counters.as_ref().map(Vmstat::scanned_pages),
            groups: counters.as_ref().map(groups),
            generations: ages.then(|| lru_gen::generations(root).ok()).flatten(),
        }
    }

    /// A sentence for each thing that is new.
    pub(super) fn look(&mut self, targets: &Processes) -> Vec<String> {
        let asks = self.machine.is_some() || self.groups.is_some();
        let counters = asks.then(|| vmstat::read(&self.root).ok()).flatten();
        let counters = counters.as_ref();
        let machine = counters.and_then(|counters| self.of_machine(counters));
        let group = counters.and_then(|counters| self.of_groups(counters, targets));
        let ageing = self.ageing(targets);
        machine.into_iter().chain(group).chain(ageing).collect()
    }

    fn of_machine(&mut self, counters: &Vmstat) -> Option<String> {
        let scanned = counters.scanned_pages().saturating_sub(self.machine?);
        if scanned < SCANNED {
            return None;
        }
        self.machine = None;
        Some(format!(
            "the kernel is short of memory and looks for pages to reclaim ({scanned} so far), which takes accessed \
             marks off, and with MGLRU those of their neighbours, too: some of what is touched looks idle to us"
        ))
    }

    fn of_groups(&mut self, counters: &Vmstat, targets: &Processes) -> Option<String> {
        let groups = self.groups.as_mut()?;
        let all = counters.scanned_pages_of_groups();
        if all.saturating_sub(groups.all) < SCANNED {
            return None;
        }
        groups.all = all;
        let grew = |(dir, (group, pid)): (PathBuf, (Group, u32))| {
            let now = Memcg::new(group.clone()).scanned_pages().ok()?;
            let scanned = now.saturating_sub(*groups.known.entry(dir).or_insert(now));
            (scanned >= SCANNED).then_some((group, pid, scanned))
        };
        let (group, pid, scanned) = groups_of(&self.root, targets).into_iter().find_map(grew)?;
        let name = group.path(&self.root).ok()?;
        self.groups = None;
        Some(format!(
            "the kernel looks for pages to reclaim in control group {name}, which our target {pid} is in ({scanned} and \
             more so far), and takes accessed marks off: some of what is touched looks idle to us"
        ))
    }

    fn ageing(&mut self, targets: &Processes) -> Option<String> {
        let known = self.generations.as_mut()?;
        let now = lru_gen::generations(&self.root).ok()?;
        let passed = |(group, newest): (String, u64)| {
            let before = *known.entry(group.clone()).or_insert(newest);
            let passed = newest.saturating_sub(before);
            (passed >= AGED).then_some((group, passed))
        };
        let aged: BTreeMap<String, u64> = now.into_iter().filter_map(passed).collect();
        if aged.is_empty() {
            return None;
        }
        let groups = groups_of(&self.root, targets);
        let names = groups
            .values()
            .filter_map(|(group, _)| group.path(&self.root).ok());
        // Where no hierarchy is mounted all processes are in the first group.
        let first = groups.is_empty().then(|| "/".to_owned());
        let of_target = names.chain(first).find_map(|name| aged.get_key_value(&name));
        let (name, passed) = of_target?;
        self.generations = None;
        Some(format!(
            "MGLRU ages the pages of control group {name} ({passed} generations since we began to look), for which it walks \
             page tables and takes accessed marks off: some of what is touched looks idle to us"
        ))
    }
}

/// The control group that accounts for the memory of each target, once, with one of the targets in it: none where no
/// hierarchy is mounted.
fn groups_of(root: &Path, targets: &Processes) -> BTreeMap<PathBuf, (Group, u32)> {
    let mut groups = BTreeMap::new();
    for process in targets.values() {
        // That of version 1 comes first: where there is one, it has the memory.
        let of_process = Group::of_process(root, Some(process.pid), "memory");
        if let Some(group) = of_process.into_iter().next() {
            groups.entry(group.dir.clone()).or_insert((group, process.pid));
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;
    use thermo_core::TargetId;

    use crate::process::Process;

    /// A machine with one control group of version 2, in which this process is.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            machine.put("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
            machine.put(&format!("proc/{}/cgroup", std::process::id()), "0::/svc\n");
            machine.put("sys/kernel/mm/lru_gen/enabled", "0x0007\n");
            machine
        }

        fn put(&self, name: &str, text: &str) {
            let path = self.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn generations(&self, path: &str, newest: u64) {
            let text = format!("memcg     9 {path}\n node     0\n {newest:10} 5 1 1 \n");
            self.put("sys/kernel/debug/lru_gen", &text);
        }
    }

    fn ours() -> Processes {
        let process = Process::open(TargetId(0), std::process::id()).unwrap();
        Processes::from([(TargetId(0), process)])
    }

    #[test]
    fn what_the_machine_is_short_of_is_told_once_and_not_what_was_before() {
        let machine = Machine::new();
        machine.put("proc/vmstat", "pgscan_kswapd 1000000\n");
        let mut reclaim = Reclaim::new(machine.0.path());
        let nobody = Processes::new();
        assert!(reclaim.look(&nobody).is_empty());
        machine.put("proc/vmstat", "pgscan_kswapd 1003000\npgscan_direct 2000\n");
        let told = reclaim.look(&nobody);
        assert!(told.len() == 1 && told[0].contains("(5000 so far)"), "{told:?}");
        assert!(reclaim.look(&nobody).is_empty());
    }

    #[test]
    fn a_group_that_is_short_is_told_of_where_a_target_is_in_it() {
        let machine = Machine::new();
        let svc = "sys/fs/cgroup/svc/memory.stat";
        let mut scanned = 0;
        let mut more = || {
            scanned += 5000;
            machine.put("proc/vmstat", &format!("pgscan_anon {scanned}\n"));
        };
        machine.put(svc, "pgscan 77\n");
        more();
        let mut reclaim = Reclaim::new(machine.0.path());
        let ours = ours();
        assert!(reclaim.look(&ours).is_empty());
        more();
        assert!(
            reclaim.look(&ours).is_empty(),
            "nothing is known of the group before"
        );
        more();
        assert!(reclaim.look(&ours).is_empty(), "it was another group");
        more();
        machine.put(svc, "pgscan 5077\n");
        let told = reclaim.look(&ours);
        assert!(
            told.len() == 1 && told[0].contains("control group /svc,") && told[0].contains("(5000 and more"),
            "{told:?}"
        );
        more();
        machine.put(svc, "pgscan 10077\n");
        assert!(reclaim.look(&ours).is_empty());
    }

    #[test]
    fn ageing_is_told_of_in_groups_of_targets() {
        let machine = Machine::new();
        machine.generations("/svc", 4);
        let mut reclaim = Reclaim::new(machine.0.path());
        let ours = ours();
        machine.generations("/svc", 6);
        assert!(reclaim.look(&ours).is_empty());
        machine.generations("/other", 4);
        assert!(reclaim.look(&ours).is_empty());
        machine.generations("/other", 40);
        assert!(reclaim.look(&ours).is_empty(), "no target is in it");
        machine.generations("/svc", 7);
        let told = reclaim.look(&ours);
        let words = "control group /svc (3 generations";
        assert!(told.len() == 1 && told[0].contains(words), "{told:?}");
        machine.generations("/svc", 70);
        assert!(reclaim.look(&ours).is_empty());
    }

    #[test]
    fn without_groups_all_are_in_the_first_and_without_walks_nothing_is_taken() {
        for (enabled, told) in [("0x0007", 1), ("0x0005", 0)] {
            let machine = Machine::new();
            machine.put("proc/mounts", "");
            machine.put("sys/kernel/mm/lru_gen/enabled", enabled);
            machine.generations("/", 1);
            let mut reclaim = Reclaim::new(machine.0.path());
            machine.generations("/", 9);
            assert_eq!(reclaim.look(&ours()).len(), told, "{enabled}");
        }
    }
}
