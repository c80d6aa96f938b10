//! The targets, each held by a pidfd, and what to monitor of each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use thermo_engine::access_tables::Backing;
use thermo_engine::{TargetId, TargetLayout};
use thermo_kernel::{FileError, ProcError, clock, maps, open_files, stat, statm};
use thermo_units::AddrRange;

use crate::discovery::Discovery;
use crate::error::TargetError;
use crate::growth_guard::GrowthGuard;
use crate::layout::LayoutRule;
use crate::layout::backings;
use crate::process::{Process, Processes};
use crate::spec::TargetSpec;

/// The targets as trackers and actors use them.
#[derive(Debug)]
pub struct TrackedProcesses {
    root: PathBuf,
    discovery: Discovery,
    rule: LayoutRule,
    processes: Processes,
    fresh: BTreeSet<TargetId>,
    news: Vec<String>,
    /// Whether it was said that there are too many.
    told_of_room: bool,
    /// Those of which it was said that their first thread has ended.
    headless: BTreeSet<TargetId>,
    growth_guard: GrowthGuard,
    /// When targets were brought up to date before, in clock ticks since boot.
    updated: Option<u64>,
}

/// What backs mappings; see [`backings`].
type Backings = Vec<(AddrRange, Backing)>;

/// Files that are open besides those that hold targets: also the iterators of the BPF program, where it has those.
const OTHER_FILES: usize = 64 + thermo_pagetable::MAX_OPEN;

impl TrackedProcesses {
    /// Checks what the user named. Nobody is a target before the first [`TrackedProcesses::update`].
    ///
    /// # Errors
    /// When something named is not there, is never a target, or may not be looked at.
    pub fn new(root: &Path, spec: TargetSpec) -> Result<Self, TargetError> {
        let rule = spec.layout;
        let discovery = Discovery::new(root, spec)?;
        let (processes, fresh) = (Processes::new(), BTreeSet::new());
        Ok(Self {
            root: root.to_owned(),
            discovery,
            rule,
            processes,
            fresh,
            news: Vec::new(),
            told_of_room: false,
            headless: BTreeSet::new(),
            growth_guard: GrowthGuard::default(),
            updated: None,
        })
    }

    /// Brings the targets up to date: all that live now, in the order they appeared, with what to monitor of each.
    /// Those we may not look into (found in a group or on the machine) are left out.
    ///
    /// # Errors
    /// When `/proc` itself cannot be read.
    pub fn update(&mut self) -> Result<Vec<TargetLayout>, FileError> {
        let now = clock::boot_ticks();
        let changes = self.discovery.look()?;
        self.growth_guard.begin(&self.root, clock::monotonic());
        changes.vanished.iter().for_each(|&id| self.forget(id));
        let room = self.make_room(changes.appeared.len());
        changes.appeared.iter().for_each(|&id| self.hold(id, room));
        self.fresh
            .extend(changes.forked.iter().filter(|id| self.processes.contains_key(id)));
        let held: Vec<(TargetId, u32)> = self
            .processes
            .values()
            .map(|process| (process.id, process.pid))
            .collect();
        let layouts = held
            .into_iter()
            .filter_map(|(id, pid)| self.layout(id, pid))
            .collect();
        self.updated = Some(now);
        Ok(layouts)
    }

    /// The living targets.
    #[must_use]
    pub const fn processes(&self) -> &Processes {
        &self.processes
    }

    /// True for a forked target whose pages still carry the accessed marks that were copied from its parent's: the
    /// first look at it tells nothing.
    #[must_use]
    pub fn is_fresh(&self, id: TargetId) -> bool {
        self.fresh.contains(&id)
    }

    /// Says that the marks of every target were taken off once; none is fresh any more.
    pub fn looked_at(&mut self) {
        self.fresh.clear();
    }

    /// False once no target is left and none can appear any more.
    #[must_use]
    pub fn any_left(&self) -> bool {
        self.discovery.can_grow() || self.processes.values().any(Process::is_alive)
    }

