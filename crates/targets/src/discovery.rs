//! Finds the target processes in `/proc`, and reports which appeared and which vanished.
//!
//! Lists of all processes are read only as often as that takes a small part of the time. Between that, only
//! processes with new numbers are looked at. So a new process is found at the next update, however many there
//! are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use thermo_engine::TargetId;
use thermo_kernel::cgroup::{self, Group};
use thermo_kernel::stat::{self, Image, Stat};
use thermo_kernel::{FileError, ProcError, children, clock, maps, proc, status};
use thermo_units::Nanos;

use crate::error::TargetError;
use crate::exclude::is_session_program;
use crate::new_pids::NewPids;
use crate::spec::TargetSpec;

/// A process that is a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveredProcess {
    /// The process number.
    pub pid: u32,
    /// Start time in clock ticks since boot. Pid and start time together identify a process.
    pub starttime: u64,
    /// The parent when it was found.
    pub ppid: u32,
    image: Image,
    origin: Origin,
}

/// Reading all lists takes at most this part of the time of one CPU.
const LISTS_DIVISOR: u64 = 1024;

/// How a target was found. The origin decides how long the process stays a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Named by the user, or a descendant of a target: until the process ends.
    Named,
    /// In the control group: until the process ends or leaves the group.
    Group,
    /// Found on the machine: until the process ends or executes an excluded program.
    System,
    /// Selected by another part of the program: until the process ends or is not selected any more.
    Selected,
}

/// Differences between two updates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// New targets, in the order they were found.
    pub appeared: Vec<TargetId>,
    /// New targets that a target forked. `fork()` copied the accessed bits of the parent to the child.
    pub forked: Vec<TargetId>,
    /// Targets that ended, left the control group, or execute another program.
    pub vanished: Vec<TargetId>,
}

/// Finds the processes that a [`TargetSpec`] selects.
#[derive(Debug)]
pub struct Discovery {
    root: PathBuf,
    spec: TargetSpec,
    group: Option<Group>,
    /// The processes of the group.
    members: BTreeSet<u32>,
    own_pid: u32,
    new_pids: NewPids,
    /// When all lists are read again.
    next_lists: Nanos,
    /// Named processes that no update has added yet.
    pending_pids: Vec<u32>,
    /// The selected processes, with their start times.
    selection: BTreeMap<u32, u64>,
    processes: BTreeMap<TargetId, DiscoveredProcess>,
    by_pid: BTreeMap<u32, TargetId>,
    next_id: u32,
}

impl Discovery {
    /// Checks `spec`. There are no targets before the first [`Discovery::update`].
    ///
    /// # Errors
    /// If `spec` is empty, or names a process or control group that does not exist, can never be a target, or
    /// may not be read.
    pub fn new(root: &Path, spec: TargetSpec) -> Result<Self, TargetError> {
        if spec.is_empty() {
            return Err(TargetError::Nothing);
        }
        let own_pid = std::process::id();
        let mut pending_pids = Vec::with_capacity(spec.pids.len());
        for &pid in &spec.pids {
            match check(root, pid, own_pid) {
                Ok(()) => pending_pids.push(pid),
                // A command may have ended already and left a background process.
                Err(TargetError::NoProcess { .. }) if spec.orphans => {}
                // Processes that the command starts later can be monitored.
                Err(TargetError::FirstThreadEnded { .. }) if spec.orphans => pending_pids.push(pid),
                Err(error) => return Err(error),
            }
        }
        let group = spec
            .cgroup
            .as_deref()
            .map(|path| Group::find(root, path))
            .transpose()?;
        if let (Some(group), Some(path)) = (&group, &spec.cgroup)
            && group.is_root(root)?
        {
            return Err(TargetError::WholeMachine { path: path.clone() });
        }
        Ok(Self {
            root: root.to_owned(),
            spec,
            group,
            members: BTreeSet::new(),
            own_pid,
            new_pids: NewPids::new(root),
            next_lists: Nanos::ZERO,
            pending_pids,
            selection: BTreeMap::new(),
            processes: BTreeMap::new(),
            by_pid: BTreeMap::new(),
            next_id: 0,
        })
    }

    /// The targets, in the order they appeared.
    #[must_use]
    pub const fn processes(&self) -> &BTreeMap<TargetId, DiscoveredProcess> {
        &self.processes
    }

