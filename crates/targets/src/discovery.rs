//! Who the targets are now: looks through `/proc` and tells who came and who went.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use thermo_engine::TargetId;
use thermo_kernel::cgroup::Group;
use thermo_kernel::stat::{self, Image, Stat};
use thermo_kernel::{FileError, ProcError, children, maps, proc, status};

use crate::error::TargetError;
use crate::exclude::is_session_program;
use crate::spec::TargetSpec;

/// A target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its process.
    pub pid: u32,
    /// With the pid, names the process for good.
    pub starttime: u64,
    image: Image,
    found: Found,
}

/// How a target was found; says until when it is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Named, or a child of one: until it ends.
    Named,
    /// In the group: until it leaves it.
    Group,
    /// On the machine: until it ends or turns into a program that is left alone.
    System,
}

/// Who came and went since the last look.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// New targets, in the order they were found.
    pub appeared: Vec<TargetId>,
    /// Those of the new that were forked by a target: their pages carry the accessed marks of their parent's.
    pub forked: Vec<TargetId>,
    /// Targets that are gone.
    pub vanished: Vec<TargetId>,
}

/// The targets, by what the user named.
#[derive(Debug)]
pub struct Discovery {
    root: PathBuf,
    spec: TargetSpec,
    group: Option<Group>,
    ourselves: u32,
    unseen: Vec<u32>,
    members: BTreeMap<TargetId, Member>,
    by_pid: BTreeMap<u32, TargetId>,
    next: u32,
}

impl Discovery {
    /// Checks what the user named. Nobody is a target before the first [`Discovery::look`].
    ///
    /// # Errors
    /// When something named is not there, is never a target, or may not be looked at.
    pub fn new(root: &Path, spec: TargetSpec) -> Result<Self, TargetError> {
        if spec.is_empty() {
            return Err(TargetError::Nothing);
        }
        let ourselves = std::process::id();
        let mut unseen = Vec::with_capacity(spec.pids.len());
        for &pid in &spec.pids {
            match check(root, pid, ourselves) {
                Ok(()) => unseen.push(pid),
                // A command can be over before it is looked at, and have left something in the background.
                Err(TargetError::NoProcess { .. }) if spec.orphans => {}
                Err(error) => return Err(error),
            }
        }
        let group = spec
            .cgroup
            .as_deref()
            .map(|path| Group::find(root, path))
            .transpose()?;
        if let (Some(group), Some(path)) = (&group, &spec.cgroup)
            && group.is_whole_machine(root)?
        {
            return Err(TargetError::WholeMachine { path: path.clone() });
        }
        let (members, by_pid) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self {
            root: root.to_owned(),
            spec,
            group,
            ourselves,
            unseen,
            members,
            by_pid,
            next: 0,
        })
    }

    /// The targets, in the order they appeared.
    #[must_use]
    pub const fn members(&self) -> &BTreeMap<TargetId, Member> {
        &self.members
    }

    /// Brings the targets up to date.
    ///
    /// # Errors
    /// When `/proc` itself cannot be read.
    pub fn look(&mut self) -> Result<Changes, FileError> {
        let mut changes = Changes::default();
        let in_group = self.in_group();
        self.drop_those_gone(&in_group, &mut changes);
        for pid in std::mem::take(&mut self.unseen) {
            self.admit(pid, Found::Named, &mut changes);
        }
        for &pid in &in_group {
            self.admit(pid, Found::Group, &mut changes);
        }
        if self.spec.children {
            self.follow_children(&mut changes);
        }
        if self.spec.system {
            for pid in proc::all(&self.root)? {
                self.admit(pid, Found::System, &mut changes);
            }
        }
        Ok(changes)
    }

    /// True while targets can appear without being forked by one that lives.
    #[must_use]
    pub fn can_grow(&self) -> bool {
        let group_lives = self.group.as_ref().is_some_and(Group::exists);
        self.spec.system
            || !self.unseen.is_empty()
            || group_lives
            || (self.spec.orphans && self.orphan_waits())
    }

    /// Takes a target off the list: it was found to be gone.
    pub fn remove(&mut self, id: TargetId) {
        if let Some(member) = self.members.remove(&id) {
            self.by_pid.remove(&member.pid);
        }
    }

    fn orphan_waits(&self) -> bool {
        let children = children::of(&self.root, self.ourselves).unwrap_or_default();
        children
            .into_iter()
            .any(|pid| !self.by_pid.contains_key(&pid) && living(&self.root, pid).is_some())
    }

    // A group that was removed has nobody in it.
    fn in_group(&self) -> BTreeSet<u32> {
        self.group
            .as_ref()
            .and_then(|group| group.procs().ok())
            .unwrap_or_default()
            .into_iter()
            .collect()
    }

    fn drop_those_gone(&mut self, in_group: &BTreeSet<u32>, changes: &mut Changes) {
        let ids: Vec<TargetId> = self.members.keys().copied().collect();
        for id in ids {
            let member = &self.members[&id];
            // What cannot be read now may live: the next look tells.
            let Ok(now) = read_living(&self.root, member.pid) else {
                continue;
            };
            let now = now.filter(|stat| stat.starttime == member.starttime);
            let left = member.found == Found::Group && !in_group.contains(&member.pid);
            match now {
                Some(stat) if !left && ran_another(member.image, stat.image) => {
                    self.replace(id, stat, changes)
                }
                Some(stat) if !left => self.note(id, stat.image),
                _ => {
                    self.remove(id);
                    changes.vanished.push(id);
                }
            }
        }
    }

    // The old address space is gone with all that was known of it.
    fn replace(&mut self, id: TargetId, stat: Stat, changes: &mut Changes) {
        let found = self.members[&id].found;
        self.remove(id);
        changes.vanished.push(id);
        if found == Found::Named || !self.left_alone(&stat) {
            self.add(stat, found, changes);
        }
    }

    fn note(&mut self, id: TargetId, image: Image) {
        if let Some(member) = self.members.get_mut(&id).filter(|_| image.is_known()) {
            member.image = image;
        }
    }

    fn follow_children(&mut self, changes: &mut Changes) {
        let mut parents: Vec<u32> = self.by_pid.keys().copied().collect();
        if self.spec.orphans {
            parents.push(self.ourselves);
        }
        while let Some(parent) = parents.pop() {
            for child in children::of(&self.root, parent).unwrap_or_default() {
                if let Some(id) = self.admit(child, Found::Named, changes) {
                    changes.forked.push(id);
                    parents.push(child);
                }
            }
        }
    }

    fn admit(&mut self, pid: u32, found: Found, changes: &mut Changes) -> Option<TargetId> {
        if pid == 1 || pid == self.ourselves || self.by_pid.contains_key(&pid) {
            return None;
        }
        let stat = living(&self.root, pid).filter(|stat| !stat.is_kernel_thread())?;
        if found != Found::Named && self.left_alone(&stat) {
            return None;
        }
        Some(self.add(stat, found, changes))
    }

    fn left_alone(&self, stat: &Stat) -> bool {
        (self.spec.system && is_session_program(&stat.comm)) || self.spec.exclude.contains(&stat.comm)
    }

    fn add(&mut self, stat: Stat, found: Found, changes: &mut Changes) -> TargetId {
        let id = TargetId(self.next);
        self.next += 1;
        self.by_pid.insert(stat.pid, id);
        let Stat {
            pid,
            starttime,
            image,
            ..
        } = stat;
        self.members.insert(
            id,
            Member {
                pid,
                starttime,
                image,
                found,
            },
        );
        changes.appeared.push(id);
        id
    }
}

