//! Address spaces of real processes: who they are, how they are looked at, what is done to them, put together
//! as the operations a context asks (the kernel's `DAMON_OPS_VADDR`).

use std::path::{Path, PathBuf};

use thermo_actions::Actor;
use thermo_backends::Tracker;
use thermo_backends::interference::{Announcement, Interference};
use thermo_engine::ops::TargetRange;
use thermo_engine::ops::{Outcome, Probe, Request, Seen};
use thermo_engine::scan::{Preparation, ScanChunk};
use thermo_engine::scheme::SystemMetric;
use thermo_engine::{Action, Operations, OpsError, TargetId, TargetLayout};
use thermo_targets::{TrackedProcesses, metric};
use thermo_units::{Addr, AddrRange};

/// The operations on address spaces of processes.
pub struct Vaddr {
    root: PathBuf,
    members: TrackedProcesses,
    tracker: Box<dyn Tracker + Send>,
    actor: Actor,
    interference: Interference,
    news: Vec<String>,
    /// So that other instances know of this one.
    _announcement: Announcement,
}

impl Vaddr {
    /// Looks at `members` by `tracker` and acts on them by `actor`.
    #[must_use]
    pub fn new(
        root: &Path,
        members: TrackedProcesses,
        tracker: Box<dyn Tracker + Send>,
        actor: Actor,
    ) -> Self {
        Self {
            root: root.to_owned(),
            members,
            tracker,
            actor,
            interference: Interference::new(root),
            news: Vec::new(),
            _announcement: Announcement::make(),
        }
    }

    /// The targets, when there is nothing more to watch.
    #[must_use]
    pub fn into_members(self) -> TrackedProcesses {
        self.members
    }
}

impl Operations for Vaddr {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        let layouts = self
            .members
            .update()
            .map_err(|err| OpsError::Failed(err.to_string()))?;
        self.news.extend(self.members.take_news());
        let targets = self.members.processes();
        self.tracker.keep_only(targets);
        self.news
            .extend(self.interference.take_warnings(targets, self.tracker.as_ref()));
        Ok(layouts)
    }

    fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    fn prepare_access_checks(&mut self, probes: &[Probe]) {
        self.tracker.prepare(self.members.processes(), probes);
    }

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        self.tracker.check(self.members.processes(), probes);
        self.interference.mark_unknown(probes);
        for probe in probes
            .iter_mut()
            .filter(|probe| self.members.is_fresh(probe.target))
        {
            probe.seen = Seen::Unknown;
        }
        self.members.looked_at();
    }

    fn can_scan(&self) -> bool {
        self.tracker.can_scan()
    }

    fn scans_jointly(&self) -> bool {
        self.tracker.scans_jointly()
    }

    fn prepare_passes(&mut self, first: bool) -> Preparation {
        self.tracker.prepare_walk(self.members.processes(), first)
    }

    fn begin_pass(&mut self, target: TargetId) {
        if let Some(process) = self.members.processes().get(&target) {
            self.tracker.begin_pass(process);
        }
    }

    fn scan(&mut self, run: &TargetRange, chunk: &mut ScanChunk) -> Addr {
        let process = self.members.processes().get(&run.target);
        let next = process.map_or(run.range.end, |process| {
            self.tracker.scan(process, run.range, chunk)
        });
        self.interference.mark_pages_unknown(run.target, chunk);
        next
    }

    fn any_target_left(&mut self) -> bool {
        self.members.any_left()
    }

    fn pending(&mut self, action: Action, run: &TargetRange) -> Vec<AddrRange> {
        let Some(process) = self.members.processes().get(&run.target) else {
            return Vec::new();
        };
        self.actor.pending(process, action, run, self.tracker.inspector())
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        let tables = self.tracker.inspector();
        self.actor.apply(self.members.processes(), request, tables)
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

    /// Finds everything idle.
    struct Idle {
        sees_guests: bool,
    }

    impl Tracker for Idle {
        fn prepare(&mut self, _: &Processes, _: &[Probe]) {}

        fn check(&mut self, _: &Processes, probes: &mut [Probe]) {
            probes.iter_mut().for_each(|probe| probe.seen = Seen::Idle);
        }

        fn sees_guests(&self) -> bool {
            self.sees_guests
        }
    }

    /// A machine on which `child` has a virtual machine open.
    fn host_of(child: &Child) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let process = format!("proc/{}", child.id());
        fs::create_dir_all(root.path().join(&process).join("fd")).unwrap();
        for name in ["stat", "status", "maps"].map(|name| format!("{process}/{name}")) {
            fs::copy(Path::new("/").join(&name), root.path().join(&name)).unwrap();
        }
        symlink("anon_inode:kvm-vm", root.path().join(process).join("fd/12")).unwrap();
        fs::write(root.path().join("proc/misc"), "232 kvm\n").unwrap();
        root
    }

    /// What is told of a host, and what a look at its target finds.
    fn look(root: &Path, child: &Child, sees_guests: bool) -> (Vec<String>, Seen) {
        let members = TrackedProcesses::new(root, TargetSpec::of_pids(&[child.id()])).unwrap();
        let actor = Actor::new(PageoutLimits::default(), true);
        let mut ops = Vaddr::new(root, members, Box::new(Idle { sees_guests }), actor);
        assert_eq!(ops.update().unwrap().len(), 1);
        let news = ops.news();
        ops.update().unwrap();
        assert!(ops.news().is_empty(), "it is told once");
        let mut probes = [Probe {
            target: TargetId(0),
            addr: Addr(4096),
            seen: Seen::Accessed,
        }];
        ops.prepare_access_checks(&probes);
        ops.check_accesses(&mut probes);
        (news, probes[0].seen)
    }

    #[test]
    fn what_guests_touch_does_not_pass_for_idle() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let root = host_of(&child);
        let (news, seen) = look(root.path(), &child, false);
        assert!(news.len() == 1 && news[0].contains("virtual machine"), "{news:?}");
        assert_eq!(seen, Seen::Unknown);
        assert_eq!(look(root.path(), &child, true), (Vec::new(), Seen::Idle));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