    /// Whether process `pid` is a target.
    #[must_use]
    pub fn is_target(&self, pid: u32) -> bool {
        self.by_pid.contains_key(&pid)
    }

    /// The control group of the targets, as the user named it.
    #[must_use]
    pub fn cgroup(&self) -> Option<&str> {
        self.spec.cgroup.as_deref()
    }

    /// Replaces the selected processes: numbers and start times. The next update follows.
    pub fn select(&mut self, selection: BTreeMap<u32, u64>) {
        self.selection = selection;
    }

    /// Updates the targets. `ended` have ended, as their pidfds say.
    ///
    /// # Errors
    /// If the list of processes in `/proc` cannot be read.
    pub fn update(&mut self, ended: &BTreeSet<TargetId>) -> Result<Changes, FileError> {
        let (now, began) = (clock::monotonic(), clock::thread_cpu());
        let mut changes = Changes::default();
        let new = self.new_pids.next(now).filter(|_| now < self.next_lists);
        match &new {
            Some(new) => self.update_members(new),
            None => self.members = self.group_pids(),
        }
        self.remove_vanished(ended, &mut changes);
        for pid in std::mem::take(&mut self.pending_pids) {
            self.add_if_eligible(pid, Origin::Named, &mut changes);
        }
        self.add_selected(&mut changes);
        match new {
            Some(new) => {
                if self.spec.children {
                    // Their children may be older.
                    let appeared = changes.appeared.iter();
                    let pids = appeared
                        .filter_map(|id| Some(self.processes.get(id)?.pid))
                        .collect();
                    self.add_children(pids, &mut changes);
                }
                new.into_iter()
                    .for_each(|pid| self.look_at_new(pid, now, &mut changes));
            }
            None => {
                self.add_listed(&mut changes)?;
                let cost = clock::thread_cpu().saturating_sub(began);
                self.next_lists = now.saturating_add(cost * LISTS_DIVISOR);
            }
        }
        Ok(changes)
    }

    /// Adds targets from lists of all processes.
    fn add_listed(&mut self, changes: &mut Changes) -> Result<(), FileError> {
        let members: Vec<u32> = self.members.iter().copied().collect();
        for pid in members {
            self.add_if_eligible(pid, Origin::Group, changes);
        }
        if self.spec.children {
            let mut parents: Vec<u32> = self.by_pid.keys().copied().collect();
            if self.spec.orphans {
                parents.push(self.own_pid);
            }
            self.add_children(parents, changes);
        }
        if self.spec.system {
            for pid in proc::pids(&self.root)? {
                self.add_if_eligible(pid, Origin::System, changes);
            }
        }
        Ok(())
    }

    /// Adds process `pid`, whose number is new, if it is a target.
    fn look_at_new(&mut self, pid: u32, now: Nanos, changes: &mut Changes) {
        if !self.may_be_added(pid) {
            return self.new_pids.done(pid);
        }
        let Some(stat) = live_stat(&self.root, pid) else {
            // It may not be visible yet.
            return self.new_pids.unseen(pid);
        };
        let of_us = self.spec.orphans && stat.ppid == self.own_pid;
        let is_child = self.spec.children && (of_us || self.by_pid.contains_key(&stat.ppid));
        let origin = match () {
            () if is_child => Origin::Named,
            () if self.members.contains(&pid) => Origin::Group,
            () if self.spec.system => Origin::System,
            () => return self.new_pids.done(pid),
        };
        // The kernel gives out numbers to threads, too.
        if !status::read(&self.root, pid).is_ok_and(|status| status.tgid == pid) {
            return self.new_pids.done(pid);
        }
        match self.add_eligible(stat, origin, changes) {
            Some(id) => {
                self.new_pids.done(pid);
                changes.forked.extend(is_child.then_some(id));
            }
            // It may execute another program.
            None => self.new_pids.again(pid, now),
        }
    }

