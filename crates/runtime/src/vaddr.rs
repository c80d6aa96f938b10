//! The [`Operations`] on address spaces of real processes: targets, tracker and actions combined (the
//! kernel's `DAMON_OPS_VADDR`).

use std::path::{Path, PathBuf};

use thermo_actions::{Actor, Returns};
use thermo_backends::Tracker;
use thermo_backends::interference::{Announcement, Interference};
use thermo_engine::ops::TargetRange;
use thermo_engine::ops::{CheckResult, NodeCount, Outcome, Probe, Request};
use thermo_engine::scan::{Preparation, ScanChunk};
use thermo_engine::scheme::{Destination, SystemMetric};
use thermo_engine::{Action, Operations, OpsError, TargetId, TargetLayout};
use thermo_targets::{TargetSet, TrackedProcesses, metric};
use thermo_units::{Addr, AddrRange, Nanos};

/// Operations on address spaces of processes.
pub struct Vaddr<T = TrackedProcesses> {
    root: PathBuf,
    targets: T,
    tracker: Box<dyn Tracker + Send>,
    actor: Actor,
    interference: Interference,
    warnings: Vec<String>,
    /// Announces this instance to other instances.
    _announcement: Announcement,
}

impl<T: TargetSet> Vaddr<T> {
    /// Monitors `targets` with `tracker`, and applies actions to them with `actor`.
    #[must_use]
    pub fn new(root: &Path, targets: T, tracker: Box<dyn Tracker + Send>, actor: Actor) -> Self {
        Self {
            root: root.to_owned(),
            targets,
            tracker,
            actor,
            interference: Interference::new(root),
            warnings: Vec::new(),
            _announcement: Announcement::make(),
        }
    }

    /// The same operations for a process that serves DAMON's control files itself, and so does not read
    /// those of the kernel.
    #[must_use]
    pub fn without_damon_files(mut self) -> Self {
        self.interference = Interference::without_damon_files(&self.root);
        self
    }

    /// The targets.
    pub const fn targets(&self) -> &T {
        &self.targets
    }

    /// The targets, to select others. Call [`thermo_engine::Context::update_targets_next`] afterwards.
    pub const fn targets_mut(&mut self) -> &mut T {
        &mut self.targets
    }

    /// Changes whether actions are only counted.
    pub const fn set_dry_run(&mut self, dry_run: bool) {
        self.actor.set_dry_run(dry_run);
    }

    /// What came back since the last call of the memory that was paged out; see [`Actor::check_returns`].
    pub fn check_returns(&mut self, now: Nanos) -> Vec<(TargetId, Returns)> {
        self.actor.check_returns(self.targets.processes(), now)
    }

    /// The targets, after monitoring has ended.
    #[must_use]
    pub fn into_targets(self) -> T {
        self.targets
    }
}

