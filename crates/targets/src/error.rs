//! Reasons why a process or control group cannot be a target.

use thermo_kernel::FileError;
use thermo_kernel::cgroup::CgroupError;

/// Why a process or control group cannot be a target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The specification is empty.
    #[error(
        "no target is named: give --pid, --cgroup, a command after --, or --system for the whole machine"
    )]
    Nothing,
    /// There is no such process.
    #[error(
        "there is no process {pid}: it may have ended. `pgrep NAME` prints the pids of running processes"
    )]
    NoProcess {
        /// The number given.
        pid: u32,
    },
    /// The number is that of a thread.
    #[error("{tid} is a thread of process {pid}: use --pid {pid}, because all its threads share memory")]
    Thread {
        /// The number given.
        tid: u32,
        /// The process of the thread.
        pid: u32,
    },
    /// The first thread of the process has ended; others run on.
    #[error(
        "process {pid} ({comm}) continues without its first thread: the kernel shows and advises memory only by the \
         number of that thread, so the process cannot be monitored or advised"
    )]
    FirstThreadEnded {
        /// The number given.
        pid: u32,
        /// The name of the process.
        comm: String,
    },
    /// The process is a kernel thread.
    #[error(
        "process {pid} ({comm}) is a kernel thread and has no memory of its own: name the process of a program"
    )]
    KernelThread {
        /// The number given.
        pid: u32,
        /// The name of the process.
        comm: String,
    },
    /// The process is never a target.
    #[error("process {pid} is {description}, which is never a target: name another process")]
    Protected {
        /// The number given.
        pid: u32,
        /// Why it is protected.
        description: &'static str,
    },
    /// The process may not be read.
    #[error(
        "process {pid} ({comm}) belongs to user {uid}, or is protected from being read: run as root, or as that user"
    )]
    Denied {
        /// The number given.
        pid: u32,
        /// The name of the process.
        comm: String,
        /// The user that owns the process.
        uid: u32,
    },
    /// The control group is the root group.
    #[error("control group \"{path}\" contains the whole machine: name a group below it, or use --system")]
    WholeMachine {
        /// The path given.
        path: String,
    },
    /// The control group does not exist.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// A file of `/proc` could not be read.
    #[error(transparent)]
    File(#[from] FileError),
}
