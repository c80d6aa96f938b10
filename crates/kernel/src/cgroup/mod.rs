//! Control groups, version 1 and 2: mounts, members, and temporary groups.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::file::{self, FileError};

mod freezer;
mod of_process;
mod populated;
mod temporary;
mod unit;

pub use freezer::Freezers;
pub use of_process::{GroupPath, paths};
pub use populated::{populated, units};
pub use temporary::TemporaryGroup;

/// The interface of a hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy for each controller.
    V1,
    /// One unified hierarchy.
    V2,
}

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its interface.
    pub version: Version,
    /// The mount point, below the given root.
    pub dir: PathBuf,
    /// Its controllers; on version 2 those available in the root group.
    pub controllers: Vec<String>,
}

/// Why a group could not be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// The group does not exist in any mounted hierarchy.
    #[error(
        "control group {path:?} not found below {searched}. List groups with `systemd-cgls` or `find /sys/fs/cgroup -name cgroup.procs`"
    )]
    NoGroup {
        /// The requested name.
        path: String,
        /// The folders that were searched.
        searched: String,
    },
    /// No group has the name of the unit.
    #[error(
        "unit {unit} does not exist or has no running process: no control group of that name, owned by root or \
         user {uid}, below {searched}. `systemctl status {unit}` shows its group; pass that with --cgroup"
    )]
    NoUnit {
        /// The requested name.
        unit: String,
        /// The user whose groups count in addition to those of root.
        uid: u32,
        /// The folders that were searched.
        searched: String,
    },
    /// Several groups have the name of the unit.
    #[error("{unit} is a unit of several users ({found}): pass the group of the right one with --cgroup")]
    SeveralUnits {
        /// The requested name.
        unit: String,
        /// The folders of these groups.
        found: String,
    },
    /// No hierarchy has the controller.
    #[error("no mounted control group hierarchy has the {0} controller")]
    NoController(String),
    /// Access to one of its files failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The interface of its files.
    pub version: Version,
    /// Its folder.
    pub dir: PathBuf,
}

/// The mounted hierarchies.
///
/// # Errors
/// Fails if `/proc/mounts` cannot be read.
pub fn mounts(root: &Path) -> Result<Vec<Mount>, FileError> {
    let text = file::text(&root.join("proc/mounts"))?;
    Ok(text.lines().filter_map(|line| mount(root, line)).collect())
}

fn mount(root: &Path, line: &str) -> Option<Mount> {
    let mut fields = line.split(' ').skip(1);
    let (dir, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
    let dir = below(root, &unescape(dir));
    match kind {
        "cgroup" => {
            let controllers = options.split(',').map(str::to_owned).collect();
            Some(Mount {
                version: Version::V1,
                dir,
                controllers,
            })
        }
        "cgroup2" => {
            let offered = file::text(&dir.join("cgroup.controllers")).unwrap_or_default();
            let controllers = offered.split_ascii_whitespace().map(str::to_owned).collect();
            Some(Mount {
                version: Version::V2,
                dir,
                controllers,
            })
        }
        _ => None,
    }
}

// Spaces in mount points are written as `\040`, and so on (fstab(5)).
fn unescape(text: &str) -> String {
    text.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\134", "\\")
}

// Appends `path`, which may begin with `/`, to `dir`. Components `..` are ignored, so the result stays below
// `dir`.
fn below(dir: &Path, path: &str) -> PathBuf {
    let steps = Path::new(path)
        .components()
        .filter(|step| matches!(step, Component::Normal(_)));
    steps.fold(dir.to_owned(), |path, step| path.join(step))
}

/// Whether a path of `/proc/PID/cgroup` leads out of our cgroup namespace (`/../x`, cgroup_namespaces(7)).
/// The group of that process is not in our mounts.
fn is_outside(path: &str) -> bool {
    Path::new(path)
        .components()
        .any(|step| step == Component::ParentDir)
}

impl Group {
    /// Whether it is the root group of its hierarchy, which contains all processes.
    ///
    /// # Errors
    /// Fails if the mounts cannot be read.
    pub fn is_root(&self, root: &Path) -> Result<bool, CgroupError> {
        Ok(mounts(root)?.iter().any(|mount| mount.dir == self.dir))
    }

    /// Its path below the mount, as in `/proc/PID/cgroup`; `/` is the root group.
    ///
    /// # Errors
    /// Fails if the mounts cannot be read.
    pub fn path(&self, root: &Path) -> Result<String, CgroupError> {
        let mounts = mounts(root)?;
        let below = mounts
            .iter()
            .filter_map(|mount| self.dir.strip_prefix(&mount.dir).ok());
        let nearest = below.min_by_key(|path| path.components().count());
        let path = nearest.unwrap_or(&self.dir);
        Ok(Path::new("/").join(path).display().to_string())
    }

    /// Finds a group by its path below a mount (`/system.slice/redis`), as in `/proc/PID/cgroup`, or by its
    /// folder (`/sys/fs/cgroup/…`). Version 2 and the memory controller are searched first.
    ///
    /// # Errors
    /// Fails if there is no such group.
    pub fn find(root: &Path, path: &str) -> Result<Self, CgroupError> {
        let mut mounts = mounts(root)?;
        let is = |mount: &Mount, name: &str| mount.controllers.iter().any(|one| one == name);
        mounts.sort_by_key(|mount| (mount.version == Version::V1, !is(mount, "memory")));
        let whole = below(root, path);
        if let Some(mount) = mounts.iter().find(|mount| whole.starts_with(&mount.dir)) {
            let group = Self {
                version: mount.version,
                dir: whole,
            };
            return if group.exists() {
                Ok(group)
            } else {
                Err(no_group(path, std::slice::from_ref(mount)))
            };
        }
        let candidates = mounts.iter().map(|mount| Self {
            version: mount.version,
            dir: below(&mount.dir, path),
        });
        candidates
            .into_iter()
            .find(Self::exists)
            .ok_or_else(|| no_group(path, &mounts))
    }

    /// Finds a group by its path below the mount of `controller`.
    ///
    /// # Errors
    /// Fails if no hierarchy has the controller, or the group does not exist there.
    pub fn find_in(root: &Path, controller: &str, path: &str) -> Result<Self, CgroupError> {
        let mount = mount_of(root, controller)?;
        let dir = if below(root, path).starts_with(&mount.dir) {
            below(root, path)
        } else {
            below(&mount.dir, path)
        };
        let group = Self {
            version: mount.version,
            dir,
        };
        if group.exists() {
            Ok(group)
        } else {
            Err(no_group(path, std::slice::from_ref(&mount)))
        }
    }

    /// True while the group exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.dir.join("cgroup.procs").exists()
    }

    /// The processes in the group and in all groups below it, ascending.
    ///
    /// # Errors
    /// Fails if the group itself cannot be read; groups below it may vanish meanwhile.
    pub fn procs(&self) -> Result<Vec<u32>, FileError> {
        let mut pids = BTreeSet::new();
        add_procs(&file::text(&self.dir.join("cgroup.procs"))?, &mut pids);
        add_procs_below(&self.dir, &mut pids);
        Ok(pids.into_iter().collect())
    }

    /// Moves process `pid` with all its threads into the group.
    ///
    /// # Errors
    /// Fails if the process does not exist, without the right to move it, or (version 2) if the group has
    /// child groups with controllers.
    pub fn add(&self, pid: u32) -> Result<(), FileError> {
        file::write(&self.dir.join("cgroup.procs"), &pid.to_string())
    }
}

