//! The operations on the targets of a kdamond. How they are looked at and acted on is as in every other front end; who
//! they are is up to the control files: either processes by their place there, and where in them, or whoever belongs
//! to what was named.

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::{Path, PathBuf};

use thermo_actions::Actor;
use thermo_backends::Tracker;
use thermo_backends::interference::{Announcement, Interference};
use thermo_engine::action::Action;
use thermo_engine::ops::{Outcome, Probe, Request, Seen, TargetRange};
use thermo_engine::scheme::SystemMetric;
use thermo_engine::{Operations, OpsError, TargetId, TargetLayout};
use thermo_kernel::maps;
use thermo_kernel::pidfd::PidFd;
use thermo_targets::{LayoutRule, Processes, TrackedProcesses, metric};
use thermo_units::AddrRange;

use super::build::{Rule, StagedTarget, Watch};

/// The operations of a kdamond of the control files.
pub struct Targets {
    root: PathBuf,
    who: Who,
    tracker: Box<dyn Tracker + Send>,
    actor: Actor,
    interference: Interference,
    news: Vec<String>,
    /// So that other instances know of this one.
    _announcement: Announcement,
}

enum Who {
    Staged(Places),
    Named(Box<TrackedProcesses>, Option<Vec<u32>>),
}

/// Targets by their place in the control files, which is their number.
struct Places {
    rule: Rule,
    processes: Processes,
    /// Ranges that were staged and are still to be taken over, or for good where they are fixed.
    ranges: Vec<Vec<AddrRange>>,
}

impl Targets {
    /// Watches `watch`, by `tracker`, and acts by `actor`.
    pub fn new(root: PathBuf, watch: Watch, tracker: Box<dyn Tracker + Send>, actor: Actor) -> Self {
        let who = match watch {
            Watch::Named(members, pids) => Who::Named(members, pids),
            Watch::Staged(rule, staged) => {
                let mut places = Places {
                    rule,
                    processes: Processes::new(),
                    ranges: Vec::new(),
                };
                places.commit(rule, staged);
                Who::Staged(places)
            }
        };
        Self {
            interference: Interference::behind_control_files(&root),
            root,
            who,
            tracker,
            actor,
            news: Vec::new(),
            _announcement: Announcement::make(),
        }
    }

    /// Takes over what was staged. A target that stays at its place keeps its ranges, unless there are new ones.
    pub fn commit(&mut self, rule: Rule, staged: Vec<StagedTarget>) {
        if let Who::Staged(places) = &mut self.who {
            places.commit(rule, staged);
        }
    }

    /// Who the targets are; none where others may join them.
    pub fn pids(&self) -> Option<Vec<u32>> {
        match &self.who {
            Who::Staged(places) => Some(places.processes.values().map(|process| process.pid).collect()),
            Who::Named(_, pids) => pids.clone(),
        }
    }
}

impl Who {
    const fn processes(&self) -> &Processes {
        match self {
            Self::Staged(places) => &places.processes,
            Self::Named(members, _) => members.processes(),
        }
    }
}

impl Places {
    fn commit(&mut self, rule: Rule, staged: Vec<StagedTarget>) {
        self.rule = rule;
        self.processes.retain(|id, _| (id.0 as usize) < staged.len());
        self.ranges.resize(staged.len(), Vec::new());
        for (target, ranges) in staged.into_iter().zip(&mut self.ranges) {
            if !target.ranges.is_empty() {
                *ranges = target.ranges;
            }
            self.processes.insert(target.process.id, target.process);
        }
    }

    fn update(&mut self, root: &Path) -> Vec<TargetLayout> {
        self.processes.retain(|_, process| is_there(&process.pidfd));
        let held: Vec<(TargetId, u32)> = self
            .processes
            .values()
            .map(|process| (process.id, process.pid))
            .collect();
        held.into_iter()
            .filter_map(|(id, pid)| self.layout(root, id, pid))
            .collect()
    }

    fn layout(&mut self, root: &Path, id: TargetId, pid: u32) -> Option<TargetLayout> {
        let staged = self.ranges.get_mut(id.0 as usize)?;
        let ranges = match self.rule {
            Rule::Fixed => staged.clone(),
            Rule::Mappings if !staged.is_empty() => std::mem::take(staged),
            Rule::Mappings => LayoutRule::ThreeRegions.ranges(&maps::read(root, pid).ok()?),
        };
        Some(TargetLayout::new(id, Some(pid), ranges))
    }
}

/// Whether a process still has its number: one that has ended keeps it until its parent has waited for it. The kernel's
/// kdamonds go on for that long, and scripts count on it who ask one until they have seen their child's end.
pub fn is_there(process: &PidFd) -> bool {
    process.is_alive() || has_number(process)
}

fn has_number(process: &PidFd) -> bool {
    let fd = process.as_fd().as_raw_fd();
    // Nothing can be read of a process that has none any more, and nothing means that it is gone.
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"));
    pid.and_then(|pid| pid.trim().parse::<u32>().ok())
        .is_some_and(|pid| pid > 0)
}

impl Operations for Targets {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        let layouts = match &mut self.who {
            Who::Staged(places) => places.update(&self.root),
            Who::Named(members, _) => {
                let layouts = members
                    .update()
                    .map_err(|error| OpsError::Failed(error.to_string()))?;
                self.news.extend(members.take_news());
                layouts
            }
        };
        let targets = self.who.processes();
        self.news
            .extend(self.interference.take_warnings(targets, self.tracker.as_ref()));
        Ok(layouts)
    }

    fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    fn prepare_access_checks(&mut self, probes: &[Probe]) {
        self.tracker.prepare(self.who.processes(), probes);
    }

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        self.tracker.check(self.who.processes(), probes);
        self.interference.mark_unknown(probes);
        if let Who::Named(members, _) = &mut self.who {
            let fresh = probes.iter_mut().filter(|probe| members.is_fresh(probe.target));
            fresh.for_each(|probe| probe.seen = Seen::Unknown);
            members.looked_at();
        }
    }

    fn any_target_left(&mut self) -> bool {
        match &self.who {
            Who::Staged(places) => places.processes.values().any(|process| is_there(&process.pidfd)),
            Who::Named(members, _) => members.any_left(),
        }
    }

    fn pending(&mut self, action: Action, run: &TargetRange) -> Vec<AddrRange> {
        let process = self.who.processes().get(&run.target);
        process.map_or_else(Vec::new, |process| {
            self.actor.pending(process, action, run, self.tracker.inspector())
        })
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        let tables = self.tracker.inspector();
        self.actor.apply(self.who.processes(), request, tables)
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        metric::read(&self.root, metric)
    }
}
