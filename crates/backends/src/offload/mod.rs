//! Tracker `kdamond`: a context handed to the kernel's own DAMON, through its sysfs tree.
//!
//! The kernel looks, counts, merges, splits, ages and carries out schemes; a scheme that only looks (`stat`, one a
//! target) tells its regions, once an aggregation. Here is who the targets are ([`TrackedProcesses`]), what the kernel is told
//! (`translate.rs`) and whether we may (`claim.rs`). In 6.12 a command is noticed by its sender after up to 100 ms, so
//! that of short aggregations not every one is seen.
//!
//! A target that ends stays in the kernel's list, empty: taking it out would cost the others their ages. One that
//! comes is added, unless others ended meanwhile: then the kdamond begins anew, and ages with it.

mod claim;
mod translate;

use std::path::PathBuf;

use thermo_engine::ops::{Offload, Outcome, Probe, Request, Seen, Snapshot};
use thermo_engine::scheme::{SchemeStats, SystemMetric};
use thermo_engine::{Attrs, Operations, OpsError, Region, Scheme, TargetId, TargetLayout};
use thermo_kernel::damon::{self, Command, Setup};
use thermo_kernel::{FileError, clock, schedstat};
use thermo_targets::{Process, TrackedProcesses, metric};
use thermo_units::{Bytes, Nanos};

pub use claim::{Claim, ClaimError, Holder};
pub use translate::obstacle;

/// Reading regions, four small files each, may take one part in so many of the time.
const READING_PART: u64 = 50;

/// The operations of a context that the kernel runs.
#[derive(Debug)]
pub struct Offloaded {
    root: PathBuf,
    members: TrackedProcesses,
    claim: Claim,
    running: Option<Running>,
    /// CPU time of kdamonds that have ended.
    spent: Nanos,
}

/// What the kdamond was told.
#[derive(Debug)]
struct Running {
    setup: Setup,
    targets: Vec<(TargetId, u32)>,
    nr_schemes: usize,
    thread: u32,
    /// CPU time of its thread, as last seen.
    spent: Nanos,
    aggr: Nanos,
}

impl Offloaded {
    /// Has `members` watched by the kernel, through `claim`, on the machine at `root` (`/`).
    #[must_use]
    pub const fn new(root: PathBuf, members: TrackedProcesses, claim: Claim) -> Self {
        Self {
            root,
            members,
            claim,
            running: None,
            spent: Nanos::ZERO,
        }
    }

    fn living(&self) -> Vec<(TargetId, u32)> {
        let processes = self.members.processes().values();
        processes.map(|process| (process.id, process.pid)).collect()
    }

    /// Makes it run with `setup` for `targets`: by a commit where nobody left, anew otherwise.
    fn run(
        &mut self,
        setup: Setup,
        targets: Vec<(TargetId, u32)>,
        nr_schemes: usize,
        aggr: Nanos,
    ) -> Result<(), FileError> {
        let control = self.claim.control();
        let nobody_left = |running: &Running| targets.starts_with(&running.targets);
        let mut thread = None;
        if let Some(running) = self.running.as_ref().filter(|running| nobody_left(running)) {
            control.set_up(&setup)?;
            control.tell(Command::Commit)?;
            // Kernels before 6.15 end the kdamond over a commit they cannot take, and say nothing.
            thread = control.is_running()?.then_some(running.thread);
        }
        let thread = match thread {
            Some(thread) => thread,
            None => {
                self.account();
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

    fn account(&mut self) {
        if let Some(running) = &mut self.running
            && let Ok(spent) = schedstat::cpu(&self.root, running.thread)
        {
            running.spent = spent;
        }
    }

    fn any_dead(&self) -> bool {
        !self.members.processes().values().all(Process::is_alive)
    }

    /// What the kernel tells by the end of its aggregation.
    fn ask(&mut self) -> Result<Snapshot, FileError> {
        let Some(running) = &self.running else {
            return Ok(self.nothing_yet());
        };
        let control = self.claim.control();
        control.tell(Command::UpdateTriedRegions)?;
        let (taken, begin) = (clock::monotonic(), clock::thread_cpu());
        let mut picture = Snapshot {
            taken,
            ..Snapshot::default()
        };
        for (nth, (id, _)) in running.targets.iter().enumerate() {
            let regions = control.tried_regions(nth)?.into_iter().map(region).collect();
            picture.targets.push((*id, regions));
        }
        if running.nr_schemes > 0 {
            control.tell(Command::UpdateStats)?;
        }
        for nth in 0..running.nr_schemes {
            picture
                .schemes
                .push(totals(control.stats(running.targets.len() + nth)?));
        }
        let cost = clock::thread_cpu().saturating_sub(begin);
        picture.next = taken.saturating_add(cost * READING_PART);
        Ok(picture)
    }

    /// A picture of nobody, to be asked for again soon.
    fn nothing_yet(&self) -> Snapshot {
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
        self.members
            .update()
            .map_err(|error| OpsError::Failed(error.to_string()))
    }

    fn prepare_access_checks(&mut self, _probes: &[Probe]) {}

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        // Single pages are the kernel's business.
        probes.iter_mut().for_each(|probe| probe.seen = Seen::Unknown);
    }

    fn as_offload(&mut self) -> Option<&mut dyn Offload> {
        Some(self)
    }

    fn spent_elsewhere(&mut self) -> Nanos {
        self.account();
        self.spent + self.running.as_ref().map_or(Nanos::ZERO, |running| running.spent)
    }

    fn any_target_left(&mut self) -> bool {
        self.members.any_left()
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        Err(OpsError::Unsupported {
            what: request.action.to_string(),
            why: "schemes of an offloaded context are carried out by the kernel".to_owned(),
        })
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        metric::read(&self.root, metric)
    }
}

impl Offload for Offloaded {
    fn commit(&mut self, attrs: &Attrs, schemes: &[Scheme]) -> Result<(), OpsError> {
        let mut living = self.living();
        let runs = self.claim.control().is_running().map_err(failed)?;
        if let Some(running) = self.running.as_ref().filter(|_| runs) {
            let any_new = living.iter().any(|target| !running.targets.contains(target));
            let as_told = translate::setup(attrs, &running.targets, schemes) == running.setup;
            if as_told && !any_new {
                return Ok(());
            }
        }
        if living.is_empty() {
            return Ok(());
        }
        living.sort_unstable();
        let setup = translate::setup(attrs, &living, schemes);
        match self.run(setup, living, schemes.len(), attrs.aggr) {
            // It is not watched if it is not there: the next update will tell who is.
            Err(_) if self.any_dead() => Ok(()),
            answer => answer.map_err(failed),
        }
    }

    fn follow(&mut self) -> Result<Snapshot, OpsError> {
        match self.ask() {
            // A kdamond whose targets are all gone has ended by itself.
            Err(_) if !self.claim.control().is_running().map_err(failed)? => Ok(self.nothing_yet()),
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
