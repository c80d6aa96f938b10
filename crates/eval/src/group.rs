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

/// Where control groups are made on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchies {
    memory: PathBuf,
    cpu: Option<PathBuf>,
    is_v2: bool,
}

impl Hierarchies {
    /// Those of this host.
    ///
    /// # Errors
    /// When there is no memory controller.
    pub fn of_this_host() -> Result<Self, Error> {
        let mounts = fs::read_to_string("/proc/self/mounts")
            .map_err(|error| Error::Group(format!("cannot read /proc/self/mounts: {error}")))?;
        Self::in_mounts(&mounts, |path| fs::read_to_string(path).ok()).ok_or_else(|| {
            Error::Group(
                "no memory controller is mounted (see /proc/self/mounts). Mount one: version 2 with `mount -t \
                 cgroup2 none /sys/fs/cgroup`, or version 1 with `mkdir -p /sys/fs/cgroup/memory && mount -t \
                 cgroup -o memory none /sys/fs/cgroup/memory`"
                    .into(),
            )
        })
    }

    /// Those in the text of `/proc/self/mounts`; `read` gives the text of other files.
    fn in_mounts(mounts: &str, read: impl Fn(&Path) -> Option<String>) -> Option<Self> {
        let mounted = |kind: &str, controller: &str| {
            mounts.lines().find_map(|line| {
                let mut fields = line.split(' ').skip(1);
                let (path, this_kind, options) = (Path::new(fields.next()?), fields.next()?, fields.next()?);
                let has = match kind {
                    "cgroup2" => read(&path.join("cgroup.controllers"))?
                        .split_whitespace()
                        .any(|offered| offered == controller),
                    _ => options.split(',').any(|option| option == controller),
                };
                (this_kind == kind && has).then(|| path.to_owned())
            })
        };
        if let Some(memory) = mounted("cgroup", "memory") {
            return Some(Self {
                memory,
                cpu: mounted("cgroup", "cpuacct"),
                is_v2: false,
            });
        }
        let memory = mounted("cgroup2", "memory")?;
        Some(Self {
            cpu: Some(memory.clone()),
            memory,
            is_v2: true,
        })
    }
}

/// A group of our own; removed, with what still runs in it, when dropped.
#[derive(Debug)]
pub struct Group {
    memory: PathBuf,
    cpu: Option<PathBuf>,
    is_v2: bool,
    /// What was switched on for all groups, and is switched off again: `(file, text)`.
    undo: Option<(PathBuf, &'static str)>,
}

/// What a group holds and has suffered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes in memory: anonymous ones, and files and shared memory that are mapped or written.
    pub resident: u64,
    /// Bytes in swap.
    pub swapped: u64,
    /// Major faults since the group was made.
    pub major_faults: u64,
}

/// CPU seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuUse {
    /// In programs.
    pub user: f64,
    /// In the kernel for them.
    pub system: f64,
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
        Ok(Self {
            memory,
            cpu,
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

    /// Microseconds in which some of it waited for memory: its own where the kernel counts them (version 2), else
    /// the machine's.
    #[must_use]
    pub fn stalled_micros(&self) -> Option<u64> {
        let own = self
            .is_v2
            .then(|| fs::read_to_string(self.memory.join("memory.pressure")).ok())
            .flatten();
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
            if removed(&self.memory) && self.cpu.as_ref().is_none_or(removed) {
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

/// Reads `memory.stat` of either version. Version 1 has the sums over sub-groups under `total_…`.
fn memory_use(stat: &str, swap_current: Option<&str>) -> MemoryUse {
    let field = |name: &str| -> Option<u64> {
        stat.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    };
    let either = |v1: &str, v2: &str| field(v1).or_else(|| field(v2)).unwrap_or(0);
    // Shared memory is counted once, though its mapped part is in both numbers.
    let files = either("total_mapped_file", "file_mapped").max(either("total_shmem", "shmem"));
    MemoryUse {
        resident: either("total_rss", "anon") + files,
        swapped: swap_current
            .and_then(|text| text.trim().parse().ok())
            .or(field("total_swap"))
            .unwrap_or(0),
        major_faults: either("total_pgmajfault", "pgmajfault"),
    }
}

/// Reads `cpuacct.stat` (ticks of a hundredth of a second) or version 2's `cpu.stat` (microseconds).
fn cpu_use(stat: &str) -> Option<CpuUse> {
    let field = |name: &str, scale: f64| -> Option<f64> {
        let value = stat.lines().find_map(|line| {
            line.strip_prefix(name)?
                .strip_prefix(' ')?
                .trim()
                .parse::<f64>()
                .ok()
        });
        value.map(|value| value * scale)
    };
    Some(CpuUse {
        user: field("user_usec", 1e-6).or_else(|| field("user", 1e-2))?,
        system: field("system_usec", 1e-6).or_else(|| field("system", 1e-2))?,
    })
}

fn stalled_micros(pressure: &str) -> Option<u64> {
    pressure
        .lines()
        .find(|line| line.starts_with("some "))?
        .split("total=")
        .nth(1)?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn version_1_is_preferred_where_it_has_the_controller() {
        let v1 = "cgroup /c/cpuacct cgroup rw,cpuacct 0 0\ncgroup /c/memory cgroup rw,memory 0 0\nn /c/u cgroup2 rw 0 0\n";
        let found = Hierarchies::in_mounts(v1, |_| Some("cpu\n".into())).unwrap();
        assert_eq!(
            found,
            Hierarchies {
                memory: "/c/memory".into(),
                cpu: Some("/c/cpuacct".into()),
                is_v2: false
            }
        );
        let v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let found = Hierarchies::in_mounts(v2, |_| Some("cpu memory pids\n".into())).unwrap();
        assert!(found.is_v2 && found.cpu.is_some());
        assert_eq!(Hierarchies::in_mounts(v2, |_| Some("cpu\n".into())), None);
        assert_eq!(Hierarchies::in_mounts("", |_| None), None);
    }

    #[test]
    fn both_versions_of_the_statistics() {
        let v1 = "rss 1\nswap 0\ntotal_shmem 50\ntotal_rss 100\ntotal_mapped_file 30\ntotal_swap 7\ntotal_pgmajfault 3\n";
        assert_eq!(
            memory_use(v1, None),
            MemoryUse {
                resident: 150,
                swapped: 7,
                major_faults: 3
            }
        );
        let v2 = "anon 100\nfile 900\nfile_mapped 30\nshmem 5\npgmajfault 3\n";
        assert_eq!(
            memory_use(v2, Some("8\n")),
            MemoryUse {
                resident: 130,
                swapped: 8,
                major_faults: 3
            }
        );
        assert_eq!(
            cpu_use("user 250\nsystem 50\n"),
            Some(CpuUse {
                user: 2.5,
                system: 0.5
            })
        );
        let v2 = "usage_usec 3000000\nuser_usec 2500000\nsystem_usec 500000\n";
        assert_eq!(
            cpu_use(v2),
            Some(CpuUse {
                user: 2.5,
                system: 0.5
            })
        );
    }

    #[test]
    fn pressure_is_the_total_of_some() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n";
        assert_eq!(stalled_micros(text), Some(123));
        assert_eq!(stalled_micros(""), None);
    }
}
