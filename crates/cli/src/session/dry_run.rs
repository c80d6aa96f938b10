//! Operations that look for real and act not at all.

use thermo_core::ops::{Applied, Outcome, Probe, Request, Run, Skip};
use thermo_core::scheme::SystemMetric;
use thermo_core::sweep::{Piece, Swept};
use thermo_core::{Operations, OpsError, TargetLayout};

/// Looks through the operations in it; every action is skipped as a dry run.
pub struct DryRun<O>(pub O);

impl<O: Operations> Operations for DryRun<O> {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        self.0.update()
    }

    fn prepare_access_checks(&mut self, probes: &[Probe]) {
        self.0.prepare_access_checks(probes);
    }

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        self.0.check_accesses(probes);
    }

    fn can_sweep(&self) -> bool {
        self.0.can_sweep()
    }

    fn sweep(&mut self, run: &Run, piece: &mut Piece) -> Swept {
        self.0.sweep(run, piece)
    }

    fn any_target_left(&mut self) -> bool {
        self.0.any_target_left()
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        let runs = request.runs.iter().map(|run| {
            let mut applied = Applied::default();
            applied.skip(Skip::DryRun, run.range.len());
            applied
        });
        Ok(Outcome {
            runs: runs.collect(),
            ..Outcome::default()
        })
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        self.0.metric(metric)
    }
}
