//! The control group (cgroup) that a run is measured in.
//!
//! Memory, faults and CPU time are counted for the cgroup, not for the machine, because other processes may
//! also use the swap. Memory counts charged pages whether or not they are mapped: PostgreSQL's shared buffers
//! stay charged after its clients have ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Error;

mod hierarchies;
mod statistics;

pub use hierarchies::Hierarchies;
pub use statistics::{CpuUse, MemoryUse};
use statistics::{cpu_use, memory_use, stalled_micros};

/// A cgroup created for a run. Dropping it kills the processes in it and removes it.
#[derive(Debug)]
pub struct Cgroup {
    memory: PathBuf,
    cpu: Option<PathBuf>,
    psi: Option<PathBuf>,
    is_v2: bool,
    /// File and text that disable the memory controller again, if it was enabled for this cgroup.
    undo: Option<(PathBuf, &'static str)>,
}

/// The memory limit of a cgroup.
#[derive(Debug, Clone)]
pub struct MemoryLimit {
    file: PathBuf,
    /// The text that means no limit.
    unlimited: &'static str,
}

impl MemoryLimit {
    /// Sets the limit. The kernel reclaims memory above it before this returns.
    ///
    /// # Errors
    /// When the kernel cannot reclaim enough.
    pub fn set(&self, bytes: u64) -> Result<(), Error> {
        write(&self.file, &bytes.to_string())
    }

    /// Removes the limit.
    ///
    /// # Errors
    /// When the cgroup does not exist any more.
    pub fn remove(&self) -> Result<(), Error> {
        write(&self.file, self.unlimited)
    }
}

impl Cgroup {
    /// Creates the cgroup `name`.
    ///
    /// # Errors
    /// When it cannot be created. This needs root.
    pub fn create(hierarchies: &Hierarchies, name: &str) -> Result<Self, Error> {
        let mut undo = None;
        if hierarchies.is_v2 {
            let file = hierarchies.memory.join("cgroup.subtree_control");
            let enabled = fs::read_to_string(&file).unwrap_or_default();
            if !enabled
                .split_whitespace()
                .any(|controller| controller == "memory")
            {
                write(&file, "+memory")?;
                undo = Some((file, "-memory"));
            }
        }
        let memory = create(hierarchies.memory.join(name))?;
        let cpu = match (&hierarchies.cpu, hierarchies.is_v2) {
            (Some(_), true) => Some(memory.clone()),
            (Some(root), false) => {
                Some(create(root.join(name)).inspect_err(|_| drop(fs::remove_dir(&memory)))?)
            }
            (None, _) => None,
        };
        // Without it, the stall time of the whole machine is reported.
        let psi = hierarchies.psi.as_ref();
        let psi = psi.and_then(|root| create(root.join(name)).ok());
        Ok(Self {
            memory,
            cpu,
            psi,
            is_v2: hierarchies.is_v2,
            undo,
        })
    }

    /// The folder of the memory cgroup.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.memory
    }

    /// The `cgroup.procs` files. A process joins the cgroup by writing its id to each.
    #[must_use]
    pub fn procs_files(&self) -> Vec<PathBuf> {
        let mut folders: Vec<&PathBuf> = vec![&self.memory];
        folders.extend(self.cpu.as_ref().filter(|cpu| **cpu != self.memory));
        folders.extend(&self.psi);
        folders
            .into_iter()
            .map(|folder| folder.join("cgroup.procs"))
            .collect()
    }

    /// Sets the memory limit.
    ///
    /// # Errors
    /// When the kernel rejects the limit.
    pub fn set_memory_limit(&self, bytes: u64) -> Result<(), Error> {
        self.memory_limit().set(bytes)
    }

    /// The memory limit, for use by another thread.
    #[must_use]
    pub fn memory_limit(&self) -> MemoryLimit {
        let (file, unlimited) = if self.is_v2 {
            ("memory.max", "max")
        } else {
            ("memory.limit_in_bytes", "-1")
        };
        MemoryLimit {
            file: self.memory.join(file),
            unlimited,
        }
    }

    /// Current memory use and number of major faults.
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        let text = fs::read_to_string(self.memory.join("memory.stat")).unwrap_or_default();
        let current = self
            .is_v2
            .then(|| fs::read_to_string(self.memory.join("memory.swap.current")).ok())
            .flatten();
        memory_use(&text, current.as_deref())
    }

    /// CPU time of all processes that ran in the cgroup; `None` when this host does not count it.
    #[must_use]
    pub fn cpu(&self) -> Option<CpuUse> {
        let file = if self.is_v2 { "cpu.stat" } else { "cpuacct.stat" };
        cpu_use(&fs::read_to_string(self.cpu.as_ref()?.join(file)).ok()?)
    }

    /// Memory stall time in microseconds (PSI `some`). Version 2 counts it for the cgroup, also without its
    /// memory controller; otherwise it is that of the machine.
    #[must_use]
    pub fn stalled_micros(&self) -> Option<u64> {
        let folder = self.psi.as_ref().or(self.is_v2.then_some(&self.memory));
        let own = folder.and_then(|folder| fs::read_to_string(folder.join("memory.pressure")).ok());
        stalled_micros(&own.or_else(|| fs::read_to_string("/proc/pressure/memory").ok())?)
    }

    fn pids(&self) -> Vec<Pid> {
        let text = fs::read_to_string(self.memory.join("cgroup.procs")).unwrap_or_default();
        text.lines()
            .filter_map(|line| Pid::from_raw(line.parse().ok()?))
            .collect()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The cgroup contains only processes that this program started, and their children. Removing it can
        // fail until killed processes are reaped and their memory is freed, so it is retried.
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            for pid in self.pids() {
                let _ = kill_process(pid, Signal::KILL);
            }
            let removed = |folder: &PathBuf| !folder.exists() || fs::remove_dir(folder).is_ok();
            let others = [&self.cpu, &self.psi];
            if removed(&self.memory) && others.into_iter().flatten().all(removed) {
                break;
            }
            sleep(Duration::from_millis(20));
        }
        if let Some((file, text)) = &self.undo {
            drop(fs::write(file, text));
        }
    }
}

fn create(folder: PathBuf) -> Result<PathBuf, Error> {
    // A cgroup of this name was left by a killed process with the same process id. Remove it if it is empty.
    drop(fs::remove_dir(&folder));
    match fs::create_dir(&folder) {
        Ok(()) => Ok(folder),
        Err(error) => Err(Error::Cgroup(format!(
            "cannot create {}: {error}. This needs root",
            folder.display()
        ))),
    }
}

fn write(file: &Path, text: &str) -> Result<(), Error> {
    fs::write(file, text)
        .map_err(|error| Error::Cgroup(format!("cannot write {text:?} to {}: {error}", file.display())))
}
