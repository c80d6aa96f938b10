//! The groups that have processes, and the units among them: what a user may name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::unit::TYPES;
use super::{Version, mounts};

/// Maximum depth of a group.
const DEPTH: usize = 10;

/// The paths below the mount (`/system.slice/redis.service`) of all groups that have processes themselves,
/// sorted; those of version 2, or of all hierarchies of version 1. What cannot be read is left out.
#[must_use]
pub fn populated(root: &Path) -> Vec<String> {
    let mounts = mounts(root).unwrap_or_default();
    let has_v2 = mounts
        .iter()
        .any(|mount| mount.version == Version::V2 && !groups_below(&mount.dir).is_empty());
    let mounts = mounts
        .iter()
        .filter(|mount| !has_v2 || mount.version == Version::V2);
    mounts
        .flat_map(|mount| groups_below(&mount.dir))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// The names of all units that have processes, sorted: `redis.service`.
#[must_use]
pub fn units(root: &Path) -> Vec<String> {
    let paths = populated(root);
    let names = paths.iter().flat_map(|path| path.split('/'));
    let is_unit = |name: &&str| {
        name.rsplit_once('.')
            .is_some_and(|(_, kind)| TYPES.contains(&kind))
    };
    let units: BTreeSet<&str> = names.filter(is_unit).collect();
    units.into_iter().map(str::to_owned).collect()
}

fn groups_below(mount: &Path) -> Vec<String> {
    let mut found = Vec::new();
    add_groups(mount, "", DEPTH, &mut found);
    found
}

fn add_groups(dir: &Path, path: &str, depth: usize, found: &mut Vec<String>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        // A user may give a group any name; what could not be typed is not offered.
        let Some(name) = name.to_str().filter(|name| !name.contains(char::is_control)) else {
            continue;
        };
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = format!("{path}/{name}");
        let procs = fs::read_to_string(entry.path().join("cgroup.procs"));
        if procs.is_ok_and(|procs| !procs.is_empty()) {
            found.push(path.clone());
        }
        add_groups(&entry.path(), &path, depth, found);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn machine(mounts: &str, groups: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/mounts"), mounts).unwrap();
        for (group, procs) in groups {
            let dir = root.path().join(group);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("cgroup.procs"), procs).unwrap();
        }
        root
    }

    #[test]
    fn groups_without_processes_are_left_out() {
        let groups = [
            ("cg/system.slice", ""),
            ("cg/system.slice/redis.service", "7\n"),
            ("cg/system.slice/old.service", ""),
            ("cg/user.slice/user@1000.service/app.slice/a.scope", "9\n"),
        ];
        let root = machine("cgroup2 /cg cgroup2 rw 0 0\n", &groups);
        let user = "/user.slice/user@1000.service/app.slice/a.scope";
        assert_eq!(populated(root.path()), ["/system.slice/redis.service", user]);
        assert_eq!(
            units(root.path()),
            [
                "a.scope",
                "app.slice",
                "redis.service",
                "system.slice",
                "user.slice",
                "user@1000.service"
            ]
        );
    }

    #[test]
    fn groups_of_version_1_are_listed_where_version_2_has_none() {
        let mounts = "cgroup2 /cg/unified cgroup2 rw 0 0\ncgroup /cg/memory cgroup rw,memory 0 0\n\
                      cgroup /cg/cpu cgroup rw,cpu 0 0\n";
        let root = machine(
            mounts,
            &[("cg/unified", ""), ("cg/memory/a", "5\n"), ("cg/cpu/a", "5\n")],
        );
        assert_eq!(populated(root.path()), ["/a"]);
        assert!(populated(Path::new("/no/such/root")).is_empty());
    }
}
