//! The processes of each application now, their owners, and their memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use thermo_kernel::cgroup::Group;
use thermo_kernel::{clock, meminfo, stat, status};
use thermo_units::Bytes;
use thermo_units::text::ParseError;

use super::command::{CommandScan, CommandTarget};
use super::config::{AppConfig, Target};
use super::engine::MemoryInfo;
use super::unit_cache::UnitCache;

/// A target as resolved when the configuration was loaded.
#[derive(Debug, Clone)]
pub(super) enum Resolved {
    /// A process: PID and start time.
    Process(u32, u64),
    /// A control group, by path. It may appear and disappear.
    Group(String),
    /// A systemd unit, with the user whose units count in addition to those of the system. Its group may
    /// appear and disappear.
    Unit(String, u32),
    /// All processes with a matching command line.
    Command(CommandTarget),
    /// The PID did not exist. A later process with this PID is a different one.
    Missing,
}

/// The applications by name.
#[derive(Debug)]
pub(super) struct AppTable {
    root: PathBuf,
    apps: BTreeMap<String, (Target, Resolved)>,
    /// The processes of each application with a [`Resolved::Command`].
    commands: CommandScan,
    units: UnitCache,
}

impl AppTable {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            apps: BTreeMap::new(),
            commands: CommandScan::default(),
            units: UnitCache::default(),
        }
    }

    /// Replaces the applications. An application with an unchanged target keeps its resolved process.
    ///
    /// # Errors
    /// Two applications have the same group. The table is then unchanged.
    pub(super) fn configure(&mut self, apps: &[AppConfig]) -> Result<(), ParseError> {
        reject_overlapping_groups(&self.root, apps)?;
        let mut before = std::mem::take(&mut self.apps);
        for app in apps {
            let known = before
                .remove(&app.name)
                .filter(|(target, _)| *target == app.target);
            let (target, resolved) = known.unwrap_or_else(|| (app.target.clone(), self.resolve(&app.target)));
            self.apps.insert(app.name.clone(), (target, resolved));
        }
        self.commands = CommandScan::default();
        self.units = UnitCache::default();
        Ok(())
    }

    /// A copy for another thread.
    pub(super) fn snapshot(&self) -> Self {
        Self {
            root: self.root.clone(),
            apps: self.apps.clone(),
            commands: CommandScan::default(),
            units: UnitCache::default(),
        }
    }

    /// Applications whose PID does not exist, with the PID.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&str, u32)> {
        self.apps
            .iter()
            .filter_map(|(name, (target, resolved))| match (target, resolved) {
                (Target::Pid(pid), Resolved::Missing) => Some((name.as_str(), *pid)),
                _ => None,
            })
    }

    fn resolve(&self, target: &Target) -> Resolved {
        match target {
            Target::Pid(pid) => match stat::read(&self.root, *pid) {
                Ok(stat) if !stat.has_ended() => Resolved::Process(*pid, stat.starttime),
                _ => Resolved::Missing,
            },
            Target::Cgroup(path) => Resolved::Group(path.clone()),
            Target::Unit { unit, uid } => Resolved::Unit(unit.clone(), *uid),
            Target::Command(command) => Resolved::Command(command.clone()),
        }
    }

    /// The processes of an application that run now, in ascending order, without the daemon itself.
    pub(super) fn pids(&mut self, app: &str) -> Vec<u32> {
        let Some((_, resolved)) = self.apps.get(app) else {
            return Vec::new();
        };
        let mut pids = match resolved {
            Resolved::Missing => Vec::new(),
            Resolved::Process(pid, starttime) => {
                let is_same = stat::read(&self.root, *pid)
                    .is_ok_and(|stat| stat.starttime == *starttime && !stat.has_ended());
                if is_same { vec![*pid] } else { Vec::new() }
            }
            Resolved::Group(path) => group_members(Group::find(&self.root, path).ok()),
            Resolved::Unit(unit, uid) => {
                let find = || Group::find_unit(&self.root, unit, *uid).ok();
                group_members(self.units.group(app, find, clock::monotonic()))
            }
            Resolved::Command(_) => {
                let commands = self
                    .apps
                    .iter()
                    .filter_map(|(name, (_, resolved))| match resolved {
                        Resolved::Command(command) => Some((name, command)),
                        _ => None,
                    });
                self.commands.pids(&self.root, app, commands, clock::monotonic())
            }
        };
        let daemon = std::process::id();
        pids.retain(|pid| *pid > 1 && *pid != daemon);
        pids
    }

    /// Those of `pids` that belong to the application now. The answer is certain for processes held by pidfd:
    /// the PID of a living process is not reused.
    pub(super) fn verify(&mut self, app: &str, pids: &[u32]) -> Vec<u32> {
        let members = match self.apps.get(app) {
            Some((_, Resolved::Group(_) | Resolved::Unit(..))) => self.pids(app),
            _ => Vec::new(),
        };
        let Some((_, resolved)) = self.apps.get(app) else {
            return Vec::new();
        };
        let belongs = |pid: &u32| match resolved {
            Resolved::Missing => false,
            Resolved::Process(known, starttime) => {
                pid == known && stat::read(&self.root, *pid).is_ok_and(|stat| stat.starttime == *starttime)
            }
            Resolved::Group(_) | Resolved::Unit(..) => members.contains(pid),
            Resolved::Command(command) => command.is_match(&self.root, *pid),
        };
        pids.iter().copied().filter(belongs).collect()
    }

    /// Whether `uid` is the effective user of all processes of an application. False if none runs.
    pub(super) fn is_owner(&mut self, app: &str, uid: u32) -> bool {
        self.owners(app) == BTreeSet::from([uid])
    }

    /// The effective user IDs of an application's processes.
    fn owners(&mut self, app: &str) -> BTreeSet<u32> {
        let pids = self.pids(app);
        let owner = |pid: &u32| status::read(&self.root, *pid).ok().map(|status| status.euid);
        pids.iter().filter_map(owner).collect()
    }
}

