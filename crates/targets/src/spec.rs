//! What the user named.

use crate::layout::LayoutRule;

/// Which processes are targets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetSpec {
    /// These processes.
    pub pids: Vec<u32>,
    /// And their children, and theirs, those that appear later too. A child whose parent ended before it was seen
    /// has passed to another parent and is not found, unless `orphans` is set.
    pub children: bool,
    /// And all children of this program, which took orphans in ([`thermo_kernel::subreaper`]) and has no others: a
    /// command that sends itself to the background stays a target, also when its first process ended before the
    /// first look.
    pub orphans: bool,
    /// Every process of this control group and of those below it: a path below its mount, or its folder.
    pub cgroup: Option<String>,
    /// Every process of the machine but ourselves, pid 1, kernel threads and session programs.
    pub system: bool,
    /// Programs (by the kernel's name for them) that are left alone besides those, in `system` and `cgroup`.
    pub exclude: Vec<String>,
    /// What is monitored of each.
    pub layout: LayoutRule,
}

impl TargetSpec {
    /// These processes.
    #[must_use]
    pub fn of_pids(pids: &[u32]) -> Self {
        Self {
            pids: pids.to_vec(),
            ..Self::default()
        }
    }

    /// A command that was started for this, and its children.
    #[must_use]
    pub fn of_command(pid: u32) -> Self {
        Self {
            pids: vec![pid],
            children: true,
            ..Self::default()
        }
    }

    /// A control group.
    #[must_use]
    pub fn of_cgroup(path: &str) -> Self {
        Self {
            cgroup: Some(path.to_owned()),
            ..Self::default()
        }
    }

    /// The whole machine.
    #[must_use]
    pub fn of_system() -> Self {
        Self {
            system: true,
            ..Self::default()
        }
    }

    /// True when nothing is named.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.pids.is_empty() && self.cgroup.is_none() && !self.system
    }
}
