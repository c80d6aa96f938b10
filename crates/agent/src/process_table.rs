//! The processes of the machine, and the policy of each.
//!
//! An update looks at few processes: new ones, those whose number was given out again since
//! the last update, young ones, which often execute another program, and in turn a part of the others. So a
//! new process is found at once, and an exec or a change of group of an old one within [`TURN_UPDATES`]
//! updates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use thermo_kernel::{FileError, file, proc, stat};
use thermo_units::Nanos;

use crate::api;
use crate::config::Config;
use crate::identity::Identity;

/// A process is young for this long after it was found.
const YOUNG: Nanos = Nanos::secs(5);
/// After so many updates, every old process was looked at again.
pub const TURN_UPDATES: usize = 30;
/// `/proc` is listed at each of so many updates, to find what has ended; and whenever a number was given out.
const LIST_UPDATES: u32 = 4;

/// The policy of a process and the name of its target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Assignment {
    /// Index of the policy in the configuration.
    pub policy: usize,
    /// Name of the target.
    pub target: String,
}

/// A known process.
#[derive(Debug)]
struct Known {
    identity: Identity,
    found: Nanos,
    assignment: Option<Assignment>,
}

/// The processes that run.
#[derive(Debug)]
pub struct ProcessTable {
    root: PathBuf,
    own_pid: u32,
    known: BTreeMap<u32, Known>,
    /// Threads of the kernel, which no policy has.
    kernel_threads: BTreeSet<u32>,
    /// The number that was given out last, at the last update.
    last_pid: u32,
    /// Where the next part of the old processes begins.
    turn: u32,
    nr_updates: u32,
}