impl MemoryInfo for AppTable {
    fn anon_rss(&mut self, app: &str) -> Option<Bytes> {
        let pids = self.pids(app);
        let statuses = pids.iter().filter_map(|pid| status::read(&self.root, *pid).ok());
        let rss: Vec<Bytes> = statuses.map(|status| status.rss_anon).collect();
        (!rss.is_empty()).then(|| rss.into_iter().sum())
    }

    fn swap(&mut self) -> (Bytes, Bytes) {
        // If meminfo cannot be read, assume no swap: only file pages are reclaimed.
        meminfo::read(&self.root).map_or((Bytes::ZERO, Bytes::ZERO), |info| {
            (info.swap_free, info.swap_total)
        })
    }
}

/// The members of a control group, if it exists.
fn group_members(group: Option<Group>) -> Vec<u32> {
    group.and_then(|group| group.procs().ok()).unwrap_or_default()
}

/// Compares the directories of all groups: a path and a unit may name the same group.
fn reject_overlapping_groups(root: &Path, apps: &[AppConfig]) -> Result<(), ParseError> {
    let mut folders: Vec<(PathBuf, &AppConfig)> = Vec::new();
    for app in apps {
        let group = match &app.target {
            Target::Cgroup(path) => Group::find(root, path).ok(),
            Target::Unit { unit, uid } => Group::find_unit(root, unit, *uid).ok(),
            Target::Pid(_) | Target::Command(_) => None,
        };
        let Some(Group { dir, .. }) = group else { continue };
        let overlaps = |other: &Path| other.starts_with(&dir) || dir.starts_with(other);
        if let Some((_, other)) = folders.iter().find(|(other, _)| overlaps(other)) {
            let message = format!(
                "application {:?} (line {}) claims the group {} of {:?} too: give each its own",
                other.name,
                other.line,
                dir.display(),
                app.name
            );
            return Err(ParseError::new(app.line, 1, message));
        }
        folders.push((dir, app));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::lifecycle::Config;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn process(root: &Path, pid: u32, starttime: u64, command: &str, uid: u32) {
        let stat = format!("{pid} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {starttime} 1 1");
        put(root, &format!("proc/{pid}/stat"), &stat);
        put(root, &format!("proc/{pid}/cmdline"), command);
        let exe = root.join(format!("proc/{pid}/exe"));
        let _ = fs::remove_file(&exe);
        symlink(command.split('\0').next().unwrap(), exe).unwrap();
        let status = format!(
            "Name:\tx\nTgid:\t{pid}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t0\nVmRSS:\t9 kB\nRssAnon:\t4 kB\n"
        );
        put(root, &format!("proc/{pid}/status"), &status);
    }

    fn table(root: &Path, text: &str) -> AppTable {
        let mut table = AppTable::new(root);
        table.configure(&Config::parse(text).unwrap().apps).unwrap();
        table
    }

    #[test]
    fn table_ignores_process_with_reused_pid() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 70, 1000, "a\0", 5);
        let text = "[[app]]\nname = \"a\"\npid = 70\n[[app]]\nname = \"b\"\npid = 71\n";
        let mut table = table(root.path(), text);
        assert_eq!(
            (table.pids("a"), table.anon_rss("a")),
            (vec![70], Some(Bytes::kib(4)))
        );
        assert_eq!(table.missing().collect::<Vec<_>>(), [("b", 71)]);
        process(root.path(), 70, 2000, "other\0", 5);
        process(root.path(), 71, 2000, "other\0", 5);
        table.configure(&Config::parse(text).unwrap().apps).unwrap();
        assert_eq!(
            (table.verify("a", &[70]), table.verify("b", &[71])),
            (vec![], vec![])
        );
        assert_eq!((table.pids("a"), table.pids("b")), (vec![], vec![]));
        assert_eq!((table.anon_rss("a"), table.owners("a").len()), (None, 0));
    }

    #[test]
    fn table_looks_up_groups_units_and_commands_each_time() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        put(root, "proc/mounts", "cgroup2 /cg cgroup2 rw 0 0\n");
        process(root, 80, 1, "java\0-jar\0ide.jar\0", 5);
        process(root, 81, 1, "java\0-jar\0game.jar\0", 6);
        let text = "[[app]]\nname = \"g\"\ncgroup = \"/g\"\n[[app]]\nname = \"u\"\nunit = \"u\"\n\
            [[app]]\nname = \"c\"\ncommand = \"^java .*ide\"\nuser = 5\n";
        let mut table = table(root, text);
        assert_eq!(
            (table.pids("g"), table.pids("u"), table.pids("c")),
            (vec![], vec![], vec![80])
        );
        put(root, "cg/g/cgroup.procs", "80\n");
        put(root, "cg/s/u.service/cgroup.procs", "81\n80\n");
        assert_eq!(table.pids("g"), [80]);
        assert_eq!(
            table.pids("u"),
            [0; 0],
            "searched again after a second, or a reload"
        );
        table.configure(&Config::parse(text).unwrap().apps).unwrap();
        assert_eq!(table.pids("u"), [80, 81]);
        let mut both = |app| table.verify(app, &[80, 81]);
        assert_eq!(
            (both("g"), both("u"), both("c"), both("x")),
            (vec![80], vec![80, 81], vec![80], vec![])
        );
        process(root, 80, 2, "sh\0", 5);
        assert!(
            table.verify("c", &[80]).is_empty(),
            "the process runs another program"
        );
        assert_eq!(table.owners("u").into_iter().collect::<Vec<_>>(), [5, 6]);
        assert_eq!(table.anon_rss("u"), Some(Bytes::kib(8)));
    }

    #[test]
    fn table_rejects_unit_and_path_of_one_group() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        put(root, "proc/mounts", "cgroup2 /cg cgroup2 rw 0 0\n");
        put(root, "cg/s/cgroup.procs", "");
        put(root, "cg/s/u.service/cgroup.procs", "81\n");
        let text = "[[app]]\nname = \"g\"\ncgroup = \"/s\"\n[[app]]\nname = \"u\"\nunit = \"u\"\n";
        let error = AppTable::new(root)
            .configure(&Config::parse(text).unwrap().apps)
            .unwrap_err();
        assert_eq!(error.line, 4);
        assert!(error.message.contains("\"g\" (line 1) claims"), "{error}");
    }
}
