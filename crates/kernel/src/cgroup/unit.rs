//! The control group of a systemd unit: the one that bears its name. Found in the tree of groups, so that neither
//! a bus nor systemd itself has to answer.

use std::fs;
use std::path::{Path, PathBuf};

use super::{CgroupError, Group, Mount, Version, mounts};

/// Units lie no deeper than this: `user.slice/user-1000.slice/user@1000.service/app.slice/app-x.slice/x.service`.
const DEPTH: usize = 10;

impl Group {
    /// Finds the group of `unit` (`redis.service`; `redis` means that too). Looked at are version 2, then systemd's
    /// own hierarchy, then the memory controller's: the first that has it.
    ///
    /// # Errors
    /// When no group bears its name, or several do: the same unit of several users.
    pub fn of_unit(root: &Path, unit: &str) -> Result<Self, CgroupError> {
        let name = whole_name(unit);
        let is = |mount: &Mount, name: &str| mount.controllers.iter().any(|one| one == name);
        let mut mounts = mounts(root)?;
        mounts
            .retain(|mount| mount.version == Version::V2 || is(mount, "name=systemd") || is(mount, "memory"));
        mounts.sort_by_key(|mount| (mount.version == Version::V1, is(mount, "memory")));
        for mount in &mounts {
            let mut found = Vec::new();
            look(&mount.dir, &name, DEPTH, &mut found);
            found.sort();
            match found.len() {
                0 => {}
                1 => {
                    return Ok(Self {
                        version: mount.version,
                        dir: found.remove(0),
                    });
                }
                _ => {
                    let found: Vec<String> = found.iter().map(|dir| dir.display().to_string()).collect();
                    return Err(CgroupError::SeveralUnits {
                        unit: name,
                        found: found.join(", "),
                    });
                }
            }
        }
        let looked: Vec<String> = mounts
            .iter()
            .map(|mount| mount.dir.display().to_string())
            .collect();
        Err(CgroupError::NoUnit {
            unit: name,
            looked: looked.join(", "),
        })
    }
}

/// As systemctl does: a name without a type is a service.
fn whole_name(unit: &str) -> String {
    let types = ["service", "scope", "slice", "socket", "mount", "swap"];
    match unit.rsplit_once('.') {
        Some((_, kind)) if types.contains(&kind) => unit.to_owned(),
        _ => format!("{unit}.service"),
    }
}

fn look(dir: &Path, name: &str, depth: usize, found: &mut Vec<PathBuf>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name() == name && entry.path().join("cgroup.procs").exists() {
            found.push(entry.path());
        } else {
            look(&entry.path(), name, depth, found);
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

    #[test]
    fn a_unit_is_found_wherever_it_lies() {
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
            let found = Group::of_unit(root.path(), unit).unwrap();
            assert_eq!(
                (found.version, found.dir),
                (Version::V2, root.path().join(group)),
                "{unit}"
            );
        }
    }

    #[test]
    fn systemds_own_hierarchy_comes_before_the_memory_controllers() {
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
        let dir = |unit| Group::of_unit(root.path(), unit).unwrap().dir;
        assert_eq!(dir("x"), root.path().join("cg/systemd/system.slice/x.service"));
        assert_eq!(dir("y"), root.path().join("cg/memory/y.service"));
    }

    #[test]
    fn none_and_several_are_told() {
        let root = machine(V2, &["cg/user-1.slice/a.service", "cg/user-2.slice/a.service"]);
        let told = |unit| Group::of_unit(root.path(), unit).unwrap_err().to_string();
        assert!(
            told("a").contains("user-1.slice/a.service") && told("a").contains("--cgroup"),
            "{}",
            told("a")
        );
        assert!(told("b").contains("no unit b.service"), "{}", told("b"));
        // Names cannot climb.
        assert!(Group::of_unit(root.path(), "../../etc").is_err());
    }
}
