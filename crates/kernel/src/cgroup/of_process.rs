//! The groups of a process (proc_pid_cgroup(5)).

use std::path::Path;

use crate::ProcError;
use crate::proc;

use super::{Group, Mount, Version, below, is_outside, mounts};
use crate::file;

impl Group {
    /// The groups of process `pid`, or of this process: the version 1 group in the hierarchy of `controller`,
    /// if any, and the version 2 group. Without groups outside of our cgroup namespace. Empty if they cannot
    /// be read.
    #[must_use]
    pub fn of_process(root: &Path, pid: Option<u32>, controller: &str) -> Vec<Self> {
        let process = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        let text = file::text(&root.join("proc").join(process).join("cgroup")).unwrap_or_default();
        let paths = text.lines().filter_map(GroupPath::parse);
        let of_controller = paths.filter(|path| path.may_control(controller));
        let mounts = mounts(root).unwrap_or_default();
        of_controller
            .filter_map(|path| Self::at(&mounts, &path))
            .collect()
    }

    /// The group that `path` names, by the mounts of [`mounts`]; `None` if it is outside of our cgroup
    /// namespace, was removed, or its hierarchy is not mounted.
    #[must_use]
    pub fn at(mounts: &[Mount], path: &GroupPath) -> Option<Self> {
        let is_hierarchy = |mount: &&Mount| match mount.version {
            Version::V1 => mount.controllers.iter().any(|controller| path.has(controller)),
            Version::V2 => path.is_unified(),
        };
        let mount = mounts
            .iter()
            .find(is_hierarchy)
            .filter(|_| !is_outside(&path.path))?;
        let group = Self {
            version: mount.version,
            dir: below(&mount.dir, &path.path),
        };
        (path.is_unified() || group.exists()).then_some(group)
    }
}

/// A control group of a process, as `/proc/PID/cgroup` names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupPath {
    /// The controllers of the hierarchy, for example `memory` or `name=systemd`; empty for version 2.
    pub controllers: String,
    /// The path from the mount of the hierarchy, with a leading `/`.
    pub path: String,
}

impl GroupPath {
    /// From a line of `/proc/PID/cgroup`.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        Some(Self { controllers, path })
    }

    /// Whether it is a group of version 2.
    #[must_use]
    pub const fn is_unified(&self) -> bool {
        self.controllers.is_empty()
    }

    /// Whether it may have the files of `controller`: the group of version 2, or that in the hierarchy of the
    /// controller.
    #[must_use]
    pub fn may_control(&self, controller: &str) -> bool {
        self.is_unified() || self.has(controller)
    }

    /// Whether `controller` is one of the controllers of its hierarchy, of version 1.
    #[must_use]
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.split(',').any(|one| one == controller)
    }
}

/// The control groups of process `pid`, one for each hierarchy. See cgroups(7).
///
/// # Errors
/// [`ProcError::Gone`] if the process has ended.
pub fn paths(root: &Path, pid: u32) -> Result<Vec<GroupPath>, ProcError> {
    let text = proc::text(root, pid, "cgroup")?;
    Ok(text.lines().filter_map(GroupPath::parse).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn of_process_returns_one_group_per_hierarchy() {
        let root = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        file(
            "proc/mounts",
            "memory /sys/fs/cgroup/memory cgroup rw,memory 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n",
        );
        file("proc/5/cgroup", "3:cpu,cpuacct:/other\n2:memory:/svc\n0::/new\n");
        file("sys/fs/cgroup/memory/svc/cgroup.procs", "5\n");
        let dirs = |controller| {
            let groups = Group::of_process(root.path(), Some(5), controller);
            let below = |group: Group| group.dir.strip_prefix(root.path()).unwrap().display().to_string();
            groups.into_iter().map(below).collect::<Vec<_>>()
        };
        assert_eq!(
            dirs("memory"),
            ["sys/fs/cgroup/memory/svc", "sys/fs/cgroup/unified/new"]
        );
        let groups = Group::of_process(root.path(), Some(5), "memory");
        assert_eq!(groups[0].path(root.path()).unwrap(), "/svc");
        assert_eq!(dirs(""), ["sys/fs/cgroup/unified/new"]);
        assert_eq!(Group::of_process(root.path(), None, "memory"), Vec::new());
        file("proc/5/cgroup", "2:memory:/../svc\n0::/../new\n");
        assert_eq!(dirs("memory"), [""; 0], "outside of our cgroup namespace");
    }
}
