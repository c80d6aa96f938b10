//! The operations of a kdamond. Access checks and actions work as in every other front end. The control files
//! choose the targets: staged processes with optional ranges, or the members of a control group or process
//! tree.

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::{Path, PathBuf};

use thermo_actions::Actor;
use thermo_backends::Tracker;
use thermo_backends::interference::{Announcement, Interference};
use thermo_engine::action::Action;
use thermo_engine::ops::{CheckResult, NodeCount, Outcome, Probe, Request, TargetRange};
use thermo_engine::scheme::{Destination, SystemMetric};
use thermo_engine::{Operations, OpsError, TargetId, TargetLayout};
use thermo_kernel::maps;
use thermo_kernel::pidfd::PidFd;
use thermo_targets::{LayoutRule, Processes, TrackedProcesses, metric};
use thermo_units::{Addr, AddrRange};

use super::build::{RangeSource, StagedTarget, TargetSelection};

/// The operations of a kdamond of the control files.
pub struct Targets {
    root: PathBuf,
    selected: Selected,
    tracker: Box<dyn Tracker + Send>,
    actor: Actor,
    interference: Interference,
    warnings: Vec<String>,
    /// Announces this instance to other instances while it exists.
    _announcement: Announcement,
}

enum Selected {
    Staged(StagedTargets),
    Tracked(Box<TrackedProcesses>, Option<Vec<u32>>),
}

/// Staged targets. The number of a target's directory is its id.
struct StagedTargets {
    source: RangeSource,
    processes: Processes,
    /// Staged ranges by target. With [`RangeSource::Mappings`] the next update uses and removes them.
    ranges: Vec<Vec<AddrRange>>,
}

impl Targets {
    /// Operations on the targets of `selection`.
    pub fn new(
        root: PathBuf,
        selection: TargetSelection,
        tracker: Box<dyn Tracker + Send>,
        actor: Actor,
    ) -> Self {
        let selected = match selection {
            TargetSelection::Tracked(members, pids) => Selected::Tracked(members, pids),
            TargetSelection::Staged(source, staged) => {
                let mut targets = StagedTargets {
                    source,
                    processes: Processes::new(),
                    ranges: Vec::new(),
                };
                targets.commit(source, staged);
                Selected::Staged(targets)
            }
        };
        Self {
            interference: Interference::without_damon_files(&root),
            root,
            selected,
            tracker,
            actor,
            warnings: Vec::new(),
            _announcement: Announcement::make(),
        }
    }

    /// Applies newly staged targets. A target without new ranges keeps its old ones.
    pub fn commit(&mut self, source: RangeSource, staged: Vec<StagedTarget>) {
        if let Selected::Staged(targets) = &mut self.selected {
            targets.commit(source, staged);
        }
    }

    /// The pids of the targets. `None` if further processes may join.
    pub fn pids(&self) -> Option<Vec<u32>> {
        match &self.selected {
            Selected::Staged(targets) => {
                Some(targets.processes.values().map(|process| process.pid).collect())
            }
            Selected::Tracked(_, pids) => pids.clone(),
        }
    }
}

impl Selected {
    const fn processes(&self) -> &Processes {
        match self {
            Self::Staged(targets) => &targets.processes,
            Self::Tracked(members, _) => members.processes(),
        }
    }
}

impl StagedTargets {
    fn commit(&mut self, source: RangeSource, staged: Vec<StagedTarget>) {
        self.source = source;
        self.processes.retain(|id, _| (id.0 as usize) < staged.len());
        self.ranges.resize(staged.len(), Vec::new());
        for (target, ranges) in staged.into_iter().zip(&mut self.ranges) {
            if !target.ranges.is_empty() {
                *ranges = target.ranges;
            }
            self.processes.insert(target.process.id, target.process);
        }
    }

    fn update(&mut self, root: &Path) -> Vec<TargetLayout> {
        self.processes.retain(|_, process| pid_exists(&process.pidfd));
        let left: Vec<(TargetId, u32)> = self
            .processes
            .values()
            .map(|process| (process.id, process.pid))
            .collect();
        left.into_iter()
            .filter_map(|(id, pid)| self.layout(root, id, pid))
            .collect()
    }

    fn layout(&mut self, root: &Path, id: TargetId, pid: u32) -> Option<TargetLayout> {
        let staged = self.ranges.get_mut(id.0 as usize)?;
        let ranges = match self.source {
            RangeSource::Fixed => staged.clone(),
            RangeSource::Mappings if !staged.is_empty() => std::mem::take(staged),
            RangeSource::Mappings => LayoutRule::ThreeRegions.ranges(&maps::read(root, pid).ok()?),
        };
        Some(TargetLayout::new(id, Some(pid), ranges))
    }
}

/// Returns true if a process is alive or a zombie. The kernel's kdamonds also run until the parent has reaped
/// the target, and scripts rely on it: they query a kdamond until they have waited for their child.
pub fn pid_exists(process: &PidFd) -> bool {
    process.is_alive() || is_zombie(process)
}

fn is_zombie(process: &PidFd) -> bool {
    let fd = process.as_fd().as_raw_fd();
    // A reaped process has `Pid: -1`.
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"));
    pid.and_then(|pid| pid.trim().parse::<u32>().ok())
        .is_some_and(|pid| pid > 0)
}

impl Operations for Targets {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        let layouts = match &mut self.selected {
            Selected::Staged(targets) => targets.update(&self.root),
            Selected::Tracked(members, _) => {
                let layouts = members
                    .update()
                    .map_err(|error| OpsError::Failed(error.to_string()))?;
                self.warnings.extend(members.take_warnings());
                layouts
            }
        };
        let targets = self.selected.processes();
        self.warnings
            .extend(self.interference.take_warnings(targets, self.tracker.as_ref()));
        Ok(layouts)
    }

    fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    fn prepare_access_checks(&mut self, probes: &[Probe]) {
        self.tracker.prepare(self.selected.processes(), probes);
    }

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        self.tracker.check(self.selected.processes(), probes);
        self.interference.mark_unknown(probes);
        if let Selected::Tracked(members, _) = &mut self.selected {
            let forked = probes
                .iter_mut()
                .filter(|probe| members.is_freshly_forked(probe.target));
            forked.for_each(|probe| probe.result = CheckResult::Unknown);
            members.clear_freshly_forked();
        }
    }

    fn any_target_left(&mut self) -> bool {
        match &self.selected {
            Selected::Staged(targets) => {
                let mut processes = targets.processes.values();
                processes.any(|process| pid_exists(&process.pidfd))
            }
            Selected::Tracked(members, _) => members.any_left(),
        }
    }

    fn pending(&mut self, action: Action, destinations: &[Destination], run: &TargetRange) -> Vec<AddrRange> {
        let process = self.selected.processes().get(&run.target);
        process.map_or_else(Vec::new, |process| match action.migrates() {
            true => self.actor.pending_migration(process, destinations, run.range),
            false => self.actor.pending(process, action, run, self.tracker.inspector()),
        })
    }

    fn count_on_node(&mut self, nid: u32, pages: &[(TargetId, Addr)]) -> Result<NodeCount, OpsError> {
        self.actor.count_on_node(self.selected.processes(), nid, pages)
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        let tables = self.tracker.inspector();
        self.actor.apply(self.selected.processes(), request, tables)
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        metric::read(&self.root, metric)
    }
}
