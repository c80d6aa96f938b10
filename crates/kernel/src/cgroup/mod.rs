//! Control groups, version 1 and 2: where they are mounted, who is in them, groups of our own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::file::{self, FileError};

mod freezer;
mod of_process;
mod own;
mod unit;

pub use freezer::Freezers;
pub use own::OwnGroup;

/// Which of the two interfaces a hierarchy speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy a controller.
    V1,
    /// One for all.
    V2,
}

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its interface.
    pub version: Version,
    /// Where it is mounted, below the root that was asked.
    pub dir: PathBuf,
    /// Its controllers. On version 2 those the root group offers.
    pub controllers: Vec<String>,
}

/// Why a group could not be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// No mounted hierarchy has it.
    #[error(
        "there is no control group {path:?}: looked below {looked}. List them with `systemd-cgls` or `find /sys/fs/cgroup -name cgroup.procs`"
    )]
    NoGroup {
        /// What was asked for.
        path: String,
        /// Where it was looked for.
        looked: String,
    },
    /// No group bears the name of the unit.
    #[error(
        "there is no unit {unit}, or none of its processes runs: no control group of that name lies below {looked}. \
         `systemctl status {unit}` shows its group; give that by --cgroup"
    )]
    NoUnit {
        /// What was asked for.
        unit: String,
        /// Where it was looked for.
        looked: String,
    },
    /// Several groups do.
    #[error("{unit} is a unit of several users ({found}): give the one that is meant by --cgroup")]
    SeveralUnits {
        /// What was asked for.
        unit: String,
        /// Their folders.
        found: String,
    },
    /// The controller is mounted nowhere.
    #[error("no mounted control group hierarchy has the {0} controller")]
    NoController(String),
    /// A file of it failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Which interface its files have.
    pub version: Version,
    /// Its folder.
    pub dir: PathBuf,
}

/// The mounted hierarchies.
///
/// # Errors
/// When `/proc/mounts` cannot be read.
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

// Blanks in mount points are written `\040`, and so on (fstab(5)).
fn unescape(text: &str) -> String {
    text.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\134", "\\")
}

// `path`, which may begin with `/` and may not climb, below `dir`.
fn below(dir: &Path, path: &str) -> PathBuf {
    let steps = Path::new(path)
        .components()
        .filter(|step| matches!(step, Component::Normal(_)));
    steps.fold(dir.to_owned(), |path, step| path.join(step))
}

impl Group {
    /// Whether it is the first of its hierarchy, in which all processes of the machine are.
    ///
    /// # Errors
    /// When mounts cannot be read.
    pub fn is_whole_machine(&self, root: &Path) -> Result<bool, CgroupError> {
        Ok(mounts(root)?.iter().any(|mount| mount.dir == self.dir))
    }

    /// Its path below the mount, as the kernel's own files and `/proc/PID/cgroup` name it: `/` is the first of the hierarchy.
    ///
    /// # Errors
    /// When mounts cannot be read.
    pub fn path(&self, root: &Path) -> Result<String, CgroupError> {
        let mounts = mounts(root)?;
        let below = mounts
            .iter()
            .filter_map(|mount| self.dir.strip_prefix(&mount.dir).ok());
        let nearest = below.min_by_key(|path| path.components().count());
        let path = nearest.unwrap_or(&self.dir);
        Ok(Path::new("/").join(path).display().to_string())
    }

    /// Finds a group by its path below a mount (`/system.slice/redis`), as `/proc/PID/cgroup` shows it, or by
    /// its folder (`/sys/fs/cgroup/…`). Version 2 and the memory controller are looked at first.
    ///
    /// # Errors
    /// When there is no such group.
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
    /// When no hierarchy has the controller, or it has no such group.
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

    /// True while the group is there.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.dir.join("cgroup.procs").exists()
    }

    /// The processes in the group and in all groups below it, ascending.
    ///
    /// # Errors
    /// When the group itself cannot be read; groups below it may vanish meanwhile.
    pub fn procs(&self) -> Result<Vec<u32>, FileError> {
        let mut pids = BTreeSet::new();
        note_procs(&file::text(&self.dir.join("cgroup.procs"))?, &mut pids);
        walk(&self.dir, &mut pids);
        Ok(pids.into_iter().collect())
    }

    /// Moves process `pid`, all its threads, into the group.
    ///
    /// # Errors
    /// When the kernel refuses: no such process, no right, or (version 2) the group has groups below it that
    /// use controllers.
    pub fn add(&self, pid: u32) -> Result<(), FileError> {
        file::write(&self.dir.join("cgroup.procs"), &pid.to_string())
    }
}

fn walk(dir: &Path, pids: &mut BTreeSet<u32>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
    {
        note_procs(
            &file::text(&entry.path().join("cgroup.procs")).unwrap_or_default(),
            pids,
        );
        walk(&entry.path(), pids);
    }
}

// A process of another pid namespace reads as 0.
fn note_procs(text: &str, pids: &mut BTreeSet<u32>) {
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
    let looked: Vec<_> = mounts
        .iter()
        .map(|mount| mount.dir.display().to_string())
        .collect();
    let looked = if looked.is_empty() {
        "nothing, as no hierarchy is mounted".to_owned()
    } else {
        looked.join(", ")
    };
    CgroupError::NoGroup {
        path: path.to_owned(),
        looked,
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
    fn a_group_is_found_below_the_memory_mount_first() {
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
    fn processes_of_groups_below_count_once() {
        let groups = [("cg/a", "5\n9\n"), ("cg/a/b", "7\n0\n"), ("cg/a/b/c", "5\n")];
        let root = machine("cgroup2 /cg cgroup2 rw 0 0\n", &groups);
        let group = Group::find(root.path(), "a").unwrap();
        assert_eq!(
            (group.version, group.procs().unwrap()),
            (Version::V2, vec![5, 7, 9])
        );
    }

    #[test]
    fn a_group_that_is_not_there_is_named_with_where_it_was_looked_for() {
        let root = machine(V1, &[]);
        let told = Group::find(root.path(), "/no/such").unwrap_err().to_string();
        assert!(
            told.contains("\"/no/such\"") && told.contains("cgroup/memory"),
            "{told}"
        );
        let told = Group::find_in(root.path(), "io", "/a").unwrap_err().to_string();
        assert!(told.contains("io controller"), "{told}");
    }

    #[test]
    fn a_path_cannot_climb_out_of_the_mount() {
        let root = machine(V1, &[("sys/fs/cgroup/memory/etc", "5\n")]);
        assert_eq!(
            Group::find(root.path(), "/../../etc").unwrap().procs().unwrap(),
            [5]
        );
    }
}
