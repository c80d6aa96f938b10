//! Targets that run virtual machines (KVM).
//!
//! An access by a guest sets the accessed bit in the hypervisor's own tables (EPT, NPT), not in the page
//! table of the host process. Users within the kernel see both (`mmu_notifier_clear_young()`): in-kernel
//! DAMON and the idle-page bitmap. From user space only the page table is visible: a set bit is an access, a
//! clear bit proves nothing. So pages without a set bit are unknown in such a target.
//!
//! A virtual machine is detected by a virtual CPU that the process maps, or by its file descriptor where
//! mappings are not read. It may be created at any time: mappings are read again when they change,
//! descriptors once a minute. An emulator without KVM accesses its memory like any program, and is monitored
//! like one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use thermo_engine::TargetId;
use thermo_engine::ops::{CheckResult, Probe};
use thermo_engine::scan::ScanChunk;
use thermo_kernel::kvm;
use thermo_targets::{Process, Processes};

/// The targets that run virtual machines.
#[derive(Debug)]
pub(super) struct VmTargets {
    root: PathBuf,
    /// The process of each target (damonfs may replace it), and whether it runs a virtual machine. If it
    /// does, this holds until the process ends.
    known: BTreeMap<TargetId, (u32, bool)>,
}

impl VmTargets {
    /// Nothing is known yet about the machine at `root` (`/`).
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            known: BTreeMap::new(),
        }
    }

    /// Checks `targets` by their mappings. If these are not known: checks new ones by their open files, which
    /// costs about a microsecond for each file, and with `again` all that are not known to run a virtual
    /// machine. Returns one warning for each that does.
    pub(super) fn check(&mut self, targets: &Processes, again: bool) -> Vec<String> {
        let Self { root, known } = self;
        known.retain(|id, (pid, _)| targets.get(id).is_some_and(|target| target.pid == *pid));
        if !kvm::is_available(root) {
            return Vec::new();
        }
        let mut is_found = |target: &&Process| {
            let is_new = !known.contains_key(&target.id);
            let (_, runs_vm) = known.entry(target.id).or_insert((target.pid, false));
            if *runs_vm || target.runs_vm.is_none() && !is_new && !again {
                return false;
            }
            // A process that has ended, or that we may not inspect, counts as none.
            let has_open = || kvm::has_vm_open(root, target.pid).unwrap_or(false);
            *runs_vm = target.runs_vm.unwrap_or_else(has_open);
            *runs_vm
        };
        let found = targets.values().filter(|target| is_found(target));
        found.map(|target| warning(target.pid)).collect()
    }

    /// Marks as unknown those of `probes` that found memory idle that a guest may have accessed. This
    /// includes addresses without a page: a half-empty region must not look idle.
    pub(super) fn mark_unknown(&self, probes: &mut [Probe]) {
        for group in probes.chunk_by_mut(|a, b| a.target == b.target) {
            if group.first().is_some_and(|probe| self.runs_vm(probe.target)) {
                let idle = group.iter_mut().filter(|probe| probe.result == CheckResult::Idle);
                idle.for_each(|probe| probe.result = CheckResult::Unknown);
            }
        }
    }

    /// Like [`VmTargets::mark_unknown`], for the pages of `chunk`, which is of target `id`.
    pub(super) fn mark_pages_unknown(&self, id: TargetId, chunk: &mut ScanChunk) {
        if self.runs_vm(id) {
            chunk.set_idle_unknown();
        }
    }

    fn runs_vm(&self, id: TargetId) -> bool {
        self.known.get(&id).is_some_and(|(_, runs_vm)| *runs_vm)
    }
}

