//! Targets that run virtual machines (KVM).
//!
//! What a guest touches is marked in tables of the hypervisor's own (EPT, NPT), and not in the page table of the process
//! whose memory it is. Who asks within the kernel is told of both (`mmu_notifier_clear_young()`): in-kernel DAMON, the
//! idle-page bitmap. From user space only the page table is seen, so that a mark there is true and a missing one says
//! nothing: what has none is unknown in such a target.
//!
//! A machine is seen by the descriptor of the process that made it. It may be made at any time, so targets without one are
//! looked at again once a minute. Who emulates a machine without KVM touches
//! its memory as any program does, and is watched like any.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use thermo_engine::TargetId;
use thermo_engine::ops::{Probe, Seen};
use thermo_engine::scan::ScanChunk;
use thermo_kernel::kvm;
use thermo_targets::{Process, Processes};

/// What is known of the targets.
#[derive(Debug)]
pub(super) struct Guests {
    root: PathBuf,
    /// Process of each target (in the control files another may take its place), and whether it runs a machine: once that
    /// is known it is taken to until it ends.
    known: BTreeMap<TargetId, (u32, bool)>,
}

impl Guests {
    /// Nothing is known of anybody on the machine at `root` (`/`).
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            known: BTreeMap::new(),
        }
    }

    /// Looks at new `targets`, or with `again` at all that are not known to run a machine. Returns a sentence for each that is
    /// found to run one. Costs about a microsecond for each file a target has open.
    pub(super) fn look(&mut self, targets: &Processes, again: bool) -> Vec<String> {
        let Self { root, known } = self;
        known.retain(|id, (pid, _)| targets.get(id).is_some_and(|target| target.pid == *pid));
        if !kvm::exists(root) {
            return Vec::new();
        }
        let mut is_found = |target: &&Process| {
            let is_new = !known.contains_key(&target.id);
            let (_, runs_machine) = known.entry(target.id).or_insert((target.pid, false));
            if *runs_machine || !is_new && !again {
                return false;
            }
            // Of one that is gone, or that we may not look into, nothing is seen.
            *runs_machine = kvm::is_held_by(root, target.pid).unwrap_or(false);
            *runs_machine
        };
        let found = targets.values().filter(|target| is_found(target));
        found.map(|target| sentence(target.pid)).collect()
    }

    /// Makes unknown which of `probes` found no mark in memory that a guest may have touched. Those at places where no page
    /// is are among them: a region that is half empty must not pass for an idle one.
    pub(super) fn mark_unknown(&self, probes: &mut [Probe]) {
        for group in probes.chunk_by_mut(|a, b| a.target == b.target) {
            if group.first().is_some_and(|probe| self.are_in(probe.target)) {
                let idle = group.iter_mut().filter(|probe| probe.seen == Seen::Idle);
                idle.for_each(|probe| probe.seen = Seen::Unknown);
            }
        }
    }

    /// The same of the pages of `piece`, which is of target `id`.
    pub(super) fn mark_pages_unknown(&self, id: TargetId, piece: &mut ScanChunk) {
        if self.are_in(id) {
            piece.set_idle_unknown();
        }
    }

    fn are_in(&self, id: TargetId) -> bool {
        self.known.get(&id).is_some_and(|(_, runs_machine)| *runs_machine)
    }
}

