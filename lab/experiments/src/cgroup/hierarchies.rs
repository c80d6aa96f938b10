//! Finds the mounted cgroup hierarchies: version 1, version 2, or both.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;

/// The mount points in which cgroups are created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchies {
    pub(super) memory: PathBuf,
    pub(super) cpu: Option<PathBuf>,
    /// Mount point of version 2 when the memory controller is in version 1. Its cgroups have memory pressure
    /// (PSI) without any controller.
    pub(super) psi: Option<PathBuf>,
    pub(super) is_v2: bool,
}

impl Hierarchies {
    /// Finds the hierarchies of this host.
    ///
    /// # Errors
    /// When no memory controller is mounted.
    pub fn detect() -> Result<Self, Error> {
        let mounts = fs::read_to_string("/proc/self/mounts")
            .map_err(|error| Error::Cgroup(format!("cannot read /proc/self/mounts: {error}")))?;
        Self::in_mounts(&mounts, |path| fs::read_to_string(path).ok()).ok_or_else(|| {
            Error::Cgroup(
                "no memory controller is mounted (see /proc/self/mounts). Mount one: version 2 with `mount -t \
                 cgroup2 none /sys/fs/cgroup`, or version 1 with `mkdir -p /sys/fs/cgroup/memory && mount -t \
                 cgroup -o memory none /sys/fs/cgroup/memory`"
                    .into(),
            )
        })
    }

    /// Finds the hierarchies in the text of `/proc/self/mounts`. `read` returns the text of other files.
    fn in_mounts(mounts: &str, read: impl Fn(&Path) -> Option<String>) -> Option<Self> {
        let mounted = |kind: &str, controller: &str| {
            mounts.lines().find_map(|line| {
                let mut fields = line.split(' ').skip(1);
                let (path, this_kind, options) = (Path::new(fields.next()?), fields.next()?, fields.next()?);
                let has = match kind {
                    "cgroup2" => read(&path.join("cgroup.controllers"))?
                        .split_whitespace()
                        .any(|offered| offered == controller),
                    _ => options.split(',').any(|option| option == controller),
                };
                (this_kind == kind && has).then(|| path.to_owned())
            })
        };
        if let Some(memory) = mounted("cgroup", "memory") {
            return Some(Self {
                memory,
                cpu: mounted("cgroup", "cpuacct"),
                psi: version_2(mounts),
                is_v2: false,
            });
        }
        let memory = mounted("cgroup2", "memory")?;
        Some(Self {
            cpu: Some(memory.clone()),
            memory,
            psi: None,
            is_v2: true,
        })
    }
}

/// The mount point of version 2.
fn version_2(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let path = fields.next()?;
        (fields.next()? == "cgroup2").then(|| path.into())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn version_1_with_memory_controller_is_preferred() {
        let v1 = "cgroup /c/cpuacct cgroup rw,cpuacct 0 0\ncgroup /c/memory cgroup rw,memory 0 0\nn /c/u cgroup2 rw 0 0\n";
        let found = Hierarchies::in_mounts(v1, |_| Some("cpu\n".into())).unwrap();
        assert_eq!(
            found,
            Hierarchies {
                memory: "/c/memory".into(),
                cpu: Some("/c/cpuacct".into()),
                psi: Some("/c/u".into()),
                is_v2: false
            }
        );
        let v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let found = Hierarchies::in_mounts(v2, |_| Some("cpu memory pids\n".into())).unwrap();
        assert!(found.is_v2 && found.cpu.is_some());
        assert_eq!(Hierarchies::in_mounts(v2, |_| Some("cpu\n".into())), None);
        assert_eq!(Hierarchies::in_mounts("", |_| None), None);
    }
}
