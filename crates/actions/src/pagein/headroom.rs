//! Memory that must stay available while pages come back: of the machine, and below the limits of control
//! groups.

use std::fmt;
use std::path::{Path, PathBuf};

use thermo_kernel::cgroup::Group;
use thermo_kernel::file::FileError;
use thermo_kernel::memcg::Memcg;
use thermo_kernel::meminfo;
use thermo_units::{Bytes, Permille};

/// Too little memory is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shortage {
    /// Of the machine.
    Machine {
        /// `MemAvailable`.
        available: Bytes,
        /// What must stay.
        floor: Bytes,
    },
    /// Below the limit of a control group.
    Group {
        /// The folder of the group.
        dir: PathBuf,
        /// Memory below the limit; page cache counts as free.
        available: Bytes,
        /// What must stay.
        floor: Bytes,
    },
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine { available, floor } => write!(
                f,
                "{available} of memory is available, and {floor} must stay so (--keep-available)"
            ),
            Self::Group {
                dir,
                available,
                floor,
            } => write!(
                f,
                "{available} is left below the limit of {}, and {floor} must stay (--keep-available)",
                dir.display()
            ),
        }
    }
}

/// The limits for one process.
#[derive(Debug)]
pub(super) struct Headroom {
    root: PathBuf,
    keep: Permille,
    groups: Vec<Memcg>,
}

impl Headroom {
    /// The limits that hold for process `pid`. Without a memory controller only the machine counts.
    pub(super) fn new(root: &Path, pid: u32, keep: Permille) -> Result<Self, FileError> {
        let mut groups = Vec::new();
        for group in Group::of_process(root, Some(pid), "memory") {
            groups.extend(Memcg::with_limits(&group)?);
        }
        Ok(Self {
            root: root.to_owned(),
            keep,
            groups,
        })
    }

    /// The shortage that `more` bytes would cause, if any.
    pub(super) fn shortage(&self, more: Bytes) -> Result<Option<Shortage>, FileError> {
        let info = meminfo::read(&self.root)?;
        let floor = self.share(info.total);
        if info.available < floor + more {
            let available = info.available;
            return Ok(Some(Shortage::Machine { available, floor }));
        }
        for group in &self.groups {
            let Some(limit) = group.effective_limit()? else {
                continue;
            };
            let (usage, floor) = (group.usage()?, self.share(limit));
            if limit.saturating_sub(usage) >= floor + more {
                continue;
            }
            let available = limit.saturating_sub(usage.saturating_sub(group.reclaimable_file()?));
            if available < floor + more {
                let dir = group.dir().to_owned();
                return Ok(Some(Shortage::Group {
                    dir,
                    available,
                    floor,
                }));
            }
        }
        Ok(None)
    }

    fn share(&self, of: Bytes) -> Bytes {
        let bytes = u128::from(of.0) * u128::from(self.keep.0) / 1000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn machine(available: u64, usage: u64) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("sys/fs/cgroup/svc");
        std::fs::create_dir_all(&group).unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let put = |name: &str, text: String| std::fs::write(root.path().join(name), text).unwrap();
        put(
            "proc/meminfo",
            format!("MemTotal: 1024000 kB\nMemAvailable: {} kB\n", available << 10),
        );
        put(
            "proc/mounts",
            "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n".to_owned(),
        );
        put("proc/7/cgroup", "0::/svc\n".to_owned());
        put("sys/fs/cgroup/cgroup.controllers", "memory\n".to_owned());
        put("sys/fs/cgroup/svc/cgroup.procs", "7\n".to_owned());
        put("sys/fs/cgroup/svc/memory.max", "104857600\n".to_owned());
        put("sys/fs/cgroup/svc/memory.current", format!("{}\n", usage << 20));
        put(
            "sys/fs/cgroup/svc/memory.stat",
            "anon 0\ninactive_file 5242880\nactive_file 0\n".to_owned(),
        );
        root
    }

    #[test]
    fn shortage_counts_machine_and_group() {
        for (available, usage, expected) in [
            (500, 50, None),
            (
                104,
                50,
                Some("104 MiB of memory is available, and 100 MiB must stay so (--keep-available)"),
            ),
            (500, 87, None),
            (500, 88, Some("17.0 MiB is left below the limit of")),
        ] {
            let root = machine(available, usage);
            let headroom = Headroom::new(root.path(), 7, Permille(100)).unwrap();
            let found = headroom
                .shortage(Bytes::mib(8))
                .unwrap()
                .map(|found| found.to_string());
            match expected {
                None => assert_eq!(found, None),
                Some(text) => assert!(found.clone().unwrap_or_default().starts_with(text), "{found:?}"),
            }
        }
    }
}
