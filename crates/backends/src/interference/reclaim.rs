//! Kernel reclaim, which clears accessed bits while it searches for pages to reclaim: for the whole machine,
//! or for the control group of a target. The first reclaim seen while monitoring runs is worth a warning. The
//! host probe names MGLRU.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use thermo_engine::TargetId;
use thermo_kernel::cgroup::{self, Group};
use thermo_kernel::memcg::Memcg;
use thermo_kernel::vmstat::{self, Vmstat};
use thermo_targets::Processes;
use thermo_units::Turn;

/// Minimum number of scanned pages for a warning: 16 MiB.
const MIN_SCANNED: u64 = 4096;

/// Scanned pages by place, when monitoring began or the place was first seen.
#[derive(Debug)]
pub(super) struct Reclaim {
    root: PathBuf,
    before: BTreeMap<String, u64>,
    has_warned: bool,
    turn: Turn<TargetId>,
}

/// A check looks at so many targets; the next check goes on.
const TARGETS_PER_CHECK: usize = 256;

impl Reclaim {
    pub(super) fn new(root: &Path) -> Self {
        let mut reclaim = Self {
            root: root.to_owned(),
            before: BTreeMap::new(),
            has_warned: false,
            turn: Turn::default(),
        };
        reclaim.before = reclaim.scanned(&Processes::new()).collect();
        reclaim
    }

    /// Returns the warning, once.
    pub(super) fn check(&mut self, targets: &Processes) -> Option<String> {
        if self.has_warned {
            return None;
        }
        let now: Vec<(String, u64)> = self.scanned(targets).collect();
        let grew = |(place, now): (String, u64)| {
            let before = *self.before.entry(place.clone()).or_insert(now);
            let scanned = now.saturating_sub(before);
            (scanned >= MIN_SCANNED).then_some((place, scanned))
        };
        let (place, scanned) = now.into_iter().find_map(grew)?;
        self.has_warned = true;
        Some(format!(
            "the kernel reclaims memory of {place} ({scanned} pages scanned so far), which clears accessed bits: some accessed \
             pages look idle"
        ))
    }

    /// Pages scanned for the machine and for the control groups of `targets`, as far as readable.
    fn scanned(&mut self, targets: &Processes) -> impl Iterator<Item = (String, u64)> + use<> {
        let machine = vmstat::read(&self.root).as_ref().map(Vmstat::scanned_pages).ok();
        let mut paths = BTreeSet::new();
        for (id, process) in self.turn.entries(targets).take(TARGETS_PER_CHECK) {
            self.turn.set(*id);
            let of_process = cgroup::paths(&self.root, process.pid).unwrap_or_default();
            // A group of cgroup v1 comes first: if there is one, it has the memory controller.
            paths.extend(of_process.into_iter().find(|path| path.may_control("memory")));
        }
        let mut groups = BTreeMap::new();
        let mounts = cgroup::mounts(&self.root).unwrap_or_default();
        for path in paths {
            let group = Group::at(&mounts, &path).map(Memcg::new);
            if let Some(Ok(scanned)) = group.map(|group| group.scanned_pages()) {
                groups.insert(path.path, scanned);
            }
        }
        let groups = groups
            .into_iter()
            .map(|(path, scanned)| (format!("control group {path}"), scanned));
        machine
            .map(|scanned| ("the machine".to_owned(), scanned))
            .into_iter()
            .chain(groups)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;

    use thermo_targets::Process;

    fn put(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn reclaim_of_machine_warns_once() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "proc/vmstat", "pgscan_kswapd 1000000\n");
        let mut reclaim = Reclaim::new(root.path());
        let no_targets = Processes::new();
        assert_eq!(reclaim.check(&no_targets), None);
        put(
            root.path(),
            "proc/vmstat",
            "pgscan_kswapd 1003000\npgscan_direct 2000\n",
        );
        let warning = reclaim.check(&no_targets).unwrap();
        assert!(warning.contains("of the machine (5000 pages"), "{warning}");
        put(root.path(), "proc/vmstat", "pgscan_kswapd 2003000\n");
        assert_eq!(reclaim.check(&no_targets), None);
    }

    #[test]
    fn reclaim_of_target_group_warns() {
        let root = tempfile::tempdir().unwrap();
        let own_pid = std::process::id();
        put(
            root.path(),
            "proc/mounts",
            "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        );
        put(root.path(), &format!("proc/{own_pid}/cgroup"), "0::/svc\n");
        put(root.path(), "sys/fs/cgroup/svc/memory.stat", "pgscan 77\n");
        let targets = Processes::from([(TargetId(0), Process::open(TargetId(0), own_pid).unwrap())]);
        let mut reclaim = Reclaim::new(root.path());
        assert_eq!(
            reclaim.check(&targets),
            None,
            "the first reading of a group is only stored"
        );
        put(root.path(), "sys/fs/cgroup/svc/memory.stat", "pgscan 5077\n");
        assert_eq!(reclaim.check(&Processes::new()), None, "no target is in it");
        let warning = reclaim.check(&targets).unwrap();
        assert!(warning.contains("control group /svc (5000 pages"), "{warning}");
    }
}
