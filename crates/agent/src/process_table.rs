//! The processes of the machine, and the policy of each.
//!
//! An update looks at few processes: new ones, those whose number was given out again since
//! the last update, young ones, which often execute another program, and in turn a part of the others. So a
//! new process is found at once, and an exec or a change of group of an old one within [`TURN_UPDATES`]
//! updates.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use thermo_kernel::cgroup::GroupPath;
use thermo_kernel::{FileError, ProcError, proc, stat};
use thermo_units::{Nanos, Turn};

use crate::api;
use crate::config::Config;
use crate::identity::Identity;
use crate::kubernetes::pod_list::Pod;
use crate::kubernetes::pod_names::PodNames;

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

/// A process of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyProcess {
    /// The process number.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub starttime: u64,
    /// Name of the target.
    pub target: String,
    /// Its control groups that may tell how long their tasks waited for memory.
    pub memory_groups: Vec<GroupPath>,
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
    /// Processes that did not answer when they were identified: their environment is not known.
    unanswered: BTreeSet<u32>,
    /// The names of pods.
    pods: PodNames,
    /// The number that was given out last, at the last update.
    last_pid: u32,
    turn: Turn<u32>,
    nr_updates: u32,
}

impl ProcessTable {
    /// No process is known before the first update.
    #[must_use]
    pub fn new(root: &Path, pods: PodNames) -> Self {
        Self {
            pods,
            root: root.to_owned(),
            own_pid: std::process::id(),
            known: BTreeMap::new(),
            kernel_threads: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            last_pid: 0,
            turn: Turn::default(),
            nr_updates: 0,
        }
    }

    /// The names of pods.
    #[must_use]
    pub const fn pods(&self) -> &PodNames {
        &self.pods
    }

    /// The names of pods, to report how the kubelet was asked.
    pub const fn pods_mut(&mut self) -> &mut PodNames {
        &mut self.pods
    }

    /// Gives the processes the names of this list of the kubelet. Returns whether an assignment changed.
    pub fn set_pods(&mut self, listed: Vec<Pod>, config: &Config, now: Nanos) -> bool {
        let paths = self
            .known
            .values()
            .filter_map(|known| known.identity.pod.as_ref());
        let keys = paths.flat_map(|pod| [Some(&pod.path.uid), pod.path.container.as_ref()]);
        let in_use: BTreeSet<String> = keys.flatten().cloned().collect();
        self.pods.set_listed(listed, &in_use, now);
        let mut changed = false;
        for known in self.known.values_mut() {
            let Some(before) = known.identity.pod.take() else {
                continue;
            };
            let after = self.pods.complete(before.path.clone());
            self.pods.want(&after, now);
            let is_same = before == after;
            known.identity.pod = Some(after);
            if !is_same {
                let assignment = assign(config, &known.identity);
                changed |= assignment != known.assignment;
                known.assignment = assignment;
            }
        }
        changed
    }

    /// Forgets everything: the configuration has changed.
    pub fn clear(&mut self) {
        self.known.clear();
        self.turn = Turn::default();
        self.nr_updates = 0;
    }

    /// Looks for changes. Returns whether an assignment changed.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn update(&mut self, config: &Config, now: Nanos) -> Result<bool, FileError> {
        let last_pid = proc::last_pid(&self.root)?;
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
        for pid in std::mem::take(&mut self.unanswered) {
            changed |= self.identify(pid, config, now);
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
        let in_turn = self.turn.entries(&self.known).map(|(pid, _)| *pid);
        let pids: Vec<u32> = in_turn.take(part).collect();
        pids.iter().for_each(|pid| self.turn.set(*pid));
        pids
    }

    /// Identifies the process again if it is another or has executed another program.
    fn look_again(&mut self, pid: u32, config: &Config, now: Nanos) -> bool {
        let Some(known) = self.known.get(&pid) else {
            return false;
        };
        let is_same = self.is_same(pid, known);
        !is_same && self.identify(pid, config, now)
    }

    /// Whether process `pid` is still the known one, and runs the same program.
    fn is_same(&self, pid: u32, known: &Known) -> bool {
        stat::read(&self.root, pid).is_ok_and(|stat| {
            stat.starttime == known.identity.starttime && stat.image == known.identity.image
        })
    }

    /// Reads what is known of the process. Returns whether its assignment changed.
    fn identify(&mut self, pid: u32, config: &Config, now: Nanos) -> bool {
        let mut before = self.known.remove(&pid);
        // A process that may not be read now is looked at again at the next update.
        let identity = match (Identity::read(&self.root, pid, &config.asked), before) {
            // What is known of a process that does not answer stays.
            (Err(ProcError::NotAnswering(_)), Some(known)) if self.is_same(pid, &known) => {
                self.unanswered.insert(pid);
                self.known.insert(pid, known);
                return false;
            }
            (Err(ProcError::NotAnswering(_)), other) => {
                before = other;
                self.unanswered.insert(pid);
                Identity::read(&self.root, pid, &config.asked.without_variables())
                    .ok()
                    .flatten()
            }
            (identity, other) => {
                before = other;
                identity.ok().flatten()
            }
        };
        let was = before.as_ref().and_then(|known| known.assignment.clone());
        let Some(mut identity) = identity else {
            if stat::read(&self.root, pid).is_ok_and(|stat| stat.is_kernel_thread()) {
                self.kernel_threads.insert(pid);
            }
            return was.is_some();
        };
        identity.pod = self.pods.look_up(&identity.cgroups);
        if let Some(pod) = &identity.pod {
            self.pods.want(pod, now);
        }
        let assignment = assign(config, &identity);
        let is_same_process = before
            .as_ref()
            .is_some_and(|known| known.identity.starttime == identity.starttime);
        let has_moved = before
            .as_ref()
            .is_some_and(|known| known.identity.cgroups != identity.cgroups);
        let changed = was != assignment || (!is_same_process || has_moved) && assignment.is_some();
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

    /// The processes of a policy.
    #[must_use]
    pub fn of_policy(&self, policy: usize) -> Vec<PolicyProcess> {
        let of_policy = |(pid, known): (&u32, &Known)| {
            let assignment = known.assignment.as_ref().filter(|one| one.policy == policy)?;
            let groups = known.identity.cgroups.iter();
            let of_memory = groups.filter(|group| group.may_control("memory"));
            Some(PolicyProcess {
                pid: *pid,
                starttime: known.identity.starttime,
                target: assignment.target.clone(),
                memory_groups: of_memory.cloned().collect(),
            })
        };
        self.known.iter().filter_map(of_policy).collect()
    }

    /// The first process of a target that is still known.
    #[must_use]
    pub fn first_of(&self, target: &api::Target) -> Option<&Identity> {
        let mut known = target.pids.iter().filter_map(|pid| self.known.get(pid));
        known.next().map(|known| &known.identity)
    }
}

/// The first policy that matches has the process. While names of its pod decide whether a policy matches, and
/// are not known, no later policy has it: that one might act on what the earlier one protects.
#[must_use]
pub fn assign(config: &Config, identity: &Identity) -> Option<Assignment> {
    for (nth, policy) in config.policies.iter().enumerate() {
        if policy.is_undecided(identity) {
            return None;
        }
        if policy.rule.check(identity).is_ok() {
            let target = policy.target_name.of(identity);
            return Some(Assignment { policy: nth, target });
        }
    }
    None
}
