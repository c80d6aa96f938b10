//! Tracker `kdamond`: a context that in-kernel DAMON runs, through its sysfs tree.
//!
//! The kernel checks accesses, counts, merges, splits, ages and applies schemes. One extra scheme for each
//! target (`stat`) reports its regions, once an aggregation. This module selects the targets
//! ([`TrackedProcesses`]), writes the setup (`translate.rs`) and claims DAMON (`claim.rs`). In 6.12 a command
//! completes after up to 100 ms, so some short aggregations are missed.
//!
//! A target that ended stays in the kernel's list, empty: removing it would reset the ages of the others. A
//! new target is added, unless other targets ended meanwhile: then the kdamond is restarted, and all ages
//! with it.

mod claim;
mod translate;

use std::path::PathBuf;

use thermo_engine::ops::{CheckResult, Offload, Outcome, Probe, Request, Snapshot};
use thermo_engine::scheme::{SchemeStats, SystemMetric};
use thermo_engine::{Attrs, Operations, OpsError, Region, Scheme, TargetId, TargetLayout};
use thermo_kernel::damon::{self, Command, Setup};
use thermo_kernel::{FileError, clock, schedstat};
use thermo_targets::{Process, TrackedProcesses, metric};
use thermo_units::{Bytes, Nanos};

pub use claim::{Claim, ClaimError, DamonUser, leftover};
pub use translate::obstacle;

/// Reading regions (four small files each) takes at most one part in this many of the time.
const READING_PART: u64 = 50;

/// The operations of a context that in-kernel DAMON runs.
#[derive(Debug)]
pub struct Offloaded {
    root: PathBuf,
    processes: TrackedProcesses,
    claim: Claim,
    running: Option<Running>,
    /// CPU time of kdamonds that have ended.
    spent: Nanos,
}

/// The running kdamond and its setup.
#[derive(Debug)]
struct Running {
    setup: Setup,
    targets: Vec<(TargetId, u32)>,
    nr_schemes: usize,
    thread: u32,
    /// CPU time of its thread when last read.
    spent: Nanos,
    aggr: Nanos,
}

impl Offloaded {
    /// Lets the kernel monitor `processes` through `claim`, on the machine at `root` (`/`).
    #[must_use]
    pub const fn new(root: PathBuf, processes: TrackedProcesses, claim: Claim) -> Self {
        Self {
            root,
            processes,
            claim,
            running: None,
            spent: Nanos::ZERO,
        }
    }

    fn live_targets(&self) -> Vec<(TargetId, u32)> {
        let processes = self.processes.processes().values();
        processes.map(|process| (process.id, process.pid)).collect()
    }

    /// Runs the kdamond with `setup` for `targets`: by a commit if no target ended, with a restart otherwise.
    fn run(
        &mut self,
        setup: Setup,
        targets: Vec<(TargetId, u32)>,
        nr_schemes: usize,
        aggr: Nanos,
    ) -> Result<(), FileError> {
        let control = self.claim.control();
        let no_target_ended = |running: &Running| targets.starts_with(&running.targets);
        let mut thread = None;
        if let Some(running) = self.running.as_ref().filter(|running| no_target_ended(running)) {
            control.set_up(&setup)?;
            control.send(Command::Commit)?;
            // Kernels before 6.15 end the kdamond on a commit that fails, without an error.
            thread = control.is_running()?.then_some(running.thread);
        }
        let thread = match thread {
            Some(thread) => thread,
            None => {
                self.update_cpu_time();
                self.spent += self.running.take().map_or(Nanos::ZERO, |running| running.spent);
                self.claim.stop()?;
                self.claim.control().set_up(&setup)?;
                self.claim.start()?
            }
        };
        let spent = self.running.as_ref().map_or(Nanos::ZERO, |running| running.spent);
        self.running = Some(Running {
            setup,
            targets,
            nr_schemes,
            thread,
            spent,
            aggr,
        });
        Ok(())
    }

    fn update_cpu_time(&mut self) {
        if let Some(running) = &mut self.running
            && let Ok(spent) = schedstat::cpu(&self.root, running.thread)
        {
            running.spent = spent;
        }
    }

    fn any_target_ended(&self) -> bool {
        !self.processes.processes().values().all(Process::is_alive)
    }