impl ProcessTable {
    /// No process is known before the first update.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            own_pid: std::process::id(),
            known: BTreeMap::new(),
            kernel_threads: BTreeSet::new(),
            last_pid: 0,
            turn: 0,
            nr_updates: 0,
        }
    }

    /// Forgets everything: the configuration has changed.
    pub fn clear(&mut self) {
        self.known.clear();
        self.turn = 0;
        self.nr_updates = 0;
    }

    /// Looks for changes. Returns whether an assignment changed.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn update(&mut self, config: &Config, now: Nanos) -> Result<bool, FileError> {
        let last_pid = last_pid(&self.root)?;
        let lists = last_pid != self.last_pid || self.nr_updates.is_multiple_of(LIST_UPDATES);
        self.nr_updates = self.nr_updates.wrapping_add(1);
        let suspects = self.suspects(last_pid, now);
        self.last_pid = last_pid;
        let mut changed = false;
        if lists {
            changed |= self.list(config, now)?;
        }
        for pid in suspects {
            changed |= self.look_again(pid, config, now);
        }
        for pid in self.next_turn() {
            changed |= self.identify(pid, config, now);
        }
        Ok(changed)
    }

    /// Forgets processes that have ended, and identifies new ones.
    fn list(&mut self, config: &Config, now: Nanos) -> Result<bool, FileError> {
        let living: BTreeSet<u32> = proc::pids(&self.root)?.into_iter().collect();
        let mut changed = false;
        self.known.retain(|pid, known| {
            let lives = living.contains(pid);
            changed |= !lives && known.assignment.is_some();
            lives
        });
        self.kernel_threads.retain(|pid| living.contains(pid));
        let is_new = |pid: &u32| {
            let is_known = self.known.contains_key(pid) || self.kernel_threads.contains(pid);
            *pid > 1 && *pid != self.own_pid && !is_known
        };
        let new: Vec<u32> = living.into_iter().filter(is_new).collect();
        for pid in new {
            changed |= self.identify(pid, config, now);
        }
        Ok(changed)
    }

    /// Processes that may be others than before: their number was given out since the last update, or they
    /// are young.
    fn suspects(&mut self, last_pid: u32, now: Nanos) -> Vec<u32> {
        let (from, to) = (self.last_pid, last_pid);
        let is_recent = |pid: u32| match from <= to {
            true => pid > from && pid <= to,
            // The numbers began anew.
            false => pid > from || pid <= to,
        };
        self.kernel_threads.retain(|pid| !is_recent(*pid));
        let is_suspect =
            |(pid, known): &(&u32, &Known)| is_recent(**pid) || now.saturating_sub(known.found) < YOUNG;
        self.known
            .iter()
            .filter(is_suspect)
            .map(|(pid, _)| *pid)
            .collect()
    }

    /// The next part of all processes.
    fn next_turn(&mut self) -> Vec<u32> {
        let part = self.known.len().div_ceil(TURN_UPDATES);
        let pids: Vec<u32> = self
            .known
            .range(self.turn..)
            .map(|(pid, _)| *pid)
            .take(part)
            .collect();
        self.turn = pids.last().map_or(0, |pid| pid + 1);
        pids
    }

    /// Identifies the process again if it is another or has executed another program.
    fn look_again(&mut self, pid: u32, config: &Config, now: Nanos) -> bool {
        let Some(known) = self.known.get(&pid) else {
            return false;
        };
        let is_same = stat::read(&self.root, pid).is_ok_and(|stat| {
            stat.starttime == known.identity.starttime && stat.image == known.identity.image
        });
        !is_same && self.identify(pid, config, now)
    }

    /// Reads what is known of the process. Returns whether its assignment changed.
    fn identify(&mut self, pid: u32, config: &Config, now: Nanos) -> bool {
        let before = self.known.remove(&pid);
        // A process that may not be read now is looked at again at the next update.
        let identity = Identity::read(&self.root, pid, &config.asked).ok().flatten();
        let was = before.as_ref().and_then(|known| known.assignment.clone());
        let Some(identity) = identity else {
            if stat::read(&self.root, pid).is_ok_and(|stat| stat.is_kernel_thread()) {
                self.kernel_threads.insert(pid);
            }
            return was.is_some();
        };
        let assignment = assign(config, &identity);
        let is_same_process = before
            .as_ref()
            .is_some_and(|known| known.identity.starttime == identity.starttime);
        let changed = was != assignment || (!is_same_process && assignment.is_some());
        let found = before
            .filter(|_| is_same_process)
            .map_or(now, |known| known.found);
        self.known.insert(
            pid,
            Known {
                identity,
                found,
                assignment,
            },
        );
        changed
    }

    /// The processes of each policy: number, start time and name of the target.
    #[must_use]
    pub fn of_policy(&self, policy: usize) -> Vec<(u32, u64, String)> {
        let of_policy = |(pid, known): (&u32, &Known)| {
            let assignment = known.assignment.as_ref().filter(|one| one.policy == policy)?;
            Some((*pid, known.identity.starttime, assignment.target.clone()))
        };
        self.known.iter().filter_map(of_policy).collect()
    }

    /// The job class of a target: that of its first process, or its name if that has ended.
    #[must_use]
    pub fn workload(&self, target: &api::Target) -> String {
        let mut known = target.pids.iter().filter_map(|pid| self.known.get(pid));
        known
            .next()
            .map_or_else(|| target.name.clone(), |known| known.identity.workload())
    }
}

/// The first policy that matches has the process.
#[must_use]
pub fn assign(config: &Config, identity: &Identity) -> Option<Assignment> {
    let mut policies = config.policies.iter().enumerate();
    let (policy, found) = policies.find(|(_, policy)| policy.rule.check(identity).is_ok())?;
    let target = found.target_name.of(identity);
    Some(Assignment { policy, target })
}

