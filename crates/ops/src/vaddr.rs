//! Address spaces of real processes: who they are, how they are looked at, what is done to them, put together
//! as the operations a context asks (the kernel's `DAMON_OPS_VADDR`).

use std::path::{Path, PathBuf};

use thermo_core::ops::Run;
use thermo_core::ops::{Outcome, Probe, Request, Seen};
use thermo_core::scheme::SystemMetric;
use thermo_core::sweep::{Piece, Preparation, Swept};
use thermo_core::{Action, AddrRange, Operations, OpsError, TargetLayout};

use crate::actor::Actor;
use crate::beside::{Announcement, Beside};
use crate::metric;
use crate::targets::Members;
use crate::tracker::Tracker;

/// The operations on address spaces of processes.
pub struct Vaddr {
    root: PathBuf,
    members: Members,
    tracker: Box<dyn Tracker + Send>,
    actor: Actor,
    beside: Beside,
    news: Vec<String>,
    /// So that other instances know of this one.
    _announcement: Announcement,
}

impl Vaddr {
    /// Looks at `members` by `tracker` and acts on them by `actor`.
    #[must_use]
    pub fn new(root: &Path, members: Members, tracker: Box<dyn Tracker + Send>, actor: Actor) -> Self {
        Self {
            root: root.to_owned(),
            members,
            tracker,
            actor,
            beside: Beside::new(root),
            news: Vec::new(),
            _announcement: Announcement::make(),
        }
    }

    /// The targets.
    #[must_use]
    pub const fn members(&self) -> &Members {
        &self.members
    }

    /// The targets, when there is nothing more to watch.
    #[must_use]
    pub fn into_members(self) -> Members {
        self.members
    }
}

impl Operations for Vaddr {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        let layouts = self
            .members
            .update()
            .map_err(|err| OpsError::Failed(err.to_string()))?;
        self.news.extend(self.members.take_news());
        let targets = self.members.processes();
        self.news.extend(self.beside.news(targets, self.tracker.as_mut()));
        Ok(layouts)
    }

    fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    fn prepare_access_checks(&mut self, probes: &[Probe]) {
        self.tracker.prepare(self.members.processes(), probes);
    }

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        self.tracker.check(self.members.processes(), probes);
        for probe in probes
            .iter_mut()
            .filter(|probe| self.members.is_fresh(probe.target))
        {
            probe.seen = Seen::Unknown;
        }
        self.members.looked_at();
    }

    fn can_sweep(&self) -> bool {
        self.tracker.can_sweep()
    }

    fn prepare_round(&mut self, first: bool) -> Preparation {
        match self.tracker.as_pte() {
            Some(tables) => tables.prepare_round(self.members.processes(), first),
            None => Preparation::Ready,
        }
    }

    fn sweep(&mut self, run: &Run, piece: &mut Piece) -> Swept {
        let process = self.members.processes().get(&run.target);
        match (process, self.tracker.as_pte()) {
            (Some(process), Some(tables)) => tables.sweep(process, run.range, piece),
            _ => Swept { next: run.range.end },
        }
    }

    fn any_target_left(&mut self) -> bool {
        self.members.any_left()
    }

    fn pending(&mut self, action: Action, run: &Run) -> Vec<AddrRange> {
        let Some(process) = self.members.processes().get(&run.target) else {
            return Vec::new();
        };
        self.actor.pending(process, action, run, self.tracker.as_pte())
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        let tables = self.tracker.as_pte();
        self.actor.apply(self.members.processes(), request, tables)
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        metric::read(&self.root, metric)
    }
}
