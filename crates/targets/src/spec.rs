//! The processes that the user selected.

use crate::layout::LayoutRule;

/// Which processes are targets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetSpec {
    /// Processes by number.
    pub pids: Vec<u32>,
    /// Also all descendants of `pids`, including later ones. A child whose parent ended before an update
    /// found the child has a new parent, and is found only if `orphans` is set.
    pub children: bool,
    /// Also all children of this program. It must be a child subreaper ([`thermo_kernel::subreaper`]) without
    /// other children. A command that goes to the background then stays a target, even if its first process
    /// ended before the first update.
    pub orphans: bool,
    /// All processes of this control group and of the groups below it: a path below the mount of the
    /// hierarchy, or a directory.
    pub cgroup: Option<String>,
    /// Whether targets are waited for after the control group was removed: it may be created again.
    pub waits_for_cgroup: bool,
    /// All processes of the machine except this program, pid 1, kernel threads and session programs.
    pub system: bool,
    /// Another part of the program selects processes while it runs ([`crate::TrackedProcesses::select`]).
    /// Targets are waited for when there are none.
    pub selected: bool,
    /// Further programs to exclude from `system` and `cgroup`, by the kernel's name for them (`comm`).
    pub exclude: Vec<String>,
    /// Which ranges of each process are monitored.
    pub layout: LayoutRule,
}

impl TargetSpec {
    /// Selects processes by number.
    #[must_use]
    pub fn for_pids(pids: &[u32]) -> Self {
        Self {
            pids: pids.to_vec(),
            ..Self::default()
        }
    }

    /// Selects a started command and its descendants.
    #[must_use]
    pub fn for_command(pid: u32) -> Self {
        Self {
            pids: vec![pid],
            children: true,
            ..Self::default()
        }
    }

    /// Selects the processes of a control group.
    #[must_use]
    pub fn for_cgroup(path: &str) -> Self {
        Self {
            cgroup: Some(path.to_owned()),
            ..Self::default()
        }
    }

    /// Selects what [`crate::TrackedProcesses::select`] names.
    #[must_use]
    pub fn for_selection() -> Self {
        Self {
            selected: true,
            ..Self::default()
        }
    }

    /// Selects all processes of the machine.
    #[must_use]
    pub fn for_system() -> Self {
        Self {
            system: true,
            ..Self::default()
        }
    }

    /// True if nothing is selected.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.pids.is_empty() && self.cgroup.is_none() && !self.system && !self.selected
    }
}
