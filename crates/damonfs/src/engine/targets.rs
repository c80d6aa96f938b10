//! The targets of a kdamond, as the control files choose them: staged processes with optional ranges, or the
//! members of a control group or process tree. The operations are those of every other front end
//! ([`thermo_runtime::Vaddr`]).

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::{Path, PathBuf};

use thermo_engine::{TargetId, TargetLayout};
use thermo_kernel::pidfd::PidFd;
use thermo_kernel::{FileError, maps};
use thermo_targets::{LayoutRule, Processes, TargetSet, TrackedProcesses};
use thermo_units::AddrRange;

use super::build::{RangeSource, StagedTarget, TargetSelection};

/// The targets of a kdamond.
pub enum Targets {
    /// Named processes.
    Staged(StagedTargets),
    /// Processes that come and go; their pids if no further ones may join.
    Tracked(Box<TrackedProcesses>, Option<Vec<u32>>),
}

/// Staged targets. The number of a target's directory is its id.
pub struct StagedTargets {
    root: PathBuf,
    source: RangeSource,
    processes: Processes,
    /// Staged ranges by target. With [`RangeSource::Mappings`] the next update uses and removes them.
    ranges: Vec<Vec<AddrRange>>,
}

impl Targets {
    /// The targets of `selection`.
    pub fn new(root: &Path, selection: TargetSelection) -> Self {
        match selection {
            TargetSelection::Tracked(members, pids) => Self::Tracked(members, pids),
            TargetSelection::Staged(source, staged) => {
                let mut targets = StagedTargets {
                    root: root.to_owned(),
                    source,
                    processes: Processes::new(),
                    ranges: Vec::new(),
                };
                targets.commit(source, staged);
                Self::Staged(targets)
            }
        }
    }

    /// Applies newly staged targets. A target without new ranges keeps its old ones.
    pub fn commit(&mut self, source: RangeSource, staged: Vec<StagedTarget>) {
        if let Self::Staged(targets) = self {
            targets.commit(source, staged);
        }
    }

    /// The pids of the targets. `None` if further processes may join.
    pub fn pids(&self) -> Option<Vec<u32>> {
        match self {
            Self::Staged(targets) => Some(targets.processes.values().map(|process| process.pid).collect()),
            Self::Tracked(_, pids) => pids.clone(),
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

    fn update(&mut self) -> Vec<TargetLayout> {
        self.processes.retain(|_, process| pid_exists(&process.pidfd));
        let left: Vec<(TargetId, u32)> = self
            .processes
            .values()
            .map(|process| (process.id, process.pid))
            .collect();
        left.into_iter()
            .filter_map(|(id, pid)| self.layout(id, pid))
            .collect()
    }

    fn layout(&mut self, id: TargetId, pid: u32) -> Option<TargetLayout> {
        let staged = self.ranges.get_mut(id.0 as usize)?;
        let ranges = match self.source {
            RangeSource::Fixed => staged.clone(),
            RangeSource::Mappings if !staged.is_empty() => std::mem::take(staged),
            RangeSource::Mappings => LayoutRule::ThreeRegions.ranges(&maps::read(&self.root, pid).ok()?),
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

impl TargetSet for Targets {
    fn update(&mut self) -> Result<Vec<TargetLayout>, FileError> {
        match self {
            Self::Staged(targets) => Ok(targets.update()),
            Self::Tracked(members, _) => members.update(),
        }
    }

    fn take_warnings(&mut self) -> Vec<String> {
        match self {
            Self::Staged(_) => Vec::new(),
            Self::Tracked(members, _) => members.take_warnings(),
        }
    }

    fn processes(&self) -> &Processes {
        match self {
            Self::Staged(targets) => &targets.processes,
            Self::Tracked(members, _) => members.processes(),
        }
    }

    fn is_freshly_forked(&self, target: TargetId) -> bool {
        match self {
            Self::Staged(_) => false,
            Self::Tracked(members, _) => members.is_freshly_forked(target),
        }
    }

    fn clear_freshly_forked(&mut self) {
        if let Self::Tracked(members, _) = self {
            members.clear_freshly_forked();
        }
    }

    fn any_left(&self) -> bool {
        match self {
            Self::Staged(targets) => {
                let mut processes = targets.processes.values();
                processes.any(|process| pid_exists(&process.pidfd))
            }
            Self::Tracked(members, _) => members.any_left(),
        }
    }
}
