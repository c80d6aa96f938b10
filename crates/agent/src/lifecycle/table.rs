//! Which processes the applications are now, whose they are, and how much memory they have.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use regex::Regex;
use thermo_kernel::cgroup::Group;
use thermo_kernel::{clock, meminfo, proc, stat, status};
use thermo_units::text::ParseError;
use thermo_units::{Bytes, Nanos};

use super::config::{AppConfig, Target};
use super::engine::Facts;

/// For so long a list of command lines is good enough to answer a question.
const SCAN_KEEPS: Nanos = Nanos::secs(1);

/// What a target was found to be.
#[derive(Debug, Clone)]
pub(super) enum Found {
    /// This process: its number and when it started.
    Process(u32, u64),
    /// A group, by its path or folder; it may come and go.
    Group(String),
    /// A unit, whose group may come and go.
    Unit(String),
    /// Whoever has such a command line.
    Command(Regex),
    /// A process that was not there when it was described: a later one of its number is another.
    Nobody,
}

/// The applications by name. See the module's text.
#[derive(Debug)]
pub(super) struct Table {
    root: PathBuf,
    apps: BTreeMap<String, (Target, Found)>,
    scan: Option<(Nanos, Vec<(u32, String)>)>,
}

impl Table {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            apps: BTreeMap::new(),
            scan: None,
        }
    }

    /// Describes the applications anew; those whose target is the same keep the process it was found to be.
    ///
    /// # Errors
    /// Two of them turn out to be one group; nothing is changed then.
    pub(super) fn configure(&mut self, apps: &[AppConfig]) -> Result<(), ParseError> {
        check_groups(&self.root, apps)?;
        let mut before = std::mem::take(&mut self.apps);
        for app in apps {
            let known = before
                .remove(&app.name)
                .filter(|(target, _)| *target == app.target);
            let (target, found) = known.unwrap_or_else(|| (app.target.clone(), self.find(&app.target)));
            self.apps.insert(app.name.clone(), (target, found));
        }
        Ok(())
    }

    /// The same applications, for another thread.
    pub(super) fn copy(&self) -> Self {
        Self {
            root: self.root.clone(),
            apps: self.apps.clone(),
            scan: None,
        }
    }

    /// Those that name a process which is not there.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&str, u32)> {
        self.apps
            .iter()
            .filter_map(|(name, (target, found))| match (target, found) {
                (Target::Pid(pid), Found::Nobody) => Some((name.as_str(), *pid)),
                _ => None,
            })
    }

    fn find(&self, target: &Target) -> Found {
        match target {
            Target::Pid(pid) => match stat::read(&self.root, *pid) {
                Ok(stat) if !stat.has_ended() => Found::Process(*pid, stat.starttime),
                _ => Found::Nobody,
            },
            Target::Cgroup(path) => Found::Group(path.clone()),
            Target::Unit(unit) => Found::Unit(unit.clone()),
            Target::Command(pattern) => Found::Command(pattern.clone()),
        }
    }

    /// The processes of an application that run now, ascending; never ourselves.
    pub(super) fn pids(&mut self, app: &str) -> Vec<u32> {
        let Some((_, found)) = self.apps.get(app) else {
            return Vec::new();
        };
        let of_group = |group: Result<Group, _>| -> Vec<u32> {
            group
                .ok()
                .and_then(|group: Group| group.procs().ok())
                .unwrap_or_default()
        };
        let mut pids = match found {
            Found::Nobody => Vec::new(),
            Found::Process(pid, starttime) => {
                let same = stat::read(&self.root, *pid)
                    .is_ok_and(|stat| stat.starttime == *starttime && !stat.has_ended());
                if same { vec![*pid] } else { Vec::new() }
            }
            Found::Group(path) => of_group(Group::find(&self.root, path)),
            Found::Unit(unit) => of_group(Group::of_unit(&self.root, unit)),
            Found::Command(pattern) => {
                let pattern = pattern.clone();
                let matching = self.commands().iter().filter(|(_, line)| pattern.is_match(line));
                matching.map(|(pid, _)| *pid).collect()
            }
        };
        let ourselves = std::process::id();
        pids.retain(|pid| *pid > 1 && *pid != ourselves);
        pids
    }

    /// Those of `pids` that are the application's now. Of processes that are held meanwhile this is sure: a number
    /// that is held by a living process cannot have passed to another.
    pub(super) fn confirm(&self, app: &str, pids: &[u32]) -> Vec<u32> {
        let Some((_, found)) = self.apps.get(app) else {
            return Vec::new();
        };
        let members = |group: Result<Group, _>| -> Vec<u32> {
            group
                .ok()
                .and_then(|group: Group| group.procs().ok())
                .unwrap_or_default()
        };
        let of_group = match found {
            Found::Group(path) => members(Group::find(&self.root, path)),
            Found::Unit(unit) => members(Group::of_unit(&self.root, unit)),
            _ => Vec::new(),
        };
        let is_still = |pid: &u32| match found {
            Found::Nobody => false,
            Found::Process(known, starttime) => {
                pid == known && stat::read(&self.root, *pid).is_ok_and(|stat| stat.starttime == *starttime)
            }
            Found::Group(_) | Found::Unit(_) => of_group.contains(pid),
            Found::Command(pattern) => command(&self.root, *pid).is_some_and(|line| pattern.is_match(&line)),
        };
        pids.iter().copied().filter(is_still).collect()
    }

    /// Every process with its command line; those without one are the kernel's.
    fn commands(&mut self) -> &[(u32, String)] {
        let now = clock::monotonic();
        let fresh = |when: Nanos| now.saturating_sub(when) < SCAN_KEEPS;
        if !self.scan.as_ref().is_some_and(|(when, _)| fresh(*when)) {
            let line = |pid: u32| Some((pid, command(&self.root, pid)?));
            let all = proc::all(&self.root).unwrap_or_default();
            self.scan = Some((now, all.into_iter().filter_map(line).collect()));
        }
        self.scan.as_ref().map_or(&[], |(_, lines)| lines)
    }

    /// The users that the processes of an application act as.
    pub(super) fn owners(&mut self, app: &str) -> BTreeSet<u32> {
        let pids = self.pids(app);
        let owner = |pid: &u32| status::read(&self.root, *pid).ok().map(|status| status.euid);
        pids.iter().filter_map(owner).collect()
    }
}