fn living(root: &Path, pid: u32) -> Option<Stat> {
    read_living(root, pid).ok().flatten()
}

fn read_living(root: &Path, pid: u32) -> Result<Option<Stat>, ProcError> {
    match stat::read(root, pid) {
        Ok(stat) => Ok(Some(stat).filter(Stat::process_lives)),
        Err(ProcError::Gone { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn ran_another(before: Image, now: Image) -> bool {
    before.is_known() && now.is_known() && before != now
}

fn check(root: &Path, pid: u32, ourselves: u32) -> Result<(), TargetError> {
    if pid == ourselves {
        return Err(TargetError::Protected {
            pid,
            who: "this program itself",
        });
    }
    let stat = living(root, pid).ok_or(TargetError::NoProcess { pid })?;
    if stat.is_kernel_thread() {
        return Err(TargetError::KernelThread { pid, comm: stat.comm });
    }
    if pid == 1 {
        return Err(TargetError::Protected {
            pid,
            who: "the first process of the machine",
        });
    }
    let status = status::read(root, pid).map_err(|err| sort(err, &stat, 0))?;
    if status.tgid != pid {
        return Err(TargetError::Thread {
            tid: pid,
            pid: status.tgid,
        });
    }
    maps::read(root, pid)
        .map(drop)
        .map_err(|err| sort(err, &stat, status.euid))
}

fn sort(err: proc::ProcError, stat: &Stat, uid: u32) -> TargetError {
    match err {
        proc::ProcError::File(FileError::Denied { .. }) => TargetError::Denied {
            pid: stat.pid,
            comm: stat.comm.clone(),
            uid,
        },
        proc::ProcError::File(err) => TargetError::File(err),
        _ => TargetError::NoProcess { pid: stat.pid },
    }
}