fn warning(pid: u32) -> String {
    format!(
        "process {pid} runs a virtual machine. The page tables of this host do not show accesses by the guest, so its pages \
         without an accessed bit are unknown, not idle. --tracker idle or kdamond sees these accesses"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use thermo_engine::scan::ScanResult;
    use thermo_units::{Addr, AddrRange, PAGE_SIZE};

    const ID: TargetId = TargetId(3);
    const OTHER: TargetId = TargetId(4);

    /// A fake root with or without KVM, where this process has one open file that is not a virtual machine.
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

    fn create_vm(root: &Path) {
        symlink("anon_inode:kvm-vm", fds(root).join("9")).unwrap();
    }

    fn targets(ids: &[TargetId]) -> Processes {
        let open = |id: &TargetId| (*id, Process::open(*id, std::process::id()).unwrap());
        ids.iter().map(open).collect()
    }

    /// `ID` is known to run a virtual machine, and `OTHER` not to.
    fn one_vm_target() -> VmTargets {
        let root = root("232 kvm\n");
        let mut vm_targets = VmTargets::new(root.path());
        assert!(vm_targets.check(&targets(&[OTHER]), true).is_empty());
        create_vm(root.path());
        assert_eq!(vm_targets.check(&targets(&[ID, OTHER]), false).len(), 1);
        vm_targets
    }

    #[test]
    fn vm_created_later_is_reported_once() {
        let root = root("232 kvm\n");
        let processes = targets(&[ID]);
        let mut vm_targets = VmTargets::new(root.path());
        assert!(vm_targets.check(&processes, false).is_empty());
        create_vm(root.path());
        assert!(
            vm_targets.check(&processes, false).is_empty(),
            "it is checked again later"
        );
        assert!(!vm_targets.runs_vm(ID));
        let warnings = vm_targets.check(&processes, true);
        let process = format!("process {} runs a virtual machine", std::process::id());
        assert!(
            warnings.len() == 1 && warnings[0].contains(&process),
            "{warnings:?}"
        );
        assert!(vm_targets.check(&processes, true).is_empty());
        assert!(vm_targets.runs_vm(ID) && !vm_targets.runs_vm(OTHER));
        vm_targets.check(&Processes::new(), false);
        assert!(vm_targets.known.is_empty());
    }

    #[test]
    fn vm_is_seen_by_its_mapped_virtual_cpu_at_once() {
        let root = root("232 kvm\n");
        let mut vm_targets = VmTargets::new(root.path());
        let mut processes = targets(&[ID]);
        processes.get_mut(&ID).unwrap().runs_vm = Some(false);
        create_vm(root.path());
        assert!(
            vm_targets.check(&processes, true).is_empty(),
            "its mappings are known"
        );
        processes.get_mut(&ID).unwrap().runs_vm = Some(true);
        assert_eq!(vm_targets.check(&processes, false).len(), 1);
        assert!(vm_targets.runs_vm(ID));
    }

    #[test]
    fn no_target_is_checked_without_kvm() {
        let root = root("200 tun\n");
        create_vm(root.path());
        let processes = targets(&[ID]);
        let mut vm_targets = VmTargets::new(root.path());
        assert!(vm_targets.check(&processes, false).is_empty() && vm_targets.known.is_empty());
        // The module is loaded later.
        fs::write(root.path().join("proc/misc"), "232 kvm\n").unwrap();
        assert_eq!(vm_targets.check(&processes, false).len(), 1);
    }

    #[test]
    fn idle_probes_of_vm_become_unknown() {
        let vm_targets = one_vm_target();
        let seen = [CheckResult::Idle, CheckResult::Accessed, CheckResult::Unknown];
        let probe = |target, seen| Probe {
            target,
            addr: Addr(4096),
            result: seen,
        };
        let probes = |target| seen.map(|seen| probe(target, seen));
        let mut all = [probes(ID), probes(OTHER)].concat();
        vm_targets.mark_unknown(&mut all);
        let marked: Vec<CheckResult> = all.iter().map(|probe| probe.result).collect();
        assert_eq!(
            marked[..3],
            [CheckResult::Unknown, CheckResult::Accessed, CheckResult::Unknown]
        );
        assert_eq!(marked[3..], seen);
    }

    #[test]
    fn idle_pages_of_vm_become_unknown() {
        use ScanResult::{Absent, Accessed, Idle, Unknown};
        let vm_targets = one_vm_target();
        let pages = [62, 63, 64, 65].map(|page| Addr(page * PAGE_SIZE));
        let scanned = |id| {
            let mut chunk = ScanChunk::default();
            chunk.reset(AddrRange::new(PAGE_SIZE, 100 * PAGE_SIZE));
            chunk.set(pages[0], true);
            chunk.set(pages[1], false);
            chunk.set_unknown(pages[2]);
            vm_targets.mark_pages_unknown(id, &mut chunk);
            pages.map(|addr| chunk.get(addr))
        };
        assert_eq!(scanned(ID), [Accessed, Unknown, Unknown, Absent]);
        assert_eq!(scanned(OTHER), [Accessed, Idle, Unknown, Absent]);
    }
}