    /// How many targets can be held when so many `more` are to be: each is an open file.
    fn make_room(&mut self, more: usize) -> usize {
        let wanted = self.processes.len() + more;
        let files = open_files::make_room((wanted + OTHER_FILES) as u64);
        let room = usize::try_from(files).map_or(usize::MAX, |files| files.saturating_sub(OTHER_FILES));
        if room < wanted && !std::mem::replace(&mut self.told_of_room, true) {
            self.news.push(format!(
                "there are {wanted} targets and only {files} files may be open: {} of them are left out. `ulimit -n`, or \
                 LimitNOFILE= of a service, allows more",
                wanted - room
            ));
        }
        room
    }

    /// What befell the targets and somebody should know; each sentence once.
    pub fn take_news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    // The number may have passed to another process between finding and holding it: then the next look finds out.
    fn hold(&mut self, id: TargetId, room: usize) {
        let Some(member) = self.discovery.members().get(&id) else {
            return;
        };
        let (pid, starttime) = (member.pid, member.starttime);
        let has_room = self.processes.len() < room;
        let process = has_room.then(|| Process::open(id, pid).ok()).flatten();
        let same = stat::read(&self.root, pid).is_ok_and(|stat| stat.starttime == starttime);
        match process.filter(|process| same && process.is_alive()) {
            Some(process) => drop(self.processes.insert(id, process)),
            None => self.discovery.remove(id),
        }
    }

    fn forget(&mut self, id: TargetId) {
        self.processes.remove(&id);
        self.fresh.remove(&id);
        self.headless.remove(&id);
        self.growth_guard.forget(id);
    }

    fn layout(&mut self, id: TargetId, pid: u32) -> Option<TargetLayout> {
        match self.mapped(pid) {
            Ok((ranges, _)) if ranges.is_empty() && self.is_headless(pid) => {
                self.tell_headless(id, pid);
                None
            }
            Ok((ranges, backings)) => {
                let layout = TargetLayout {
                    backings,
                    is_new: self.started_since_update(id),
                    ..TargetLayout::new(id, Some(pid), ranges)
                };
                Some(self.sized(layout, pid))
            }
            Err(ProcError::Gone { .. }) => {
                self.forget(id);
                self.discovery.remove(id);
                None
            }
            // It lives, but we may not look into it; later we perhaps may.
            Err(_) => None,
        }
    }

    /// Whether it started after targets were brought up to date before.
    fn started_since_update(&self, id: TargetId) -> bool {
        let started = self.discovery.members().get(&id).map(|member| member.starttime);
        started
            .zip(self.updated)
            .is_some_and(|(started, updated)| started >= updated)
    }

    /// With how much of it is in memory. A process that ended meanwhile has nothing.
    fn sized(&mut self, layout: TargetLayout, pid: u32) -> TargetLayout {
        let Ok(size) = statm::read(&self.root, pid) else {
            return layout;
        };
        let target = (layout.id, pid);
        let defer_scan = self
            .growth_guard
            .defer_scan(&self.root, target, size, clock::monotonic());
        TargetLayout {
            resident: Some(size.resident),
            defer_scan,
            ..layout
        }
    }

    /// Whether the first thread of a living process has ended: its memory goes by that thread's name.
    fn is_headless(&self, pid: u32) -> bool {
        stat::read(&self.root, pid).is_ok_and(|stat| stat.has_ended() && stat.process_lives())
    }

    fn tell_headless(&mut self, id: TargetId, pid: u32) {
        if self.headless.insert(id) {
            self.news.push(format!(
                "process {pid} goes on without its first thread, by whose number alone memory can be seen and advised: it is \
                 not watched any more"
            ));
        }
    }

    /// What to monitor of a process, and what backs its mappings.
    fn mapped(&self, pid: u32) -> Result<(Vec<AddrRange>, Backings), ProcError> {
        let mappings = maps::read(&self.root, pid)?;
        Ok((self.rule.ranges(&mappings), backings(&mappings)))
    }
}
