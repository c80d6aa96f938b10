//! The processes that are watched and acted on, each held by a descriptor.

use std::collections::BTreeMap;
use std::io;

use thermo_engine::TargetId;
use thermo_kernel::pidfd::PidFd;

/// A process that is a target.
#[derive(Debug)]
pub struct Process {
    /// Which target it is.
    pub id: TargetId,
    /// Its number.
    pub pid: u32,
    /// What keeps it from being taken for a later process of the same number.
    pub pidfd: PidFd,
}

/// All targets that are processes, by their names in the context.
pub type Processes = BTreeMap<TargetId, Process>;

impl Process {
    /// Takes hold of the process with number `pid`.
    ///
    /// # Errors
    /// Those of [`PidFd::open`]: `ESRCH` when there is none.
    pub fn open(id: TargetId, pid: u32) -> io::Result<Self> {
        Ok(Self {
            id,
            pid,
            pidfd: PidFd::open(pid)?,
        })
    }

    /// False once it ended.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.pidfd.is_alive()
    }
}