    /// Updates the processes of the group by those with new numbers.
    fn update_members(&mut self, new: &[u32]) {
        let Some(group) = self.group.as_ref().filter(|_| !new.is_empty()) else {
            return;
        };
        let mounts = cgroup::mounts(&self.root).unwrap_or_default();
        for pid in new {
            let paths = cgroup::paths(&self.root, *pid).unwrap_or_default();
            let mut groups = paths.iter().filter_map(|path| Group::at(&mounts, path));
            match groups.any(|of_process| of_process.dir.starts_with(&group.dir)) {
                true => self.members.insert(*pid),
                false => self.members.remove(pid),
            };
        }
    }

    /// True if new targets can appear that no live target forks.
    #[must_use]
    pub fn can_grow(&self) -> bool {
        let waits = self.spec.waits_for_cgroup;
        let group_exists = self.group.as_ref().is_some_and(|group| waits || group.exists());
        self.spec.system
            || self.spec.selected
            || !self.pending_pids.is_empty()
            || group_exists
            || (self.spec.orphans && self.has_new_orphan())
    }

    /// Removes a target that has ended.
    pub fn remove(&mut self, id: TargetId) {
        if let Some(process) = self.processes.remove(&id) {
            self.by_pid.remove(&process.pid);
        }
    }

    /// True if an orphan that is not a target yet is alive.
    fn has_new_orphan(&self) -> bool {
        let children = children::read(&self.root, self.own_pid).unwrap_or_default();
        children
            .into_iter()
            .any(|pid| !self.by_pid.contains_key(&pid) && live_stat(&self.root, pid).is_some())
    }

    /// The processes of the control group. A group that was removed has none.
    fn group_pids(&self) -> BTreeSet<u32> {
        self.group
            .as_ref()
            .and_then(|group| group.procs().ok())
            .unwrap_or_default()
            .into_iter()
            .collect()
    }

    fn remove_vanished(&mut self, ended: &BTreeSet<TargetId>, changes: &mut Changes) {
        let left = |process: &DiscoveredProcess| match process.origin {
            Origin::Group => !self.members.contains(&process.pid),
            Origin::Selected => self.selection.get(&process.pid) != Some(&process.starttime),
            Origin::Named | Origin::System => false,
        };
        let is_gone = |(id, process): &(&TargetId, &DiscoveredProcess)| ended.contains(id) || left(process);
        let gone: Vec<TargetId> = self.processes.iter().filter(is_gone).map(|(id, _)| *id).collect();
        for id in gone {
            self.remove(id);
            changes.vanished.push(id);
        }
    }

    /// Reads whether this target still runs, and runs the same program. A target that executed another
    /// program is replaced by a new one.
    pub fn look_at(&mut self, id: TargetId) -> Changes {
        let mut changes = Changes::default();
        // A process that cannot be read may be alive. A later look reads it again.
        if let Some(process) = self.processes.get(&id)
            && let Ok(stat) = read_live_stat(&self.root, process.pid)
        {
            match stat.filter(|stat| stat.starttime == process.starttime) {
                Some(stat) if has_executed(process.image, stat.image) => self.replace(id, stat, &mut changes),
                Some(stat) => self.set_image(id, stat.image),
                None => {
                    self.remove(id);
                    changes.vanished.push(id);
                }
            }
        }
        changes
    }

    // `execve()` replaces the address space, so nothing known about the old one holds for the new one.
    fn replace(&mut self, id: TargetId, stat: Stat, changes: &mut Changes) {
        let origin = self.processes[&id].origin;
        self.remove(id);
        changes.vanished.push(id);
        let is_asked_for = matches!(origin, Origin::Named | Origin::Selected);
        if is_asked_for || !self.is_excluded(&stat) {
            self.add(stat, origin, changes);
        }
    }

    fn set_image(&mut self, id: TargetId, image: Image) {
        if let Some(process) = self.processes.get_mut(&id).filter(|_| image.is_known()) {
            process.image = image;
        }
    }

    // A number that was used again since the selection is another process.
    fn add_selected(&mut self, changes: &mut Changes) {
        let new: Vec<(u32, u64)> = self
            .selection
            .iter()
            .filter(|(pid, _)| !self.by_pid.contains_key(pid))
            .map(|(pid, starttime)| (*pid, *starttime))
            .collect();
        for (pid, starttime) in new {
            if pid == 1 || pid == self.own_pid {
                continue;
            }
            let stat = live_stat(&self.root, pid);
            let is_same = |stat: &Stat| stat.starttime == starttime && !stat.is_kernel_thread();
            if let Some(stat) = stat.filter(is_same) {
                self.add(stat, Origin::Selected, changes);
            }
        }
    }

