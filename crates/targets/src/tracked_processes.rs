//! The target processes, each held by a pidfd, with the ranges to monitor.
//!
//! The layout of a target is read when it appears. Later updates look at targets in turn, as many as fit into
//! a slice of time: so an update takes hardly longer with thousands of targets. A look reads only the sizes
//! of the process, and its mappings if these changed.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use thermo_engine::access_tables::Backing;
use thermo_engine::scan::Alias;
use thermo_engine::{TargetId, TargetLayout};
use thermo_kernel::pagemap::Pagemap;
use thermo_kernel::pidfd::{self, PidFd};
use thermo_kernel::stalled_call::{self, NotAnswering};
use thermo_kernel::statm::{self, Statm};
use thermo_kernel::{FileError, ProcError, clock, kcmp, maps, open_files, stat, status};
use thermo_units::{AddrRange, Bytes, Nanos, Turn};

use crate::discovery::{Changes, Discovery};
use crate::error::TargetError;
use crate::layout::LayoutRule;
use crate::layout::{aliases, backings};
use crate::process::{Process, Processes};
use crate::reread::Reread;
use crate::spec::TargetSpec;

/// The live target processes, for trackers and actors.
#[derive(Debug)]
pub struct TrackedProcesses {
    root: PathBuf,
    discovery: Discovery,
    rule: LayoutRule,
    /// Why the memory of a process could not be read: the first error.
    unreadable: Option<String>,
    processes: Processes,
    /// Targets whose accessed bits `fork()` copied, and that were not checked yet.
    freshly_forked: BTreeSet<TargetId>,
    warnings: Vec<String>,
    warned_of_file_limit: bool,
    warned_of_skipped: bool,
    /// Targets whose first thread has ended; a warning was given.
    without_first_thread: BTreeSet<TargetId>,
    /// Targets that do not answer; a warning was given.
    not_answering: BTreeSet<TargetId>,
    /// Time of the previous update, in clock ticks since boot.
    last_update: Option<u64>,
    layouts: BTreeMap<TargetId, KnownLayout>,
    /// When targets appeared that are young: they are looked at first.
    young: BTreeMap<TargetId, Nanos>,
    /// The target that was looked at last.
    turn: Turn<TargetId>,
}

/// A layout that was read.
#[derive(Debug)]
struct KnownLayout {
    layout: TargetLayout,
    /// The parent whose address space it shares, and which is a target.
    shares_with: Option<u32>,
    /// It may have hugetlb pages.
    may_have_hugetlb: bool,
    reread: Reread,
}

/// Looks at known targets may take this much CPU time in an update.
const SLICE: Nanos = Nanos::millis(1);
/// A target is young for this long. Programs map most of their memory just after they started, and wrappers
/// execute another program.
const YOUNG: Nanos = Nanos::secs(5);

/// The hugetlb pages of process `pid`; none if it has ended.
fn hugetlb(root: &Path, pid: u32) -> Bytes {
    status::read(root, pid).map_or(Bytes::ZERO, |status| status.hugetlb)
}

/// The backing of each range; see [`backings`].
type Backings = Vec<(AddrRange, Backing)>;

/// What is read from the mappings of a process.
#[derive(Debug)]
struct MappedMemory {
    /// The ranges to monitor.
    ranges: Vec<AddrRange>,
    backings: Backings,
    aliases: Vec<Alias>,
    may_have_hugetlb: bool,
}

/// Open files that are not pidfds of targets: up to 257 of the BPF program that reads page tables
/// (`thermo_pagetable::MAX_OPEN_FILES`), and our own.
pub const OTHER_FILES: usize = 64 + 257;

impl TrackedProcesses {
    /// Checks `spec`. There are no targets before the first [`TrackedProcesses::update`].
    ///
    /// # Errors
    /// Those of [`Discovery::new`].
    pub fn new(root: &Path, spec: TargetSpec) -> Result<Self, TargetError> {
        Ok(Self {
            root: root.to_owned(),
            rule: spec.layout,
            unreadable: None,
            discovery: Discovery::new(root, spec)?,
            processes: Processes::new(),
            freshly_forked: BTreeSet::new(),
            warnings: Vec::new(),
            warned_of_file_limit: false,
            warned_of_skipped: false,
            without_first_thread: BTreeSet::new(),
            not_answering: BTreeSet::new(),
            last_update: None,
            layouts: BTreeMap::new(),
            young: BTreeMap::new(),
            turn: Turn::default(),
        })
    }

