//! The operations on the targets that were staged. How they are looked at and acted on is as in every other front
//! end; who they are, and where in them, is up to the control files: the target's number is its place there.

use std::path::PathBuf;

use thermo_core::ops::{Outcome, Probe, Request};
use thermo_core::scheme::SystemMetric;
use thermo_core::{AddrRange, Operations, OpsError, TargetId, TargetLayout};
use thermo_ops::metric;
use thermo_ops::process::{Process, Processes};
use thermo_ops::targets::LayoutRule;
use thermo_ops::{Actor, Tracker};
use thermo_sys::maps;

use super::build::{Rule, StagedTarget};

/// The operations of a context of the control files.
pub struct Targets {
    root: PathBuf,
    rule: Rule,
    processes: Processes,
    /// Ranges that were staged and are still to be taken over, or for good where they are fixed.
    ranges: Vec<Vec<AddrRange>>,
    tracker: Box<dyn Tracker + Send>,
    actor: Actor,
}

impl Targets {
    /// Looks at nobody yet.
    pub fn new(root: PathBuf, tracker: Box<dyn Tracker + Send>, actor: Actor) -> Self {
        Self {
            root,
            rule: Rule::Mappings,
            processes: Processes::new(),
            ranges: Vec::new(),
            tracker,
            actor,
        }
    }

    /// Takes over what was staged. A target that stays at its place keeps its ranges, unless there are new ones.
    pub fn commit(&mut self, rule: Rule, staged: Vec<StagedTarget>) {
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

    /// Who the targets are.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.processes.values().map(|process| process.pid)
    }

    fn layout(&mut self, id: TargetId, pid: u32) -> Option<TargetLayout> {
        let staged = self.ranges.get_mut(id.0 as usize)?;
        let ranges = match self.rule {
            Rule::Fixed => staged.clone(),
            Rule::Mappings if !staged.is_empty() => std::mem::take(staged),
            Rule::Mappings => LayoutRule::ThreeRegions.ranges(&maps::read(&self.root, pid).ok()?),
        };
        let pid = Some(pid);
        Some(TargetLayout { id, pid, ranges })
    }
}

impl Operations for Targets {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        self.processes.retain(|_, process| process.is_alive());
        let held: Vec<(TargetId, u32)> = self
            .processes
            .values()
            .map(|process| (process.id, process.pid))
            .collect();
        Ok(held
            .into_iter()
            .filter_map(|(id, pid)| self.layout(id, pid))
            .collect())
    }

    fn prepare_access_checks(&mut self, probes: &[Probe]) {
        self.tracker.prepare(&self.processes, probes);
    }

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        self.tracker.check(&self.processes, probes);
    }

    fn any_target_left(&mut self) -> bool {
        self.processes.values().any(Process::is_alive)
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        self.actor.apply(&self.processes, request, self.tracker.as_pte())
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        metric::read(&self.root, metric)
    }
}