    /// Reads the regions and statistics at the end of the kernel's current aggregation.
    fn read_snapshot(&mut self) -> Result<Snapshot, FileError> {
        let Some(running) = &self.running else {
            return Ok(self.empty_snapshot());
        };
        let control = self.claim.control();
        control.send(Command::UpdateTriedRegions)?;
        let (taken, begin) = (clock::monotonic(), clock::thread_cpu());
        let mut snapshot = Snapshot {
            taken,
            ..Snapshot::default()
        };
        for (nth, (id, _)) in running.targets.iter().enumerate() {
            let regions = control.tried_regions(nth)?.into_iter().map(region).collect();
            snapshot.targets.push((*id, regions));
        }
        if running.nr_schemes > 0 {
            control.send(Command::UpdateStats)?;
        }
        for nth in 0..running.nr_schemes {
            snapshot
                .schemes
                .push(totals(control.stats(running.targets.len() + nth)?));
        }
        let cost = clock::thread_cpu().saturating_sub(begin);
        snapshot.next = taken.saturating_add(cost * READING_PART);
        Ok(snapshot)
    }

    /// An empty snapshot, to be taken again soon.
    fn empty_snapshot(&self) -> Snapshot {
        let now = clock::monotonic();
        let aggr = self
            .running
            .as_ref()
            .map_or(Nanos::millis(100), |running| running.aggr);
        Snapshot {
            taken: now,
            next: now.saturating_add(aggr),
            ..Snapshot::default()
        }
    }
}

impl Operations for Offloaded {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        self.processes
            .update()
            .map_err(|error| OpsError::Failed(error.to_string()))
    }

    fn prepare_access_checks(&mut self, _probes: &[Probe]) {}

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        // In-kernel DAMON checks the pages.
        probes
            .iter_mut()
            .for_each(|probe| probe.result = CheckResult::Unknown);
    }

    fn as_offload(&mut self) -> Option<&mut dyn Offload> {
        Some(self)
    }

    fn external_cpu_time(&mut self) -> Nanos {
        self.update_cpu_time();
        self.spent + self.running.as_ref().map_or(Nanos::ZERO, |running| running.spent)
    }

    fn any_target_left(&mut self) -> bool {
        self.processes.any_left()
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        Err(OpsError::Unsupported {
            what: request.action.to_string(),
            why: "in-kernel DAMON applies the schemes itself".to_owned(),
        })
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        metric::read(&self.root, metric)
    }
}

impl Offload for Offloaded {
    fn commit_parameters(&mut self, attrs: &Attrs, schemes: &[Scheme]) -> Result<(), OpsError> {
        let mut targets = self.live_targets();
        let runs = self.claim.control().is_running().map_err(failed)?;
        if let Some(running) = self.running.as_ref().filter(|_| runs) {
            let any_new = targets.iter().any(|target| !running.targets.contains(target));
            let is_unchanged = translate::setup(attrs, &running.targets, schemes) == running.setup;
            if is_unchanged && !any_new {
                return Ok(());
            }
        }
        if targets.is_empty() {
            return Ok(());
        }
        targets.sort_unstable();
        let setup = translate::setup(attrs, &targets, schemes);
        match self.run(setup, targets, schemes.len(), attrs.aggr) {
            // A target has ended: the next update drops it.
            Err(_) if self.any_target_ended() => Ok(()),
            answer => answer.map_err(failed),
        }
    }

    fn follow(&mut self) -> Result<Snapshot, OpsError> {
        match self.read_snapshot() {
            // A kdamond ends by itself when all its targets have ended.
            Err(_) if !self.claim.control().is_running().map_err(failed)? => Ok(self.empty_snapshot()),
            answer => answer.map_err(failed),
        }
    }
}

fn region(tried: damon::TriedRegion) -> Region {
    Region {
        nr_accesses: tried.nr_accesses,
        last_nr_accesses: tried.nr_accesses,
        nr_accesses_bp: u64::from(tried.nr_accesses) * 10_000,
        age: tried.age,
        ..Region::new(tried.range)
    }
}

fn totals(stats: damon::SchemeStats) -> SchemeStats {
    SchemeStats {
        nr_tried: stats.nr_tried,
        sz_tried: Bytes(stats.sz_tried),
        nr_applied: stats.nr_applied,
        sz_applied: Bytes(stats.sz_applied),
        qt_exceeds: stats.qt_exceeds,
        ..SchemeStats::default()
    }
}

fn failed(error: FileError) -> OpsError {
    OpsError::Failed(format!("in-kernel DAMON: {error}"))
}