    /// Updates the targets. Returns the live ones in the order they appeared, with the ranges to monitor.
    /// Processes of a control group or of the machine that may not be read are skipped.
    ///
    /// # Errors
    /// If the list of processes in `/proc` cannot be read.
    pub fn update(&mut self) -> Result<Vec<TargetLayout>, FileError> {
        let now = clock::boot_ticks();
        let all: Vec<&Process> = self.processes.values().collect();
        let pidfds: Vec<&PidFd> = all.iter().map(|process| &process.pidfd).collect();
        let has_ended = all.iter().zip(pidfd::have_ended(&pidfds));
        let ended = has_ended
            .filter(|(_, ended)| *ended)
            .map(|(process, _)| process.id);
        let changes = self.discovery.update(&ended.collect())?;
        let max_processes = self.raise_file_limit(changes.appeared.len());
        self.apply(&changes, max_processes);
        self.look(max_processes);
        if self.last_update.is_none() && self.layouts.is_empty() {
            self.warn_of_no_layout();
        }
        self.last_update = Some(now);
        let layouts = self.layouts.values().map(|known| known.layout.clone());
        Ok(layouts.collect())
    }

    fn apply(&mut self, changes: &Changes, max_processes: usize) {
        changes.vanished.iter().for_each(|&id| self.forget(id));
        let now = clock::monotonic();
        for &id in &changes.appeared {
            self.open_process(id, max_processes);
            if let Some(pid) = self.processes.get(&id).map(|process| process.pid) {
                self.young.insert(id, now);
                let sizes = statm::read(&self.root, pid).ok();
                self.read_layout(id, pid, sizes);
            }
        }
        let forked = changes.forked.iter();
        self.freshly_forked
            .extend(forked.filter(|id| self.processes.contains_key(id)));
    }

    /// Looks at targets until the [`SLICE`] is used up: first those that do not answer and young ones,
    /// then the others in turn; at least one of these.
    fn look(&mut self, max_processes: usize) {
        let (began, now) = (clock::thread_cpu(), clock::monotonic());
        let is_used_up = || clock::thread_cpu().saturating_sub(began) >= SLICE;
        self.young
            .retain(|_, appeared| now.saturating_sub(*appeared) < YOUNG);
        let mut first = self.stalled();
        first.extend(self.young.keys());
        for id in first {
            if is_used_up() {
                break;
            }
            self.look_at(id, now, max_processes);
        }
        let in_turn: Vec<TargetId> = self.turn.entries(&self.processes).map(|(id, _)| *id).collect();
        for id in in_turn {
            if !self.young.contains_key(&id) {
                self.look_at(id, now, max_processes);
            }
            self.turn.set(id);
            if is_used_up() {
                break;
            }
        }
    }

    /// Targets that do not answer, or did not at the last look.
    fn stalled(&self) -> Vec<TargetId> {
        let set_aside = stalled_call::all_set_aside();
        if set_aside.is_empty() && self.not_answering.is_empty() {
            return Vec::new();
        }
        let is_stalled =
            |process: &&Process| set_aside.contains(&process.pid) || self.not_answering.contains(&process.id);
        let stalled = self.processes.values().filter(is_stalled);
        stalled.map(|process| process.id).collect()
    }

    /// Reads the sizes of a target. If these changed, and from time to time, reads its mappings.
    fn look_at(&mut self, id: TargetId, now: Nanos, max_processes: usize) {
        let Some(pid) = self.processes.get(&id).map(|process| process.pid) else {
            return;
        };
        let is_young = self.young.contains_key(&id);
        let is_left = self.layouts.get(&id).is_some_and(|known| {
            let parent = known.shares_with;
            parent.is_some_and(|parent| !self.discovery.is_target(parent))
        });
        let sizes = statm::read(&self.root, pid).ok();
        let stalls = self.not_answering.contains(&id) || stalled_call::set_aside(pid).is_some();
        if let Some(known) = self.layouts.get_mut(&id).filter(|_| !stalls) {
            let has_changed = known.reread.look(sizes) || is_left;
            known.layout.is_new = false;
            if known.shares_with.is_none() {
                if known.may_have_hugetlb {
                    known.layout.hugetlb = hugetlb(&self.root, pid);
                }
                let resident = sizes.map(|sizes| sizes.resident + known.layout.hugetlb);
                known.layout.resident = resident.or(known.layout.resident);
            }
            if !(has_changed || is_young) {
                return;
            }
            let may_read = known.reread.may_read(now);
            let changes = self.discovery.look_at(id);
            if changes != Changes::default() {
                return self.apply(&changes, max_processes);
            }
            if !has_changed || !may_read {
                return;
            }
        }
        self.read_layout(id, pid, sizes);
    }