    /// Adds the descendants of `parents`.
    fn add_children(&mut self, mut parents: Vec<u32>, changes: &mut Changes) {
        while let Some(parent) = parents.pop() {
            for child in children::read(&self.root, parent).unwrap_or_default() {
                if let Some(id) = self.add_if_eligible(child, Origin::Named, changes) {
                    changes.forked.push(id);
                    parents.push(child);
                }
            }
        }
    }

    fn add_if_eligible(&mut self, pid: u32, origin: Origin, changes: &mut Changes) -> Option<TargetId> {
        if !self.may_be_added(pid) {
            return None;
        }
        self.add_eligible(live_stat(&self.root, pid)?, origin, changes)
    }

    /// Adds a process that [`may_be_added`](Self::may_be_added).
    fn add_eligible(&mut self, stat: Stat, origin: Origin, changes: &mut Changes) -> Option<TargetId> {
        let is_excluded = origin != Origin::Named && self.is_excluded(&stat);
        (!stat.is_kernel_thread() && !is_excluded).then(|| self.add(stat, origin, changes))
    }

    /// False for this program, the first process, and targets.
    fn may_be_added(&self, pid: u32) -> bool {
        pid != 1 && pid != self.own_pid && !self.by_pid.contains_key(&pid)
    }

    fn is_excluded(&self, stat: &Stat) -> bool {
        (self.spec.system && is_session_program(&stat.comm)) || self.spec.exclude.contains(&stat.comm)
    }

    fn add(&mut self, stat: Stat, origin: Origin, changes: &mut Changes) -> TargetId {
        let id = TargetId(self.next_id);
        self.next_id += 1;
        self.by_pid.insert(stat.pid, id);
        let process = DiscoveredProcess {
            pid: stat.pid,
            starttime: stat.starttime,
            ppid: stat.ppid,
            image: stat.image,
            origin,
        };
        self.processes.insert(id, process);
        changes.appeared.push(id);
        id
    }
}

/// The `stat` of a live process; `None` also if it cannot be read.
fn live_stat(root: &Path, pid: u32) -> Option<Stat> {
    read_live_stat(root, pid).ok().flatten()
}

fn read_live_stat(root: &Path, pid: u32) -> Result<Option<Stat>, ProcError> {
    match stat::read(root, pid) {
        Ok(stat) => Ok(Some(stat).filter(Stat::process_lives)),
        Err(ProcError::Gone { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// True if the process has executed another program.
fn has_executed(before: Image, now: Image) -> bool {
    before.is_known() && now.is_known() && before != now
}

fn check(root: &Path, pid: u32, own_pid: u32) -> Result<(), TargetError> {
    if pid == own_pid {
        return Err(TargetError::Protected {
            pid,
            description: "this program itself",
        });
    }
    let stat = live_stat(root, pid).ok_or(TargetError::NoProcess { pid })?;
    if stat.is_kernel_thread() {
        return Err(TargetError::KernelThread { pid, comm: stat.comm });
    }
    if pid == 1 {
        return Err(TargetError::Protected {
            pid,
            description: "the first process of the machine",
        });
    }
    let status = status::read(root, pid).map_err(|err| to_target_error(err, &stat, 0))?;
    if status.tgid != pid {
        return Err(TargetError::Thread {
            tid: pid,
            pid: status.tgid,
        });
    }
    if stat.has_ended() {
        return Err(TargetError::FirstThreadEnded { pid, comm: stat.comm });
    }
    match maps::read(root, pid) {
        // It is a target, and set aside until it answers.
        Ok(_) | Err(ProcError::NotAnswering(_)) => Ok(()),
        Err(err) => Err(to_target_error(err, &stat, status.euid)),
    }
}

fn to_target_error(err: ProcError, stat: &Stat, uid: u32) -> TargetError {
    match err {
        ProcError::File(FileError::Denied { .. }) => TargetError::Denied {
            pid: stat.pid,
            comm: stat.comm.clone(),
            uid,
        },
        ProcError::File(err) => TargetError::File(err),
        _ => TargetError::NoProcess { pid: stat.pid },
    }
}
