//! Messages about the control group whose processes are the targets: a service manager removes the group when
//! the service stops, and creates the group again when the service starts.

use std::path::Path;

use thermo_kernel::cgroup::Group;

use crate::args::Targets;

/// A control group that the session waits for while the group does not exist.
#[derive(Debug)]
pub struct CgroupWait {
    path: String,
    group: Group,
    exists: bool,
}

impl CgroupWait {
    /// The group of `targets`; `None` if the session ends with the group, or without a group.
    pub fn new(root: &Path, targets: &Targets) -> Option<Self> {
        let path = targets.cgroup.clone().filter(|_| targets.waits_for_cgroup)?;
        // A group that is gone already was checked before, and ends the session by itself.
        let group = Group::find(root, &path).ok()?;
        Some(Self {
            path,
            group,
            exists: true,
        })
    }

    /// A sentence if the group was removed or created again since the last call. `has_targets`: whether
    /// processes are still monitored; the kdamond thread finds out later that they left.
    pub fn change(&mut self, has_targets: impl FnOnce() -> bool) -> Option<String> {
        let exists = self.group.exists() || (self.exists && has_targets());
        let existed = std::mem::replace(&mut self.exists, exists);
        let path = &self.path;
        match (existed, self.exists) {
            (true, false) => Some(format!(
                "control group {path} was removed: waiting for it to be created again (--once ends here instead)"
            )),
            (false, true) => Some(format!(
                "control group {path} exists again: its processes are monitored"
            )),
            _ => None,
        }
    }
}