    /// Reads the mappings of a target, which has these `sizes` now. If they cannot be read, it has no layout.
    fn read_layout(&mut self, id: TargetId, pid: u32, sizes: Option<Statm>) {
        let began = clock::thread_cpu();
        let shares_with = sizes.and_then(|sizes| self.parent_with_same_memory(id, sizes));
        let read = match shares_with {
            Some(_) => Some((TargetLayout::new(id, Some(pid), Vec::new()), false)),
            None => self.layout(id, pid),
        };
        let Some((mut layout, may_have_hugetlb)) = read else {
            self.layouts.remove(&id);
            return;
        };
        if may_have_hugetlb {
            layout.hugetlb = hugetlb(&self.root, pid);
        }
        layout.resident = match shares_with {
            Some(_) => Some(Bytes::ZERO),
            None => sizes.map(|sizes| sizes.resident + layout.hugetlb),
        };
        let cost = clock::thread_cpu().saturating_sub(began);
        let known = KnownLayout {
            layout,
            shares_with,
            may_have_hugetlb,
            reread: Reread::after_read(sizes.unwrap_or_default(), clock::monotonic(), cost),
        };
        self.layouts.insert(id, known);
    }

    /// Replaces the processes that are selected by number and start time, of a spec with `selected`. The next
    /// update follows.
    pub fn select(&mut self, selection: BTreeMap<u32, u64>) {
        self.discovery.select(selection);
    }

    /// The live targets.
    #[must_use]
    pub const fn processes(&self) -> &Processes {
        &self.processes
    }

    /// True for a forked target that still has the accessed bits copied from its parent. The first access
    /// check of such a target says nothing.
    #[must_use]
    pub fn is_freshly_forked(&self, id: TargetId) -> bool {
        self.freshly_forked.contains(&id)
    }

    /// Call this after the accessed bits of every target were cleared once: no target is freshly forked any
    /// more.
    pub fn clear_freshly_forked(&mut self) {
        self.freshly_forked.clear();
    }

    /// False if no target is alive and none can appear.
    #[must_use]
    pub fn any_left(&self) -> bool {
        self.discovery.can_grow() || self.processes.values().any(Process::is_alive)
    }

    /// Raises the limit of open files for `more` targets, because each pidfd is an open file. Returns the
    /// maximum number of targets.
    fn raise_file_limit(&mut self, more: usize) -> usize {
        let wanted = self.processes.len() + more;
        let files = open_files::raise_limit((wanted + OTHER_FILES) as u64);
        let max = usize::try_from(files).map_or(usize::MAX, |files| files.saturating_sub(OTHER_FILES));
        if max < wanted && !std::mem::replace(&mut self.warned_of_file_limit, true) {
            self.warnings.push(format!(
                "there are {wanted} targets, but only {files} files may be open: {} targets are skipped. Raise the \
                 limit with `ulimit -n`, or with LimitNOFILE= in a systemd unit",
                wanted - max
            ));
        }
        max
    }

    /// Returns the warnings since the last call. Each warning is given once.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    // Another process may have got the number after discovery. Then the next update finds it.
    fn open_process(&mut self, id: TargetId, max_processes: usize) {
        let Some(discovered) = self.discovery.processes().get(&id) else {
            return;
        };
        let (pid, starttime) = (discovered.pid, discovered.starttime);
        let may_open = self.processes.len() < max_processes;
        let process = may_open.then(|| self.open(id, pid)).flatten();
        let is_same = self.has_started_at(pid, starttime);
        match process.filter(|process| is_same && process.is_alive()) {
            Some(process) => drop(self.processes.insert(id, process)),
            None => self.discovery.remove(id),
        }
    }

    fn open(&mut self, id: TargetId, pid: u32) -> Option<Process> {
        let opened = Process::open(id, pid);
        if let Err(error) = &opened
            && !pidfd::is_gone(error)
        {
            self.warn_of_skipped(pid, error);
        }
        opened.ok()
    }

    fn has_started_at(&mut self, pid: u32, starttime: u64) -> bool {
        match stat::read(&self.root, pid) {
            Ok(stat) => stat.starttime == starttime,
            Err(error) => {
                if !error.is_gone() {
                    self.warn_of_skipped(pid, &error);
                }
                false
            }
        }
    }