fn sentence(pid: u32) -> String {
    format!(
        "process {pid} runs a virtual machine, whose accesses the page tables of this host do not show: what of its memory \
         has no mark is unknown to us, not idle. --tracker idle or kdamond sees them"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use thermo_engine::scan::PageSeen;
    use thermo_units::{Addr, AddrRange, PAGE_SIZE};

    const ID: TargetId = TargetId(3);
    const OTHER: TargetId = TargetId(4);

    /// A machine with KVM or without, on which this very process has so many files open that are none of a machine's.
    fn root(devices: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(fds(root.path())).unwrap();
        fs::write(root.path().join("proc/misc"), devices).unwrap();
        symlink("/dev/kvm", fds(root.path()).join("3")).unwrap();
        root
    }

    fn fds(root: &Path) -> PathBuf {
        root.join(format!("proc/{}/fd", std::process::id()))
    }

    fn make_machine(root: &Path) {
        symlink("anon_inode:kvm-vm", fds(root).join("9")).unwrap();
    }

    fn targets(ids: &[TargetId]) -> Processes {
        let open = |id: &TargetId| (*id, Process::open(*id, std::process::id()).unwrap());
        ids.iter().map(open).collect()
    }

    /// Guests of which `ID` is known to have one, and `OTHER` not to.
    fn guests_of_one() -> Guests {
        let root = root("232 kvm\n");
        let mut guests = Guests::new(root.path());
        assert!(guests.look(&targets(&[OTHER]), true).is_empty());
        make_machine(root.path());
        assert_eq!(guests.look(&targets(&[ID, OTHER]), false).len(), 1);
        guests
    }

    #[test]
    fn a_machine_that_is_made_later_is_told_of_once() {
        let root = root("232 kvm\n");
        let ours = targets(&[ID]);
        let mut guests = Guests::new(root.path());
        assert!(guests.look(&ours, false).is_empty());
        make_machine(root.path());
        assert!(
            guests.look(&ours, false).is_empty(),
            "it is looked at again later"
        );
        assert!(!guests.are_in(ID));
        let told = guests.look(&ours, true);
        let process = format!("process {} runs a virtual machine", std::process::id());
        assert!(told.len() == 1 && told[0].contains(&process), "{told:?}");
        assert!(guests.look(&ours, true).is_empty());
        assert!(guests.are_in(ID) && !guests.are_in(OTHER));
        guests.look(&Processes::new(), false);
        assert!(guests.known.is_empty());
    }

    #[test]
    fn nobody_is_looked_at_where_there_is_no_kvm() {
        let root = root("200 tun\n");
        make_machine(root.path());
        let ours = targets(&[ID]);
        let mut guests = Guests::new(root.path());
        assert!(guests.look(&ours, false).is_empty() && guests.known.is_empty());
        // The module is loaded later.
        fs::write(root.path().join("proc/misc"), "232 kvm\n").unwrap();
        assert_eq!(guests.look(&ours, false).len(), 1);
    }

    #[test]
    fn what_has_no_mark_in_a_machines_memory_is_unknown() {
        let guests = guests_of_one();
        let seen = [Seen::Idle, Seen::Accessed, Seen::Unknown];
        let probe = |target, seen| Probe {
            target,
            addr: Addr(4096),
            seen,
        };
        let probes = |target| seen.map(|seen| probe(target, seen));
        let mut all = [probes(ID), probes(OTHER)].concat();
        guests.mark_unknown(&mut all);
        let doubted: Vec<Seen> = all.iter().map(|probe| probe.seen).collect();
        assert_eq!(doubted[..3], [Seen::Unknown, Seen::Accessed, Seen::Unknown]);
        assert_eq!(doubted[3..], seen);
    }

    #[test]
    fn pages_without_mark_are_unknown_and_those_that_are_not_there_are_absent() {
        use PageSeen::{Absent, Accessed, Idle, Unknown};
        let guests = guests_of_one();
        let pages = [62, 63, 64, 65].map(|page| Addr(page * PAGE_SIZE));
        let swept = |id| {
            let mut piece = ScanChunk::default();
            piece.reset(AddrRange::new(PAGE_SIZE, 100 * PAGE_SIZE));
            piece.set(pages[0], true);
            piece.set(pages[1], false);
            piece.set_unknown(pages[2]);
            guests.mark_pages_unknown(id, &mut piece);
            pages.map(|addr| piece.get(addr))
        };
        assert_eq!(swept(ID), [Accessed, Unknown, Unknown, Absent]);
        assert_eq!(swept(OTHER), [Accessed, Idle, Unknown, Absent]);
    }
}
