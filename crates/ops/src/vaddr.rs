//! Address spaces of real processes: who they are, how they are looked at, what is done to them, put together
//! as the operations a context asks (the kernel's `DAMON_OPS_VADDR`).

use std::path::{Path, PathBuf};

use thermo_core::ops::{Outcome, Probe, Request, Seen};
use thermo_core::scheme::SystemMetric;
use thermo_core::{Action, Operations, OpsError, TargetLayout};

use crate::metric;
use crate::targets::Members;
use crate::tracker::Tracker;

/// The operations on address spaces of processes.
pub struct Vaddr {
    root: PathBuf,
    members: Members,
    tracker: Box<dyn Tracker + Send>,
}

impl Vaddr {
    /// Looks at `members` by `tracker`.
    #[must_use]
    pub fn new(root: &Path, members: Members, tracker: Box<dyn Tracker + Send>) -> Self {
        Self {
            root: root.to_owned(),
            members,
            tracker,
        }
    }

    /// The targets.
    #[must_use]
    pub const fn members(&self) -> &Members {
        &self.members
    }
}

impl Operations for Vaddr {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        self.members
            .update()
            .map_err(|err| OpsError::Failed(err.to_string()))
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

    fn any_target_left(&mut self) -> bool {
        self.members.any_left()
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        match request.action {
            Action::Stat => Ok(Outcome {
                runs: vec![Default::default(); request.runs.len()],
                ..Outcome::default()
            }),
            action => Err(OpsError::Unsupported {
                what: format!("action {action}"),
                why: "no actor is at hand".to_owned(),
            }),
        }
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        metric::read(&self.root, metric)
    }
}