    /// Warns of the first live process that cannot be opened. The same may be true of thousands.
    fn warn_of_skipped(&mut self, pid: u32, why: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.warned_of_skipped, true) {
            self.warnings
                .push(format!("process {pid} is skipped, as others may be: {why}"));
        }
    }

    fn forget(&mut self, id: TargetId) {
        self.processes.remove(&id);
        self.freshly_forked.remove(&id);
        self.without_first_thread.remove(&id);
        self.not_answering.remove(&id);
        self.layouts.remove(&id);
        self.young.remove(&id);
    }

    /// The parent, if it is a target and the process, which has these `sizes`, shares its address space
    /// (`vfork()`, `CLONE_VM`): then its memory is the parent's.
    fn parent_with_same_memory(&self, id: TargetId, sizes: Statm) -> Option<u32> {
        let process = self.discovery.processes().get(&id)?;
        let (pid, parent) = (process.pid, process.ppid);
        if !self.discovery.is_target(parent) || stalled_call::set_aside(parent).is_some() {
            return None;
        }
        // Cheap, and nearly always enough.
        let of_parent = statm::read(&self.root, parent).ok()?;
        let has_same_sizes = (of_parent.size, of_parent.data) == (sizes.size, sizes.data);
        // A process that does not answer is found by the calls that follow.
        let shares = has_same_sizes && kcmp::share_memory(pid, parent).unwrap_or(false);
        shares.then_some(parent)
    }

    /// The ranges of a process, and whether it may have hugetlb pages.
    fn layout(&mut self, id: TargetId, pid: u32) -> Option<(TargetLayout, bool)> {
        let mappings = self.mappings(id, pid);
        if mappings.is_ok() && self.not_answering.remove(&id) {
            self.warnings.push(format!("process {pid} answers again"));
        }
        match mappings {
            Ok(memory) if memory.ranges.is_empty() && self.has_lost_first_thread(pid) => {
                self.warn_of_lost_first_thread(id, pid);
                None
            }
            Ok(memory) => {
                let layout = TargetLayout {
                    backings: memory.backings.into(),
                    aliases: memory.aliases.into(),
                    is_new: self.started_since_update(id),
                    ..TargetLayout::new(id, Some(pid), memory.ranges)
                };
                Some((layout, memory.may_have_hugetlb))
            }
            Err(ProcError::Gone { .. }) => {
                self.forget(id);
                self.discovery.remove(id);
                None
            }
            // Without mappings, all of its resident memory is unknown.
            Err(ProcError::NotAnswering(why)) => {
                self.warn_of_stall(id, why);
                Some((TargetLayout::new(id, Some(pid), Vec::new()), false))
            }
            // The process is alive, but may not be read. A later update tries again.
            Err(error) => {
                self.unreadable.get_or_insert_with(|| error.to_string());
                None
            }
        }
    }

    /// True if the process started after the previous update.
    fn started_since_update(&self, id: TargetId) -> bool {
        let processes = self.discovery.processes();
        let started = processes.get(&id).map(|process| process.starttime);
        started
            .zip(self.last_update)
            .is_some_and(|(started, last_update)| started >= last_update)
    }

    /// True if the first thread of a live process has ended. The kernel then shows no mappings under the
    /// process number.
    fn has_lost_first_thread(&self, pid: u32) -> bool {
        stat::read(&self.root, pid).is_ok_and(|stat| stat.has_ended() && stat.process_lives())
    }

    fn warn_of_lost_first_thread(&mut self, id: TargetId, pid: u32) {
        if self.without_first_thread.insert(id) {
            self.warnings.push(format!(
                "process {pid} continues without its first thread. The kernel shows and advises memory only by the \
                 number of that thread, so the process is not monitored any more"
            ));
        }
    }

    /// Warns that the first update found nothing to monitor, and says why.
    fn warn_of_no_layout(&mut self) {
        let why = match (&self.unreadable, self.discovery.cgroup()) {
            (Some(why), _) => format!("no process can be monitored: {why}"),
            (None, Some(path)) if self.processes.is_empty() => format!("control group {path} has no process"),
            _ => return,
        };
        self.warnings.push(why);
    }

    fn warn_of_stall(&mut self, id: TargetId, why: NotAnswering) {
        if self.not_answering.insert(id) {
            self.warnings.push(format!(
                "{why}. Its memory is unknown until it answers, and other targets are monitored as before"
            ));
        }
    }

    /// The ranges of a process to monitor, and what is known of its mappings.
    fn mappings(&mut self, id: TargetId, pid: u32) -> Result<MappedMemory, ProcError> {
        let mappings = maps::read(&self.root, pid)?;
        if let Some(process) = self.processes.get_mut(&id) {
            process.runs_vm = Some(mappings.iter().any(maps::Mapping::is_virtual_cpu));
        }
        let pagemap = OnceCell::new();
        let pagemap = || {
            pagemap
                .get_or_init(|| Pagemap::open(&self.root, pid).ok())
                .as_ref()
        };
        // What cannot be read is left out, as memory that holds no page is.
        let holds_pages = |mapping: &maps::Mapping| {
            pagemap().is_some_and(|pagemap| pagemap.holds_pages(mapping.range).unwrap_or(false))
        };
        let ranges = self.rule.resident_ranges(&mappings, &holds_pages);
        // If it stopped answering after its mappings were read, ranges are missing.
        if let Some(why) = stalled_call::set_aside(pid) {
            return Err(why.into());
        }
        Ok(MappedMemory {
            ranges,
            backings: backings(&mappings),
            aliases: aliases(&mappings),
            may_have_hugetlb: mappings.iter().any(maps::Mapping::may_be_hugetlb),
        })
    }
}
