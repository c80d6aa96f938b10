//! Why what the user named cannot be watched.

use thermo_kernel::FileError;
use thermo_kernel::cgroup::CgroupError;

/// Why what the user named cannot be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Nothing was named.
    #[error(
        "no target is named: give --pid, --cgroup, a command after --, or --system for the whole machine"
    )]
    Nothing,
    /// There is no such process.
    #[error("there is no process {pid}: it may have ended. `pgrep NAME` finds the number of one that runs")]
    NoProcess {
        /// The number given.
        pid: u32,
    },
    /// The number names a thread.
    #[error("{tid} is a thread of process {pid}: use --pid {pid}, all threads share its memory")]
    Thread {
        /// The number given.
        tid: u32,
        /// The process it belongs to.
        pid: u32,
    },
    /// It is a kernel thread.
    #[error(
        "process {pid} ({comm}) is a kernel thread and has no memory of its own: name a program's process"
    )]
    KernelThread {
        /// The number given.
        pid: u32,
        /// Its name.
        comm: String,
    },
    /// It is one we never act on.
    #[error("process {pid} is {who}, which is never a target: name the process whose memory you mean")]
    Protected {
        /// The number given.
        pid: u32,
        /// What it is.
        who: &'static str,
    },
    /// We may not look at it.
    #[error(
        "process {pid} ({comm}) belongs to another user (uid {uid}), or protects itself: run as root, or as that user"
    )]
    Denied {
        /// The number given.
        pid: u32,
        /// Its name.
        comm: String,
        /// Whose it is.
        uid: u32,
    },
    /// The group is that of all processes.
    #[error("control group \"{path}\" is the whole machine: name a group below it, or use --system")]
    WholeMachine {
        /// As it was given.
        path: String,
    },
    /// There is no such control group.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// A file of the kernel failed.
    #[error(transparent)]
    File(#[from] FileError),
}
