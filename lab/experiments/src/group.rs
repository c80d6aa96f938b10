//! The control group a run is measured in.
//!
//! A run's memory, faults and CPU time are counted for its group and not for the machine: as soon as swap is on,
//! others may use it too (a kernel's own DAMON, for one). Memory counts what the group holds whether it is
//! mapped or not: PostgreSQL's shared buffers belong to nobody after its clients leave.

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

/// A group of our own; removed, with what still runs in it, when dropped.
#[derive(Debug)]
pub struct Group {
    memory: PathBuf,
    cpu: Option<PathBuf>,
    stalls: Option<PathBuf>,
    is_v2: bool,
    /// What was switched on for all groups, and is switched off again: `(file, text)`.
    undo: Option<(PathBuf, &'static str)>,
}

/// The limit of a group's memory.
#[derive(Debug, Clone)]
pub struct Limit {
    file: PathBuf,
    none: &'static str,
}

impl Limit {
    /// Sets it. What the group holds above it is reclaimed before this returns.
    ///
    /// # Errors
    /// When the kernel refuses: it could not reclaim enough.
    pub fn set(&self, bytes: u64) -> Result<(), Error> {
        write(&self.file, &bytes.to_string())
    }

    /// Takes it away.
    ///
    /// # Errors
    /// When the group is gone.
    pub fn lift(&self) -> Result<(), Error> {
        write(&self.file, self.none)
    }
}

impl Group {
    /// Makes the group `name`.
    ///
    /// # Errors
    /// When it cannot be made, mostly for want of root.
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
        let memory = make(hierarchies.memory.join(name))?;
        let cpu = match (&hierarchies.cpu, hierarchies.is_v2) {
            (Some(_), true) => Some(memory.clone()),
            (Some(root), false) => {
                Some(make(root.join(name)).inspect_err(|_| drop(fs::remove_dir(&memory)))?)
            }
            (None, _) => None,
        };
        // Where it cannot be had, the machine's stalls are told.
        let stalls = hierarchies.stalls.as_ref();
        let stalls = stalls.and_then(|root| make(root.join(name)).ok());
        Ok(Self {
            memory,
            cpu,
            stalls,
            is_v2: hierarchies.is_v2,
            undo,
        })
    }

    /// The folder of the memory group.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.memory
    }

    /// The files a process writes its id to, to be in the group.
    #[must_use]
    pub fn doors(&self) -> Vec<PathBuf> {
        let mut folders: Vec<&PathBuf> = vec![&self.memory];
        folders.extend(self.cpu.as_ref().filter(|cpu| **cpu != self.memory));
        folders.extend(&self.stalls);
        folders
            .into_iter()
            .map(|folder| folder.join("cgroup.procs"))
            .collect()
    }

    /// Limits its memory.
    ///
    /// # Errors
    /// When the kernel refuses the limit.
    pub fn limit(&self, bytes: u64) -> Result<(), Error> {
        self.limiter().set(bytes)
    }

    /// What limits its memory, for others to use.
    #[must_use]
    pub fn limiter(&self) -> Limit {
        let (file, none) = if self.is_v2 {
            ("memory.max", "max")
        } else {
            ("memory.limit_in_bytes", "-1")
        };
        Limit {
            file: self.memory.join(file),
            none,
        }
    }

    /// What it holds now.
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        let text = fs::read_to_string(self.memory.join("memory.stat")).unwrap_or_default();
        let current = self
            .is_v2
            .then(|| fs::read_to_string(self.memory.join("memory.swap.current")).ok())
            .flatten();
        memory_use(&text, current.as_deref())
    }

    /// The CPU time of all that ran in it, if this host counts it.
    #[must_use]
    pub fn cpu(&self) -> Option<CpuUse> {
        let file = if self.is_v2 { "cpu.stat" } else { "cpuacct.stat" };
        cpu_use(&fs::read_to_string(self.cpu.as_ref()?.join(file)).ok()?)
    }

    /// Microseconds in which some of it waited for memory: its own where the kernel counts them (version 2, also
    /// without its memory controller), else the machine's.
    #[must_use]
    pub fn stalled_micros(&self) -> Option<u64> {
        let counts = self.stalls.as_ref().or(self.is_v2.then_some(&self.memory));
        let own = counts.and_then(|folder| fs::read_to_string(folder.join("memory.pressure")).ok());
        stalled_micros(&own.or_else(|| fs::read_to_string("/proc/pressure/memory").ok())?)
    }

    fn pids(&self) -> Vec<Pid> {
        let text = fs::read_to_string(self.memory.join("cgroup.procs")).unwrap_or_default();
        text.lines()
            .filter_map(|line| Pid::from_raw(line.parse().ok()?))
            .collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Only what we started, and what that started, can be in here. A parent may not have waited yet for one
        // that was killed, and memory is let go after the end: removing takes a few tries.
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            for pid in self.pids() {
                let _ = kill_process(pid, Signal::KILL);
            }
            let removed = |folder: &PathBuf| !folder.exists() || fs::remove_dir(folder).is_ok();
            let others = [&self.cpu, &self.stalls];
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

fn make(folder: PathBuf) -> Result<PathBuf, Error> {
    // One of this name is of a killed process that had our id: it goes if nothing runs in it.
    drop(fs::remove_dir(&folder));
    match fs::create_dir(&folder) {
        Ok(()) => Ok(folder),
        Err(error) => Err(Error::Group(format!(
            "cannot make {}: {error}. This needs root",
            folder.display()
        ))),
    }
}

fn write(file: &Path, text: &str) -> Result<(), Error> {
    fs::write(file, text)
        .map_err(|error| Error::Group(format!("cannot write {text:?} to {}: {error}", file.display())))
}
