//! Target processes, each held by a pidfd.

use std::collections::BTreeMap;
use std::io;

use thermo_engine::TargetId;
use thermo_kernel::pidfd::PidFd;

/// A process that is a target.
#[derive(Debug)]
pub struct Process {
    /// The target.
    pub id: TargetId,
    /// The process number.
    pub pid: u32,
    /// Refers to this process even if its number is used again.
    pub pidfd: PidFd,
    /// Whether it maps a virtual CPU, so that it runs a virtual machine; `None` if its mappings were not
    /// looked at.
    pub runs_vm: Option<bool>,
}

/// All targets that are processes, by target id.
pub type Processes = BTreeMap<TargetId, Process>;

impl Process {
    /// Opens a pidfd of process `pid`.
    ///
    /// # Errors
    /// Those of [`PidFd::open`]: `ESRCH` if there is no such process.
    pub fn open(id: TargetId, pid: u32) -> io::Result<Self> {
        Ok(Self {
            id,
            pid,
            pidfd: PidFd::open(pid)?,
            runs_vm: None,
        })
    }

    /// False if the process has ended.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.pidfd.is_alive()
    }
}