/// The process number that the kernel gave out last.
fn last_pid(root: &Path) -> Result<u32, FileError> {
    let path = root.join("proc/loadavg");
    let text = file::text(&path)?;
    let last = text
        .split_ascii_whitespace()
        .last()
        .and_then(|number| number.parse().ok());
    last.ok_or_else(|| FileError::malformed(&path, text.trim(), "the last process number at the end"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(machine.0.path().join("proc")).unwrap();
            machine.last_pid(100);
            machine
        }

        fn last_pid(&self, pid: u32) {
            fs::write(
                self.0.path().join("proc/loadavg"),
                format!("0.1 0.1 0.1 1/99 {pid}\n"),
            )
            .unwrap();
        }

        fn process(&self, pid: u32, command: &str, starttime: u64, code: u64) {
            let folder = self.0.path().join(format!("proc/{pid}"));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            let zeros = "0 ".repeat(3);
            let stat = format!(
                "{pid} ({command}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {starttime} 1 1 1 {code} 1 {code} {zeros}"
            );
            fs::write(folder.join("stat"), stat).unwrap();
            fs::write(folder.join("cgroup"), "0::/\n").unwrap();
            fs::write(
                folder.join("status"),
                format!(
                    "Name:\tx\nTgid:\t{pid}\nUid:\t5\t5\t5\t5\nCapEff:\t0\nVmRSS:\t9 kB\nRssAnon:\t4 kB\n"
                ),
            )
            .unwrap();
            symlink(format!("/bin/{command}"), folder.join("exe")).unwrap();
        }

        fn end(&self, pid: u32) {
            fs::remove_dir_all(self.0.path().join(format!("proc/{pid}"))).unwrap();
        }
    }

    fn config() -> Config {
        let text = "[[policy]]\nname = \"a\"\nmatch = { command = \"a*\" }\n\
                    [[policy]]\nname = \"rest\"\nmatch = { user = \"5\" }\n";
        Config::parse(text, Path::new("/")).unwrap()
    }

    fn names(table: &ProcessTable, policy: usize) -> Vec<(u32, String)> {
        let processes = table.of_policy(policy).into_iter();
        processes.map(|(pid, _, name)| (pid, name)).collect()
    }

    #[test]
    fn first_policy_that_matches_has_the_process() {
        let machine = Machine::new();
        machine.process(70, "apache", 1, 4096);
        machine.process(71, "bind", 1, 4096);
        let mut table = ProcessTable::new(machine.0.path());
        assert!(table.update(&config(), Nanos::secs(1)).unwrap());
        assert_eq!(names(&table, 0), [(70, "apache".to_owned())]);
        assert_eq!(names(&table, 1), [(71, "bind".to_owned())]);
        assert!(
            !table.update(&config(), Nanos::secs(2)).unwrap(),
            "nothing changed"
        );
        machine.end(70);
        assert!(table.update(&config(), Nanos::secs(3)).unwrap());
        assert_eq!(names(&table, 0), []);
    }

    #[test]
    fn reused_number_is_another_process() {
        let machine = Machine::new();
        machine.process(70, "apache", 1, 4096);
        let mut table = ProcessTable::new(machine.0.path());
        table.update(&config(), Nanos::ZERO).unwrap();
        machine.process(70, "bind", 9, 4096);
        machine.last_pid(75);
        assert!(table.update(&config(), Nanos::secs(60)).unwrap());
        assert_eq!(
            (names(&table, 0), names(&table, 1)),
            (vec![], vec![(70, "bind".to_owned())])
        );
    }

    #[test]
    fn exec_is_seen_at_once_while_young_and_in_turn_later() {
        let machine = Machine::new();
        machine.process(70, "sh", 1, 4096);
        let mut table = ProcessTable::new(machine.0.path());
        table.update(&config(), Nanos::ZERO).unwrap();
        machine.process(70, "apache", 1, 8192);
        assert!(table.update(&config(), Nanos::secs(1)).unwrap());
        assert_eq!(names(&table, 0).len(), 1);
        machine.process(70, "bind", 1, 12_288);
        let changes = (0..TURN_UPDATES as u64)
            .filter(|nth| table.update(&config(), Nanos::secs(100 + nth)).unwrap())
            .count();
        assert_eq!((changes, names(&table, 1).len()), (1, 1));
    }
}
