//! What the operations of the engine need of their targets.

use thermo_engine::{TargetId, TargetLayout};
use thermo_kernel::FileError;

use crate::process::Processes;
use crate::tracked_processes::TrackedProcesses;

/// Target processes, kept current by updates.
pub trait TargetSet {
    /// Updates the targets. Returns the live ones, with the ranges to monitor.
    ///
    /// # Errors
    /// If the processes of the machine cannot be read.
    fn update(&mut self) -> Result<Vec<TargetLayout>, FileError>;

    /// Returns the warnings since the last call.
    fn take_warnings(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// The live targets.
    fn processes(&self) -> &Processes;

    /// True for a forked target that still has the accessed bits copied from its parent.
    fn is_freshly_forked(&self, _target: TargetId) -> bool {
        false
    }

    /// The copied bits of all targets were checked once.
    fn clear_freshly_forked(&mut self) {}

    /// False if no target is alive and none can appear.
    fn any_left(&self) -> bool;
}

impl TargetSet for TrackedProcesses {
    fn update(&mut self) -> Result<Vec<TargetLayout>, FileError> {
        self.update()
    }

    fn take_warnings(&mut self) -> Vec<String> {
        self.take_warnings()
    }

    fn processes(&self) -> &Processes {
        self.processes()
    }

    fn is_freshly_forked(&self, target: TargetId) -> bool {
        self.is_freshly_forked(target)
    }

    fn clear_freshly_forked(&mut self) {
        self.clear_freshly_forked();
    }

    fn any_left(&self) -> bool {
        self.any_left()
    }
}