impl Facts for Table {
    fn anon_rss(&mut self, app: &str) -> Option<Bytes> {
        let pids = self.pids(app);
        let of_each = pids.iter().filter_map(|pid| status::read(&self.root, *pid).ok());
        let of_each: Vec<Bytes> = of_each.map(|status| status.rss_anon).collect();
        (!of_each.is_empty()).then(|| of_each.into_iter().sum())
    }

    fn swap(&mut self) -> (Bytes, Bytes) {
        // What cannot be read cannot be trusted to be enough.
        meminfo::read(&self.root).map_or((Bytes::ZERO, Bytes::ZERO), |info| {
            (info.swap_free, info.swap_total)
        })
    }
}

/// The words of a command line, joined by blanks; the kernel's own threads have none.
fn command(root: &Path, pid: u32) -> Option<String> {
    let text = proc::text(root, pid, "cmdline").ok()?;
    let line = text.trim_end_matches('\0').replace('\0', " ");
    (!line.is_empty()).then_some(line)
}

/// Paths and units can name one group in different words: what is there tells.
fn check_groups(root: &Path, apps: &[AppConfig]) -> Result<(), ParseError> {
    let mut folders: Vec<(PathBuf, &AppConfig)> = Vec::new();
    for app in apps {
        let group = match &app.target {
            Target::Cgroup(path) => Group::find(root, path).ok(),
            Target::Unit(unit) => Group::of_unit(root, unit).ok(),
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
        let status = format!(
            "Name:\tx\nTgid:\t{pid}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t0\nVmRSS:\t9 kB\nRssAnon:\t4 kB\n"
        );
        put(root, &format!("proc/{pid}/status"), &status);
    }

    fn table(root: &Path, text: &str) -> Table {
        let mut table = Table::new(root);
        table.configure(&Config::parse(text).unwrap().apps).unwrap();
        table
    }

    #[test]
    fn a_process_stays_the_one_it_was_when_its_number_is_used_again() {
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
            (table.confirm("a", &[70]), table.confirm("b", &[71])),
            (vec![], vec![])
        );
        assert_eq!((table.pids("a"), table.pids("b")), (vec![], vec![]));
        assert_eq!((table.anon_rss("a"), table.owners("a").len()), (None, 0));
    }

    #[test]
    fn groups_units_and_commands_are_looked_up_anew() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        put(root, "proc/mounts", "cgroup2 /cg cgroup2 rw 0 0\n");
        process(root, 80, 1, "java\0-jar\0ide.jar\0", 5);
        process(root, 81, 1, "java\0-jar\0game.jar\0", 6);
        let text = "[[app]]\nname = \"g\"\ncgroup = \"/g\"\n[[app]]\nname = \"u\"\nunit = \"u\"\n\
            [[app]]\nname = \"c\"\ncommand = \"^java .*ide\"\n";
        let mut table = table(root, text);
        assert_eq!(
            (table.pids("g"), table.pids("u"), table.pids("c")),
            (vec![], vec![], vec![80])
        );
        put(root, "cg/g/cgroup.procs", "80\n");
        put(root, "cg/s/u.service/cgroup.procs", "81\n80\n");
        assert_eq!((table.pids("g"), table.pids("u")), (vec![80], vec![80, 81]));
        let both = |app| table.confirm(app, &[80, 81]);
        assert_eq!(
            (both("g"), both("u"), both("c"), both("x")),
            (vec![80], vec![80, 81], vec![80], vec![])
        );
        process(root, 80, 2, "sh\0", 5);
        assert!(table.confirm("c", &[80]).is_empty(), "it runs another program");
        assert_eq!(table.owners("u").into_iter().collect::<Vec<_>>(), [5, 6]);
        assert_eq!(table.anon_rss("u"), Some(Bytes::kib(8)));
    }

    #[test]
    fn a_unit_and_a_path_can_be_one_group() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        put(root, "proc/mounts", "cgroup2 /cg cgroup2 rw 0 0\n");
        put(root, "cg/s/cgroup.procs", "");
        put(root, "cg/s/u.service/cgroup.procs", "81\n");
        let text = "[[app]]\nname = \"g\"\ncgroup = \"/s\"\n[[app]]\nname = \"u\"\nunit = \"u\"\n";
        let fault = Table::new(root)
            .configure(&Config::parse(text).unwrap().apps)
            .unwrap_err();
        assert_eq!(fault.line, 4);
        assert!(fault.message.contains("\"g\" (line 1) claims"), "{fault}");
    }
}
