//! The control group of a systemd unit: the group with its name. It is found in the tree of groups, without
//! D-Bus or systemd.
//!
//! A user may create groups of any name in a group that is delegated to that user. So groups count only if
//! root or a user chosen by the caller owns them.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{CgroupError, Group, Mount, Version, mounts};

/// Maximum depth of a unit: `user.slice/user-1000.slice/user@1000.service/app.slice/app-x.slice/x.service`.
const DEPTH: usize = 10;

impl Group {
    /// Finds the group of `unit` (`redis.service`; `redis` is short for it) among the groups that root or
    /// user `uid` owns. Searched in this order: version 2, systemd's own hierarchy, the hierarchy of the
    /// memory controller; in each, `system.slice` first.
    ///
    /// # Errors
    /// Fails if no group has its name, or several have: the same unit of several users.
    pub fn find_unit(root: &Path, unit: &str, uid: u32) -> Result<Self, CgroupError> {
        Self::find_owned_unit(root, unit, &[0, uid])
    }

    fn find_owned_unit(root: &Path, unit: &str, owners: &[u32]) -> Result<Self, CgroupError> {
        let name = full_name(unit);
        let is = |mount: &Mount, name: &str| mount.controllers.iter().any(|one| one == name);
        let mut mounts = mounts(root)?;
        mounts
            .retain(|mount| mount.version == Version::V2 || is(mount, "name=systemd") || is(mount, "memory"));
        mounts.sort_by_key(|mount| (mount.version == Version::V1, is(mount, "memory")));
        for mount in &mounts {
            let found = groups_named(&mount.dir, &name, owners);
            if let [dir] = &found[..] {
                return Ok(Self {
                    version: mount.version,
                    dir: dir.clone(),
                });
            }
            if !found.is_empty() {
                let found: Vec<String> = found.iter().map(|dir| dir.display().to_string()).collect();
                return Err(CgroupError::SeveralUnits {
                    unit: name,
                    found: found.join(", "),
                });
            }
        }
        let searched: Vec<String> = mounts
            .iter()
            .map(|mount| mount.dir.display().to_string())
            .collect();
        let uid = owners.last().copied().unwrap_or_default();
        Err(CgroupError::NoUnit {
            unit: name,
            uid,
            searched: searched.join(", "),
        })
    }
}

/// The types of units that have control groups.
pub(super) const TYPES: [&str; 6] = ["service", "scope", "slice", "socket", "mount", "swap"];

/// As in systemctl, a name without a type is a service.
fn full_name(unit: &str) -> String {
    match unit.rsplit_once('.') {
        Some((_, kind)) if TYPES.contains(&kind) => unit.to_owned(),
        _ => format!("{unit}.service"),
    }
}

/// The groups of a hierarchy with this name and one of these owners, sorted.
fn groups_named(mount: &Path, name: &str, owners: &[u32]) -> Vec<PathBuf> {
    let system = mount.join("system.slice");
    // Nearly all units are here, and only systemd creates groups here: no search is needed.
    if let Some(dir) = entry(&system, name).filter(|dir| is_group(dir, owners)) {
        return vec![dir];
    }
    let mut found = Vec::new();
    search(mount, name, owners, DEPTH, &mut found);
    found.sort();
    found
}

/// The path of `name` in `dir`, unless `name` would leave `dir`.
fn entry(dir: &Path, name: &str) -> Option<PathBuf> {
    (!name.contains('/')).then(|| dir.join(name))
}

fn is_group(dir: &Path, owners: &[u32]) -> bool {
    is_owned(fs::symlink_metadata(dir), owners) && dir.join("cgroup.procs").exists()
}

fn is_owned(metadata: std::io::Result<Metadata>, owners: &[u32]) -> bool {
    metadata.is_ok_and(|metadata| metadata.is_dir() && owners.contains(&metadata.uid()))
}

fn search(dir: &Path, name: &str, owners: &[u32], depth: usize, found: &mut Vec<PathBuf>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        // Groups of other users are not entered either: they may contain any number of groups.
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) || !is_owned(entry.metadata(), owners) {
            continue;
        }
        if entry.file_name() == name && entry.path().join("cgroup.procs").exists() {
            found.push(entry.path());
        } else {
            search(&entry.path(), name, owners, depth, found);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn machine(mounts: &str, groups: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/mounts"), mounts).unwrap();
        for group in groups {
            let dir = root.path().join(group);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("cgroup.procs"), "7\n").unwrap();
        }
        root
    }

    const V2: &str = "cgroup2 /cg cgroup2 rw 0 0\n";

    /// Finds a unit in groups that the user of this test owns.
    fn find_unit(root: &Path, unit: &str) -> Result<Group, CgroupError> {
        let uid = fs::metadata(root).unwrap().uid();
        Group::find_unit(root, unit, uid)
    }

    #[test]
    fn unit_is_found_at_any_depth() {
        let groups = [
            "cg/system.slice/redis.service",
            "cg/user.slice/u.slice/app.slice/a.b.scope",
        ];
        let root = machine(V2, &groups);
        for (unit, group) in [
            ("redis", groups[0]),
            ("redis.service", groups[0]),
            ("a.b.scope", groups[1]),
        ] {
            let found = find_unit(root.path(), unit).unwrap();
            assert_eq!(
                (found.version, found.dir),
                (Version::V2, root.path().join(group)),
                "{unit}"
            );
        }
    }

    #[test]
    fn unit_search_prefers_systemd_hierarchy() {
        let mounts =
            "cgroup /cg/memory cgroup rw,memory 0 0\ncgroup /cg/systemd cgroup rw,name=systemd 0 0\n";
        let root = machine(
            mounts,
            &[
                "cg/memory/x.service",
                "cg/systemd/system.slice/x.service",
                "cg/memory/y.service",
            ],
        );
        let dir = |unit| find_unit(root.path(), unit).unwrap().dir;
        assert_eq!(dir("x"), root.path().join("cg/systemd/system.slice/x.service"));
        assert_eq!(dir("y"), root.path().join("cg/memory/y.service"));
    }

    #[test]
    fn missing_and_ambiguous_units_are_errors() {
        let root = machine(V2, &["cg/user-1.slice/a.service", "cg/user-2.slice/a.service"]);
        let message = |unit| find_unit(root.path(), unit).unwrap_err().to_string();
        assert!(
            message("a").contains("user-1.slice/a.service") && message("a").contains("--cgroup"),
            "{}",
            message("a")
        );
        assert!(
            message("b").contains("unit b.service does not exist"),
            "{}",
            message("b")
        );
        // Names cannot leave the mount.
        assert!(find_unit(root.path(), "../../etc").is_err());
    }

    #[test]
    fn unit_in_system_slice_comes_first() {
        let groups = [
            "cg/system.slice/redis.service",
            "cg/system.slice/docker-1.scope/system.slice/redis.service",
            "cg/user.slice/redis.service",
        ];
        let root = machine(V2, &groups);
        let found = find_unit(root.path(), "redis").unwrap();
        assert_eq!(found.dir, root.path().join(groups[0]));
    }

    #[test]
    fn groups_of_other_users_are_no_units() {
        let root = machine(V2, &["cg/user.slice/u.slice/redis.service"]);
        let uid = fs::metadata(root.path()).unwrap().uid();
        let find = |owners: &[u32]| Group::find_owned_unit(root.path(), "redis", owners);
        assert!(find(&[7, uid]).is_ok());
        let error = find(&[7]).unwrap_err().to_string();
        assert!(error.contains("owned by root or user 7"), "{error}");
    }
}
