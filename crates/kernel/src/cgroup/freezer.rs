//! Whether a process is frozen with its control group, version 1 and 2.

use std::path::{Path, PathBuf};

use super::{Version, below, is_outside, mounts};
use crate::file::{self, FileError};
use crate::proc;

/// The hierarchies that can freeze groups on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freezers {
    root: PathBuf,
    v1: Option<PathBuf>,
    v2: Option<PathBuf>,
}

impl Freezers {
    /// Finds them on the machine at `root`.
    ///
    /// # Errors
    /// Fails if `/proc/mounts` cannot be read.
    pub fn find(root: &Path) -> Result<Self, FileError> {
        let mounts = mounts(root)?;
        let has = |name: &str| {
            mounts
                .iter()
                .find(|mount| mount.controllers.iter().any(|one| one == name))
        };
        let v2 = mounts.iter().find(|mount| mount.version == Version::V2);
        Ok(Self {
            root: root.to_owned(),
            v1: has("freezer")
                .filter(|mount| mount.version == Version::V1)
                .map(|mount| mount.dir.clone()),
            v2: v2.map(|mount| mount.dir.clone()),
        })
    }

    /// Whether process `pid` is frozen by its group or an ancestor; `None` if no hierarchy reports it.
    #[must_use]
    pub fn is_frozen(&self, pid: u32) -> Option<bool> {
        let text = proc::text(&self.root, pid, "cgroup").ok()?;
        let states = text
            .lines()
            .filter_map(|line| self.frozen_state(line))
            .collect::<Vec<bool>>();
        (!states.is_empty()).then(|| states.contains(&true))
    }

    /// The state for a line of `/proc/PID/cgroup`: `4:freezer:/path` or `0::/path`.
    fn frozen_state(&self, line: &str) -> Option<bool> {
        let mut fields = line.splitn(3, ':');
        let (nr, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        if is_outside(path) {
            return None;
        }
        if nr == "0" && controllers.is_empty() {
            let events = file::text(&below(self.v2.as_ref()?, path).join("cgroup.events")).ok()?;
            let frozen = events.lines().find_map(|line| line.strip_prefix("frozen "))?;
            return Some(frozen.trim() == "1");
        }
        if !controllers.split(',').any(|one| one == "freezer") {
            return None;
        }
        // The root group has no such file: it cannot be frozen.
        let state = file::text(&below(self.v1.as_ref()?, path).join("freezer.state")).ok()?;
        Some(state.trim() == "FROZEN")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::fs;

    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn frozen_state_is_read_in_both_versions() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        put(
            root,
            "proc/mounts",
            "cgroup /c/freezer cgroup rw,freezer 0 0\ncgroup2 /c/u cgroup2 rw 0 0\n",
        );
        put(root, "proc/7/cgroup", "3:freezer:/a\n0::/b\n");
        put(root, "proc/8/cgroup", "3:freezer:/\n2:memory:/x\n");
        put(root, "c/freezer/a/freezer.state", "THAWED\n");
        put(root, "c/u/b/cgroup.events", "populated 1\nfrozen 0\n");
        let freezers = Freezers::find(root).unwrap();
        assert_eq!(freezers.is_frozen(7), Some(false));
        put(root, "c/u/b/cgroup.events", "populated 1\nfrozen 1\n");
        assert_eq!(freezers.is_frozen(7), Some(true));
        put(root, "c/u/b/cgroup.events", "populated 1\nfrozen 0\n");
        put(root, "c/freezer/a/freezer.state", "FROZEN\n");
        assert_eq!(freezers.is_frozen(7), Some(true));
        put(root, "proc/10/cgroup", "3:freezer:/../a\n0::/../b\n");
        assert_eq!(freezers.is_frozen(10), None, "outside of our cgroup namespace");
        assert_eq!((freezers.is_frozen(8), freezers.is_frozen(9)), (None, None));
    }
}