fn add_procs_below(dir: &Path, pids: &mut BTreeSet<u32>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
    {
        add_procs(
            &file::text(&entry.path().join("cgroup.procs")).unwrap_or_default(),
            pids,
        );
        add_procs_below(&entry.path(), pids);
    }
}

// A process outside our pid namespace reads as 0.
fn add_procs(text: &str, pids: &mut BTreeSet<u32>) {
    pids.extend(
        text.lines()
            .filter_map(|line| line.trim().parse::<u32>().ok())
            .filter(|&pid| pid != 0),
    );
}

fn mount_of(root: &Path, controller: &str) -> Result<Mount, CgroupError> {
    let has = |mount: &Mount| mount.controllers.iter().any(|one| one == controller);
    mounts(root)?
        .into_iter()
        .find(has)
        .ok_or_else(|| CgroupError::NoController(controller.to_owned()))
}

fn no_group(path: &str, mounts: &[Mount]) -> CgroupError {
    let searched: Vec<_> = mounts
        .iter()
        .map(|mount| mount.dir.display().to_string())
        .collect();
    let searched = if searched.is_empty() {
        "nothing: no hierarchy is mounted".to_owned()
    } else {
        searched.join(", ")
    };
    CgroupError::NoGroup {
        path: path.to_owned(),
        searched,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn machine(lines: &str, groups: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/mounts"), lines).unwrap();
        for (dir, procs) in groups {
            let dir = root.path().join(dir);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("cgroup.procs"), procs).unwrap();
        }
        root
    }

    const V1: &str = "cgroup /sys/fs/cgroup/pids cgroup rw,relatime,pids 0 0\n\
                      cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n";

    #[test]
    fn find_prefers_memory_hierarchy() {
        let groups = [
            ("sys/fs/cgroup/pids/a", "1\n"),
            ("sys/fs/cgroup/memory/a", "5\n"),
            ("sys/fs/cgroup/pids/b", ""),
        ];
        let root = machine(V1, &groups);
        let group = Group::find(root.path(), "/a").unwrap();
        assert_eq!((group.version, group.procs().unwrap()), (Version::V1, vec![5]));
        assert!(Group::find(root.path(), "b").is_ok());
        assert!(Group::find_in(root.path(), "memory", "b").is_err());
        assert!(Group::find(root.path(), "/sys/fs/cgroup/pids/b").is_ok());
    }

    #[test]
    fn procs_includes_child_groups_once() {
        let groups = [("cg/a", "5\n9\n"), ("cg/a/b", "7\n0\n"), ("cg/a/b/c", "5\n")];
        let root = machine("cgroup2 /cg cgroup2 rw 0 0\n", &groups);
        let group = Group::find(root.path(), "a").unwrap();
        assert_eq!(
            (group.version, group.procs().unwrap()),
            (Version::V2, vec![5, 7, 9])
        );
    }

    #[test]
    fn missing_group_error_names_searched_mounts() {
        let root = machine(V1, &[]);
        let message = Group::find(root.path(), "/no/such").unwrap_err().to_string();
        assert!(
            message.contains("\"/no/such\"") && message.contains("cgroup/memory"),
            "{message}"
        );
        let message = Group::find_in(root.path(), "io", "/a").unwrap_err().to_string();
        assert!(message.contains("io controller"), "{message}");
    }

    #[test]
    fn group_path_cannot_leave_mount() {
        let root = machine(V1, &[("sys/fs/cgroup/memory/etc", "5\n")]);
        assert_eq!(
            Group::find(root.path(), "/../../etc").unwrap().procs().unwrap(),
            [5]
        );
    }
}