impl<T: TargetSet> Operations for Vaddr<T> {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        let layouts = self
            .targets
            .update()
            .map_err(|err| OpsError::Failed(err.to_string()))?;
        self.warnings.extend(self.targets.take_warnings());
        let targets = self.targets.processes();
        self.tracker.keep_only(targets);
        self.warnings
            .extend(self.interference.take_warnings(targets, self.tracker.as_ref()));
        Ok(layouts)
    }

    fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    fn prepare_access_checks(&mut self, probes: &[Probe]) {
        self.tracker.prepare(self.targets.processes(), probes);
    }

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        self.tracker.check(self.targets.processes(), probes);
        self.interference.mark_unknown(probes);
        let targets = &mut self.targets;
        probes
            .iter_mut()
            .filter(|probe| targets.is_freshly_forked(probe.target))
            .for_each(|probe| probe.result = CheckResult::Unknown);
        targets.clear_freshly_forked();
    }

    fn can_scan(&self) -> bool {
        self.tracker.can_scan()
    }

    fn scans_jointly(&self) -> bool {
        self.tracker.scans_jointly()
    }

    fn prepare_passes(&mut self, first: bool) -> Preparation {
        self.tracker.prepare_walk(self.targets.processes(), first)
    }

    fn begin_pass(&mut self, target: TargetId) {
        if let Some(process) = self.targets.processes().get(&target) {
            self.tracker.begin_pass(process);
        }
    }

    fn scan(&mut self, target_range: &TargetRange, chunk: &mut ScanChunk) -> Addr {
        let process = self.targets.processes().get(&target_range.target);
        let next = process.map_or(target_range.range.end, |process| {
            self.tracker.scan(process, target_range.range, chunk)
        });
        self.interference.mark_pages_unknown(target_range.target, chunk);
        next
    }

    fn is_held(&self, target: TargetId) -> bool {
        let process = self.targets.processes().get(&target);
        process.is_some_and(|process| self.actor.is_held(process.pid))
    }

    fn any_target_left(&mut self) -> bool {
        self.targets.any_left()
    }

    fn pending(
        &mut self,
        action: Action,
        destinations: &[Destination],
        target_range: &TargetRange,
    ) -> Vec<AddrRange> {
        let Some(process) = self.targets.processes().get(&target_range.target) else {
            return Vec::new();
        };
        if action.migrates() {
            return self
                .actor
                .pending_migration(process, destinations, target_range.range);
        }
        self.actor
            .pending(process, action, target_range, self.tracker.inspector())
    }

    fn count_on_node(&mut self, nid: u32, pages: &[(TargetId, Addr)]) -> Result<NodeCount, OpsError> {
        self.actor.count_on_node(self.targets.processes(), nid, pages)
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        let inspector = self.tracker.inspector();
        self.actor.apply(self.targets.processes(), request, inspector)
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        metric::read(&self.root, metric)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::{Child, Command};

    use thermo_actions::PageoutLimits;
    use thermo_targets::Processes;
    use thermo_targets::TargetSpec;

    /// A tracker that reports every page as idle.
    struct AllIdle {
        sees_guests: bool,
    }

    impl Tracker for AllIdle {
        fn prepare(&mut self, _: &Processes, _: &[Probe]) {}

        fn check(&mut self, _: &Processes, probes: &mut [Probe]) {
            probes
                .iter_mut()
                .for_each(|probe| probe.result = CheckResult::Idle);
        }

        fn sees_guests(&self) -> bool {
            self.sees_guests
        }
    }

    /// A fake root in which `child` runs a virtual machine.
    fn fake_host(child: &Child) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let process = format!("proc/{}", child.id());
        fs::create_dir_all(root.path().join(&process).join("fd")).unwrap();
        for name in ["stat", "status", "maps"].map(|name| format!("{process}/{name}")) {
            fs::copy(Path::new("/").join(&name), root.path().join(&name)).unwrap();
        }
        symlink("anon_inode:kvm-vm", root.path().join(&process).join("fd/12")).unwrap();
        let maps = root.path().join(process).join("maps");
        let virtual_cpu = "1000-4000 rw-s 00000000 00:0e 1 anon_inode:kvm-vcpu:0\n";
        let others = fs::read_to_string(&maps).unwrap();
        fs::write(maps, virtual_cpu.to_owned() + &others).unwrap();
        fs::write(root.path().join("proc/misc"), "232 kvm\n").unwrap();
        root
    }

    /// The warnings about a host, and the result of an access check of its target.
    fn warnings_and_access(root: &Path, child: &Child, sees_guests: bool) -> (Vec<String>, CheckResult) {
        let targets = TrackedProcesses::new(root, TargetSpec::for_pids(&[child.id()])).unwrap();
        let actor = Actor::new(PageoutLimits::default(), true);
        let mut ops = Vaddr::new(root, targets, Box::new(AllIdle { sees_guests }), actor);
        assert_eq!(ops.update().unwrap().len(), 1);
        let warnings = ops.take_warnings();
        ops.update().unwrap();
        assert!(ops.take_warnings().is_empty(), "one warning");
        let mut probes = [Probe {
            target: TargetId(0),
            addr: Addr(4096),
            result: CheckResult::Accessed,
        }];
        ops.prepare_access_checks(&probes);
        ops.check_accesses(&mut probes);
        (warnings, probes[0].result)
    }

    #[test]
    fn memory_of_virtual_machines_is_unknown_not_idle() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let root = fake_host(&child);
        let (warnings, seen) = warnings_and_access(root.path(), &child, false);
        assert!(
            warnings.len() == 1 && warnings[0].contains("virtual machine"),
            "{warnings:?}"
        );
        assert_eq!(seen, CheckResult::Unknown);
        assert_eq!(
            warnings_and_access(root.path(), &child, true),
            (Vec::new(), CheckResult::Idle)
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
